//! Counters of the provider. The provider itself never reads them.

use stag_protocol::iwarp::rdmap;
use stag_verbs::{Cause, Count};

/// Terminates by cause.
#[derive(Clone, Copy, Debug)]
pub struct Terminates {
    by_cause: [u64; rdmap::Terminate::ALL.len()],
    /// Terminates with a cause that the RFCs do not name.
    pub other: u64,
}

impl Default for Terminates {
    fn default() -> Self {
        Self { by_cause: [0; rdmap::Terminate::ALL.len()], other: 0 }
    }
}

impl Terminates {
    pub(crate) fn count(&mut self, cause: rdmap::Terminate) {
        let place = rdmap::Terminate::ALL.iter().position(|known| *known == cause);
        *place.and_then(|place| self.by_cause.get_mut(place)).unwrap_or(&mut self.other) += 1;
    }

    /// Each named cause, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (rdmap::Terminate, u64)> {
        rdmap::Terminate::ALL.iter().copied().zip(self.by_cause)
    }

    /// The counts that are not zero, by name.
    fn counts(&self) -> Count {
        let named = self.iter().filter(|(_, count)| *count > 0);
        let named = named.map(|(cause, count)| (format!("{cause:?}").into(), count.into()));
        let other = (self.other > 0).then(|| ("other".into(), self.other.into()));
        Count::Group(named.chain(other).collect())
    }

    /// The sum of all.
    pub fn total(&self) -> u64 {
        self.by_cause.iter().sum::<u64>() + self.other
    }
}

/// Connections that failed in set-up, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct Handshakes {
    /// Octets that are not an MPA frame, or a frame that breaks a rule.
    pub malformed: u64,
    /// Octets after an MPA Request.
    pub surplus: u64,
    /// The peer took too long: for its Request, its Reply, or its first message.
    pub timed_out: u64,
    /// The peer left, or did not answer.
    pub lost: u64,
    /// The peer refused.
    pub rejected: u64,
    /// Our own limit of connections: the newcomer was rejected.
    pub shed: u64,
    /// Our own limit of half-open connections: the oldest was closed for a newcomer, or the
    /// newcomer if there was none.
    pub displaced: u64,
    /// The peer's Reply requests more than we can grant (RFC 6581 §9).
    pub unsuitable: u64,
}

/// Connections that ended, by cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disconnects {
    /// By us, in order.
    pub local: u64,
    /// By the peer, in order.
    pub peer: u64,
    /// The peer rejected the connection, or spoke another protocol.
    pub refused: u64,
    /// The network, or the peer's host.
    pub fabric: u64,
    /// The peer broke a rule.
    pub peer_fault: u64,
    /// The peer reported that we broke a rule.
    pub terminated: u64,
}

impl Disconnects {
    pub(crate) fn count(&mut self, cause: Cause) {
        *match cause {
            Cause::Local | Cause::Slow | Cause::Stalled => &mut self.local,
            Cause::Peer => &mut self.peer,
            Cause::Rejected | Cause::Handshake | Cause::Tls => &mut self.refused,
            Cause::Fabric(_) => &mut self.fabric,
            Cause::PeerFault(_) => &mut self.peer_fault,
            Cause::Terminated(_) => &mut self.terminated,
        } += 1;
    }
}

