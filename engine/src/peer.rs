//! One peer: the link to it, and a part of each role, which keeps its fields to its own folder.

use crate::{
    app::PeerId,
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

/// One peer. The parts that each short call needs lie together: in a crowd none of them is in a
/// cache when a call comes, and each line of memory that it touches is waited for. A call of ours
/// takes the first line alone, one of the peer's that of its grant, too.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Peer {
    pub(crate) standing: Standing,
    /// The state for short messages fills the first line.
    pub(crate) link: Link,
    /// Our calls to this peer.
    pub(crate) calls: PeerCalls,
    /// Requests of options, and the receives among the promised ones that they need.
    pub(crate) options: PeerOptions,
    /// The use that the peer makes of its grant.
    pub(crate) grant: GrantUse,
    pub(crate) address: PeerAddress,
    /// Its names and its connections, one after another.
    pub(crate) life: Life,
    /// The peer's calls to us, and the memory that they hold.
    pub(crate) served: Served,
    /// Our side: client if we connected.
    pub(crate) side: Side,
    /// Its connection's part of the pass under way.
    pub(crate) share: PassShare,
    /// The time that its calls took, while that is measured.
    pub(crate) turn: TurnAccount,
}

/// The way to a peer.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connection of the provider.
    Fabric(FabricLink),
    /// None: it is tried again at this time.
    Lost { retry_at: Time },
    /// None since this time: the peer has to come back.
    Absent { since: Time },
    /// A TCP connection, by its key among the streams.
    Stream(Key),
}

/// A connection of the provider.
// In this order: a line of memory has its name and all that short messages need of its state.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct FabricLink {
    pub(crate) qp: Qp,
    /// There once the peer's private data is known.
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

    /// The number of the line with octet `at` of `part`.
    fn line<T>(part: &T, at: usize) -> usize {
        (std::ptr::from_ref(part).addr() + at) / 64
    }
}
