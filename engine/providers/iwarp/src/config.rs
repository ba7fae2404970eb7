//! Settings of an [`Iwarp`](crate::Iwarp).

use stag_protocol::iwarp::mpa::{self, Crc};
use stag_verbs::{Limits, PassedListeners, Steering, Time};
use std::time::Duration;

/// Length of FPDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduMax {
    /// The best length for the peer: one TCP segment for adapters, the full length for software.
    Auto,
    /// One TCP segment for all peers.
    Segment,
    /// The full length for all peers.
    Full,
    /// This ULPDU length in octets, clamped to the range of RFC 5044 §4.5.
    Ulpdu(u16),
}

/// Maximum of inbound, and of outbound, Reads of one connection: the size of its tables, which are
/// most of the memory of an idle connection. Further Reads wait; adapters have the same limit (RFC
/// 6581 §9.1 lets the sides agree on fewer).
pub const READS_MAX: u16 = 32;

// A peer that rounds up to a power of two (siw) does not exceed its grant.
const _: () = assert!(READS_MAX.is_power_of_two());

/// Settings of an [`Iwarp`](crate::Iwarp). [`IwarpConfig::new`] has defaults for all but the limits
/// and the seed.
#[derive(Clone, Debug)]
pub struct IwarpConfig {
    /// Limits of the provider. `private_data_len` is lowered to 248 (which every peer accepts).
    pub limits: Limits,
    /// Makes window keys unpredictable (RFC 5042 §6.4): take it from the operating system's
    /// generator.
    pub seed: [u8; 32],
    /// Policy for requesting CRCs. Only an administrator may turn them off (RFC 5044 §4.4), and the
    /// peer may still insist.
    pub crc: Crc,
    /// Inbound Reads of one connection: a power of two, at most [`READS_MAX`].
    pub ird: u16,
    /// Outbound Reads of one connection, at most [`READS_MAX`].
    pub ord: u16,
    /// Length of FPDUs.
    pub fpdu_max: FpduMax,
    /// Time limit for the MPA Request of a peer that connected (RFC 5044 §7.1.2).
    pub request_timeout: Duration,
    /// Time limit for the first FPDU of an accepted peer; a peer that sends none occupies one of
    /// `connections`. A connecting peer sends one at once, because the acceptor has to wait for it
    /// (RFC 5044 §7.1.2): the indication of RFC 6581 §9.2, or its first message. Linux' NFS client,
    /// which connects when it has a call to send, does either.
    pub first_message_timeout: Duration,
    /// Time limit for TCP and MPA set-up on the side that connects.
    pub reply_timeout: Duration,
    /// Time to keep reading after a Terminate or our FIN, so that the peer sees them before a
    /// reset.
    pub linger: Duration,
    /// Time that octets may stay unacknowledged before TCP drops the connection.
    pub user_timeout: Duration,
    /// Time that a connection may be silent before TCP probes the peer.
    pub keepalive: Duration,
    /// Pause in accepting connections after descriptors ran out.
    pub accept_pause: Duration,
    /// Maximum of accepted TCP connections without an MPA Request. They do not count against
    /// `connections`. Another one displaces the oldest: of its own host, if that has more than a
    /// quarter of them, otherwise of all.
    pub half_open: usize,
    /// Peers beyond `connections` whose connect requests are still reported to the engine, so that
    /// it can make room for the next attempt. It cannot accept them while all connections are
    /// taken, so they are rejected; further ones are rejected without a report.
    pub spare: usize,
    /// Maximum of messages that wait for a receive, of all connections together.
    pub parking: usize,
    /// Let several listeners share a port; the kernel chooses among them.
    pub reuse_port: bool,
    /// Steers peers by address to one of those listeners.
    pub steering: Option<Steering>,
    /// Sockets to listen on, in place of our own.
    pub passed: PassedListeners,
    /// Connect from a port below 1024, if this process may bind one ([`stag_verbs::source`]).
    pub reserved_port: bool,
    /// `SO_SNDBUF` in octets; `None` leaves it to the kernel's tuning.
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF` in octets; `None` leaves it to the kernel's tuning.
    pub receive_buffer: Option<usize>,
    /// The time before the first poll.
    pub now: Time,
}

impl IwarpConfig {
    /// The defaults around `limits` and `seed`.
    pub const fn new(limits: Limits, seed: [u8; 32], now: Time) -> Self {
        Self {
            limits,
            seed,
            crc: Crc::Auto,
            ird: READS_MAX,
            ord: READS_MAX,
            fpdu_max: FpduMax::Auto,
            request_timeout: Duration::from_secs(5),
            first_message_timeout: Duration::from_secs(10),
            reply_timeout: Duration::from_secs(10),
            linger: Duration::from_secs(1),
            user_timeout: Duration::from_secs(20),
            keepalive: Duration::from_secs(10),
            accept_pause: Duration::from_millis(100),
            half_open: 64,
            spare: 8,
            parking: 64,
            reuse_port: false,
            steering: None,
            passed: PassedListeners::NONE,
            reserved_port: false,
            send_buffer: None,
            receive_buffer: None,
            now,
        }
    }

    /// Returns the configuration that MPA negotiates from.
    pub(crate) fn mpa(&self) -> mpa::Config {
        mpa::Config {
            crc: self.crc,
            // RFC 5040 §5.2.2, §6.1 [5040-31]: every Read Request that was negotiated has a place
            ird: self.ird.min(READS_MAX),
            ord: self.ord.min(READS_MAX),
            ..mpa::Config::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_reads_are_negotiated_than_have_places() {
        let limits = Limits {
            connections: 1,
            send_queue: 1,
            receives: 1,
            receives_each: None,
            receive_len: 1024,
            windows: 1,
            read_spans: 1,
            private_data_len: 0,
            sends_invalidation: true,
            bears_invalidation: true,
        };
        for (asked, offered) in
            [(1, 1), (READS_MAX, READS_MAX), (READS_MAX + 1, READS_MAX), (u16::MAX, READS_MAX)]
        {
            let mpa = IwarpConfig {
                ird: asked,
                ord: asked,
                ..IwarpConfig::new(limits, [0; 32], Time(0))
            }
            .mpa();
            assert_eq!((mpa.ird, mpa.ord), (offered, offered));
        }
    }
}
