//! One peer: its link, and one part for each role, whose fields are private to that role's folder.

use crate::{
    peer_view::PeerId,
    options::PeerOptions,
    pass::PassShare,
    peers::{GrantUse, Life, Standing},
    requester::PeerCalls,
    responder::Served,
    turns::TurnAccount,
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::{Connection, Side};
use stag_verbs::{PeerAddress, Qp, Time};

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
