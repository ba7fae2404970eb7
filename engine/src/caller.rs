//! A call of ours on its way out and its reply on its way in: hops 1 to 5, and the second half of hop 10.

use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId, Request, Token},
    core::{Link, Outbound, OutboundState, ReplyMemory, Role, Sent},
    shard::{CALL_TAG, Shard},
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
use std::collections::VecDeque;

/// Segments that a chunk of ours has: each lies in one buffer.
const SEGMENTS: usize = 1;
/// Work requests of one call: its windows and its Send.
const WORK: usize = Outbound::WINDOWS + 1;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 1: takes a call from the app. It goes out as soon as there is a credit for it.
    pub(crate) fn call(&mut self, peer: PeerId, request: Request) {
        let deadline = self.core.now + request.timeout;
        let (position, item) = request.item.map(|item| (item.position, item.octets)).unzip();
        let call = Outbound {
            peer,
            token: request.token,
            xid: None,
            deadline,
            unclocked: !self.core.in_pass,
            state: OutboundState::AwaitCredit,
            cancelled: false,
            message: Some(request.message),
            sent: Sent::default(),
            position,
            item,
            shared: None,
            result: request.result,
            reply_max: request.reply_max,
            windows: [None; Outbound::WINDOWS],
            reply_room: None,
            reply: None,
            written: 0,
        };
        self.core.unclocked |= call.unclocked;
        let Some(entry) = self.core.peers.get_mut(peer.0) else {
            return self.give_back(call, CallFault::NoPeer);
        };
        match self.core.outbound.insert(call) {
            Ok(key) => entry.waiting.push_back(key),
            Err(call) => return self.give_back(call, CallFault::Limit),
        }
        self.core.next_expiry = self.core.next_expiry.min(deadline);
        self.start_waiting(peer);
    }

    /// Tells the app that a call nobody knows of is over. Its room for a result comes back as it was.
    fn give_back(&mut self, call: Outbound, fault: CallFault) {
        let Outbound { token, peer, item, result, .. } = call;
        let outcome = Outcome { token, peer, reply: Err(fault), item, result };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
    }

    /// Gives up on a call (DESIGN D9): one that is under way keeps its memory until the peer cannot reach it.
    pub(crate) fn cancel(&mut self, peer: PeerId, token: Token) {
        for place in 0..self.core.outbound.capacity() {
            let Some(key) = self.core.outbound.key_at(place) else { continue };
            let call = self.core.outbound.get_mut(key).expect("the key was just made");
            if call.peer != peer || call.token != token {
                continue;
            }
            call.cancelled = true;
            if call.state == OutboundState::AwaitCredit
                && let Some(call) = self.core.outbound.remove(key)
            {
                self.give_back(call, CallFault::Cancelled);
            }
        }
    }

    /// Sends the calls that wait, in order, while there are credits and room (hop 2).
    pub(crate) fn start_waiting(&mut self, peer: PeerId) {
        loop {
            let Some(entry) = self.core.peers.get_mut(peer.0) else { return };
            let Some(key) = entry.waiting.front().copied() else { return };
            if self.core.outbound.get(key).is_none_or(|call| call.state != OutboundState::AwaitCredit) {
                entry.waiting.pop_front();
                continue;
            }
            if let Link::Stream(stream) = entry.link {
                if !self.streams.takes_calls(stream) {
                    return;
                }
                entry.waiting.pop_front();
                self.send_call_by_stream(key, stream);
                continue;
            }
            let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return };
            // Every window that is out may need an invalidation of ours: its place in the queue is not given away.
            let windows =
                connection.calls().map_or(0, |credits| credits.in_flight() as usize) * Outbound::WINDOWS;
            if self.provider.send_room(*qp) < WORK + windows || connection.take_credit().is_err() {
                self.core.counters.stats.requester.waited_for_credit += 1;
                return;
            }
            entry.waiting.pop_front();
            let qp = *qp;
            if let Err(fault) = self.send_call(key, peer, qp) {
                if let Some((_, connection)) = self.core.connection(peer) {
                    connection.give_credit();
                }
                if let Some(call) = self.core.outbound.remove(key) {
                    self.give_back(call, fault);
                }
            }
        }
    }

    /// A call over TCP: everything inline, the item from where it lies.
    fn send_call_by_stream(&mut self, key: Key, stream: Key) {
        let xid = self.core.xid(key.index());
        let Some(call) = self.core.outbound.get_mut(key) else { return };
        let Some(mut message) = call.message.take() else { return };
        set_xid(&mut message, xid);
        call.xid = Some(xid);
        call.state = OutboundState::AwaitReply;
        call.shared = call.item.take().map(Buf::freeze);
        let item = call.position.zip(call.shared.as_ref());
        self.streams.send_call(stream, message, item, &self.core.zeros);
    }

    /// A reply came over TCP.
    pub(crate) fn handle_record(&mut self, peer: PeerId, xid: Xid, record: &[u8]) {
        if let Some(key) = self.core.outbound_by_xid(peer, xid)
            && let Some(call) = self.core.outbound.remove(key)
        {
            let reply = if call.cancelled { Err(CallFault::Cancelled) } else { Ok(record) };
            self.tell(call, reply);
        }
        self.start_waiting(peer);
    }

    /// Tells the app of an outcome.
    fn tell(&mut self, call: Outbound, reply: Result<&[u8], CallFault>) {
        let Outbound { token, peer, item, shared, mut result, written, .. } = call;
        if let Some(result) = &mut result {
            result.truncate(written);
        }
        // What was sent over TCP is ours alone again, unless a part of it still waits to be sent.
        let item = item.or_else(|| shared?.try_into_buf().ok());
        let outcome = Outcome { token, peer, reply, item, result };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
        self.empty_outbox();
    }

    /// Hops 2 to 5: form, windows, header, Send. An error means that nothing was sent and nothing exposed.
    fn send_call(&mut self, key: Key, peer: PeerId, qp: Qp) -> Result<(), CallFault> {
        let call = self.core.outbound.get(key).ok_or(CallFault::Limit)?;
        let sizes = sizes_of(call)?;
        let known = call.xid;
        let xid = known.unwrap_or_else(|| self.core.xid(key.index()));
        let (_, connection) = self.core.connection(peer).ok_or(CallFault::NoPeer)?;
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
        let long = if long { Some(self.long_message(key, sizes.call, xid)?) } else { None };

        // From here on the call is under way.
        let call = self.core.outbound.get_mut(key).ok_or(CallFault::Limit)?;
        call.state = OutboundState::AwaitReply;
        call.xid = Some(xid);
        call.sent = Sent { long: long.is_some(), ..Sent::default() };
        self.core.offered.get_mut(key.index()).expect("one for each place").clear();
        self.offer_reply(key, qp, &plan, reply_room);
        let message = self.offer_call(key, qp, &plan, long, xid);
        self.emit_call(key, qp, header, &plan, message);
        Ok(())
    }

    /// The whole message in one buffer, to travel in a chunk, and the buffer for the header that is sent instead.
    fn long_message(&self, key: Key, len: usize, xid: Xid) -> Result<(Buf, Buf), CallFault> {
        let call = self.core.outbound.get(key).ok_or(CallFault::Limit)?;
        let mut whole = self.core.pool.take(len).ok_or(CallFault::Limit)?;
        whole.append(call.message.as_deref().unwrap_or_default()).map_err(|_| CallFault::TooLong)?;
        if let (Some(position), Some(item)) = (call.position, &call.item) {
            insert_item(&mut whole, position, item);
        }
        set_xid(&mut whole, xid);
        Ok((whole, self.header_message().ok_or(CallFault::Limit)?))
    }

    /// Hop 3, for the reply: opens the room for it.
    fn offer_reply(&mut self, key: Key, qp: Qp, plan: &CallPlan, reply_room: Option<Buf>) {
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        let segment = match (plan.reply, reply_room) {
            (ReplyOffer::WriteChunk(len), _) => {
                let result = call.result.take().expect("the plan saw room for a result");
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
            self.push_read(key, Position::ZERO, segment);
            return header_only;
        }
        let mut message = call.message.take().expect("a call that is not sent has its message");
        set_xid(&mut message, xid);
        match (plan.call, call.position) {
            (CallOffer::ReadChunk(planned), _) => {
                let item = call.item.take().expect("the plan saw an item");
                let len = item.len();
                let segment = self.expose(key, qp, item, len, (Access::RemoteRead, Role::Item));
                self.push_read(key, planned.position, segment);
            }
            (_, Some(position)) => {
                let item = call.item.as_ref().expect("an item that is not exposed is here");
                insert_item(&mut message, position, item);
                call.sent.inserted = padded(item.len());
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
        if header.body == Body::NoMsg && lists.is_empty() {
            return; // Its window was refused: the connection is dying, and its end takes the call back.
        }
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
        let call = self.core.outbound.get_mut(key).expect("the call is being sent");
        call.sent.header_len = header_len;
        if let Err(Refused { token, .. }) = self.provider.post_send(qp, call_tag(key), message, None) {
            // The connection is dying: its end takes the call back.
            self.handle_call_sent(key, token);
        }
    }

    /// The provider is done with a call's message. It is kept until the reply: the call may have to go out again.
    pub(crate) fn handle_call_sent(&mut self, key: Key, mut message: Buf) {
        let Some(call) = self.core.outbound.get_mut(key).filter(|call| !call.sent.long) else { return };
        message.trim_front(call.sent.header_len);
        if let Some(position) = call.position {
            remove_item(&mut message, position, call.sent.inserted);
        }
        call.message = Some(message);
    }

    /// The connection is gone, and everything that its calls had posted or exposed is back: they wait for the next one.
    pub(crate) fn take_calls_back(&mut self, peer: PeerId) {
        let mut again = VecDeque::new();
        for place in 0..self.core.outbound.capacity() {
            let Some(key) = self.core.outbound.key_at(place) else { continue };
            let call = self.core.outbound.get_mut(key).expect("the key was just made");
            if call.peer != peer || call.state == OutboundState::AwaitCredit {
                continue;
            }
            debug_assert!(call.is_fenced(), "windows end before their connection");
            let over = match (call.state, call.cancelled) {
                _ if call.reply.is_some() => None,
                (OutboundState::AwaitEnd, _) => Some(CallFault::TimedOut),
                (_, true) => Some(CallFault::Cancelled),
                (_, false) if call.message.is_none() => Some(CallFault::Disconnected(Cause::Local)),
                (_, false) => {
                    call.state = OutboundState::AwaitCredit;
                    call.reply_room = None;
                    again.push_back((call.xid, key));
                    continue;
                }
            };
            if let Some(fault) = over {
                call.reply = Some(ReplyMemory::Fault(fault));
            }
            self.finish_if_fenced(key);
        }
        // The oldest goes first, as it did before.
        again.make_contiguous().sort_unstable_by_key(|(xid, _)| xid.map(|xid| xid.0));
        if let Some(entry) = self.core.peers.get_mut(peer.0) {
            while let Some((_, key)) = again.pop_back() {
                entry.waiting.push_front(key);
            }
        }
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
        if let Some(entry) = self.core.peers.get_mut(peer.0) {
            entry.attempts = 0;
        }
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
        let room = call.reply_room.take();
        let reply = match call.reply.take().expect("it was seen above") {
            _ if call.cancelled => ReplyMemory::Fault(CallFault::Cancelled),
            reply => reply,
        };
        let octets = match &reply {
            ReplyMemory::Inline { message, payload_at } => Ok(message.get(*payload_at..).unwrap_or_default()),
            ReplyMemory::Room(len) => {
                Ok(room.as_deref().and_then(|room| room.get(..*len)).unwrap_or_default())
            }
            ReplyMemory::Fault(fault) => Err(*fault),
        };
        self.tell(call, octets);
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
            call.reply.get_or_insert(ReplyMemory::Fault(fault));
            debug_assert!(call.is_fenced(), "windows end before their connection");
            self.finish_if_fenced(key);
        }
    }

    /// Ends the calls whose deadline passed: at once where nobody knows of them, else with their connection, which never
    /// carries them again (DESIGN D9).
    pub(crate) fn expire_calls(&mut self) {
        for place in 0..self.core.outbound.capacity() {
            let Some(key) = self.core.outbound.key_at(place) else { continue };
            let call = self.core.outbound.get_mut(key).expect("the key was just made");
            if call.deadline > self.core.now {
                self.core.next_expiry = self.core.next_expiry.min(call.deadline);
                continue;
            }
            let peer = call.peer;
            match call.state {
                OutboundState::AwaitCredit => {
                    self.core.counters.stats.requester.timeouts += 1;
                    if let Some(call) = self.core.outbound.remove(key) {
                        self.give_back(call, CallFault::TimedOut);
                    }
                }
                OutboundState::AwaitReply => {
                    call.state = OutboundState::AwaitEnd;
                    self.core.counters.stats.requester.timeouts += 1;
                    self.disconnect(peer);
                }
                OutboundState::AwaitFence => self.disconnect(peer),
                OutboundState::AwaitEnd => {}
            }
        }
        self.empty_outbox();
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

/// Takes out what [`insert_item`] put in.
fn remove_item(message: &mut Buf, position: usize, inserted: usize) {
    let len = message.len();
    if inserted > 0 && position + inserted <= len {
        message.copy_within(position + inserted..len, position);
        message.truncate(len - inserted);
    }
}

fn call_tag(key: Key) -> Tag {
    debug_assert_eq!(key.to_bits() & CALL_TAG, 0, "the table of calls has fewer than 2^31 places");
    Tag(key.to_bits() | CALL_TAG)
}

fn sizes_of(call: &Outbound) -> Result<CallSizes, CallFault> {
    let message = call.message.as_ref().ok_or(CallFault::NoPeer)?;
    let item = match (call.position, &call.item) {
        (Some(position), Some(octets)) => {
            let position = u32::try_from(position).ok().and_then(Position::new);
            let len = u32::try_from(octets.len()).map_err(|_| CallFault::TooLong)?;
            Some(Item { position: position.ok_or(CallFault::TooLong)?, len })
        }
        _ => None,
    };
    let item_len = call.item.as_ref().map_or(0, |item| padded(item.len()));
    let result = call.result.as_ref().map_or(0, |result| result.len());
    Ok(CallSizes {
        call: message.len() + item_len,
        item,
        reply_rest_max: call.reply_max,
        reply_item_max: u32::try_from(result).map_err(|_| CallFault::TooLong)?,
    })
}
