//! One peer: the link to it, and a part of each role, which keeps its fields to its own folder.

use crate::{
    app::PeerId,
    options::PeerOptions,
    peers::{GrantUse, Life},
    requester::PeerCalls,
    responder::Served,
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::{Connection, Side};
use stag_verbs::{PeerAddress, Qp, Time};

/// One peer. The parts that each call needs come first and lie together: in a crowd none of them is
/// in a cache when a call comes, and each line of memory that it touches is waited for.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Peer {
    pub(crate) link: Link,
    /// The use that the peer makes of its grant.
    pub(crate) grant: GrantUse,
    pub(crate) address: PeerAddress,
    /// Our calls to this peer.
    pub(crate) calls: PeerCalls,
    /// Its names and its connections, one after another.
    pub(crate) life: Life,
    /// The peer's calls to us, and the memory that they hold.
    pub(crate) served: Served,
    /// Requests of options, and the receives among the promised ones that they need.
    pub(crate) options: PeerOptions,
    /// Our side: client if we connected.
    pub(crate) side: Side,
}

/// The way to a peer.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connection of the provider. `state` is there once the peer's private data is known.
    Fabric { qp: Qp, state: Option<Connection> },
    /// None: it is tried again at this time.
    Lost { retry_at: Time },
    /// None since this time: the peer has to come back.
    Absent { since: Time },
    /// A TCP connection, by its key among the streams.
    Stream(Key),
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
            life: Life::new(side),
        }
    }
}

/// The peer that a call came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) peer: PeerId,
    pub(crate) address: PeerAddress,
}
