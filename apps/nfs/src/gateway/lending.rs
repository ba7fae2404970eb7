//! Memory of the shard that is lent with a call to the thread or shard that executes it.

use stag_engine::{Cx, config};
use stag_nfs_os::{OctetsKeeper, RoomKeeper};
use stag_pools::Extent;

use crate::parked::ParkedCall;
use stag_nfs_store::{StoreCall, StoreRequest};

/// The data that a call writes.
pub(super) struct Payload<'a> {
    pub(super) octets: &'a [u8],
    /// The same in memory that can be kept.
    pub(super) shared: Option<Extent>,
}

impl Payload<'_> {
    /// The data in memory that can be kept; none if they are empty.
    ///
    /// # Errors
    /// When the shard has no buffer.
    pub(super) fn extent(self, cx: &Cx<'_>) -> Result<Option<Extent>, NoBuffer> {
        let Self { octets, shared } = self;
        if octets.is_empty() || shared.is_some() {
            return Ok(shared.filter(|_| !octets.is_empty()));
        }
        let mut copy = cx.take(octets.len()).ok_or(NoBuffer)?;
        copy.append(octets).map_err(|_| NoBuffer)?;
        Ok(Some(copy.freeze()))
    }
}

/// The shard has no buffer.
pub(super) struct NoBuffer;

/// Reclaims the memory that was lent for a call.
pub(super) fn take_back(parked: &mut ParkedCall, call: &mut StoreCall) {
    let (room, payload) = (call.room.take(), call.payload.take());
    drop(std::mem::take(&mut parked.memories).regain_of(room, payload));
}

/// Lends the memory that a call needs: its data, and room for its results. None when the shard has
/// too little.
pub(super) fn lend(
    cx: &Cx<'_>,
    parked: &mut ParkedCall,
    call: &mut StoreCall,
    payload: Option<Extent>,
) -> Option<()> {
    let memories = &mut parked.memories;
    let peer = parked.requester.map(|requester| requester.peer);
    let take = |len| peer.map_or_else(|| cx.take(len), |peer| cx.take_for(peer, len));
    if let Some(extent) = payload {
        memories.payload_slot = extent.capacity();
        let (keeper, octets) = OctetsKeeper::lend(extent);
        (memories.payload, call.payload) = (Some(keeper), Some(octets));
    }
    let wanted = call.operation.room_len();
    if wanted > 0 {
        // A READ or a listing may return less than was asked for; a path has to fit.
        let lens = match call.operation {
            StoreRequest::ReadLink(_) => [wanted; 3],
            _ => [wanted, wanted.min(config::MEDIUM_LEN), wanted.min(config::INLINE_LEN)],
        };
        let (buf, len) = lens.into_iter().find_map(|len| take(len).map(|buf| (buf, len)))?;
        memories.room_slot = buf.capacity();
        let (keeper, room) = RoomKeeper::lend(buf, len);
        (memories.room, call.room) = (Some(keeper), Some(room));
    }
    Some(())
}
