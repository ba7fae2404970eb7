//! Calls with Read chunks: hop 8 of a call's life.

use super::deferred::MemoryNeed;
use crate::{
    account::SMALL_MAX,
    app::{App, PeerId},
    item::Pulled,
    memory::Lane,
    shard::Shard,
    stage_times::Stage,
    state::{
        FabricLink, Link, Sender,
        inbound::{FabricCall, InboundState, Missing},
        room_kept,
    },
    work::Work,
};
use stag_pools::{Buf, RemoteKey, table::Key};
use stag_protocol::{
    rpcrdma::{
        PeerFault, Position, Segment,
        chunk::{READS_MAX, SEGMENTS_MAX},
        responder::{self, PullChunk},
    },
    xdr::Reader,
};
use stag_verbs::{Provider, Qp, Refusal as PostRefusal, Refused, RemoteSpan, Status};

/// One peer's Reads may hold at most one part in `PULL_SHARE` of the large buffers.
const PULL_SHARE: usize = 4;

/// Converts a segment to the provider's type.
pub(super) const fn remote(segment: Segment) -> RemoteSpan {
    RemoteSpan { key: RemoteKey(segment.handle), offset: segment.offset, len: segment.length }
}

/// Buffers for the chunks of a call, by index.
#[derive(Debug)]
struct Sinks {
    buffers: [Option<Buf>; READS_MAX],
    /// Octets of the long ones, which the peer holds while its Reads are in flight.
    held: u64,
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 8: posts the Reads for all chunks of a call, or for none if memory or room is missing. A
    /// call without Read chunks goes to the app once there is memory for its reply. `is_first`
    /// means that its peer has its turn among the peers that wait for memory.
    pub(super) fn pull(&mut self, key: Key, is_first: bool) -> Result<(), Missing> {
        let Some(call) = self.core.responder.calls.get(key) else { return Ok(()) };
        let (peer, Some(fabric)) = (call.peer, &call.fabric) else { return Ok(()) };
        let chunks = fabric.pull.chunks();
        let (reads, expected) = (chunks.len(), fabric.expected);
        let (longest, pulled) = needed(chunks);
        self.core.admit(peer, MemoryNeed { longest, pulled, expected }, is_first)?;
        if reads == 0 {
            self.dispatch(key);
            return Ok(());
        }
        let share =
            (self.core.config.slots.last().copied().unwrap_or(0) / PULL_SHARE).max(READS_MAX);
        let Some(entry) = self.core.peers.get(peer) else { return Ok(()) };
        let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &entry.link else {
            return Ok(());
        };
        if self.provider.send_room(*qp) < reads + room_kept(connection)
            || entry.served.pulling + reads > share
        {
            return Err(Missing::Room);
        }
        let qp = *qp;
        let mut sinks = [const { None }; READS_MAX];
        let lane = self.core.lane(peer);
        let held = self
            .take_sinks(key, lane, &mut sinks)
            .map_err(|missing| self.judge(key, lane, missing))?;
        self.post_reads(peer, qp, key, Sinks { buffers: sinks, held });
        Ok(())
    }

    /// Takes a buffer for each chunk of a call; returns the octets of the long ones.
    fn take_sinks(
        &mut self,
        key: Key,
        lane: Lane,
        sinks: &mut [Option<Buf>; READS_MAX],
    ) -> Result<u64, Missing> {
        let Some(fabric) = self.core.responder.calls.get(key).and_then(|call| call.fabric.as_ref())
        else {
            return Ok(0);
        };
        let mut held = 0;
        for (sink, planned) in sinks.iter_mut().zip(fabric.pull.chunks()) {
            let len = planned.len as usize;
            // A whole message is never kept: only an item may go to the app's own memory.
            let own = if planned.position == Position::ZERO { None } else { self.app.sink(len) };
            let own = own.filter(|sink| sink.capacity() >= len);
            let mut buf =
                own.or_else(|| self.core.memory.lend(len, lane)).ok_or(Missing::Memory(len))?;
            buf.reset(0);
            buf.extend(len);
            held += if buf.capacity() > SMALL_MAX { buf.capacity() as u64 } else { 0 };
            *sink = Some(buf);
        }
        Ok(held)
    }

