//! Replies of any form, with the RDMA Writes of their chunks.

use super::{calls::count_form, one_chunk::OneChunk, pull::remote};
use crate::{
    app::{Answer, AnswerItem, App, PeerId},
    bulk::Bulk,
    config::HEAD_ROOM,
    payload::insert_parts,
    shard::Shard,
    stage_times::Stage,
    state::{inbound::InboundState, room_kept},
    work::Work,
};
use stag_pools::{Buf, Extent, RemoteKey, table::Key};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Header, PeerFault, Procedure, Segment, Xid,
    responder::{self, Part, Push, ReplyItem, ReplyParts, ReplyPlan},
};
use stag_verbs::{Provider, Qp, Refused};
use std::ops::Range;

/// The call that a reply answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnsweredCall {
    pub(super) key: Key,
    pub(super) peer: PeerId,
    pub(super) qp: Qp,
    pub(super) xid: Xid,
    /// Empty lists, if it has none of its own.
    empty: Option<&'static ChunkLists>,
}

/// A reply whose chunks are pushed. Its lists are [`Responder::returned`](crate::state::Responder).
#[derive(Debug)]
pub(super) struct WrittenReply {
    pub(super) header: Header,
    pub(super) header_len: usize,
    /// The octets after the header.
    pub(super) message: Buf,
    pub(super) invalidate: Option<RemoteKey>,
    /// Long buffers that are kept until its Send completes.
    pub(super) bulk: Option<Bulk>,
    /// Some of them are in RDMA Writes, so its completion has to follow theirs.
    pub(super) is_behind: bool,
}

/// The plan of a reply that can be sent.
#[derive(Debug)]
struct PlannedReply {
    plan: ReplyPlan,
    /// RDMA Writes of its chunks.
    pushes: usize,
    /// The buffer for the header of a reply that travels in a chunk.
    header_only: Option<Buf>,
}

