//! A peer's call on its way in: hops 6 to 9 of a call's life.

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, Call, CallId, Cx, PeerId},
    core::{Inbound, InboundState, Link},
    item::Pulled,
    memory::Lane,
    requester::calls::room_kept,
    shard::Shard,
    stages::Stage,
    stats::Forms,
    work::Work,
};
use stag_pools::{Buf, Fenced, RemoteKey, table::Key};
use stag_protocol::{
    rpc::{CallHeader, Refusal},
    rpcrdma::{
        Body, ChunkLists, Header, Incoming, PeerFault, Plain, Position, Segment, Version, Xid,
        chunk::{READS_MAX, SEGMENTS_MAX},
        plain,
        responder::{self, PullChunk},
    },
    xdr::{Reader, Writer},
};
use stag_verbs::{PeerAddress, Provider, Qp, Refusal as PostRefusal, Refused, RemoteSpan, Status};

/// What a header without chunks says in its lists.
pub(crate) static NOTHING: ChunkLists = ChunkLists::new();
/// One peer's Reads hold at most this part of the large buffers.
const PULL_SHARE: usize = 4;

/// The obstacle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A buffer of the shard, for at least this many octets.
    Memory(usize),
    /// More buffers at once than there are for such a peer.
    Buffers,
    /// Room in its connection's share of the memory.
    Share,
    /// Room in its connection's send queue.
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
            Incoming::OptionRefused { option, .. } => self.handle_option_refused(peer, option),
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
        self.core.serving = Some(peer);
        self.app.on_call(&mut Cx { core: &mut self.core }, call);
        self.core.serving = None;
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
        let expected = expected_reply(&core.lists, core.memory.slot_max());
        let goes_on = is_whole && core.may_answer(peer, expected);
        let state = if goes_on { InboundState::AwaitAnswer } else { InboundState::AwaitSink };
        let call = Inbound { peer, xid: header.xid, state, has_lists, fabric: None };
        let Ok(key) = core.inbound.insert(call) else { return self.refuse_place(qp) };
        if has_lists && let Some(lists) = core.inbound_lists.get_mut(key.index()) {
            lists.clone_from(&core.lists);
        }
        self.core.watch.begin(key, self.core.now);
        if goes_on {
            // Inline, and the transaction was compared when it arrived.
            let from = self.core.peers.get(peer.0).map_or(PeerAddress::Simulated, |peer| peer.address);
            let payload = message.get(payload_at..).unwrap_or_default();
            self.hand_over(key, (peer, from), Reader::new(payload), Pulled::default());
            return self.repost(message);
        }
        let mut fabric = self.core.pulled.take();
        (fabric.header, fabric.payload_at, fabric.pull) = (header, payload_at, pull);
        (fabric.message, fabric.since, fabric.expected) = (Some(message), self.core.now, expected);
        self.core.inbound.get_mut(key).expect("it was just inserted").fabric = Some(fabric);
        self.core.stamp(key, Stage::Parse);
        // Behind those of its peer that wait already.
        let missing = match self.core.first_deferred(peer) {
            Some(_) => None,
            None => match self.pull(key, false) {
                Ok(()) => return,
                Err(missing) => Some(missing),
            },
        };
        self.core.defer(peer, key);
        let limits = &mut self.core.counters.stats.limits;
        match missing {
            Some(Missing::Memory(_) | Missing::Buffers) => limits.memory += 1,
            Some(Missing::Share) => limits.share += 1,
            Some(Missing::Room) => limits.send_queue += 1,
            None => return,
        }
        self.core.await_missing(peer, missing);
    }

    pub(crate) fn refuse_call(&mut self, peer: PeerId, qp: Qp, header: Header, fault: PeerFault) {
        self.core.counters.peer_faults.count(fault);
        let Some((_, connection)) = self.core.connection(peer) else { return };
        connection.handle_replied();
        let reply = connection.chunk_error(header.xid);
        self.core.settle_receives(peer);
        self.send_error(qp, &reply);
    }

    /// Hop 8: asks for every chunk of a call, or for none when something is missing for one of them. A call that names none goes to
    /// the app once there is memory for its reply. `is_first` says that it is its peer's turn among those that wait for memory.
    pub(crate) fn pull(&mut self, key: Key, is_first: bool) -> Result<(), Missing> {
        let Some(call) = self.core.inbound.get(key) else { return Ok(()) };
        let (peer, Some(fabric)) = (call.peer, &call.fabric) else { return Ok(()) };
        let chunks = fabric.pull.chunks();
        let (reads, expected) = (chunks.len(), fabric.expected);
        self.core.admit(peer, needed(chunks), expected, is_first)?;
        if reads == 0 {
            self.dispatch(key);
            return Ok(());
        }
        let share = (self.core.config.slots.last().copied().unwrap_or(0) / PULL_SHARE).max(READS_MAX);
        let Some(entry) = self.core.peers.get(peer.0) else { return Ok(()) };
        let Link::Fabric { qp, state: Some(connection) } = &entry.link else { return Ok(()) };
        if self.provider.send_room(*qp) < reads + room_kept(connection) || entry.pulling + reads > share {
            return Err(Missing::Room);
        }
        let qp = *qp;
        let mut sinks = [const { None }; READS_MAX];
        let lane = self.core.lane(peer);
        let held =
            self.take_sinks(key, lane, &mut sinks).map_err(|missing| self.judge(key, lane, missing))?;
        self.post_reads((peer, qp), key, sinks, held);
        Ok(())
    }

    /// Takes a buffer for each chunk of a call; returns the octets of the long ones.
    fn take_sinks(
        &mut self,
        key: Key,
        lane: Lane,
        sinks: &mut [Option<Buf>; READS_MAX],
    ) -> Result<u64, Missing> {
        let Some(fabric) = self.core.inbound.get(key).and_then(|call| call.fabric.as_ref()) else {
            return Ok(0);
        };
        let mut held = 0;
        for (sink, planned) in sinks.iter_mut().zip(fabric.pull.chunks()) {
            let len = planned.len as usize;
            // A whole message is never kept: only an item may go to the app's own memory.
            let own = if planned.position == Position::ZERO { None } else { self.app.sink(len) };
            let own = own.filter(|sink| sink.capacity() >= len);
            let mut buf = own.or_else(|| self.core.memory.lend(len, lane)).ok_or(Missing::Memory(len))?;
            buf.reset(0);
            buf.extend(len);
            held += if buf.capacity() > SMALL_MAX { buf.capacity() as u64 } else { 0 };
            *sink = Some(buf);
        }
        Ok(held)
    }

    /// Keeps a call out of the line that needs more buffers than its peer can ever have: it would block those behind it.
    fn judge(&self, key: Key, lane: Lane, missing: Missing) -> Missing {
        let fabric = self.core.inbound.get(key).and_then(|call| call.fabric.as_ref());
        let lens = fabric.iter().flat_map(|fabric| fabric.pull.chunks()).map(|chunk| chunk.len as usize);
        if self.core.memory.fits(lens, lane) { missing } else { Missing::Buffers }
    }

    /// Asks for every chunk of a call that has its buffers, of which the peer holds `held` octets from here on.
    fn post_reads(&mut self, (peer, qp): (PeerId, Qp), key: Key, sinks: [Option<Buf>; READS_MAX], held: u64) {
        let core = &mut self.core;
        let Some(call) = core.inbound.get_mut(key) else { return };
        let Some(fabric) = &mut call.fabric else { return };
        let Some(lists) = core.inbound_lists.get(key.index()) else { return };
        let Some(entry) = core.peers.get_mut(peer.0) else { return };
        let reads = fabric.pull.chunks().len();
        entry.pulling += reads;
        entry.account.hold(held, core.now);
        (fabric.since, fabric.held) = (core.now, held);
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
            let tag = Work::Read(key).tag();
            if let Err(Refused { why, .. }) = self.provider.post_read(qp, tag, sink, 0, spans) {
                refused = Some(why);
                break;
            }
        }
        if refused == Some(PostRefusal::Malformed) {
            // This connection carries no Reads, for its peer allows none: the call can never be whole. Any other refusal means
            // that the connection is dying, and its end removes the call.
            entry.pulling -= reads;
            entry.account.let_go(held, core.now);
            self.core.forget_inbound(key);
            self.refuse_call(peer, qp, header, PeerFault::TooManySegments);
        }
    }

    /// A Read ended. Reads of one call end in the order of its chunks.
    pub(crate) fn handle_pulled(&mut self, qp: Qp, key: Key, status: Status, sink: Buf) {
        let Some(fabric) = self.core.inbound.get_mut(key).and_then(|call| call.fabric.as_mut()) else {
            return;
        };
        if status != Status::Success {
            return; // The connection is dying; its end removes the call.
        }
        self.core.counters.stats.responder.pulled += sink.len() as u64;
        let (len, share) = (sink.len() as u64, self.core.memory.share());
        let place = fabric.chunks.get_mut(fabric.pulled).expect("one Read for each chunk of the plan");
        *place = Some(sink);
        fabric.pulled += 1;
        let is_whole = fabric.pulled == fabric.pull.chunks().len();
        if len > SMALL_MAX as u64
            && let Some(entry) = self.core.peer_of(qp).and_then(|peer| self.core.peers.get_mut(peer.0))
        {
            entry.account.settle(self.core.now);
            entry.account.earn(len, share);
        }
        if is_whole {
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
            // From here on it is in our hands.
            entry.account.let_go(fabric.held, self.core.now);
        }
        self.core.wake(peer);
        let message = fabric.message.take().expect("a call is dispatched once");
        let (header, payload_at, pull) = (fabric.header, fabric.payload_at, fabric.pull);
        let chunks = std::mem::replace(&mut fabric.chunks, [const { None }; READS_MAX]);
        self.core.pulled.give(fabric);
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
                self.core.serving = Some(peer);
                self.app.on_call(&mut Cx { core: &mut self.core }, call);
                self.core.serving = None;
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
}

/// Octets of the longest buffer that the chunks of a call need, and of all long ones together.
fn needed(chunks: &[PullChunk]) -> (usize, u64) {
    let lens = || chunks.iter().map(|chunk| chunk.len as usize).filter(|len| *len > SMALL_MAX);
    (lens().max().unwrap_or(0), lens().map(|len| len as u64).sum())
}

/// Octets of memory, in one buffer of at most `slot_max`, that the reply to a call may take which offers these chunks; 0 if a
/// message slot takes it.
fn expected_reply(lists: &ChunkLists, slot_max: usize) -> u64 {
    let writes = lists.writes().flat_map(|chunk| chunk.segments.iter());
    let all = writes.chain(lists.reply().into_iter().flat_map(|chunk| chunk.segments.iter()));
    let offered: u64 = all.map(|segment| u64::from(segment.length)).sum();
    let offered = offered.min(slot_max as u64);
    if offered > SMALL_MAX as u64 { offered } else { 0 }
}

pub(crate) fn count_form(forms: &mut Forms, long: bool, chunked: bool) {
    *match (long, chunked) {
        (true, _) => &mut forms.long,
        (false, true) => &mut forms.chunked,
        (false, false) => &mut forms.short,
    } += 1;
}
