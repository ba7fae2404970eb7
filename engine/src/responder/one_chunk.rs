//! Calls with one chunk of one segment, as of NFS READ and WRITE, and their replies: most calls
//! that are not short. A fast path with the same effect as `any_form`.

use super::any_form::{AnsweredCall, WrittenReply, push_all};
use crate::{
    app::{Answer, App},
    bulk::Bulk,
    item::Pulled,
    shard::Shard,
    stage_times::Stage,
    state::{
        Sender,
        inbound::{Inbound, InboundState},
        room_kept,
    },
    work::Work,
};
use stag_pools::{Buf, RemoteKey};
use stag_protocol::{
    rpcrdma::{self, Body, ChunkLists, Intent, MessageType, PeerFault, Segment, Xid, responder},
    xdr::Reader,
};
use stag_verbs::{Provider, Qp};

/// The only chunk of a call, which has one segment.
#[derive(Clone, Copy, Debug)]
pub(super) enum OneChunk {
    /// A Write chunk: this segment.
    Write(Segment),
    /// A Read chunk. The call offers no Write chunk for a result.
    Read,
}

impl OneChunk {
    /// None: the call has other chunks, or the reply has an item that goes inline.
    #[inline]
    pub(super) fn of(lists: &ChunkLists, answer: &Answer) -> Option<Self> {
        match lists.only_write() {
            _ if answer.item.as_ref().is_some_and(|item| !item.more.is_empty()) => None,
            Some(segment) => Some(Self::Write(segment)),
            None if answer.item.is_none() && lists.only_read().is_some() => Some(Self::Read),
            None => None,
        }
    }

    /// Sets `returned` to the lists of a reply before anything is pushed, as
    /// [`ChunkLists::return_unused`] does.
    fn return_unused(self, call: &ChunkLists, returned: &mut ChunkLists) {
        match self {
            Self::Write(segment) => returned.set_only_write(Segment { length: 0, ..segment }),
            // RFC 8166 §4.3.1 [8166-36]: the Read list of a reply is empty
            Self::Read => returned.clear_chunks(),
        }
        let message_type = MessageType::Reply;
        // draft 001 §4.1 [reminv-3]: a reply repeats the key of its call
        returned.set_intent(call.intent().map(|intent| Intent { message_type, ..intent }));
    }
}

