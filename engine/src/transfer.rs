//! A peer's call on its way in and its reply on its way out: hops 6 to 10 of a call's life.

use crate::{
    app::{Answer, App, Call, CallId, Cx, PeerId},
    caller::room_kept,
    config::HEAD_ROOM,
    core::{Inbound, InboundState, Link},
    health::HealthFault,
    item::Pulled,
    shard::{NO_TAG, Shard},
    stages::Stage,
    stats::Forms,
};
use stag_pools::{Buf, Extent, Fenced, RemoteKey, table::Key};
use stag_protocol::{
    rpc::{CallHeader, Refusal},
    rpcrdma::{
        Body, ChunkLists, Connection, Header, Incoming, PeerFault, Plain, Position, Procedure, Segment, Side,
        Version, Xid,
        chunk::{READS_MAX, SEGMENTS_MAX},
        option::NoOption,
        plain,
        responder::{self, Part, Push, ReplyParts, ReplyPlan},
    },
    xdr::{Reader, Writer, pad},
};
use stag_verbs::{PeerAddress, Provider, Qp, Refusal as PostRefusal, Refused, RemoteSpan, Status, Tag};
use std::ops::Range;

/// What a header without chunks says in its lists.
pub(crate) static NOTHING: ChunkLists = ChunkLists::new();
/// One peer's Reads hold at most this part of the large buffers.
const PULL_SHARE: usize = 4;

/// What a pull waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// A buffer of the shard, for at least this many octets.
    Memory(usize),
    /// Room in the connection's send queue, or in its share of the memory.
    Room,
}