    /// Keeps a call that needs more buffers than its peer can ever have out of the line, where it
    /// would block the calls after it.
    fn judge(&self, key: Key, lane: Lane, missing: Missing) -> Missing {
        let fabric = self.core.responder.calls.get(key).and_then(|call| call.fabric.as_ref());
        let lens =
            fabric.iter().flat_map(|fabric| fabric.pull.chunks()).map(|chunk| chunk.len as usize);
        if self.core.memory.fits(lens, lane) { missing } else { Missing::Buffers }
    }

    /// Posts the Reads for all chunks of a call that has its buffers.
    fn post_reads(&mut self, peer: PeerId, qp: Qp, key: Key, sinks: Sinks) {
        let Sinks { buffers, held } = sinks;
        let core = &mut self.core;
        let Some(call) = core.responder.calls.get_mut(key) else { return };
        let Some(fabric) = &mut call.fabric else { return };
        let Some(lists) = core.responder.lists.get(key.index()) else { return };
        let Some(entry) = core.peers.get_mut(peer) else { return };
        let reads = fabric.pull.chunks().len();
        entry.served.pulling += reads;
        entry.served.account.hold(held, core.now);
        fabric.held = held;
        debug_assert_eq!(
            call.state,
            InboundState::AwaitSink,
            "the Reads of a call are posted once"
        );
        call.state = InboundState::AwaitPull;
        let xid = fabric.header.xid;
        let mut refused = None;
        for (chunk, sink) in lists.reads().zip(buffers.into_iter().flatten()) {
            let tag = Work::Read(key).tag();
            let posted = match chunk.segments {
                [only] if only.length > 0 => {
                    self.provider.post_read(qp, tag, sink, 0, &[remote(*only)])
                }
                segments => {
                    let (spans, count) = spans_of(segments);
                    let spans = spans.get(..count).unwrap_or_default();
                    self.provider.post_read(qp, tag, sink, 0, spans)
                }
            };
            if let Err(Refused { why, .. }) = posted {
                refused = Some(why);
                break;
            }
        }
        if refused == Some(PostRefusal::Malformed) {
            // This connection allows no Reads, so the call can never be completed. Any other
            // refusal means that the connection is dying, and its end removes the call.
            entry.served.pulling -= reads;
            entry.served.account.let_go(held, core.now);
            self.core.responder.forget(key);
            self.refuse_call(peer, qp, xid, PeerFault::TooManySegments);
        }
    }

    /// Handles a completed Read. Reads of one call complete in the order of its chunks.
    pub(crate) fn handle_pulled(&mut self, qp: Qp, key: Key, status: Status, sink: Buf) {
        let Some(fabric) =
            self.core.responder.calls.get_mut(key).and_then(|call| call.fabric.as_mut())
        else {
            return;
        };
        if status != Status::Success {
            return; // The connection is dying; its end removes the call.
        }
        self.core.counters.stats.responder.pulled += sink.len() as u64;
        let (len, share) = (sink.len() as u64, self.core.memory.share());
        let place =
            fabric.chunks.get_mut(fabric.pulled).expect("one Read for each chunk of the plan");
        debug_assert!(place.is_none(), "the Reads of a call complete once");
        *place = Some(sink);
        fabric.pulled += 1;
        let is_whole = fabric.pulled == fabric.pull.chunks().len();
        if let Some((_, entry)) = self.core.peers.of_qp_mut(qp) {
            entry.served.count_octets(len);
            if len > SMALL_MAX as u64 {
                entry.served.account.settle(self.core.now);
                entry.served.account.earn(len, share);
            }
        }
        if is_whole {
            self.core.stamp(key, Stage::Pull);
            self.dispatch(key);
        }
    }