/// Counters since the provider was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct IwarpStats {
    /// FPDUs that the kernel accepted completely, and those copied for it.
    pub fpdus_out: u64,
    /// FPDUs that arrived completely and with the right CRC.
    pub fpdus_in: u64,
    /// Octets that the kernel accepted, set-up included.
    pub octets_out: u64,
    /// Octets read, set-up included.
    pub octets_in: u64,
    /// Octets of payload copied into windows, sinks and receives: the one copy on the receiving
    /// side.
    pub octets_placed: u64,
    /// Octets of payload read directly to windows and sinks, without a copy.
    pub octets_landed: u64,
    /// Octets of FPDUs that arrived in parts and were copied to be contiguous.
    pub octets_moved: u64,
    /// Octets of payload copied before they were sent, because the peer requested markers. Zero
    /// otherwise.
    pub octets_gathered: u64,
    /// Octets of payload of short messages, which are copied to be sent.
    pub octets_copied: u64,
    /// `sendmsg` and `send` calls.
    pub sendmsg: u64,
    /// Calls of which the kernel accepted only a part or nothing.
    pub sendmsg_short: u64,
    /// `recv` and `readv` calls.
    pub recv: u64,
    /// `epoll_wait` calls.
    pub epoll_wait: u64,
    /// `epoll_ctl` calls.
    pub epoll_ctl: u64,
    /// Indications repeated to a siw that had not answered yet.
    pub nudges: u64,
    /// FPDUs with a wrong CRC.
    pub crc_errors: u64,
    /// Terminates sent.
    pub terminates_sent: Terminates,
    /// Terminates received.
    pub terminates_received: Terminates,
    /// Messages that had to wait for a receive.
    pub parked: u64,
    /// Times that reading a connection stopped because no more of its messages could wait.
    pub stalled: u64,
    /// TCP connections accepted.
    pub accepted: u64,
    /// Times that descriptors ran out while accepting.
    pub accept_paused: u64,
    /// Connections that were set up without CRCs.
    pub without_crc: u64,
    /// Connections whose FPDUs may be longer than a TCP segment.
    pub long_fpdus: u64,
    /// MPA frames sent with a reserved bit set, by which software peers recognize each other.
    pub marked_frames: u64,
    /// Connections that failed in set-up.
    pub handshakes: Handshakes,
    /// Connections that ended after they were reported to the engine.
    pub disconnects: Disconnects,
}

impl IwarpStats {
    /// All counters by name.
    pub(crate) fn counts(&self) -> Count {
        let (handshakes, ends) = (&self.handshakes, &self.disconnects);
        Count::group([
            ("fpdus_out", self.fpdus_out.into()),
            ("fpdus_in", self.fpdus_in.into()),
            ("octets_out", self.octets_out.into()),
            ("octets_in", self.octets_in.into()),
            ("octets_placed", self.octets_placed.into()),
            ("octets_landed", self.octets_landed.into()),
            ("octets_moved", self.octets_moved.into()),
            ("octets_gathered", self.octets_gathered.into()),
            ("octets_copied", self.octets_copied.into()),
            ("sendmsg", self.sendmsg.into()),
            ("sendmsg_short", self.sendmsg_short.into()),
            ("recv", self.recv.into()),
            ("epoll_wait", self.epoll_wait.into()),
            ("epoll_ctl", self.epoll_ctl.into()),
            ("nudges", self.nudges.into()),
            ("crc_errors", self.crc_errors.into()),
            ("terminates_sent", self.terminates_sent.counts()),
            ("terminates_received", self.terminates_received.counts()),
            ("parked", self.parked.into()),
            ("stalled", self.stalled.into()),
            ("accepted", self.accepted.into()),
            ("accept_paused", self.accept_paused.into()),
            ("without_crc", self.without_crc.into()),
            ("long_fpdus", self.long_fpdus.into()),
            ("marked_frames", self.marked_frames.into()),
            (
                "handshakes",
                Count::group([
                    ("malformed", handshakes.malformed.into()),
                    ("surplus", handshakes.surplus.into()),
                    ("timed_out", handshakes.timed_out.into()),
                    ("lost", handshakes.lost.into()),
                    ("rejected", handshakes.rejected.into()),
                    ("shed", handshakes.shed.into()),
                    ("displaced", handshakes.displaced.into()),
                    ("unsuitable", handshakes.unsuitable.into()),
                ]),
            ),
            (
                "disconnects",
                Count::group([
                    ("local", ends.local.into()),
                    ("peer", ends.peer.into()),
                    ("refused", ends.refused.into()),
                    ("fabric", ends.fabric.into()),
                    ("peer_fault", ends.peer_fault.into()),
                    ("terminated", ends.terminated.into()),
                ]),
            ),
        ])
    }
}
