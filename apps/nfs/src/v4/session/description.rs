//! Descriptions of sessions for monitoring.

use stag_engine::PeerId;
use stag_protocol::nfs::v4::SessionId;

use crate::v4::Nfs4;

/// Octets of an owner's name that are reported; a client may choose up to 1,024.
pub(in crate::v4) const OWNER_MAX: usize = 128;

/// A session at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionState {
    /// Its ID.
    pub id: SessionId,
    /// The name that its client gives itself, unchanged; of a long one the beginning.
    pub owner: Box<[u8]>,
    /// Slots that execute a compound.
    pub busy_slots: usize,
    /// All its slots.
    pub slots: usize,
    /// The connections over which it was created, or which were bound to it.
    pub bound: Box<[BoundConnection]>,
}

/// A connection of one of the shards that serve version 4 together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundConnection {
    /// Index of its shard; the first one has all sessions.
    pub shard: usize,
    /// Its name in the shard.
    pub peer: PeerId,
}

impl Nfs4 {
    /// All sessions.
    pub(crate) fn session_states(&self) -> Vec<SessionState> {
        let state = |session: &super::Session| {
            let owner = self.clients.get(session.client).map(|client| &*client.owner);
            let owner = owner.unwrap_or_default();
            let (busy_slots, slots) = session.slots();
            let at = |at: crate::requester::ShardPeer| BoundConnection {
                shard: usize::from(at.shard),
                peer: at.peer,
            };
            SessionState {
                id: session.id(),
                owner: owner.get(..OWNER_MAX).unwrap_or(owner).into(),
                busy_slots,
                slots,
                bound: session.bound.iter().map(at).collect(),
            }
        };
        self.sessions.iter().map(state).collect()
    }
}
