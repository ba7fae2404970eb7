//! One peer: its link, and one part for each role.

use super::{
    crowd::PassShare,
    grant_use::GrantUse,
    life::{Life, Standing},
    peer_options::PeerOptions,
    requester::PeerCalls,
    responder::Served,
    turns::TurnAccount,
};
use crate::peer_view::PeerId;
use stag_pools::table::Key;
use stag_protocol::rpcrdma::{Connection, Side};
use stag_verbs::{Cause, PeerAddress, Qp, Time};

/// One peer. The parts that each short call needs are adjacent: with many peers none of them is in
/// a cache when a call comes, and each cache line costs a miss. A call of ours touches only the
/// first line, a call of the peer also the line of its grant.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Peer {
    pub(crate) standing: Standing,
    /// The state for short messages fills the first line.
    pub(crate) link: Link,
    /// Our calls to this peer.
    pub(crate) calls: PeerCalls,
    /// Requests of options, and the number of promised receives that they need.
    pub(crate) options: PeerOptions,
    /// The peer's use of its grant.
    pub(crate) grant: GrantUse,
    pub(crate) address: PeerAddress,
    /// Its names and its successive connections.
    pub(crate) life: Life,
    /// The peer's calls to us, and the memory that they hold.
    pub(crate) served: Served,
    /// Our side: client if we connected.
    pub(crate) side: Side,
    /// Its connection's share of the current pass.
    pub(crate) share: PassShare,
    /// The time that its calls took, if that is measured.
    pub(crate) turn: TurnAccount,
}

/// The connection to a peer, or the lack of one.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connection of the provider.
    Fabric(FabricLink),
    /// No connection: the next attempt is at this time.
    Lost { retry_at: Time },
    /// No connection since this time: the peer has to reconnect.
    Absent { since: Time },
    /// A TCP connection, by its key among the streams.
    Stream(Key),
}

/// A connection of the provider.
// In this order, one cache line has its QP and all state that short messages need.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FabricLink {
    pub(crate) qp: Qp,
    /// Set once the peer's private data is known.
    pub(crate) state: Option<Connection>,
}

impl Peer {
    /// A peer without receives of its own.
    pub(crate) fn new(side: Side, link: Link, now: Time) -> Self {
        Self {
            link,
            address: PeerAddress::Simulated,
            side,
            calls: PeerCalls::default(),
            served: Served::new(now),
            options: PeerOptions::default(),
            grant: GrantUse::new(now),
            standing: Standing::new(side),
            life: Life::new(),
            share: PassShare::default(),
            turn: TurnAccount::default(),
        }
    }
}

impl Peer {
    /// Returns true if the peer accepts calls.
    #[inline]
    pub(crate) const fn is_ready(&self) -> bool {
        self.standing.ready
    }

    /// The ID by which the app knows the peer: `own` unless its name went to another connection.
    #[inline]
    pub(crate) fn known_as(&self, own: PeerId) -> PeerId {
        if self.standing.is_succeeded { self.life.successor.unwrap_or(own) } else { own }
    }

    /// Transfers the name of this peer, and its calls, to `successor`.
    pub(crate) const fn give_way(&mut self, successor: PeerId) {
        debug_assert!(self.life.successor.is_none(), "a peer gives way once");
        (self.life.successor, self.standing.is_succeeded) = (Some(successor), true);
    }

    /// Records that calls wait for the peer.
    #[inline]
    pub(crate) const fn note_waiting(&mut self) {
        self.standing.may_wait = true;
    }

    /// Returns true if a call waits for a credit, or for the connection.
    #[inline]
    pub(crate) fn has_waiting(&mut self) -> bool {
        self.standing.may_wait && {
            self.standing.may_wait = self.calls.is_waiting();
            self.standing.may_wait
        }
    }

    /// Returns true if a call can be sent to this peer without waiting for another call.
    #[inline]
    pub(crate) fn takes_calls_at_once(&mut self) -> bool {
        self.standing.ready && !self.standing.is_succeeded && !self.has_waiting()
    }

