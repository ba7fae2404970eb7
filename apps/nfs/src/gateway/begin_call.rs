//! Calls that may wait, at their beginning: each is begun in the store once, with memory of the
//! shard lent to the thread or shard that executes it.
//!
//! **A call runs once.** A retransmission that arrives meanwhile is not executed: its caller takes
//! the place of the first one. So a WRITE that hangs and is sent again never overtakes a newer one.

use stag_engine::{Answer, Cx, Pulled, config};
use stag_protocol::{nfs::v3::Call, rpc::CallHeader};

use super::{Gateway, NoMessage, start_call::Started};
use crate::{
    mount::service::flavors_of_path,
    pending::call::{CallMemories, PendingCall},
    reply::ReplyWriter,
    requester::{CallSource, Requester},
    v4::ChangeScope,
};
use stag_nfs_os::{OctetsKeeper, RoomKeeper};
use stag_nfs_store::{
    Effort, Store, StoreCall, StoreRequest, TRANSFER_MAX, exports::security::SecurityFlavors,
    objects,
};
use stag_pools::Extent;

/// A call to begin in the store and to answer later.
pub(super) struct CallToBegin<'a> {
    pub(super) source: CallSource,
    pub(super) header: &'a CallHeader<'a>,
    pub(super) call: &'a Call<'a>,
    pub(super) pulled: Pulled<'a>,
}

impl<S: Store> Gateway<S> {
    /// Returns true if a call has to be begun in the store.
    #[inline]
    pub(super) fn waits(&self, call: &Call<'_>) -> bool {
        S::MAY_WAIT && {
            let effort = Effort::of(call);
            objects(call).into_iter().flatten().any(|object| self.store.waits(object, effort))
        }
    }

    /// Begins a call in the store.
    pub(super) fn begin_call(
        &mut self,
        cx: &mut Cx<'_>,
        CallToBegin { source, header, call, pulled }: CallToBegin<'_>,
    ) -> Result<Answer, NoMessage> {
        let operation = StoreRequest::of(call).ok_or(NoMessage::Dropped)?;
        let is_harmless = operation.is_harmless();
        let change = ChangeScope::of(&operation).filter(|_| self.nfs4.is_some());
        if !is_harmless && !self.cache.knows(source.from, cx.now()) {
            let waits = self.cache.wait(cx, source, header, call);
            return Err(waits.map_or(NoMessage::Dropped, |()| NoMessage::Waits));
        }
        let name = self.cache.name(source.from, header, call);
        if let Some(pending) = self.pending.find(&name) {
            let requester = Requester::of(source);
            let earlier = pending.requester.replace(requester);
            self.cache.count_busy();
            return take_place(cx, earlier, requester);
        }
        let procedure = call.procedure();
        if !is_harmless && let Some(octets) = self.cache.replay(&name, cx.now()) {
            // Its first reply is kept: it is not executed again.
            let mut reply = ReplyWriter::begin(cx, header.xid, 0).ok_or(NoMessage::Dropped)?;
            reply.replace(octets);
            return Ok(reply.finish());
        }
        let octets = match call {
            Call::Write(args) => args.data.octets().unwrap_or_default(),
            Call::Symlink(args) => args.path.octets().unwrap_or_default(),
            _ => &[],
        };
        // A WRITE above the largest size is done in part.
        let octets = octets.get(..TRANSFER_MAX as usize).unwrap_or(octets);
        let payload = Payload { octets, shared: pulled.share(octets) };
        let message = if is_harmless {
            None
        } else {
            Some(ReplyWriter::message_of(cx).ok_or(NoMessage::Dropped)?)
        };
        let pending = PendingCall {
            requester: Some(Requester::of(source)),
            xid: header.xid,
            procedure: Some(procedure),
            compound: None,
            flavors: SecurityFlavors::default(),
            name: Some(name),
            is_harmless,
            change,
            is_started: false,
            began: cx.now(),
            message,
            memories: CallMemories::default(),
        };
        let call =
            StoreCall { caller: self.caller(source, header), operation, room: None, payload: None };
        self.begin(cx, pending, call, payload)
    }

    /// Begins a MNT in the store.
    pub(super) fn begin_mount(
        &mut self,
        cx: &mut Cx<'_>,
        source: CallSource,
        header: &CallHeader<'_>,
        path: &[u8],
    ) -> Result<Answer, NoMessage> {
        let pending = PendingCall {
            requester: Some(Requester::of(source)),
            xid: header.xid,
            procedure: None,
            compound: None,
            flavors: flavors_of_path(&self.store, path, source.from),
            name: None,
            is_harmless: true,
            change: None,
            is_started: false,
            began: cx.now(),
            message: None,
            memories: CallMemories::default(),
        };
        let call = StoreCall {
            caller: self.caller(source, header),
            operation: StoreRequest::Mount,
            room: None,
            payload: None,
        };
        self.begin(cx, pending, call, Payload { octets: path, shared: None })
    }

    /// Begins a call, or lets it wait for a place.
    fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        pending: PendingCall,
        call: StoreCall,
        payload: Payload<'_>,
    ) -> Result<Answer, NoMessage> {
        if !pending.is_harmless
            && let Some(name) = &pending.name
        {
            self.cache.begin(name);
        }
        if let (Some(nfs4), Some(change)) = (&mut self.nfs4, pending.change) {
            nfs4.begin_change(change);
        }
        let Ok(payload) = payload.extent(cx) else {
            self.counters.waiting.refused += 1;
            return self.let_go(cx, pending, call);
        };
        match self.start_or_queue(cx, pending, call, payload) {
            Started::Later => Err(NoMessage::Waits),
            Started::Done(pending, done) => {
                self.end_change(&pending);
                self.settle(cx, pending, done).ok_or(NoMessage::Dropped)
            }
            Started::Refused(pending, call) | Started::NoPlace(pending, call) => {
                self.let_go(cx, pending, call)
            }
        }
    }
}

/// Lets the newest caller of a call take the place of an earlier one, which has probably gone: no
/// reply can reach it on its connection any more.
fn take_place(
    cx: &mut Cx<'_>,
    earlier: Option<Requester>,
    requester: Requester,
) -> Result<Answer, NoMessage> {
    match earlier {
        // A retransmission on the same connection, handled as for any call in progress.
        Some(earlier) if earlier.peer == requester.peer => Err(NoMessage::Dropped),
        Some(earlier) => {
            cx.disconnect(earlier.peer);
            Err(NoMessage::Waits)
        }
        None => Err(NoMessage::Waits),
    }
}

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
pub(super) fn take_back(pending: &mut PendingCall, call: &mut StoreCall) {
    let (room, payload) = (call.room.take(), call.payload.take());
    drop(std::mem::take(&mut pending.memories).regain_of(room, payload));
}

/// Lends the memory that a call needs: its data, and room for its results. None when the shard has
/// too little.
pub(super) fn lend(
    cx: &Cx<'_>,
    pending: &mut PendingCall,
    call: &mut StoreCall,
    payload: Option<Extent>,
) -> Option<()> {
    let memories = &mut pending.memories;
    let peer = pending.requester.map(|requester| requester.peer);
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
