//! One peer, and the link to it.

use super::grants::GrantUse;
use crate::{
    app::{ClientName, PeerId},
    options::PeerOptions,
    requester::PeerCalls,
    responder::Served,
};
use stag_pools::table::Key;
use stag_protocol::rpcrdma::{Connection, PeerMemory, Side};
use stag_verbs::{Cause, PeerAddress, Qp, Time};

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) address: PeerAddress,
    /// Our side: client if we connected.
    pub(crate) side: Side,
    /// Our calls to this peer.
    pub(crate) calls: PeerCalls,
    /// The peer's calls to us, and the memory that they hold.
    pub(crate) served: Served,
    /// Requests of options, and the receives among the promised ones that they need.
    pub(crate) options: PeerOptions,
    /// The use that the peer makes of its grant.
    pub(crate) grant: GrantUse,
    /// The peer outlives its connections: it is connected again, or may come back.
    pub(super) kept: bool,
    /// The name that the app gave it.
    pub(super) name: Option<ClientName>,
    /// The peer that has this one's name and gets its calls when its connection has ended: the same client, over another
    /// connection.
    pub(super) successor: Option<PeerId>,
    /// The peer takes calls (RFC 8167 §6): always, when we connected.
    pub(super) ready: bool,
    /// Its versions, from one connection to the next.
    pub(super) memory: PeerMemory,
    /// Connections tried in vain since the last reply.
    pub(super) attempts: u32,
    /// Receives that are promised to this connection.
    pub(super) promised: usize,
    /// Our reason to end its connection, if that is to be told.
    pub(super) ending: Option<Cause>,
    /// The app was told of this peer.
    pub(super) up: bool,
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
    pub(super) fn new(side: Side, link: Link, now: Time) -> Self {
        Self {
            link,
            address: PeerAddress::Simulated,
            side,
            calls: PeerCalls::default(),
            served: Served::new(now),
            options: PeerOptions::default(),
            grant: GrantUse::new(now),
            kept: false,
            name: None,
            successor: None,
            ready: side == Side::Client,
            memory: PeerMemory::new(),
            attempts: 0,
            promised: 0,
            ending: None,
            up: false,
        }
    }

    /// Returns true if the peer takes calls.
    #[inline]
    pub(crate) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Notes that the app was told of this peer.
    pub(crate) const fn set_up(&mut self) {
        self.up = true;
    }

    /// Returns true if the app was told of this peer.
    pub(crate) const fn is_up(&self) -> bool {
        self.up
    }

    /// Notes a reply of the peer: its connection works.
    #[inline]
    pub(crate) const fn note_reply(&mut self) {
        self.attempts = 0;
    }

    /// Returns true if we are ending its connection for a reason.
    pub(crate) const fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Notes our reason to end its connection.
    pub(crate) const fn end_because(&mut self, cause: Cause) {
        self.ending = Some(cause);
    }

    /// Our reason to end the connection that is over.
    pub(super) const fn take_ending(&mut self) -> Option<Cause> {
        self.ending.take()
    }

    /// Exchanges everything that belongs to the connection, not to the peer.
    pub(super) fn exchange_connection(&mut self, with: &mut Self) {
        use std::mem::swap;
        swap(&mut self.link, &mut with.link);
        swap(&mut self.address, &mut with.address);
        swap(&mut self.promised, &mut with.promised);
        swap(&mut self.options, &mut with.options);
        swap(&mut self.served, &mut with.served);
        swap(&mut self.grant, &mut with.grant);
        swap(&mut self.ending, &mut with.ending);
        swap(&mut self.ready, &mut with.ready);
        swap(&mut self.up, &mut with.up);
    }
}