    /// Returns true if a reply of `len` octets fits inline and uses up the peer's grant, so that
    /// the grant is to be adapted. The grant of a server that we call is fixed.
    pub(crate) fn uses_up_grant(&self, len: usize) -> bool {
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &self.link else {
            return false;
        };
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        connection.side() == Side::Server
            && connection.short().fits_reply(len)
            && self.grant.is_used_up(granted)
    }

    /// Records that the app has been notified of this peer.
    pub(crate) const fn set_up(&mut self) {
        self.life.up = true;
    }

    /// Returns true if the app has been notified of this peer.
    pub(crate) const fn is_up(&self) -> bool {
        self.life.up
    }

    /// Records a reply of the peer: its connection works.
    #[inline]
    pub(crate) const fn note_reply(&mut self) {
        self.standing.attempts = 0;
    }

    /// Returns true if we are ending its connection for a reason.
    pub(crate) const fn is_ending(&self) -> bool {
        self.life.ending.is_some()
    }

    /// Records our reason for ending its connection.
    pub(crate) const fn end_because(&mut self, cause: Cause) {
        self.life.ending = Some(cause);
    }

    /// Takes our reason for ending the connection that is over.
    pub(crate) const fn take_ending(&mut self) -> Option<Cause> {
        self.life.ending.take()
    }

    /// Exchanges all state that belongs to the connection and not to the peer.
    pub(crate) fn exchange_connection(&mut self, with: &mut Self) {
        use std::mem::swap;
        debug_assert_eq!(self.side, with.side, "only peers that connected to us exchange");
        swap(&mut self.link, &mut with.link);
        swap(&mut self.share, &mut with.share);
        swap(&mut self.address, &mut with.address);
        swap(&mut self.life.promised, &mut with.life.promised);
        swap(&mut self.options, &mut with.options);
        swap(&mut self.served, &mut with.served);
        swap(&mut self.grant, &mut with.grant);
        swap(&mut self.life.ending, &mut with.life.ending);
        swap(&mut self.standing.ready, &mut with.standing.ready);
        swap(&mut self.life.up, &mut with.life.up);
    }
}

impl Peer {
    /// Queues a call after all others.
    pub(crate) fn wait_last(&mut self, call: Key) {
        self.calls.waiting.push_back(call);
        self.note_waiting();
    }

    /// Queues a call before all others.
    pub(crate) fn wait_first(&mut self, call: Key) {
        self.calls.waiting.push_front(call);
        self.note_waiting();
    }
}

/// The peer that a call came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) peer: PeerId,
    pub(crate) address: PeerAddress,
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Table, table::Line};
    use stag_protocol::rpcrdma::{PrivateData, Setup};
    use stag_verbs::Qp;

    #[test]
    fn a_short_call_finds_all_of_its_peer_in_two_lines_of_memory() {
        let own = PrivateData::SILENT;
        let setup = Setup { side: Side::Server, own, peer: own, calls_max: 1, grant: 1 };
        let mut table = Table::<Peer, Line>::new(2);
        for _ in 0..2 {
            let (qp, state) = (Qp(Key::from_bits(1)), Some(Connection::new(setup)));
            let key = table
                .insert(Peer::new(Side::Server, Link::Fabric(FabricLink { qp, state }), Time(0)))
                .expect("there is a place");
            let entry = table.get(key).expect("it was inserted");
            let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &entry.link else {
                unreachable!()
            };
            let first = line(entry, 0);
            assert_eq!(line(&entry.standing, 0), first);
            assert_eq!(line(qp, 0), first);
            assert_eq!(line(connection, Connection::SHORT_LEN - 1), first);
            let other = line(&entry.grant, 0);
            assert_eq!(line(&entry.address, size_of::<PeerAddress>() - 1), other);
        }
    }

    /// The index of the cache line with octet `at` of `part`.
    fn line<T>(part: &T, at: usize) -> usize {
        (std::ptr::from_ref(part).addr() + at) / 64
    }
}
