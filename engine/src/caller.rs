//! A call of ours on its way out and its reply on its way in: hops 1 to 5, and the second half of hop 10.

use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId, Request},
    core::{Link, Outbound, OutboundState, ReplyMemory, Role},
    shard::{NO_TAG, Shard},
    stats::Forms,
    transfer::insert_item,
};
use stag_pools::{Access, Buf, Fenced, RemoteKey, Window, table::Key};
use stag_protocol::{
    rpcrdma::{
        Body, ErrorBody, Header, Position, Segment, Xid,
        form::{self, CallOffer, CallPlan, CallSizes, Form, Item, Path, ReplyOffer},
        requester::{self, ReplyPayload},
        v1,
    },
    xdr::padded,
};
use stag_verbs::{Cause, Provider, Qp, Refused, Tag};

/// Segments that a chunk of ours has: each lies in one buffer.
const SEGMENTS: usize = 1;
/// Work requests of one call: its windows and its Send.
const WORK: usize = Outbound::WINDOWS + 1;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 1: takes a call from the app. It goes out as soon as there is a credit for it.
    pub(crate) fn call(&mut self, peer: PeerId, request: Request) {
        let Some(Link::Fabric { .. }) = self.core.peers.get(peer.0).map(|peer| &peer.link) else {
            return self.give_back(peer, request, CallFault::NoPeer);
        };
        let deadline = self.core.now + request.timeout;
        let call = Outbound {
            peer,
            token: request.token,
            xid: Xid(0),
            deadline,
            state: OutboundState::AwaitCredit,
            request: Some(request),
            windows: [None; Outbound::WINDOWS],
            item: None,
            result: None,
            reply_room: None,
            reply: None,
            written: 0,
        };
        let key = match self.core.outbound.insert(call) {
            Ok(key) => key,
            Err(call) => {
                let request = call.request.expect("it was put there a moment ago");
                return self.give_back(peer, request, CallFault::Limit);
            }
        };
        self.core.next_expiry = self.core.next_expiry.min(deadline).max(self.core.now);
        let waiting = &mut self.core.peers.get_mut(peer.0).expect("it was found above").waiting;
        waiting.push_back(key);
        self.start_waiting(peer);
    }

    fn give_back(&mut self, peer: PeerId, request: Request, fault: CallFault) {
        let outcome = Outcome {
            token: request.token,
            peer,
            reply: Err(fault),
            item: request.item.map(|item| item.octets),
            result: request.result,
        };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
    }

    /// Sends the calls that wait, in order, while there are credits and room (hop 2).
    pub(crate) fn start_waiting(&mut self, peer: PeerId) {
        loop {
            let Some(entry) = self.core.peers.get_mut(peer.0) else { return };
            let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return };
            let Some(key) = entry.waiting.front().copied() else { return };
            if self.core.outbound.get(key).is_none_or(|call| call.state != OutboundState::AwaitCredit) {
                entry.waiting.pop_front();
                continue;
            }
            if self.provider.send_room(*qp) < WORK || connection.take_credit().is_err() {
                self.core.counters.stats.requester.waited_for_credit += 1;
                return;
            }
            entry.waiting.pop_front();
            let qp = *qp;
            if let Err(fault) = self.send_call(key, peer, qp) {
                self.abandon(key, peer, fault);
            }
        }
    }

    /// A call that could not be sent at all: nobody knows of it.
    fn abandon(&mut self, key: Key, peer: PeerId, fault: CallFault) {
        if let Some((_, connection)) = self.core.connection(peer) {
            connection.give_credit();
        }
        let Some(call) = self.core.outbound.remove(key) else { return };
        if let Some(request) = call.request {
            self.give_back(peer, request, fault);
        }
    }

    /// Hops 2 to 5: form, windows, header, Send.
    fn send_call(&mut self, key: Key, peer: PeerId, qp: Qp) -> Result<(), CallFault> {
        let xid = self.core.xid(key.index());
        let call = self.core.outbound.get_mut(key).ok_or(CallFault::Limit)?;
        let request = call.request.as_mut().ok_or(CallFault::Limit)?;
        let sizes = sizes_of(request)?;
        let Some(Link::Fabric { state: Some(connection), .. }) =
            self.core.peers.get(peer.0).map(|peer| &peer.link)
        else {
            return Err(CallFault::NoPeer);
        };
        let path = Path {
            call: connection.send_threshold(),
            reply: connection.receive_threshold(),
            segments: SEGMENTS,
        };
        let plan = form::plan_call(&sizes, &path).map_err(|_| CallFault::TooLong)?;
        let long = plan.form() == Form::Long;
        let header = connection.call_header(xid, if long { Body::NoMsg } else { Body::Msg });
        let reply_room = match plan.reply {
            ReplyOffer::ReplyChunk(len) => Some(self.core.pool.take(len as usize).ok_or(CallFault::Limit)?),
            ReplyOffer::Nothing | ReplyOffer::WriteChunk(_) => None,
        };
        let whole = if long {
            let mut whole = self.core.pool.take(sizes.call).ok_or(CallFault::Limit)?;
            whole.reset(0);
            whole.append(&request.message).map_err(|_| CallFault::TooLong)?;
            if let Some(item) = &request.item {
                insert_item(&mut whole, item.position, &item.octets);
            }
            Some(whole)
        } else {
            None
        };
        let header_only = if long { Some(self.header_message().ok_or(CallFault::Limit)?) } else { None };

        // From here on the call is out of the app's hands.
        let call = self.core.outbound.get_mut(key).ok_or(CallFault::Limit)?;
        let request = call.request.take().ok_or(CallFault::Limit)?;
        call.xid = xid;
        call.state = OutboundState::AwaitReply;
        let mut message = request.message;
        set_xid(&mut message, xid);
        self.core.offered.get_mut(key.index()).expect("one for each place").clear();
        let item = request.item.map(|item| (item.position, item.octets));
        self.offer_reply(key, qp, &plan, request.result, reply_room);
        let message = self.offer_call(key, qp, &plan, message, item, whole.zip(header_only));
        self.emit_call(key, qp, header, &plan, message);
        Ok(())
    }

    /// Hop 3, for the reply: opens the room for it.
    fn offer_reply(
        &mut self,
        key: Key,
        qp: Qp,
        plan: &CallPlan,
        result: Option<Buf>,
        reply_room: Option<Buf>,
    ) {
        let window = match (plan.reply, result, reply_room) {
            (ReplyOffer::WriteChunk(len), Some(result), _) => {
                self.expose(key, qp, result, len as usize, (Access::RemoteWrite, Role::Result))
            }
            (ReplyOffer::ReplyChunk(len), result, Some(mut room)) => {
                self.core.outbound.get_mut(key).expect("the call is being sent").result = result;
                room.reset(0);
                room.extend(len as usize);
                self.expose(key, qp, room, len as usize, (Access::RemoteWrite, Role::ReplyRoom))
            }
            (_, result, _) => {
                self.core.outbound.get_mut(key).expect("the call is being sent").result = result;
                None
            }
        };
        let Some(segment) = window else { return };
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

    /// Hop 3, for the call: opens what travels in chunks; returns the message to send without its header.
    fn offer_call(
        &mut self,
        key: Key,
        qp: Qp,
        plan: &CallPlan,
        mut message: Buf,
        item: Option<(usize, Buf)>,
        long: Option<(Buf, Buf)>,
    ) -> Buf {
        let (position, segment) = match (plan.call, item, long) {
            (CallOffer::ReadChunk(planned), Some((_, octets)), _) => {
                let len = octets.len();
                (planned.position, self.expose(key, qp, octets, len, (Access::RemoteRead, Role::Item)))
            }
            (CallOffer::PositionZero(_), item, Some((mut whole, header_only))) => {
                let xid = message.first_chunk().copied().map(u32::from_be_bytes).unwrap_or_default();
                set_xid(&mut whole, Xid(xid));
                let entry = self.core.outbound.get_mut(key).expect("the call is being sent");
                entry.item = item.map(|(_, octets)| octets);
                message = header_only;
                let len = whole.len();
                (Position::ZERO, self.expose(key, qp, whole, len, (Access::RemoteRead, Role::Message)))
            }
            (_, item, _) => {
                if let Some((position, octets)) = item {
                    insert_item(&mut message, position, &octets);
                    self.core.outbound.get_mut(key).expect("the call is being sent").item = Some(octets);
                }
                return message;
            }
        };
        if let Some(segment) = segment {
            let lists = self.core.offered.get_mut(key.index()).expect("one for each place");
            let pushed = lists.push_read(position, segment);
            debug_assert!(pushed.is_ok(), "empty lists take one segment");
        }
        message
    }

    /// Binds a window. When the connection is dying the buffer goes back to its role at once, and the call fails with it.
    fn expose(
        &mut self,
        key: Key,
        qp: Qp,
        buf: Buf,
        len: usize,
        (access, role): (Access, Role),
    ) -> Option<Segment> {
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        let place = call.windows.iter_mut().find(|window| window.is_none()).expect("a call has few windows");
        match self.provider.bind(qp, buf, 0..len, access) {
            Ok(Window { key, offset, len }) => {
                *place = Some((key, role));
                Some(Segment { handle: key.0, length: len, offset })
            }
            Err(Refused { token, .. }) => {
                match role {
                    Role::Item => call.item = Some(token),
                    Role::Result => call.result = Some(token),
                    Role::Message | Role::ReplyRoom => drop(token),
                }
                self.provider.disconnect(qp);
                None
            }
        }
    }

    /// Hops 4 and 5: the header in front, and away.
    fn emit_call(&mut self, key: Key, qp: Qp, header: Header, plan: &CallPlan, mut message: Buf) {
        let lists = self.core.offered.get(key.index()).expect("one for each place");
        let header_len = v1::header_len(lists);
        if message.is_empty() {
            message.reset(header_len);
        }
        let room = message.prepend(header_len).expect("a message begins behind its head room");
        let emitted = v1::emit(&header, lists, room);
        debug_assert_eq!(emitted, Ok(header_len), "the header fits the room made for it");
        let stats = &mut self.core.counters.stats.requester;
        stats.chunks.count(lists);
        count(&mut stats.calls, plan.form());
        // A refused Send means that the connection is dying: its end ends the call.
        drop(self.provider.post_send(qp, NO_TAG, message, None));
    }

    /// Hop 10: a reply arrived.
    pub(crate) fn handle_reply(
        &mut self,
        peer: PeerId,
        header: Header,
        payload_at: usize,
        message: Buf,
        invalidated: Option<Fenced>,
    ) {
        let Some(key) = self.core.outbound_by_xid(peer, header.xid) else {
            if let Some(fenced) = invalidated {
                self.handle_stray_invalidation(peer, fenced);
            }
            return;
        };
        let mut foreign = false;
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if let Some(fenced) = invalidated {
            self.core.counters.stats.requester.remote_invalidations += 1;
            let window = fenced.key();
            if let Err(buf) = call.fence(window, fenced.into_buf()) {
                foreign = true;
                self.core.deposit(peer, window, buf);
            }
        }
        if foreign {
            // RFC 8797 §4.1: only a key of this call may be invalidated.
            return self.disconnect(peer);
        }
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if call.state != OutboundState::AwaitReply {
            return;
        }
        let offered = self.core.offered.get(key.index()).expect("one for each place");
        let inline = message.len() - payload_at;
        let shape = match requester::check_reply(offered, &header, &self.core.lists, inline) {
            Ok(shape) => shape,
            // RFC 8166 §4.5: a reply that cannot be understood is discarded. The call ends at its deadline.
            Err(fault) => return self.core.counters.peer_faults.count(fault),
        };
        let written = shape.written().first().copied().unwrap_or(0);
        call.written = usize::try_from(written).unwrap_or(0);
        call.reply = Some(match shape.payload {
            ReplyPayload::Inline(_) => ReplyMemory::Inline { message, payload_at },
            ReplyPayload::ReplyChunk(len) => ReplyMemory::Room(usize::try_from(len).unwrap_or(0)),
        });
        let replies = &mut self.core.counters.stats.requester.replies;
        match shape.payload {
            ReplyPayload::ReplyChunk(_) => replies.long += 1,
            ReplyPayload::Inline(_) if written > 0 => replies.chunked += 1,
            ReplyPayload::Inline(_) => replies.short += 1,
        }
        self.end_call(key, peer);
    }

    /// The responder's transport refused a call.
    pub(crate) fn handle_refused(&mut self, peer: PeerId, xid: Xid, error: ErrorBody) {
        self.core.counters.stats.requester.errors += 1;
        let Some(key) = self.core.outbound_by_xid(peer, xid) else { return };
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if call.state == OutboundState::AwaitReply {
            call.reply = Some(ReplyMemory::Fault(CallFault::Refused(error)));
            self.end_call(key, peer);
        }
    }

    /// A key was invalidated by a message that is not the reply of its call: the connection ends (DESIGN D9).
    pub(crate) fn handle_stray_invalidation(&mut self, peer: PeerId, fenced: Fenced) {
        let key = fenced.key();
        self.core.deposit(peer, key, fenced.into_buf());
        self.disconnect(peer);
    }

    /// The responder is done with a call: its credit is free, and every key that is left is invalidated before the app hears
    /// of the reply (RFC 8166 §4.4.1).
    fn end_call(&mut self, key: Key, peer: PeerId) {
        let Some(call) = self.core.outbound.get_mut(key) else { return };
        call.state = OutboundState::AwaitFence;
        let windows = call.windows;
        if let Some((qp, connection)) = self.core.connection(peer) {
            connection.give_credit();
            for (window, _) in windows.into_iter().flatten() {
                self.invalidate(qp, key, window);
            }
        }
        self.finish_if_fenced(key);
        self.start_waiting(peer);
    }

    fn invalidate(&mut self, qp: Qp, call: Key, window: RemoteKey) {
        self.core.counters.stats.requester.local_invalidations += 1;
        if self.provider.post_local_invalidate(qp, Tag(call.to_bits()), window).is_err() {
            // RFC 8166 §4.5.4: what cannot be invalidated ends the connection, and with it the window.
            self.provider.disconnect(qp);
        }
    }

    /// Tells the app, once every key of a finished call is dead.
    pub(crate) fn finish_if_fenced(&mut self, key: Key) {
        let done = |call: &Outbound| call.reply.is_some() && call.is_fenced();
        if !self.core.outbound.get(key).is_some_and(done) {
            return;
        }
        let Some(mut call) = self.core.outbound.remove(key) else { return };
        if let Some(result) = &mut call.result {
            result.truncate(call.written);
        }
        let reply = call.reply.expect("it was seen above");
        let reply = match &reply {
            ReplyMemory::Inline { message, payload_at } => Ok(message.get(*payload_at..).unwrap_or_default()),
            ReplyMemory::Room(len) => {
                Ok(call.reply_room.as_deref().and_then(|room| room.get(..*len)).unwrap_or_default())
            }
            ReplyMemory::Fault(fault) => Err(*fault),
        };
        let outcome =
            Outcome { token: call.token, peer: call.peer, reply, item: call.item, result: call.result };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
    }

    /// The connection is gone and every window of it came back: its calls are over.
    pub(crate) fn fail_calls_of(&mut self, peer: PeerId, cause: Cause) {
        for place in 0..self.core.outbound.capacity() {
            let Some(key) = self.core.outbound.key_at(place) else { continue };
            let call = self.core.outbound.get_mut(key).expect("the key was just made");
            if call.peer != peer {
                continue;
            }
            let fault = match call.state {
                OutboundState::AwaitEnd => CallFault::TimedOut,
                _ => CallFault::Disconnected(cause),
            };
            match call.request.take() {
                Some(request) => {
                    drop(self.core.outbound.remove(key));
                    self.give_back(peer, request, fault);
                }
                None => {
                    call.reply.get_or_insert(ReplyMemory::Fault(fault));
                    debug_assert!(call.is_fenced(), "windows end before their connection");
                    self.finish_if_fenced(key);
                }
            }
        }
    }

    /// Ends the connections of calls whose deadline passed: the same connection never carries them again (DESIGN D9).
    pub(crate) fn expire_calls(&mut self) {
        for place in 0..self.core.outbound.capacity() {
            let Some(key) = self.core.outbound.key_at(place) else { continue };
            let call = self.core.outbound.get_mut(key).expect("the key was just made");
            if call.deadline > self.core.now || call.state == OutboundState::AwaitEnd {
                continue;
            }
            let peer = call.peer;
            if call.state != OutboundState::AwaitFence {
                call.state = OutboundState::AwaitEnd;
                self.core.counters.stats.requester.timeouts += 1;
            }
            self.disconnect(peer);
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

fn set_xid(message: &mut Buf, xid: Xid) {
    if let Some(word) = message.first_chunk_mut() {
        *word = xid.0.to_be_bytes();
    }
}

fn sizes_of(request: &Request) -> Result<CallSizes, CallFault> {
    let item = match &request.item {
        Some(item) => {
            let position = u32::try_from(item.position).ok().and_then(Position::new);
            let len = u32::try_from(item.octets.len()).map_err(|_| CallFault::TooLong)?;
            Some(Item { position: position.ok_or(CallFault::TooLong)?, len })
        }
        None => None,
    };
    let item_len = request.item.as_ref().map_or(0, |item| padded(item.octets.len()));
    let result = request.result.as_ref().map_or(0, |result| result.len());
    Ok(CallSizes {
        call: request.message.len() + item_len,
        item,
        reply_rest_max: request.reply_max,
        reply_item_max: u32::try_from(result).map_err(|_| CallFault::TooLong)?,
    })
}