    /// Hop 9: passes a pulled call to the app.
    fn dispatch(&mut self, key: Key) {
        let Some(call) = self.core.responder.calls.get_mut(key) else { return };
        call.state = InboundState::AwaitAnswer;
        let peer = call.peer;
        let Some(mut fabric) = call.fabric.take() else { return };
        if let Some(entry) = self.core.peers.get_mut(peer) {
            debug_assert!(entry.served.pulling >= fabric.pulled, "its Reads were counted");
            entry.served.pulling = entry.served.pulling.saturating_sub(fabric.pulled);
            // From here on we hold the memory, not the peer.
            entry.served.account.let_go(fabric.held, self.core.now);
        }
        self.core.wake(peer);
        debug_assert_eq!(fabric.pulled, fabric.pull.chunks().len(), "every chunk has been pulled");
        if let ([chunk], None) = (fabric.pull.chunks(), fabric.pull.position_zero()) {
            let chunk = *chunk;
            return self.dispatch_one(key, peer, fabric, chunk);
        }
        if let ([_], Some(_)) = (fabric.pull.chunks(), fabric.pull.position_zero()) {
            return self.dispatch_whole(key, peer, fabric);
        }
        let message = fabric.message.take().expect("a call is dispatched once");
        let (header, payload_at, pull) = (fabric.header, fabric.payload_at, fabric.pull);
        let chunks = std::mem::replace(&mut fabric.chunks, [const { None }; READS_MAX]);
        self.core.responder.spare.give(fabric);
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
        let Some(entry) = self.core.peers.get(peer) else { return };
        let Link::Fabric(FabricLink { qp, .. }) = entry.link else { return };
        if let Err(fault) = responder::check_xid(&header, base) {
            self.core.responder.forget(key);
            return self.refuse_call(peer, qp, header.xid, fault);
        }
        let sender = Sender { peer, address: entry.address };
        let pieces = pull.assemble(base, items);
        self.hand_over(key, sender, Reader::over(pieces.as_slice()), Pulled(&chunks));
    }

    /// The same for a call whose only chunk is its message.
    fn dispatch_whole(&mut self, key: Key, peer: PeerId, mut fabric: Box<FabricCall>) {
        let header = fabric.header;
        let message = fabric.chunks.first_mut().and_then(Option::take);
        self.core.responder.spare.give(fabric);
        let message = message.expect("a call is dispatched once");
        let Some(entry) = self.core.peers.get(peer) else { return };
        let Link::Fabric(FabricLink { qp, .. }) = entry.link else { return };
        let sender = Sender { peer, address: entry.address };
        if let Err(fault) = responder::check_xid(&header, &message) {
            self.core.responder.forget(key);
            return self.refuse_call(peer, qp, header.xid, fault);
        }
        self.hand_over_owned(key, sender, message);
    }

    /// The same for a call whose only chunk is an item, as of an NFS WRITE.
    fn dispatch_one(
        &mut self,
        key: Key,
        peer: PeerId,
        mut fabric: Box<FabricCall>,
        planned: PullChunk,
    ) {
        let message = fabric.message.take().expect("a call is dispatched once");
        let pulled = [fabric.chunks.first_mut().and_then(Option::take).map(Buf::freeze)];
        let (header, payload_at) = (fabric.header, fabric.payload_at);
        self.core.responder.spare.give(fabric);
        let base = message.get(payload_at..).unwrap_or_default();
        let Some(entry) = self.core.peers.get(peer) else { return };
        let Link::Fabric(FabricLink { qp, .. }) = entry.link else { return };
        let sender = Sender { peer, address: entry.address };
        if let Err(fault) = responder::check_xid(&header, base) {
            self.core.responder.forget(key);
            return self.refuse_call(peer, qp, header.xid, fault);
        }
        let [chunk] = &pulled;
        let pieces = planned.insert(base, chunk.as_deref().unwrap_or_default());
        self.hand_over(key, sender, Reader::over(&pieces), Pulled(&pulled));
    }
}

/// The segments of a chunk that are not empty, and their number.
fn spans_of(segments: &[Segment]) -> ([RemoteSpan; SEGMENTS_MAX], usize) {
    let mut spans = [RemoteSpan { key: RemoteKey(0), offset: 0, len: 0 }; SEGMENTS_MAX];
    let mut count = 0;
    let named = segments.iter().filter(|segment| segment.length > 0);
    for (span, segment) in spans.iter_mut().zip(named) {
        *span = remote(*segment);
        count += 1;
    }
    (spans, count)
}

/// Octets of the longest buffer that the chunks of a call need, and the sum of all long ones.
fn needed(chunks: &[PullChunk]) -> (usize, u64) {
    let lens = || chunks.iter().map(|chunk| chunk.len as usize).filter(|len| *len > SMALL_MAX);
    (lens().max().unwrap_or(0), lens().map(|len| len as u64).sum())
}
