//! A call of ours is sent: hops 2 to 5.

use crate::{
    app::{App, CallFault, PeerId},
    core::{Link, Offers, Outbound, OutboundState, Role, Sent},
    responder::reply::insert_item,
    shard::Shard,
    stats::Forms,
    work::Work,
};
use stag_pools::{Access, Buf, Window, table::Key};
use stag_protocol::{
    rpcrdma::{
        self, Body, Position, Segment, Xid,
        form::{self, CallOffer, CallPlan, CallSizes, Form, Item, ReplyOffer},
    },
    xdr::padded,
};
use stag_verbs::{Provider, Qp, Refused};
use std::time::Duration;

/// Time that the answer to the first message of version 2 may take, if the call has four times as long. A peer that drops what it
/// does not understand says nothing, and the call is to be answered by version 1 before its deadline.
const VERSION_MAX: Duration = Duration::from_secs(2);
/// Segments that a chunk of ours has: each lies in one buffer.
// RFC 8267 §6.4.2 [8267-10]
const SEGMENTS: usize = 1;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hops 2 to 5: form, windows, header, Send. An error means that nothing was sent and nothing exposed.
    pub(crate) fn send_call(&mut self, key: Key, peer: PeerId, qp: Qp) -> Result<(), CallFault> {
        let call = self.core.outbound.get(key).ok_or(CallFault::Limit)?;
        let sizes = sizes_of(call)?;
        let known = call.xid;
        let xid = known.unwrap_or_else(|| self.core.xid(key.index()));
        let (_, connection) = self.core.connection(peer).ok_or(CallFault::NoPeer)?;
        let path = connection.path(SEGMENTS);
        let plan = form::plan_call(&sizes, &path).map_err(|_| CallFault::TooLong)?;
        // RFC 8167 §5.3: nobody has to take chunks in the reverse direction.
        let is_inline = plan == CallPlan { call: CallOffer::Nothing, reply: ReplyOffer::Nothing };
        // DESIGN D1: a static key is for responders only, so a fabric without windows offers nothing.
        if !is_inline && (!connection.calls_with_chunks() || self.provider.limits().windows == 0) {
            return Err(CallFault::TooLong);
        }
        let long = plan.form() == Form::Long;
        let reply_room = match plan.reply {
            ReplyOffer::ReplyChunk(len) => Some(self.core.memory.take(len as usize).ok_or(CallFault::Limit)?),
            ReplyOffer::Nothing | ReplyOffer::WriteChunk(_) => None,
        };
        let long = if long { Some(self.long_message(key, sizes.call, xid)?) } else { None };

        // From here on the call is under way.
        let call = self.core.outbound.get_mut(key).ok_or(CallFault::Limit)?;
        call.state = OutboundState::AwaitReply;
        call.xid = Some(xid);
        call.sent = Sent { long: long.is_some(), ..Sent::default() };
        if !is_inline && call.offers.is_none() {
            call.offers = Some(self.core.offers.take());
        }
        self.core.offered.get_mut(key.index()).expect("one for each place").clear();
        self.offer_reply(key, qp, &plan, reply_room);
        let message = self.offer_call(key, qp, &plan, long, xid);
        self.emit_call(key, qp, xid, &plan, message);
        Ok(())
    }

    /// The whole message in one buffer, to travel in a chunk, and the buffer for the header that is sent instead.
    fn long_message(&self, key: Key, len: usize, xid: Xid) -> Result<(Buf, Buf), CallFault> {
        let call = self.core.outbound.get(key).ok_or(CallFault::Limit)?;
        let mut whole = self.core.memory.take(len).ok_or(CallFault::Limit)?;
        whole.append(call.message.as_deref().unwrap_or_default()).map_err(|_| CallFault::TooLong)?;
        if let Some(Offers { position: Some(position), item: Some(item), .. }) = call.offers.as_deref() {
            insert_item(&mut whole, *position, item);
        }
        set_xid(&mut whole, xid);
        Ok((whole, self.header_message().ok_or(CallFault::Limit)?))
    }

    /// Hop 3, for the reply: opens the room for it.
    fn offer_reply(&mut self, key: Key, qp: Qp, plan: &CallPlan, reply_room: Option<Buf>) {
        let offers = self.core.outbound.get_mut(key).and_then(|call| call.offers.as_mut());
        let segment = match (plan.reply, reply_room) {
            (ReplyOffer::WriteChunk(len), _) => {
                let result = offers.and_then(|offers| offers.result.take());
                let result = result.expect("the plan saw room for a result");
                // RFC 8166 §3.4.6.2 [8166-23], RFC 5042 §6.3.5 [5042-11], draft 004 §3.7.1 [exp-19]
                self.expose(key, qp, result, len as usize, (Access::RemoteWrite, Role::Result))
            }
            (ReplyOffer::ReplyChunk(len), Some(mut room)) => {
                room.reset(0);
                room.extend(len as usize);
                self.expose(key, qp, room, len as usize, (Access::RemoteWrite, Role::ReplyRoom))
            }
            (ReplyOffer::ReplyChunk(_) | ReplyOffer::Nothing, _) => None,
        };
        let Some(segment) = segment else { return };
        let lists = self.core.offered.get_mut(key.index()).expect("one for each place");
        let pushed = match plan.reply {
            ReplyOffer::WriteChunk(_) => lists.begin_write().and_then(|()| lists.push_write(segment)),
            ReplyOffer::ReplyChunk(_) | ReplyOffer::Nothing => {
                lists.begin_reply();
                lists.push_reply(segment)
            }
        };
        debug_assert!(pushed.is_ok(), "empty lists take one segment");
    }

    /// Hop 3, for the call: opens what travels in chunks; returns what to send behind the header.
    fn offer_call(&mut self, key: Key, qp: Qp, plan: &CallPlan, long: Option<(Buf, Buf)>, xid: Xid) -> Buf {
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        if let Some((whole, header_only)) = long {
            let len = whole.len();
            let segment = self.expose(key, qp, whole, len, (Access::RemoteRead, Role::Message));
            // RFC 8166 §3.5.3 [8166-27]
            self.push_read(key, Position::ZERO, segment);
            return header_only;
        }
        let mut message = call.message.take().expect("a call that is not sent has its message");
        set_xid(&mut message, xid);
        let offers = call.offers.as_mut();
        match (plan.call, offers.as_ref().and_then(|offers| offers.position)) {
            (CallOffer::ReadChunk(planned), _) => {
                // RFC 8166 §3.4.4.4 [8166-15]
                let item = offers.and_then(|offers| offers.item.take()).expect("the plan saw an item");
                // RFC 8166 §3.4.5.2 [8166-18] [8166-20]
                let len = item.len();
                let segment = self.expose(key, qp, item, len, (Access::RemoteRead, Role::Item));
                // RFC 8166 §3.4.5 [8166-16], draft 004 §3.5.1 [exp-12]
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
        let lists = self.core.offered.get_mut(key.index()).expect("one for each place");
        if let Some(segment) = segment {
            let pushed = lists.push_read(position, segment);
            debug_assert!(pushed.is_ok(), "empty lists take one segment");
        }
    }

    /// Binds a window. When the connection is dying the buffer goes back to its role at once, and the call waits for its end.
    fn expose(
        &mut self,
        key: Key,
        qp: Qp,
        buf: Buf,
        len: usize,
        (access, role): (Access, Role),
    ) -> Option<Segment> {
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        let offers = call.offers.as_mut().expect("a call that is not inline has a place for its windows");
        let place =
            offers.windows.iter_mut().find(|window| window.is_none()).expect("a call has few windows");
        // RFC 8166 §8.1.2 [8166-76]
        match self.provider.bind(qp, buf, 0..len, access) {
            Ok(Window { key, offset, len }) => {
                *place = Some((key, role));
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

    /// Hops 4 and 5: the header in front, and away.
    fn emit_call(&mut self, key: Key, qp: Qp, xid: Xid, plan: &CallPlan, mut message: Buf) {
        let core = &mut self.core;
        let lists = core.offered.get_mut(key.index()).expect("one for each place");
        let peer = core.outbound.get(key).expect("the call is being sent").peer;
        let Some(entry) = core.peers.get_mut(peer.0) else { return };
        let Link::Fabric { state: Some(connection), .. } = &mut entry.link else { return };
        let body = if plan.form() == Form::Long { Body::NoMsg } else { Body::Msg };
        if body == Body::NoMsg && lists.is_empty() {
            return; // Its window was refused: the connection is dying, and its end takes the call back.
        }
        let header = connection.call_header(xid, body);
        if connection.may_fall_back() {
            let left = core.outbound.get(key).map_or(Duration::ZERO, |call| call.deadline.since(core.now));
            let by = core.now + VERSION_MAX.min(left / 4);
            entry.version_by = Some(by);
            core.next_expiry = core.next_expiry.min(by);
        }
        connection.mark_call(lists);
        let header_len = rpcrdma::header_len(lists);
        if message.is_empty() {
            message.reset(header_len);
        }
        // draft 004 §3.1.1 [exp-2]
        let room = message.prepend(header_len).expect("a message begins behind its head room");
        let emitted = connection.emit(&header, lists, room);
        debug_assert_eq!(emitted, Ok(header_len), "the header fits the room made for it");
        let stats = &mut core.counters.stats.requester;
        stats.chunks.count(lists);
        count(&mut stats.calls, plan.form());
        stats.versions.count(connection.sends(), connection.side().calls());
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        call.sent.header_len = header_len as u32;
        if self.provider.send_inline(qp, &message, None) {
            return self.handle_call_sent(key, message);
        }
        if let Err(Refused { token, .. }) = self.provider.post_send(qp, Work::Call(key).tag(), message, None)
        {
            // The connection is dying: its end takes the call back.
            self.handle_call_sent(key, token);
        }
    }

    /// The provider is done with a call's message. It is kept until the reply: the call may have to go out again.
    pub(crate) fn handle_call_sent(&mut self, key: Key, mut message: Buf) {
        let Some(call) = self.core.outbound.get_mut(key).filter(|call| !call.sent.long) else { return };
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

fn count(forms: &mut Forms, form: Form) {
    *match form {
        Form::Short => &mut forms.short,
        Form::Chunked => &mut forms.chunked,
        Form::Long => &mut forms.long,
    } += 1;
}

pub(crate) fn set_xid(message: &mut Buf, xid: Xid) {
    if let Some(word) = message.first_chunk_mut() {
        // RFC 8166 §4.2.1 [8166-31], RFC 8167 §5.1 [8167-3], draft 002 §5.1 [bidir-3]
        *word = xid.0.to_be_bytes();
    }
}

/// Takes out what [`insert_item`] put in.
fn remove_item(message: &mut Buf, position: usize, inserted: usize) {
    let len = message.len();
    if inserted > 0 && position + inserted <= len {
        message.copy_within(position + inserted..len, position);
        message.truncate(len - inserted);
    }
}

fn sizes_of(call: &Outbound) -> Result<CallSizes, CallFault> {
    let message = call.message.as_ref().ok_or(CallFault::NoPeer)?;
    let mut sizes =
        CallSizes { call: message.len(), item: None, reply_rest_max: call.reply_max, reply_item_max: 0 };
    let Some(offers) = &call.offers else { return Ok(sizes) };
    let whole = |len: usize| u32::try_from(len).map_err(|_| CallFault::TooLong);
    if let (Some(position), Some(octets)) = (offers.position, &offers.item) {
        let position = Position::new(whole(position)?).ok_or(CallFault::TooLong)?;
        sizes.item = Some(Item { position, len: whole(octets.len())? });
    }
    sizes.call += offers.item.as_ref().map_or(0, |item| padded(item.len()));
    sizes.reply_item_max = whole(offers.result.as_ref().map_or(0, |result| result.len()))?;
    Ok(sizes)
}
