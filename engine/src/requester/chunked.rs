//! Calls of ours in any form, with their windows: hops 2 to 5.

use super::set_xid;
use crate::{
    app::{App, CallFault, PeerId, ResultRooms},
    payload::{insert_item, remove_item},
    shard::Shard,
    state::{
        FabricLink, Link,
        outbound::{CallChunks, OpenWindow, Outbound, OutboundState, Role, Sent},
    },
    stats::Forms,
    work::Work,
};
use stag_pools::{Access, Buf, Window, table::Key};
use stag_protocol::{
    rpcrdma::{
        self, Body, ChunkLists, ListsFull, Position, Segment, Xid,
        form::{self, CallOffer, CallPlan, CallSizes, Form, Item, ReplyOffer},
    },
    xdr::padded,
};
use stag_verbs::{Provider, Qp, Refused};
use std::time::Duration;

/// Time limit for the answer to the first message of version 2, if the call has four times as long.
/// A peer that drops unknown messages does not answer, and version 1 has to be tried before the
/// call's deadline.
const VERSION_MAX: Duration = Duration::from_secs(2);
/// Segments in each chunk of ours: a chunk is in one buffer.
// RFC 8267 §6.4.2 [8267-10]: one segment a chunk stays below the limits of NFSv4
const SEGMENTS: usize = 1;

/// A call message that travels in a chunk.
#[derive(Debug)]
struct LongMessage {
    /// The whole message, in one buffer.
    whole: Buf,
    /// The buffer for the header that is sent instead.
    header_only: Buf,
}

/// A buffer of a call that the peer is to access.
#[derive(Debug)]
struct Exposure {
    buf: Buf,
    /// Octets of it, from the first one on.
    len: usize,
    role: Role,
}