pub(crate) const fn remote(segment: Segment) -> RemoteSpan {
    RemoteSpan { key: RemoteKey(segment.handle), offset: segment.offset, len: segment.length }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 6 and 7: a message arrived.
    #[inline]
    pub(crate) fn handle_received(&mut self, qp: Qp, buf: Buf, invalidated: Option<Fenced>) {
        let Some(peer) = self.core.peer_of(qp) else { return };
        let Some(entry) = self.core.peers.get_mut(peer.0) else { return };
        let Link::Fabric { state: Some(state), .. } = &mut entry.link else { return };
        if invalidated.is_some() {
            return self.handle_any(peer, qp, buf, invalidated);
        }
        match state.handle_plain(&buf) {
            Some(Plain::Call { xid, credits }) => {
                (entry.wanted, entry.called_at) = (credits.0, self.core.now);
                // Not begun while we stop, as in `handle_any`.
                if !self.core.stopping {
                    let (version, direction, from) = (state.sends(), state.side().serves(), entry.address);
                    self.core.counters.stats.responder.versions.count(version, direction);
                    self.begin_plain_call((peer, from), qp, xid, &buf);
                }
            }
            Some(Plain::Reply { xid, credits }) => {
                if self.handle_plain_reply(peer, xid, &buf).is_none() {
                    self.core.lists.clear();
                    let header = Header { xid, credits, body: Body::Msg };
                    return self.handle_reply(peer, header, plain::HEADER_LEN, buf, None);
                }
            }
            None => return self.handle_any(peer, qp, buf, None),
        }
        self.repost(buf);
    }

    /// The same, whatever it is.
    #[inline(never)]
    fn handle_any(&mut self, peer: PeerId, qp: Qp, buf: Buf, invalidated: Option<Fenced>) {
        let Some(Link::Fabric { state: Some(state), .. }) =
            self.core.peers.get_mut(peer.0).map(|peer| &mut peer.link)
        else {
            return;
        };
        let awaits_version = state.version().is_none();
        self.core.watch.see(self.core.now);
        let incoming = state.handle_message(&buf, &mut self.core.lists);
        if let Incoming::Call { header, .. } = incoming {
            let entry = self.core.peers.get_mut(peer.0).expect("it was found above");
            (entry.wanted, entry.called_at) = (header.credits.0, self.core.now);
        }
        if let Incoming::Reply { header, payload_at, .. } = incoming {
            return self.handle_reply(peer, header, payload_at, buf, invalidated);
        }
        if let Some(fenced) = invalidated {
            self.handle_stray_invalidation(peer, fenced);
        }
        match incoming {
            // Not begun, so that the caller may safely ask the next server; the connection ends in a moment.
            Incoming::Call { .. } if self.core.stopping => {}
            Incoming::Call { header, payload_at, direction } => {
                let version = self.core.connection(peer).map_or(Version::One, |(_, state)| state.sends());
                self.core.counters.stats.responder.versions.count(version, direction);
                self.begin_call(peer, qp, header, payload_at, buf);
            }
            Incoming::Error { xid, error, .. } => self.handle_refused(peer, xid, error),
            Incoming::Answer(reply, fault) => {
                self.core.counters.peer_faults.count(fault);
                self.send_error(qp, &reply);
            }
            Incoming::Discard(fault) => self.core.counters.peer_faults.count(fault),
            Incoming::Close(fault) => {
                self.core.counters.peer_faults.count(fault);
                self.provider.disconnect(qp);
            }
            Incoming::Reply { .. } => unreachable!("replies were handled above"),
            Incoming::Again { xid } => self.handle_again(peer, xid),
            Incoming::Option { xid, message } => self.handle_option(peer, xid, message),
            Incoming::OptionRefused { .. } => {
                self.end_asking(peer, Err(HealthFault::Option(NoOption::Refused)));
            }
        }
        if awaits_version {
            self.start_waiting(peer); // Calls in the reverse direction may have waited for that alone.
        }
    }

    /// Gives a receive back to the fabric at once, when its message is done with.
    #[inline]
    pub(crate) fn repost(&mut self, receive: Buf) {
        // Where it has no place it goes back to its pool, and from there when there is one.
        drop(self.provider.post_receive(receive));
    }

    /// Gives a plain call a place, and to the app: there is nothing to pull, and the transaction was compared.
    #[inline]
    fn begin_plain_call(&mut self, (peer, from): (PeerId, PeerAddress), qp: Qp, xid: Xid, message: &[u8]) {
        self.core.counters.stats.responder.calls.short += 1;
        let state = InboundState::AwaitAnswer;
        let call = Inbound { peer, xid, state, has_lists: false, fabric: None };
        let Ok(key) = self.core.inbound.insert(call) else { return self.refuse_place(qp) };
        self.core.watch.begin_at_once(key, self.core.now);
        let mut reader = Reader::new(message.get(plain::HEADER_LEN..).unwrap_or_default());
        // Nearly all callers of such calls are nobody in particular, and nearly all calls are answered at once.
        let Some(header) = CallHeader::parse_usual(&mut reader) else {
            return self.hand_over(key, (peer, from), reader, Pulled::default());
        };
        self.core.stamp(key, Stage::Parse);
        let (id, pulled) = (CallId(key), Pulled::default());
        let call = Call { id, peer, from, header, arguments: reader, pulled };
        self.app.on_call(&mut Cx { core: &mut self.core }, call);
        if let Some((call, message)) = self.core.answered.take() {
            self.answer_message(call, message);
        }
        self.empty_outbox();
    }

    /// The table has a place for every receive, so only a peer above its grant gets here.
    #[cold]
    fn refuse_place(&mut self, qp: Qp) {
        self.core.counters.stats.limits.calls += 1;
        self.provider.disconnect(qp);
    }

    /// Gives the call a place, and pulls what it names.
    fn begin_call(&mut self, peer: PeerId, qp: Qp, header: Header, payload_at: usize, message: Buf) {
        let core = &mut self.core;
        let inline_len = message.len() - payload_at;
        let pull = match responder::plan_pull(&header, &core.lists, inline_len, core.config.payload_max) {
            Ok(pull) => pull,
            Err(fault) => return self.refuse_call(peer, qp, header, fault),
        };
        let stats = &mut core.counters.stats.responder;
        stats.chunks.count(&core.lists);
        let is_whole = pull.chunks().is_empty();
        count_form(&mut stats.calls, header.body == Body::NoMsg, !is_whole);
        let has_lists = !core.lists.is_empty() || core.lists.intent().is_some();
        let state = if is_whole { InboundState::AwaitAnswer } else { InboundState::AwaitSink };
        let call = Inbound { peer, xid: header.xid, state, has_lists, fabric: None };
        let Ok(key) = core.inbound.insert(call) else { return self.refuse_place(qp) };
        if has_lists && let Some(lists) = core.inbound_lists.get_mut(key.index()) {
            lists.clone_from(&core.lists);
        }
        self.core.watch.begin(key, self.core.now);
        if is_whole {
            // Inline, and the transaction was compared when it arrived.
            let from = self.core.peers.get(peer.0).map_or(PeerAddress::Simulated, |peer| peer.address);
            let payload = message.get(payload_at..).unwrap_or_default();
            self.hand_over(key, (peer, from), Reader::new(payload), Pulled::default());
            return self.repost(message);
        }
        let mut fabric = self.core.pulled.take();
        (fabric.header, fabric.payload_at, fabric.pull) = (header, payload_at, pull);
        (fabric.message, fabric.since) = (Some(message), self.core.now);
        self.core.inbound.get_mut(key).expect("it was just inserted").fabric = Some(fabric);
        self.core.stamp(key, Stage::Parse);
        // Behind those that wait already: memory goes to whoever came first.
        if !self.core.pulls.is_empty() || self.pull(key).is_err() {
            self.core.counters.stats.limits.memory += 1;
            self.core.pulls.push_back(key);
        }
    }

    fn refuse_call(&mut self, peer: PeerId, qp: Qp, header: Header, fault: PeerFault) {
        self.core.counters.peer_faults.count(fault);
        let Some((_, connection)) = self.core.connection(peer) else { return };
        connection.handle_replied();
        let reply = connection.chunk_error(header.xid);
        self.core.settle_receives(peer);
        self.send_error(qp, &reply);
    }

    /// Hop 8: asks for every chunk of a call, or for none when something is missing for one of them.
    fn pull(&mut self, key: Key) -> Result<(), Missing> {
        let share = (self.core.config.slots.last().copied().unwrap_or(0) / PULL_SHARE).max(READS_MAX);
        let Some(call) = self.core.inbound.get_mut(key) else { return Ok(()) };
        let (peer, Some(fabric)) = (call.peer, &mut call.fabric) else { return Ok(()) };
        let Some(lists) = self.core.inbound_lists.get(key.index()) else { return Ok(()) };
        let Some(entry) = self.core.peers.get_mut(peer.0) else { return Ok(()) };
        let Link::Fabric { qp, state: Some(connection) } = &entry.link else { return Ok(()) };
        let qp = *qp;
        let reads = fabric.pull.chunks().len();
        if self.provider.send_room(qp) < reads + room_kept(connection) || entry.pulling + reads > share {
            return Err(Missing::Room);
        }
        let mut sinks = [const { None }; READS_MAX];
        for (sink, planned) in sinks.iter_mut().zip(fabric.pull.chunks()) {
            let len = planned.len as usize;
            // A whole message is never kept: only an item may go to the app's own memory.
            let own = if planned.position == Position::ZERO { None } else { self.app.sink(len) };
            let own = own.filter(|sink| sink.capacity() >= len);
            let mut buf = own.or_else(|| self.core.pool.take(len)).ok_or(Missing::Memory(len))?;
            buf.reset(0);
            buf.extend(len);
            *sink = Some(buf);
        }
        entry.pulling += reads;
        fabric.since = self.core.now;
        call.state = InboundState::AwaitPull;
        let header = fabric.header;
        let mut refused = None;
        for (chunk, sink) in lists.reads().zip(sinks.into_iter().flatten()) {
            let mut spans = [RemoteSpan { key: RemoteKey(0), offset: 0, len: 0 }; SEGMENTS_MAX];
            let mut count = 0;
            let named = chunk.segments.iter().filter(|segment| segment.length > 0);
            for (span, segment) in spans.iter_mut().zip(named) {
                *span = remote(*segment);
                count += 1;
            }
            let spans = spans.get(..count).unwrap_or_default();
            if let Err(Refused { why, .. }) = self.provider.post_read(qp, Tag(key.to_bits()), sink, 0, spans)
            {
                refused = Some(why);
                break;
            }
        }
        if refused == Some(PostRefusal::Malformed) {
            // This connection carries no Reads, for its peer allows none: the call can never be whole. Any other refusal means
            // that the connection is dying, and its end removes the call.
            entry.pulling -= reads;
            self.core.forget_inbound(key);
            self.refuse_call(peer, qp, header, PeerFault::TooManySegments);
        }
        Ok(())
    }

    /// A Read ended. Reads of one call end in the order of its chunks.
    pub(crate) fn handle_pulled(&mut self, tag: Tag, status: Status, sink: Buf) {
        let key = Key::from_bits(tag.0);
        let Some(fabric) = self.core.inbound.get_mut(key).and_then(|call| call.fabric.as_mut()) else {
            return;
        };
        if status != Status::Success {
            return; // The connection is dying; its end removes the call.
        }
        self.core.counters.stats.responder.pulled += sink.len() as u64;
        let place = fabric.chunks.get_mut(fabric.pulled).expect("one Read for each chunk of the plan");
        *place = Some(sink);
        fabric.pulled += 1;
        if fabric.pulled == fabric.pull.chunks().len() {
            self.core.stamp(key, Stage::Pull);
            self.dispatch(key);
        }
    }

    /// Hop 9: a call that was pulled is whole.
    fn dispatch(&mut self, key: Key) {
        let Some(call) = self.core.inbound.get_mut(key) else { return };
        call.state = InboundState::AwaitAnswer;
        let peer = call.peer;
        let Some(mut fabric) = call.fabric.take() else { return };
        if let Some(entry) = self.core.peers.get_mut(peer.0) {
            entry.pulling = entry.pulling.saturating_sub(fabric.pulled);
        }
        let message = fabric.message.take().expect("a call is dispatched once");
        let (header, payload_at, pull) = (fabric.header, fabric.payload_at, fabric.pull);
        let chunks = std::mem::replace(&mut fabric.chunks, [const { None }; READS_MAX]);
        self.core.give_pulled(fabric);
        let chunks = chunks.map(|chunk| chunk.map(Buf::freeze));
        let mut pulled = [&[][..]; READS_MAX];
        for (octets, chunk) in pulled.iter_mut().zip(&chunks) {
            *octets = chunk.as_deref().unwrap_or_default();
        }
        let pulled = pulled.get(..pull.chunks().len()).unwrap_or_default();
        let (base, items) = match (pull.position_zero(), pulled) {
            (Some(_), [base, items @ ..]) => (*base, items),
            _ => (message.get(payload_at..).unwrap_or_default(), pulled),
        };
        let Some(entry) = self.core.peers.get(peer.0) else { return };
        if let Err(fault) = responder::check_xid(&header, base) {
            let Link::Fabric { qp, .. } = entry.link else { return };
            self.core.forget_inbound(key);
            return self.refuse_call(peer, qp, header, fault);
        }
        let (from, pieces) = (entry.address, pull.assemble(base, items));
        self.hand_over(key, (peer, from), Reader::over(pieces.as_slice()), Pulled(&chunks));
    }

    /// Gives a whole RPC message to the app, or answers it when it is no call that an app could understand.
    pub(crate) fn hand_over(
        &mut self,
        key: Key,
        (peer, from): (PeerId, PeerAddress),
        mut reader: Reader<'_>,
        pulled: Pulled<'_>,
    ) {
        match CallHeader::parse(&mut reader) {
            Ok(header) => {
                self.core.stamp(key, Stage::Parse);
                let call = Call { id: CallId(key), peer, from, header, arguments: reader, pulled };
                self.app.on_call(&mut Cx { core: &mut self.core }, call);
            }
            Err(Refusal::Answer(reply)) => {
                self.core.watch.forget(key);
                let written = Cx { core: &mut self.core }.message(64).and_then(|mut message| {
                    let mut writer = Writer::new(message.spare_mut());
                    reply.emit(&mut writer).ok()?;
                    let len = writer.len();
                    message.extend(len);
                    Some(message)
                });
                match written {
                    Some(message) => self.answer(CallId(key), Answer { message, item: None }),
                    None => self.disconnect(peer),
                }
            }
            // Nobody can be answered, and the credit cannot be given back by an answer: the connection ends.
            Err(Refusal::Discard) => self.disconnect(peer),
        }
        self.empty_outbox();
    }

    /// Hop 10: the reply goes to whoever called.
    pub(crate) fn answer(&mut self, id: CallId, answer: Answer) {
        let Some(call) = self.core.inbound.get(id.0) else { return };
        debug_assert_eq!(call.state, InboundState::AwaitAnswer, "a call is answered once");
        let (peer, xid) = (call.peer, call.xid);
        self.core.stamp(id.0, Stage::App);
        match self.core.peers.get(peer.0).map(|peer| &peer.link) {
            Some(Link::Stream(stream)) => {
                let stream = *stream;
                self.core.forget_inbound(id.0);
                self.streams.answer(stream, answer, &self.core.zeros);
                self.core.watch.post(id.0, self.core.now);
            }
            Some(Link::Fabric { .. }) => {
                debug_assert_eq!(answer.message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
                if let Err(answer) = self.answer_fabric(id.0, answer) {
                    self.core.counters.stats.limits.send_queue += 1;
                    self.core.stamp(id.0, Stage::Emit);
                    if let Some(call) = self.core.inbound.get_mut(id.0) {
                        call.state = InboundState::AwaitRoom;
                        self.core.replies.push_back((id.0, answer));
                    }
                }
            }
            Some(Link::Lost { .. } | Link::Absent { .. }) | None => self.core.forget_inbound(id.0),
        }
    }

    /// The same of a reply that is nothing but a message: it leaves at once if its call had no chunks, it fits inline, and the
    /// fabric takes it as a copy.
    #[inline]
    pub(crate) fn answer_message(&mut self, id: CallId, mut message: Buf) {
        self.core.stamp(id.0, Stage::App);
        if !self.answer_plain(id.0, &mut message) {
            self.answer(id, Answer { message, item: None });
        }
    }

    #[inline]
    fn answer_plain(&mut self, key: Key, message: &mut Buf) -> bool {
        let core = &mut self.core;
        let Some(&Inbound { peer, xid, state: InboundState::AwaitAnswer, has_lists: false, .. }) =
            core.inbound.get(key)
        else {
            return false;
        };
        let Some(entry) = core.peers.get_mut(peer.0) else { return false };
        let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return false };
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is looked at where all replies are sent.
        if adapts && entry.replies + 1 >= granted || !connection.plain().fits_reply(message.len()) {
            return false;
        }
        debug_assert_eq!(message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
        let room = message.prepend(plain::HEADER_LEN).expect("a message begins behind its head room");
        let room = room.first_chunk_mut().expect("it has this length");
        // RFC 8167 §5.2 [8167-6], draft 002 §5.2 [bidir-6]
        if !(connection.emit_plain_reply(xid, room) && self.provider.send_inline(*qp, message, None)) {
            message.trim_front(plain::HEADER_LEN);
            return false;
        }
        entry.replies += u32::from(adapts);
        let reserved = |connection: &Connection| connection.serves().map(|credits| credits.reserved());
        let before = reserved(connection);
        connection.handle_replied();
        let is_settled = reserved(connection) == before;
        core.counters.stats.responder.replies.short += 1;
        core.forget_inbound(key);
        core.watch.post(key, core.now);
        if !is_settled {
            core.settle_receives(peer);
        }
        true
    }

    /// Sends a reply in whatever form fits. It comes back when the send queue or the pool has no room for it.
    fn answer_fabric(&mut self, key: Key, mut answer: Answer) -> Result<(), Answer> {
        let core = &mut self.core;
        let Some(call) = core.inbound.get(key) else { return Ok(()) };
        let (peer, xid, has_lists) = (call.peer, call.xid, call.has_lists);
        let lists = lists_of(has_lists, &core.inbound_lists, key);
        let Some(Link::Fabric { qp, state: Some(connection) }) =
            core.peers.get_mut(peer.0).map(|peer| &mut peer.link)
        else {
            return Ok(());
        };
        let qp = *qp;
        let parts = parts_of(&answer);
        let (threshold, policy) = (connection.send_threshold(), core.config.reply_policy);
        let kept = room_kept(connection);
        let plan = match responder::plan_reply(lists, parts, threshold, policy, &mut core.returned) {
            Ok(plan) => plan,
            Err(fault) => {
                let header =
                    Header { xid, credits: connection.reply_header(xid, Body::Msg).credits, body: Body::Msg };
                core.forget_inbound(key);
                self.refuse_call(peer, qp, header, fault);
                return Ok(());
            }
        };
        let pushes = if plan.has_pushes() { count_writes(&plan, &core.returned, &answer) } else { 0 };
        if pushes >= self.provider.limits().send_queue {
            self.provider.disconnect(qp); // It would never fit: no reply can be sent (RFC 8166 §4.5.4).
            return Ok(());
        }
        let long = plan.procedure == Procedure::NoMsg;
        let header_only = if long { core.pool.take(HEAD_ROOM) } else { None };
        if self.provider.send_room(qp) < pushes + 1 + kept || header_only.is_some() != long {
            return Err(answer);
        }
        // The reply goes out: it tells the grant.
        core.adapt_grant(peer);
        let lists = lists_of(has_lists, &core.inbound_lists, key);
        let Some(Link::Fabric { state: Some(connection), .. }) =
            core.peers.get_mut(peer.0).map(|peer| &mut peer.link)
        else {
            return Ok(());
        };
        // RFC 8167 §5.2 [8167-6], draft 002 §5.2 [bidir-6]
        let header = connection.reply_header(xid, if long { Body::NoMsg } else { Body::Msg });
        let remote = self.provider.limits().remote_invalidation;
        let invalidate = connection.invalidates(lists).filter(|_| remote).map(RemoteKey);
        connection.handle_replied();
        let stats = &mut core.counters.stats.responder;
        count_form(&mut stats.replies, long, plan.item_in_chunk);
        stats.remote_invalidations += u64::from(invalidate.is_some());
        stats.reply_chunks_spared += u64::from(!long && lists.reply().is_some());
        stats.writes += pushes as u64;

        let item = answer.item.take();
        let (mut message, payload) = match header_only {
            Some(mut message) => {
                message.reset(plan.header_len);
                (message, Some(answer.message.freeze()))
            }
            None => {
                let mut message = answer.message;
                if let Some(item) = item.as_ref().filter(|_| !plan.item_in_chunk) {
                    insert_parts(&mut message, item.position, item.octets.iter().map(|part| &part[..]));
                }
                (message, None)
            }
        };
        if pushes > 0 {
            core.watch.stamp(key, Stage::Emit, core.now);
        }
        let planned = if pushes > 0 { Some(plan.pushes(&core.returned)) } else { None };
        for push in planned.into_iter().flatten() {
            let span = span_of(push);
            let behind = |at: usize| at + span.start..at + span.end;
            stats.pushed += u64::from(push.target.length);
            let provider = &mut self.provider;
            let posted = match (push.part, &payload, &item) {
                (Part::Head, Some(payload), _) => push_one(provider, qp, payload.slice(span), push.target),
                (Part::Tail, Some(payload), _) => {
                    push_one(provider, qp, payload.slice(behind(parts.head as usize)), push.target)
                }
                (Part::Item, _, Some(item)) => push_all(provider, qp, item.octets.slices(span), push.target),
                (Part::Pad, ..) => push_one(provider, qp, core.zeros.slice(span), push.target),
                _ => unreachable!("the plan pushes parts that the reply has"),
            };
            if posted.is_err() {
                return Ok(()); // The connection is dying; its end removes the call.
            }
        }
        if pushes > 0 {
            core.watch.stamp(key, Stage::Push, core.now);
        }
        let room = message.prepend(plan.header_len).expect("a message begins behind its head room");
        let emitted = connection.emit(&header, &core.returned, room);
        debug_assert_eq!(emitted, Ok(plan.header_len), "the plan knows its header");
        if self.provider.send_inline(qp, &message, invalidate)
            || self.provider.post_send(qp, NO_TAG, message, invalidate).is_ok()
        {
            core.forget_inbound(key);
            core.watch.post(key, core.now);
        }
        core.settle_receives(peer);
        Ok(())
    }

    /// Tries again what had to wait. Replies first, for they give memory back; each by itself, so that a peer which takes
    /// nothing holds up nobody else. Then pulls: one that finds no buffer keeps those of its size for itself, for who is behind it came later.
    pub(crate) fn retry_deferred(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..self.core.replies.len() {
            let Some((key, answer)) = self.core.replies.pop_front() else { break };
            self.core.stamp(key, Stage::Send);
            match self.answer_fabric(key, answer) {
                Ok(()) => progress = true,
                Err(answer) => self.core.replies.push_back((key, answer)),
            }
        }
        let mut short = usize::MAX;
        for _ in 0..self.core.pulls.len() {
            let Some(key) = self.core.pulls.pop_front() else { break };
            let pulled = if self.longest_chunk(key) < short { self.pull(key) } else { Err(Missing::Room) };
            match pulled {
                Ok(()) => progress = true,
                Err(missing) => {
                    if let Missing::Memory(len) = missing {
                        short = short.min(len);
                    }
                    self.core.pulls.push_back(key);
                }
            }
        }
        progress
    }

    fn longest_chunk(&self, key: Key) -> usize {
        let fabric = self.core.inbound.get(key).and_then(|call| call.fabric.as_ref());
        let lens = fabric.iter().flat_map(|fabric| fabric.pull.chunks()).map(|chunk| chunk.len as usize);
        lens.max().unwrap_or(0)
    }
}

/// What the header of a call said in its lists.
fn lists_of(has_lists: bool, all: &[ChunkLists], key: Key) -> &ChunkLists {
    if has_lists { all.get(key.index()).expect("one for each place") } else { &NOTHING }
}

/// RDMA Writes that take a reply's parts to their chunks.
fn count_writes(plan: &ReplyPlan, returned: &ChunkLists, answer: &Answer) -> usize {
    let writes = plan.pushes(returned).map(|push| match (push.part, &answer.item) {
        (Part::Item, Some(item)) => item.octets.slices(span_of(push)).count(),
        _ => 1,
    });
    writes.sum()
}

fn count_form(forms: &mut Forms, long: bool, chunked: bool) {
    *match (long, chunked) {
        (true, _) => &mut forms.long,
        (false, true) => &mut forms.chunked,
        (false, false) => &mut forms.short,
    } += 1;
}

/// The octets of its part that are pushed.
fn span_of(push: Push) -> Range<usize> {
    push.from as usize..(push.from + push.target.length) as usize
}

fn push_one<P: Provider>(
    provider: &mut P,
    qp: Qp,
    source: Extent,
    target: Segment,
) -> Result<(), Refused<Extent>> {
    provider.post_write(qp, NO_TAG, source, remote(target))
}

/// Pushes extents one behind the other: together they are as long as `target`.
fn push_all<P: Provider>(
    provider: &mut P,
    qp: Qp,
    sources: impl Iterator<Item = Extent>,
    mut target: Segment,
) -> Result<(), Refused<Extent>> {
    for source in sources {
        let len = source.len() as u32;
        push_one(provider, qp, source, Segment { length: len, ..target })?;
        // The end of the segment does not wrap: it was checked when it was parsed.
        target.offset += u64::from(len);
        target.length -= len;
    }
    debug_assert_eq!(target.length, 0, "the item has every octet that is pushed");
    Ok(())
}

fn parts_of(answer: &Answer) -> ReplyParts {
    let len = answer.message.len();
    let position = answer.item.as_ref().map_or(len, |item| item.position);
    debug_assert!(position <= len, "the item lies in its message");
    let item = answer.item.as_ref().map_or(0, |item| item.octets.len());
    ReplyParts { head: position as u32, item: item as u32, tail: (len - position) as u32 }
}

/// Puts an item and its padding where they belong in the payload stream.
///
/// # Panics
/// When the message has no room for it: its sender compared the lengths with the inline threshold.
pub(crate) fn insert_item(message: &mut Buf, position: usize, item: &[u8]) {
    insert_parts(message, position, std::iter::once(item));
}

/// [`insert_item`] of an item that lies in several places.
fn insert_parts<'a>(message: &mut Buf, position: usize, parts: impl Iterator<Item = &'a [u8]> + Clone) {
    let len = parts.clone().map(<[u8]>::len).sum::<usize>();
    let (old, padding) = (message.len(), pad(len));
    message.extend(len + padding);
    message.copy_within(position..old, position + len + padding);
    let mut rest = message.get_mut(position..).expect("the item lies in its message");
    for part in parts {
        let (octets, behind) = rest.split_at_mut_checked(part.len()).expect("it was extended");
        octets.copy_from_slice(part);
        rest = behind;
    }
    // RFC 8166 §3.5.3 [8166-29]
    rest.iter_mut().take(padding).for_each(|octet| *octet = 0);
}
