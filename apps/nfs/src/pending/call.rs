//! A call begun in a store: its requester, the memory lent for it, and its reply to come.

use crate::{
    reply_cache::UnderWay,
    requester::Requester,
    v4::{ChangeScope, CompoundId},
};
use stag_engine::{Time, config};
use stag_nfs_os::{LentOctets, LentRoom, OctetsKeeper, RoomKeeper};
use stag_pools::Buf;
use stag_protocol::{nfs::v3::Procedure, rpc::Xid};

use stag_nfs_store::{StoreCall, exports::security::SecurityFlavors};

/// Memory of the shard that a call holds.
#[derive(Debug, Default)]
pub(crate) struct CallMemories {
    pub(crate) room: Option<RoomKeeper>,
    pub(crate) payload: Option<OctetsKeeper>,
    /// Bytes of the slots of both.
    pub(crate) room_slot: usize,
    pub(crate) payload_slot: usize,
}

impl CallMemories {
    /// Takes back the memory lent with a call. The buffer is the one that was filled; it holds only
    /// the bytes described by the outcome.
    pub(crate) fn regain(self, call: StoreCall) -> Option<Buf> {
        let StoreCall { room, payload, .. } = call;
        self.regain_of(room, payload)
    }

    /// The same for memory already removed from the call.
    pub(crate) fn regain_of(
        self,
        room: Option<LentRoom>,
        payload: Option<LentOctets>,
    ) -> Option<Buf> {
        if let (Some(keeper), Some(payload)) = (self.payload, payload) {
            drop(keeper.regain(payload));
        }
        match (self.room, room) {
            (Some(keeper), Some(room)) => Some(keeper.regain(room)),
            _ => None,
        }
    }

    /// Number of medium and of large buffers among them.
    pub(super) fn slots(&self) -> [usize; 2] {
        let both = [self.room_slot, self.payload_slot];
        let count = |is: fn(usize) -> bool| both.iter().filter(|len| is(**len)).count();
        [
            count(|len| len > config::MESSAGE_LEN && len <= config::MEDIUM_LEN),
            count(|len| len > config::MEDIUM_LEN),
        ]
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct PendingCall {
    /// The last caller; none when it is gone, or was asked to retry.
    pub(crate) requester: Option<Requester>,
    pub(crate) xid: Xid,
    /// The procedure of NFS; none for MNT.
    pub(crate) procedure: Option<Procedure>,
    /// The compound that waits for it; none for calls of version 3, and after the compound was
    /// resumed.
    pub(crate) compound: Option<CompoundId>,
    /// Security flavors that the reply of a MNT lists.
    pub(crate) flavors: SecurityFlavors,
    /// Its key in the duplicate request cache; none for MNT.
    pub(crate) name: Option<UnderWay>,
    /// True if it changes nothing.
    pub(crate) is_harmless: bool,
    /// Files that a call of version 3 changes, while it counts as in flight.
    pub(crate) change: Option<ChangeScope>,
    /// True if it can no longer be withdrawn.
    pub(crate) is_started: bool,
    pub(crate) began: Time,
    /// The message of its reply, if that has to be reserved in advance.
    pub(crate) message: Option<Buf>,
    pub(crate) memories: CallMemories,
}

impl PendingCall {
    /// Returns true if a caller or compound waits for it.
    pub(crate) const fn is_awaited(&self) -> bool {
        self.requester.is_some() || self.compound.is_some()
    }
}
