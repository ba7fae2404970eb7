//! The requester of a call, to which an answer is due: its connection, and the shard of that. Used
//! by everything that answers later.

use stag_engine::{CallId, PeerAddress, PeerId, RemoteCaller, TurnHolder};

/// A call whose caller waits for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSource {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    /// The caller's address.
    pub(crate) from: PeerAddress,
    /// Shard of the connection, as in [`ShardPeer`](ShardPeer).
    pub(crate) shard: u16,
}

impl CallSource {
    /// A call over a connection of this gateway.
    pub(crate) const fn own(id: CallId, peer: PeerId, from: PeerAddress) -> Self {
        Self { id, peer, from, shard: OWN }
    }

    /// The connection whose turn the call takes.
    pub(crate) const fn turn_holder(&self) -> TurnHolder {
        let Self { peer, from, shard, .. } = *self;
        match shard {
            OWN => TurnHolder::Here(peer),
            shard => TurnHolder::Elsewhere(RemoteCaller { from, shard, peer }),
        }
    }
}

/// A caller to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester {
    pub(crate) id: CallId,
    pub(crate) peer: PeerId,
    /// Shard of the connection, as in [`ShardPeer`].
    pub(crate) shard: u16,
}

impl Requester {
    /// The caller of a call.
    pub(crate) const fn of(source: CallSource) -> Self {
        let CallSource { id, peer, shard, .. } = source;
        Self { id, peer, shard }
    }

    /// The connection.
    pub(crate) const fn at(&self) -> ShardPeer {
        ShardPeer { shard: self.shard, peer: self.peer }
    }
}

/// A connection of this shard, or of one that forwards to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShardPeer {
    /// Number of the forwarding shard; [`OWN`] for the gateway's own connections.
    pub(crate) shard: u16,
    pub(crate) peer: PeerId,
}

impl ShardPeer {
    /// A connection of the gateway's own.
    pub(crate) const fn own(peer: PeerId) -> Self {
        Self { shard: OWN, peer }
    }
}

/// Stands for the gateway's own connections: calls are forwarded only to shard 0.
pub(crate) const OWN: u16 = 0;

/// Limits of the memory held by calls in flight and by waiting compounds: each a quarter of the
/// shard's medium and large buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferLimits([usize; 2]);

impl BufferLimits {
    /// A quarter of the buffers of a shard with these numbers of message, medium and large ones.
    pub(crate) const fn of([_, medium, large]: [usize; 3]) -> Self {
        Self([medium / 4, large / 4])
    }

    /// Returns true if `more` medium and large buffers may be held in addition to `held`.
    pub(crate) fn allow(self, held: [usize; 2], more: [usize; 2]) -> bool {
        let sums = held.iter().zip(more).map(|(held, more)| held + more);
        more == [0; 2] || sums.zip(self.0).all(|(sum, limit)| sum <= limit)
    }
}