/// The memory that the parts of a reply are pushed from.
#[derive(Clone, Copy, Debug)]
struct Sources<'a> {
    /// The RPC message, if it travels in a chunk.
    payload: Option<&'a Extent>,
    item: Option<&'a AnswerItem>,
    zeros: &'a Extent,
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends a reply in any form. It is returned if the send queue or the pool has no room for it.
    pub(super) fn answer_fabric(&mut self, key: Key, answer: Answer) -> Result<(), Answer> {
        let core = &mut self.core;
        let Some(call) = core.responder.calls.get(key) else { return Ok(()) };
        debug_assert!(
            matches!(call.state, InboundState::AwaitAnswer | InboundState::AwaitRoom),
            "the app has had the call"
        );
        let (peer, xid, has_lists) = (call.peer, call.xid, call.has_lists);
        let Some((qp, connection)) = core.peers.connection(peer) else { return Ok(()) };
        let empty = (!has_lists).then(|| connection.empty_lists());
        let call = AnsweredCall { key, peer, qp, xid, empty };
        if let Some(lists) = core.responder.lists.get(key.index()).filter(|_| has_lists)
            && core.ways.are_short()
            && let Some(offer) = OneChunk::of(lists, &answer)
        {
            return self.answer_one_chunk(call, offer, answer);
        }
        self.answer_any(call, answer)
    }

    /// Sends any reply.
    #[inline(never)]
    fn answer_any(&mut self, call: AnsweredCall, answer: Answer) -> Result<(), Answer> {
        let AnsweredCall { key, peer, qp, empty, .. } = call;
        let core = &mut self.core;
        let Some((_, connection)) = core.peers.connection(peer) else { return Ok(()) };
        let parts = parts_of(&answer);
        let (threshold, policy) = (connection.send_threshold(), core.config.reply_policy);
        let kept = room_kept(connection);
        let (lists, returned) = core.responder.lists_and_returned(key, empty);
        let plan = match responder::plan_reply(lists, parts, threshold, policy, returned) {
            Ok(plan) => plan,
            Err(fault) => return self.refuse_reply(call, &answer, fault),
        };
        let pushes = if plan.has_pushes() { count_writes(&plan, returned, &answer) } else { 0 };
        if pushes + kept >= self.provider.limits().send_queue {
            // It would never fit: only an error can be sent (RFC 8166 §4.5.4).
            return self.refuse_reply(call, &answer, PeerFault::TooManySegments);
        }
        let long = plan.procedure == Procedure::NoMsg;
        let header_only = if long { core.memory.take(HEAD_ROOM) } else { None };
        if self.provider.send_room(qp) < pushes + 1 + kept || header_only.is_some() != long {
            return Err(answer);
        }
        let octets = || {
            let lengths = plan.pushes(&core.responder.returned).map(|push| push.target.length);
            lengths.map(u64::from).sum()
        };
        let pushed = if pushes > 0 { octets() } else { 0 };
        // The reply will be sent, and announces the grant.
        core.adapt_grant(peer, pushed);
        core.note_posted(peer);
        self.send_reply(call, PlannedReply { plan, pushes, header_only }, answer);
        Ok(())
    }

    /// Answers a call by RDMA_ERROR, because its reply cannot be expressed.
    #[cold]
    pub(super) fn refuse_reply(
        &mut self,
        call: AnsweredCall,
        answer: &Answer,
        fault: PeerFault,
    ) -> Result<(), Answer> {
        self.core.let_reply_go(call.peer, answer);
        self.core.responder.forget(call.key);
        self.refuse_call(call.peer, call.qp, call.xid, fault);
        Ok(())
    }

    /// Pushes the chunks of a reply, and sends it.
    fn send_reply(&mut self, call: AnsweredCall, planned: PlannedReply, mut answer: Answer) {
        let PlannedReply { plan, pushes, header_only } = planned;
        let AnsweredCall { key, peer, qp, xid, empty } = call;
        let core = &mut self.core;
        let Some((_, connection)) = core.peers.connection(peer) else { return };
        let long = header_only.is_some();
        let (lists, _) = core.responder.lists_and_returned(key, empty);
        // RFC 8167 §5.2 [8167-6]: a reverse reply begins with the XID of its header
        // draft 002 §5.2 [bidir-6]: a reverse reply begins with the XID of its header
        let header = connection.reply_header(xid, if long { Body::NoMsg } else { Body::Msg });
        let remote = self.provider.limits().sends_invalidation;
        let invalidate = connection.invalidates(lists).filter(|_| remote).map(RemoteKey);
        let stats = &mut core.counters.stats.responder;
        count_form(&mut stats.replies, long, plan.is_reduced());
        stats.remote_invalidations += u64::from(invalidate.is_some());
        stats.reply_chunks_spared += u64::from(!long && lists.reply().is_some());
        stats.writes += pushes as u64;

        let bulk = Bulk::of(&answer);
        let item = answer.item.take();
        let (message, payload) = lay_out(answer.message, item.as_ref(), &plan, header_only);
        if pushes > 0 {
            core.watch.stamp(key, Stage::Emit, core.now);
            let sources =
                Sources { payload: payload.as_ref(), item: item.as_ref(), zeros: &core.zeros };
            for push in plan.pushes(&core.responder.returned) {
                stats.pushed += u64::from(push.target.length);
                if sources.push(&mut self.provider, qp, push).is_err() {
                    return; // The connection is dying; its end removes the call.
                }
            }
            core.watch.stamp(key, Stage::Push, core.now);
        }
        let (header_len, is_behind) = (plan.header_len, pushes > 0 && bulk.is_some());
        let reply = WrittenReply { header, header_len, message, invalidate, bulk, is_behind };
        self.send_written(call, reply);
    }

    /// Sends a reply after the Writes of its chunks.
    pub(super) fn send_written(&mut self, call: AnsweredCall, reply: WrittenReply) {
        let AnsweredCall { key, peer, qp, .. } = call;
        let WrittenReply { header, header_len, mut message, invalidate, bulk, is_behind } = reply;
        let core = &mut self.core;
        let Some((_, connection)) = core.peers.connection(peer) else { return };
        let settles = connection.handle_replied();
        let room = message.prepend(header_len).expect("a message begins behind its head room");
        let emitted = connection.emit(&header, &core.responder.returned, room);
        debug_assert_eq!(emitted, Ok(header_len), "the plan knows its header");
        let is_sent = !is_behind && self.provider.send_inline(qp, &message, invalidate);
        let work = bulk.map_or(Work::Untracked, Work::BulkReply);
        if is_sent || self.provider.post_send(qp, work.tag(), message, invalidate).is_ok() {
            core.responder.forget(key);
            core.watch.post(key, core.now);
        }
        if settles {
            core.settle_receives(peer);
        }
        if let Some(bulk) = bulk.filter(|_| is_sent) {
            core.end_bulk(peer, bulk);
        }
    }
}

