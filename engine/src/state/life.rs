//! The lifetime of a peer: its names, and what outlives its connections.

use crate::peer_view::{ClientName, PeerId};
use stag_protocol::rpcrdma::{PeerMemory, Side};
use stag_verbs::Cause;

/// The fields of a peer that each call reads.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Failed attempts to connect since the last reply.
    pub(crate) attempts: u32,
    /// The peer accepts calls (RFC 8167 §6): always, if we connected.
    pub(crate) ready: bool,
    /// It has a successor.
    pub(super) is_succeeded: bool,
    /// Calls may wait for it: the queue has to be checked.
    pub(super) may_wait: bool,
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
    pub(crate) kept: bool,
    /// The name that the app gave it.
    pub(crate) name: Option<ClientName>,
    /// The peer that took over this one's name, and gets its calls when its connection has ended:
    /// the same client, over another connection.
    pub(crate) successor: Option<PeerId>,
    /// Its versions, remembered across connections.
    pub(crate) memory: PeerMemory,
    /// Receives that are promised to this connection.
    pub(crate) promised: usize,
    /// Our reason for ending its connection, if it is to be reported.
    pub(crate) ending: Option<Cause>,
    /// The app has been notified of this peer.
    pub(crate) up: bool,
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
