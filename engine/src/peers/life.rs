//! The names of a peer, and its connections one after another.

use crate::{
    app::{ClientName, PeerId},
    peer::Peer,
};
use stag_protocol::rpcrdma::{PeerMemory, Side};
use stag_verbs::Cause;

/// The part of a peer that outlives its connections.
#[derive(Debug)]
pub(crate) struct Life {
    /// The peer outlives its connections: it is connected again, or may come back.
    pub(super) kept: bool,
    /// The name that the app gave it.
    pub(super) name: Option<ClientName>,
    /// The peer that has this one's name and gets its calls when its connection has ended: the same
    /// client, over another connection.
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

impl Life {
    /// The life of a peer that begins.
    pub(crate) fn new(side: Side) -> Self {
        Self {
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
}

impl Peer {
    /// Returns true if the peer takes calls.
    #[inline]
    pub(crate) const fn is_ready(&self) -> bool {
        self.life.ready
    }

    /// The peer as the app knows it, which is `own` unless its name went to another connection.
    #[inline]
    pub(crate) fn known_as(&self, own: PeerId) -> PeerId {
        self.life.successor.unwrap_or(own)
    }

    /// Notes that the app was told of this peer.
    pub(crate) const fn set_up(&mut self) {
        self.life.up = true;
    }

    /// Returns true if the app was told of this peer.
    pub(crate) const fn is_up(&self) -> bool {
        self.life.up
    }

    /// Notes a reply of the peer: its connection works.
    #[inline]
    pub(crate) const fn note_reply(&mut self) {
        self.life.attempts = 0;
    }

    /// Returns true if we are ending its connection for a reason.
    pub(crate) const fn is_ending(&self) -> bool {
        self.life.ending.is_some()
    }

    /// Notes our reason to end its connection.
    pub(crate) const fn end_because(&mut self, cause: Cause) {
        self.life.ending = Some(cause);
    }

    /// Our reason to end the connection that is over.
    pub(super) const fn take_ending(&mut self) -> Option<Cause> {
        self.life.ending.take()
    }

    /// Exchanges everything that belongs to the connection, not to the peer.
    pub(super) fn exchange_connection(&mut self, with: &mut Self) {
        use std::mem::swap;
        swap(&mut self.link, &mut with.link);
        swap(&mut self.address, &mut with.address);
        swap(&mut self.life.promised, &mut with.life.promised);
        swap(&mut self.options, &mut with.options);
        swap(&mut self.served, &mut with.served);
        swap(&mut self.grant, &mut with.grant);
        swap(&mut self.life.ending, &mut with.life.ending);
        swap(&mut self.life.ready, &mut with.life.ready);
        swap(&mut self.life.up, &mut with.life.up);
    }
}