/// Returns the message that is sent, and the one that travels in a chunk, if any.
fn lay_out(
    mut message: Buf,
    item: Option<&AnswerItem>,
    plan: &ReplyPlan,
    header_only: Option<Buf>,
) -> (Buf, Option<Extent>) {
    if let Some(mut header_only) = header_only {
        header_only.reset(plan.header_len);
        return (header_only, Some(message.freeze()));
    }
    let inline = item.into_iter().flat_map(AnswerItem::iter).enumerate();
    let mut inserted = 0;
    for (_, (position, octets)) in inline.filter(|(place, _)| !plan.is_in_chunk(*place)) {
        let before = message.len();
        insert_parts(&mut message, position + inserted, octets.iter().map(|part| &part[..]));
        inserted += message.len() - before;
    }
    (message, None)
}

impl Sources<'_> {
    /// Posts the RDMA Writes of one part of a reply.
    fn push<P: Provider>(
        self,
        provider: &mut P,
        qp: Qp,
        push: Push,
    ) -> Result<(), Refused<Extent>> {
        let span = span_of(push);
        let octets = |place| self.item.and_then(|item| item.octets_of(place));
        match (push.part, self.payload) {
            (Part::Message, Some(payload)) => {
                push_one(provider, qp, payload.slice(span), push.target)
            }
            (Part::Item(place), _) => {
                let octets = octets(place).expect("the plan pushes items that the reply has");
                push_all(provider, qp, octets.slices(span), push.target, Work::Untracked)
            }
            (Part::Pad, _) => push_one(provider, qp, self.zeros.slice(span), push.target),
            (Part::Message, None) => unreachable!("a message is pushed only in a Reply chunk"),
        }
    }
}

/// Counts the RDMA Writes that push a reply's parts to their chunks.
fn count_writes(plan: &ReplyPlan, returned: &ChunkLists, answer: &Answer) -> usize {
    let octets = |place| answer.item.as_ref().and_then(|item| item.octets_of(place));
    let writes = plan.pushes(returned).map(|push| match push.part {
        Part::Item(place) => octets(place).map_or(0, |octets| octets.slices(span_of(push)).count()),
        Part::Message | Part::Pad => 1,
    });
    writes.sum()
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
    provider.post_write(qp, Work::Untracked.tag(), source, remote(target))
}

/// Pushes extents one after the other: together they are as long as `target`. The last Write is
/// `last`; the completions of the others are ignored.
pub(super) fn push_all<P: Provider>(
    provider: &mut P,
    qp: Qp,
    sources: impl Iterator<Item = Extent>,
    mut target: Segment,
    last: Work,
) -> Result<(), Refused<Extent>> {
    for source in sources {
        let len = source.len() as u32;
        let work = if len == target.length { last } else { Work::Untracked };
        provider.post_write(qp, work.tag(), source, remote(Segment { length: len, ..target }))?;
        // The end of the segment does not wrap: that was checked when it was parsed.
        target.offset += u64::from(len);
        target.length -= len;
    }
    debug_assert_eq!(target.length, 0, "the item has every octet that is pushed");
    Ok(())
}

/// The lengths of the parts of a reply, for its plan.
fn parts_of(answer: &Answer) -> ReplyParts {
    let mut parts = ReplyParts::new(answer.message.len() as u32);
    for (position, octets) in answer.item.iter().flat_map(AnswerItem::iter) {
        debug_assert!(position <= answer.message.len(), "an item is in its message");
        let item = ReplyItem { position: position as u32, len: octets.len() as u32 };
        let pushed = parts.push(item);
        debug_assert!(pushed.is_ok(), "an answer has at most as many items");
    }
    parts
}