impl Role {
    /// The peer's access to such memory.
    pub(super) const fn access(self) -> Access {
        match self {
            Self::Item | Self::Message => Access::RemoteRead,
            // RFC 5042 §6.3.5 [5042-11]: a buffer is opened only for the access it needs
            Self::Result | Self::ReplyRoom => Access::RemoteWrite,
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hops 2 to 5: form, windows, header, Send. After an error nothing was sent and nothing
    /// exposed.
    pub(super) fn send_call(&mut self, key: Key, peer: PeerId, qp: Qp) -> Result<(), CallFault> {
        if self.send_one_chunk(key, peer, qp) || self.send_inline(key, peer, qp) {
            return Ok(());
        }
        self.send_any_call(key, peer, qp)
    }

    /// The same for any form.
    #[inline(never)]
    fn send_any_call(&mut self, key: Key, peer: PeerId, qp: Qp) -> Result<(), CallFault> {
        let call = self.core.requester.calls.get(key).ok_or(CallFault::Limit)?;
        let sizes = sizes_of(call)?;
        let known = call.xid;
        let xid = known.unwrap_or_else(|| self.core.requester.xid(key.index()));
        let call = self.core.requester.calls.get_mut(key).ok_or(CallFault::Limit)?;
        call.sign(xid)?;
        let (_, connection) = self.core.peers.connection(peer).ok_or(CallFault::NoPeer)?;
        let path = connection.path(SEGMENTS);
        let plan = form::plan_call(&sizes, &path).map_err(|_| CallFault::TooLong)?;
        // RFC 8167 §5.3: no peer is required to support chunks in the reverse direction.
        let is_inline = plan == CallPlan::INLINE;
        // DESIGN D1: a static key is for responders only, so a fabric without windows offers
        // nothing.
        if !is_inline && (!connection.calls_with_chunks() || self.provider.limits().windows == 0) {
            return Err(CallFault::TooLong);
        }
        let long = plan.form() == Form::Long;
        let reply_room = match plan.reply {
            ReplyOffer::ReplyChunk(len) => {
                Some(self.core.memory.take_room(len as usize).ok_or(CallFault::Limit)?)
            }
            ReplyOffer::Nothing | ReplyOffer::WriteChunk(_) => None,
        };
        let long = if long { Some(self.long_message(key, sizes.call, xid)?) } else { None };

        // From here on the call is in flight.
        let call = self.core.requester.calls.get_mut(key).ok_or(CallFault::Limit)?;
        debug_assert_eq!(call.state, OutboundState::AwaitCredit, "a call goes out once at a time");
        call.state = OutboundState::AwaitReply;
        call.xid = Some(xid);
        call.sent = Sent { long: long.is_some(), ..Sent::default() };
        if !is_inline && call.offers.is_none() {
            call.offers = Some(self.core.requester.spare.take());
        }
        if let Some(lists) = self.core.requester.offered.get_mut(key.index()) {
            lists.clear();
        }
        self.offer_reply(key, qp, &plan, reply_room);
        let message = self.offer_call(key, qp, &plan, long, xid);
        self.emit_call(key, qp, xid, &plan, message);
        Ok(())
    }

    fn long_message(&self, key: Key, len: usize, xid: Xid) -> Result<LongMessage, CallFault> {
        let call = self.core.requester.calls.get(key).ok_or(CallFault::Limit)?;
        let mut whole = self.core.memory.take(len).ok_or(CallFault::Limit)?;
        whole
            .append(call.message.as_deref().unwrap_or_default())
            .map_err(|_| CallFault::TooLong)?;
        if let Some(CallChunks { position: Some(position), item: Some(item), .. }) =
            call.offers.as_deref()
        {
            insert_item(&mut whole, *position, item);
        }
        set_xid(&mut whole, xid);
        let header_only = self.core.header_message().ok_or(CallFault::Limit)?;
        Ok(LongMessage { whole, header_only })
    }

    /// Hop 3 for the reply: exposes the room for it.
    fn offer_reply(&mut self, key: Key, qp: Qp, plan: &CallPlan, reply_room: Option<Buf>) {
        let offers = self.core.requester.calls.get_mut(key).and_then(|call| call.offers.as_mut());
        let rooms = offers.as_ref().and_then(|offers| offers.rooms);
        let segment = match (plan.reply, reply_room) {
            (ReplyOffer::WriteChunk(len), _) => {
                let result = offers.and_then(|offers| offers.result.take());
                let result = result.expect("the plan saw room for a result");
                // RFC 8166 §3.4.6.2 [8166-23]: a Write chunk has no room for padding
                // draft 004 §3.7.1 [exp-19]: no Write chunk has room for padding
                self.expose(
                    key,
                    qp,
                    Exposure { buf: result, len: len as usize, role: Role::Result },
                )
            }
            (ReplyOffer::ReplyChunk(len), Some(mut room)) => {
                room.reset(0);
                room.extend(len as usize);
                self.expose(
                    key,
                    qp,
                    Exposure { buf: room, len: len as usize, role: Role::ReplyRoom },
                )
            }
            (ReplyOffer::ReplyChunk(_) | ReplyOffer::Nothing, _) => None,
        };
        let Some(segment) = segment else { return };
        let lists = self.core.requester.offered.get_mut(key.index()).expect("one for each place");
        let pushed = match plan.reply {
            ReplyOffer::WriteChunk(_) => {
                let whole = ResultRooms::new(&[segment.length]);
                let rooms = rooms.or(whole).expect("there is room for one");
                offer_rooms(lists, segment, rooms)
            }
            ReplyOffer::ReplyChunk(_) | ReplyOffer::Nothing => {
                lists.begin_reply();
                lists.push_reply(segment)
            }
        };
        debug_assert!(pushed.is_ok(), "empty lists take a segment for each room");
    }

    /// Hop 3 for the call: exposes the parts that travel in chunks; returns the buffer to send
    /// after the header.
    fn offer_call(
        &mut self,
        key: Key,
        qp: Qp,
        plan: &CallPlan,
        long: Option<LongMessage>,
        xid: Xid,
    ) -> Buf {
        let call = self.core.requester.calls.get_mut(key).expect("the call is being sent");
        if let Some(LongMessage { whole, header_only }) = long {
            let len = whole.len();
            let segment = self.expose(key, qp, Exposure { buf: whole, len, role: Role::Message });
            // RFC 8166 §3.5.3 [8166-27]: all segments of a Long call have position zero
            self.push_read(key, Position::ZERO, segment);
            return header_only;
        }
        let mut message = call.message.take().expect("a call that is not sent has its message");
        set_xid(&mut message, xid);
        let offers = call.offers.as_mut();
        match (plan.call, offers.as_ref().and_then(|offers| offers.position)) {
            (CallOffer::ReadChunk(planned), _) => {
                // RFC 8166 §3.4.4.4 [8166-15]: the padding of an item leaves the payload with it
                let item =
                    offers.and_then(|offers| offers.item.take()).expect("the plan saw an item");
                // RFC 8166 §3.4.5.2 [8166-18]: a Read chunk does not include padding
                // RFC 8166 §3.4.5.2 [8166-20]: a Read chunk without padding is as long as its item
                let len = item.len();
                let segment = self.expose(key, qp, Exposure { buf: item, len, role: Role::Item });
                // RFC 8166 §3.4.5 [8166-16]: a position counts in the unreduced payload
                // draft 004 §3.5.1 [exp-12]: a position counts from the XID of the RPC message
                self.push_read(key, planned.position, segment);
            }
            (_, Some(position)) => {
                let item = offers.and_then(|offers| offers.item.as_ref());
                let item = item.expect("an item that is not exposed is here");
                insert_item(&mut message, position, item);
                call.sent.inserted = padded(item.len()) as u32;
            }
            (_, None) => {}
        }
        message
    }

    fn push_read(&mut self, key: Key, position: Position, segment: Option<Segment>) {
        let lists = self.core.requester.offered.get_mut(key.index()).expect("one for each place");
        if let Some(segment) = segment {
            let pushed = lists.push_read(position, segment);
            debug_assert!(pushed.is_ok(), "empty lists take one segment");
        }
    }

    /// Binds a window. If the connection is dying, the buffer is stored back in the call at once,
    /// and the call waits for the end of the connection.
    fn expose(&mut self, key: Key, qp: Qp, exposure: Exposure) -> Option<Segment> {
        let Exposure { buf, len, role } = exposure;
        let call = self.core.requester.calls.get_mut(key).expect("the call is being sent");
        let offers =
            call.offers.as_mut().expect("a call that is not inline has a place for its windows");
        let place = offers
            .windows
            .iter_mut()
            .find(|window| window.is_none())
            .expect("a call has few windows");
        // RFC 8166 §8.1.2 [8166-76]: memory has a handle only for the time of its call
        match self.provider.bind(qp, buf, 0..len, role.access()) {
            Ok(Window { key, offset, len }) => {
                *place = Some(OpenWindow { key, role });
                Some(Segment { handle: key.0, length: len, offset })
            }
            Err(Refused { token, .. }) => {
                match role {
                    Role::Item => offers.item = Some(token),
                    Role::Result => offers.result = Some(token),
                    Role::Message | Role::ReplyRoom => drop(token),
                }
                self.provider.disconnect(qp);
                None
            }
        }
    }

    /// Hops 4 and 5: prepends the header, and sends.
    pub(super) fn emit_call(
        &mut self,
        key: Key,
        qp: Qp,
        xid: Xid,
        plan: &CallPlan,
        mut message: Buf,
    ) {
        let core = &mut self.core;
        let lists = core.requester.offered.get_mut(key.index()).expect("one for each place");
        let peer = core.requester.calls.get(key).expect("the call is being sent").peer;
        let Some(entry) = core.peers.get_mut(peer) else { return };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return;
        };
        let body = if plan.form() == Form::Long { Body::NoMsg } else { Body::Msg };
        if body == Body::NoMsg && lists.is_empty() {
            // Its window was refused: the connection is dying, and its end recovers the call.
            return;
        }
        let header = connection.call_header(xid, body);
        if connection.may_fall_back() {
            let left = core
                .requester
                .calls
                .get(key)
                .map_or(Duration::ZERO, |call| call.deadline.since(core.now));
            let by = core.now + VERSION_MAX.min(left / 4);
            entry.calls.version_by = Some(by);
            core.requester.is_settling = true;
            core.deadlines.no_later(by);
        }
        connection.mark_call(lists);
        let header_len = rpcrdma::header_len(lists);
        if message.is_empty() {
            message.reset(header_len);
        }
        // draft 004 §3.1.1 [exp-2]: the whole header travels by Send
        let room = message.prepend(header_len).expect("a message begins behind its head room");
        let emitted = connection.emit(&header, lists, room);
        debug_assert_eq!(emitted, Ok(header_len), "the header fits the room made for it");
        let stats = &mut core.counters.stats.requester;
        stats.chunks.count(lists);
        count(&mut stats.calls, plan.form());
        stats.versions.count(connection.sends(), connection.side().calls());
        let call = self.core.requester.calls.get_mut(key).expect("the call is being sent");
        call.sent.header_len = header_len as u32;
        if self.provider.send_inline(qp, &message, None) {
            return self.handle_call_sent(key, message);
        }
        if let Err(Refused { token, .. }) =
            self.provider.post_send(qp, Work::Call(key).tag(), message, None)
        {
            // The connection is dying: its end recovers the call.
            self.handle_call_sent(key, token);
        }
    }

    /// Stores the message of a sent call. It is kept until the reply, because the call may be sent
    /// again.
    pub(crate) fn handle_call_sent(&mut self, key: Key, mut message: Buf) {
        let Some(call) = self.core.requester.calls.get_mut(key).filter(|call| !call.sent.long)
        else {
            return;
        };
        debug_assert!(call.message.is_none(), "the provider had the message");
        message.trim_front(call.sent.header_len as usize);
        if let Some(position) = call.offers.as_ref().and_then(|offers| offers.position) {
            remove_item(&mut message, position, call.sent.inserted as usize);
        }
        call.message = Some(message);
        if call.state == OutboundState::AwaitWhole {
            self.go_again_if_whole(key);
        }
    }
}

/// Adds a Write chunk for each result room in a segment.
fn offer_rooms(
    lists: &mut ChunkLists,
    segment: Segment,
    rooms: ResultRooms,
) -> Result<(), ListsFull> {
    let mut offset = segment.offset;
    for length in rooms.lens() {
        lists.begin_write()?;
        lists.push_write(Segment { length: *length, offset, ..segment })?;
        // The end of the segment does not wrap: it is in a buffer of ours.
        offset += u64::from(*length);
    }
    Ok(())
}

fn count(forms: &mut Forms, form: Form) {
    *match form {
        Form::Short => &mut forms.short,
        Form::Chunked => &mut forms.chunked,
        Form::Long => &mut forms.long,
    } += 1;
}

fn sizes_of(call: &Outbound) -> Result<CallSizes, CallFault> {
    let message = call.message.as_ref().ok_or(CallFault::NoPeer)?;
    let mut sizes = CallSizes {
        call: message.len(),
        item: None,
        reply_rest_max: call.reply_max,
        reply_item_max: 0,
        reply_items: 0,
    };
    let Some(offers) = &call.offers else { return Ok(sizes) };
    let whole = |len: usize| u32::try_from(len).map_err(|_| CallFault::TooLong);
    if let (Some(position), Some(octets)) = (offers.position, &offers.item) {
        let position = Position::new(whole(position)?).ok_or(CallFault::TooLong)?;
        sizes.item = Some(Item { position, len: whole(octets.len())? });
    }
    sizes.call += offers.item.as_ref().map_or(0, |item| padded(item.len()));
    sizes.reply_items = offers.rooms.map_or(0, |rooms| rooms.lens().len());
    sizes.reply_item_max = whole(offers.result.as_ref().map_or(0, |result| result.len()))?;
    Ok(sizes)
}
