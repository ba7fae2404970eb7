//! The lifetime of a peer: its names and its successive connections.

use crate::{
    peer_view::{ClientName, PeerId},
    peer::Peer,
};
use stag_protocol::rpcrdma::{PeerMemory, Side};
use stag_verbs::Cause;

/// The fields of a peer that each call reads.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Failed attempts to connect since the last reply.
    pub(super) attempts: u32,
    /// The peer accepts calls (RFC 8167 §6): always, if we connected.
    pub(super) ready: bool,
    /// It has a successor.
    is_succeeded: bool,
    /// Calls may wait for it: the queue has to be checked.
    may_wait: bool,
}

impl Standing {
    /// The initial standing of a peer.
    pub(crate) const fn new(side: Side) -> Self {
        let ready = matches!(side, Side::Client);
        Self { attempts: 0, ready, is_succeeded: false, may_wait: false }
    }
}

/// The part of a peer that outlives its connections.
#[derive(Debug)]
pub(crate) struct Life {
    /// The peer outlives its connections: we reconnect, or it may come back.
    pub(super) kept: bool,
    /// The name that the app gave it.
    pub(super) name: Option<ClientName>,
    /// The peer that took over this one's name, and gets its calls when its connection has ended:
    /// the same client, over another connection.
    pub(super) successor: Option<PeerId>,
    /// Its versions, remembered across connections.
    pub(super) memory: PeerMemory,
    /// Receives that are promised to this connection.
    pub(super) promised: usize,
    /// Our reason for ending its connection, if it is to be reported.
    pub(super) ending: Option<Cause>,
    /// The app has been notified of this peer.
    pub(super) up: bool,
}

impl Life {
    /// The initial state of a peer.
    pub(crate) fn new() -> Self {
        Self {
            kept: false,
            name: None,
            successor: None,
            memory: PeerMemory::new(),
            promised: 0,
            ending: None,
            up: false,
        }
    }

    /// Receives that are promised to this connection.
    pub(crate) const fn promised(&self) -> usize {
        self.promised
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
    pub(super) const fn give_way(&mut self, successor: PeerId) {
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
    pub(super) const fn take_ending(&mut self) -> Option<Cause> {
        self.life.ending.take()
    }

    /// Exchanges all state that belongs to the connection and not to the peer.
    pub(super) fn exchange_connection(&mut self, with: &mut Self) {
        use std::mem::swap;
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