impl OneChunk {
    /// Fills in the lists of a reply with an item, and a message for which `room` octets are left
    /// after its header, as [`responder::plan_reply`] does.
    fn plan(
        self,
        item: u32,
        message: usize,
        room: usize,
        returned: &mut ChunkLists,
    ) -> Result<(), PeerFault> {
        if let Self::Write(offered) = self {
            returned.set_only_write(responder::fill_one_write(offered, item)?);
        }
        responder::check_inline(message, room)
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Gives a call whose only chunk is a Write chunk of one segment an entry, and passes it to the
    /// app. Its XID was compared, and there is memory for its reply.
    pub(super) fn begin_with_room(
        &mut self,
        sender: Sender,
        qp: Qp,
        xid: Xid,
        payload_at: usize,
        message: Buf,
    ) {
        let core = &mut self.core;
        core.ways.note_short();
        let stats = &mut core.counters.stats.responder;
        stats.chunks.write += 1;
        stats.chunks.write_segments += 1;
        stats.calls.short += 1;
        let state = InboundState::AwaitAnswer;
        let (peer, came_at) = (sender.peer, core.now);
        let call = Inbound { peer, xid, state, has_lists: true, came_at, fabric: None };
        let Ok(key) = core.responder.calls.insert(call) else { return self.refuse_place(qp) };
        if let Some(lists) = core.responder.lists.get_mut(key.index()) {
            lists.clone_from(&core.lists);
        }
        core.watch.begin(key, core.now);
        let payload = message.get(payload_at..).unwrap_or_default();
        self.hand_over(key, sender, Reader::new(payload), Pulled::default());
        self.repost(message);
    }

    /// Sends the reply to a call with one chunk of one segment. It is returned if the send queue
    /// has no room for it.
    pub(super) fn answer_one_chunk(
        &mut self,
        call: AnsweredCall,
        offer: OneChunk,
        answer: Answer,
    ) -> Result<(), Answer> {
        let AnsweredCall { key, peer, qp, xid, .. } = call;
        let core = &mut self.core;
        core.ways.note_short();
        let Some((_, connection)) = core.peers.connection(peer) else { return Ok(()) };
        let (lists, returned) = core.responder.lists_and_returned(key, None);
        offer.return_unused(lists, returned);
        let (item_len, header_len) = (item_len(&answer), rpcrdma::header_len(returned));
        let room = connection.send_threshold().octets().saturating_sub(header_len);
        if let Err(fault) = offer.plan(item_len, answer.message.len(), room, returned) {
            return self.refuse_reply(call, &answer, fault);
        }
        let remote = self.provider.limits().sends_invalidation;
        let invalidate = connection.invalidates(lists).filter(|_| remote).map(RemoteKey);
        let pushes = if item_len > 0 { count_parts(&answer) } else { 0 };
        let kept = room_kept(connection);
        if pushes + kept >= self.provider.limits().send_queue {
            // It would never fit: only an error can be sent (RFC 8166 §4.5.4).
            return self.refuse_reply(call, &answer, PeerFault::TooManySegments);
        }
        if self.provider.send_room(qp) < pushes + 1 + kept {
            return Err(answer);
        }
        // The reply will be sent, and announces the grant.
        core.adapt_grant(peer, u64::from(item_len));
        core.note_posted(peer);
        let stats = &mut core.counters.stats.responder;
        *if item_len > 0 { &mut stats.replies.chunked } else { &mut stats.replies.short } += 1;
        stats.remote_invalidations += u64::from(invalidate.is_some());
        stats.writes += pushes as u64;
        stats.pushed += u64::from(item_len);
        // Each part is kept until its own work completes: the Send may complete at once, while a
        // slow peer has yet to take the data of the Writes.
        let (bulk, pushed) = match pushes {
            0 => (Bulk::of(&answer), None),
            _ => (Bulk::of_message(&answer), Bulk::of_items(&answer)),
        };
        let work = pushed.map_or(Work::Untracked, Work::BulkReply);
        let Answer { message, item } = answer;
        if let (Some(item), Some(target)) =
            (item.filter(|_| pushes > 0), core.responder.returned.only_write())
        {
            core.watch.stamp(key, Stage::Emit, core.now);
            let sources = item.octets.iter().filter(|part| !part.is_empty()).cloned();
            if push_all(&mut self.provider, qp, sources, target, work).is_err() {
                return Ok(()); // The connection is dying; its end removes the call.
            }
            core.watch.stamp(key, Stage::Push, core.now);
        }
        let Some((_, connection)) = core.peers.connection(peer) else { return Ok(()) };
        // RFC 8167 §5.2 [8167-6]: a reverse reply begins with the XID of its header
        // draft 002 §5.2 [bidir-6]: a reverse reply begins with the XID of its header
        let header = connection.reply_header(xid, Body::Msg);
        let is_behind = false;
        let reply = WrittenReply { header, header_len, message, invalidate, bulk, is_behind };
        self.send_written(call, reply);
        Ok(())
    }
}

/// Octets of the item of a reply that has at most one.
fn item_len(answer: &Answer) -> u32 {
    answer.item.as_ref().map_or(0, |item| item.octets.len()) as u32
}

/// Counts the RDMA Writes that push the item of a reply to one segment.
fn count_parts(answer: &Answer) -> usize {
    let parts = answer.item.iter().flat_map(|item| &item.octets);
    parts.filter(|part| !part.is_empty()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::rpcrdma::{
        InlineSize, Position, Procedure, ReadSegment,
        responder::{ReplyParts, ReplyPolicy, plan_reply},
    };

    /// Plans the reply with `item` octets in its item and `rest` other octets, by both paths.
    /// Returns true if it can be sent.
    fn compare(call: &ChunkLists, offer: OneChunk, item: u32, rest: u32) -> bool {
        let parts = ReplyParts::with_item(rest, item, 8);
        let threshold = InlineSize::at_most(4096).threshold(InlineSize::at_most(4096));
        // The lists of the reply before are in the same place.
        let [mut quick, mut slow] = [call.clone(), call.clone()];
        offer.return_unused(call, &mut quick);
        let header_len = rpcrdma::header_len(&quick);
        let room = threshold.octets() - header_len;
        let planned = offer.plan(item, rest as usize + 8, room, &mut quick);
        let any = plan_reply(call, parts, threshold, ReplyPolicy::Chunk, &mut slow);
        match (planned, any) {
            (Ok(()), Ok(plan)) => {
                assert_eq!(quick, slow);
                assert_eq!((plan.procedure, plan.header_len), (Procedure::Msg, header_len));
                assert_eq!(plan.is_reduced(), item > 0);
                true
            }
            (planned, any) => {
                assert_eq!(planned.err(), any.err(), "{item} octets of {call:?}");
                false
            }
        }
    }

    #[test]
    fn a_reply_to_a_call_with_one_chunk_is_planned_as_any_other() {
        let said = Intent { message_type: MessageType::Call, inv_handle: 9 };
        let (mut sent, mut refused) = (0, 0);
        for intent in [None, Some(said)] {
            for length in [0, 1, 4, 4096, u32::MAX] {
                let segment = Segment { handle: 9, length, offset: 1 << 40 };
                let mut write = ChunkLists::new();
                write.set_only_write(segment);
                write.set_intent(intent);
                let mut read = ChunkLists::new();
                read.set_only_read(ReadSegment { position: Position::ZERO, segment });
                read.set_intent(intent);
                for rest in (3_960..4_096).step_by(4).chain([24]) {
                    for item in [0, 1, 4, 5, 4096, 4097, u32::MAX] {
                        let is_sent = compare(&write, OneChunk::Write(segment), item, rest);
                        *if is_sent { &mut sent } else { &mut refused } += 1;
                    }
                    compare(&read, OneChunk::Read, 0, rest);
                }
            }
        }
        assert!(sent > 100 && refused > 100, "{sent} sent, {refused} refused");
    }
}
