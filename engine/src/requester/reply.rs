//! Replies to calls of ours, whatever the call offered: the second half of hop 10.

use super::long_reply::clear_behind;
use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId},
    room::Room,
    shard::Shard,
    state::{
        Requester,
        outbound::{EndedCall, Outbound, OutboundState, ReplyMemory},
    },
    work::Work,
};
use stag_pools::{Buf, Fenced, RemoteKey, table::Key};
use stag_protocol::rpcrdma::{
    ChunkLists, ErrorBody, Header, PeerFault, Xid,
    requester::{self, ReplyPayload},
};
use stag_verbs::{Provider, Qp};

/// A received reply; its chunks are in [`Core::lists`](crate::core::Core::lists).
#[derive(Debug)]
pub(crate) struct ReplyMessage {
    pub(crate) header: Header,
    /// The offset of the RPC message in `octets`.
    pub(crate) payload_at: usize,
    pub(crate) octets: Buf,
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: handles a reply, whatever its call offered.
    #[inline(never)]
    pub(crate) fn handle_reply(
        &mut self,
        peer: PeerId,
        message: ReplyMessage,
        invalidated: Option<Fenced>,
    ) {
        let Some((key, call)) = self.core.requester.by_xid(peer, message.header.xid) else {
            if let Some(fenced) = invalidated {
                self.handle_stray_invalidation(peer, fenced);
            }
            return;
        };
        if let Some(fenced) = invalidated {
            self.core.counters.stats.requester.remote_invalidations += 1;
            if let Err(fenced) = call.fence(fenced) {
                // RFC 8797 §4.1 [8797-4] only a key of this call may be invalidated
                return self.handle_stray_invalidation(peer, fenced);
            }
        }
        if call.state != OutboundState::AwaitReply {
            return;
        }
        // RFC 8166 §4.5 [8166-46] a reply that cannot be understood is discarded; the call ends at
        // its deadline
        match self.judge_reply(key, peer, message) {
            Ok(()) => self.end_call(key, peer),
            Err(fault) => self.core.counters.peer_faults.count(fault),
        }
    }

    /// Checks a reply against the call's offers, and keeps it.
    fn judge_reply(
        &mut self,
        key: Key,
        peer: PeerId,
        message: ReplyMessage,
    ) -> Result<(), PeerFault> {
        let ReplyMessage { header, payload_at, octets } = message;
        let Requester { calls, offered, spare, .. } = &mut self.core.requester;
        let Some(call) = calls.get_mut(key) else { return Ok(()) };
        let offered = match &call.offers {
            Some(_) => offered.get(key.index()).unwrap_or(ChunkLists::none()),
            None => ChunkLists::none(),
        };
        let inline = octets.len() - payload_at;
        let shape = requester::check_reply(offered, &header, &self.core.lists, inline)?;
        let mut written = shape.written().first().copied().unwrap_or(0);
        let mut unused = u64::from(written == 0 && !shape.written().is_empty());
        if let Some(offers) = &mut call.offers {
            offers.written = usize::try_from(written).unwrap_or(0);
            if let Some(rooms) = offers.rooms {
                unused = offers.note_written(rooms, shape.written());
                written = offers.written as u64;
            }
        }
        let stats = &mut self.core.counters.stats.requester;
        stats.write_chunks_unused += unused;
        let reply = match shape.payload {
            ReplyPayload::Inline(_) => {
                if let Some(entry) = self.core.peers.get_mut(peer) {
                    entry.note_reply();
                }
                *if written > 0 { &mut stats.replies.chunked } else { &mut stats.replies.short } +=
                    1;
                ReplyMemory::Inline { message: octets, payload_at }
            }
            // The content of a Reply chunk is checked once it can be read.
            ReplyPayload::ReplyChunk(len) => {
                stats.replies.long += 1;
                ReplyMemory::Room(usize::try_from(len).unwrap_or(0))
            }
        };
        call.end(reply, spare);
        Ok(())
    }

    /// Ends a call that the responder's transport refused.
    pub(crate) fn handle_refused(&mut self, peer: PeerId, xid: Xid, error: ErrorBody) {
        let stats = &mut self.core.counters.stats.requester;
        stats.errors += 1;
        stats.version_errors += u64::from(matches!(error, ErrorBody::Version { .. }));
        let Some((key, _)) = self.core.requester.by_xid(peer, xid) else { return };
        let Requester { calls, spare, .. } = &mut self.core.requester;
        if let Some(call) =
            calls.get_mut(key).filter(|call| call.state == OutboundState::AwaitReply)
        {
            // RFC 8267 §6.4.2, §6.7.2 [8267-13]: a call that got an error is not sent again
            // RFC 8267 §6.4.2, §6.7.2 [8267-14]: a call that got an error ends at once
            // RFC 8267 §6.4.2, §6.7.2 [8267-18]: an RDMA_ERROR ends its call
            call.end(ReplyMemory::Fault(CallFault::Refused(error)), spare);
            self.end_call(key, peer);
        }
    }

    /// Ends the connection of a peer that invalidated a key by a message other than the reply to
    /// its call (DESIGN D9).
    pub(crate) fn handle_stray_invalidation(&mut self, peer: PeerId, fenced: Fenced) {
        self.core.requester.deposit(peer, fenced);
        self.disconnect(peer);
    }

    /// Ends a call that the responder has completed: its credit is free, and all remaining keys are
    /// invalidated before the app gets the reply (RFC 8166 §4.4.1).
    fn end_call(&mut self, key: Key, peer: PeerId) {
        let Some(call) = self.core.requester.calls.get_mut(key) else { return };
        debug_assert!(call.has_ended(), "a call that the responder has completed has an outcome");
        call.state = OutboundState::AwaitFence;
        let is_fenced = call.is_fenced();
        if let Some((qp, connection)) = self.core.peers.connection(peer) {
            connection.give_credit();
            // draft 001 §2.2 [reminv-11]: any key of a call may be invalidated, or none
            if !is_fenced {
                self.invalidate_all(qp, key);
            }
        }
        self.finish_if_fenced(key);
        self.start_waiting(peer);
    }

    #[inline(never)]
    fn invalidate_all(&mut self, qp: Qp, key: Key) {
        let windows = self.core.requester.calls.get(key).map(Outbound::windows);
        for window in windows.into_iter().flatten().flatten() {
            self.invalidate(qp, key, window.key);
        }
    }

    pub(super) fn invalidate(&mut self, qp: Qp, call: Key, window: RemoteKey) {
        self.core.counters.stats.requester.local_invalidations += 1;
        // RFC 8166 §4.5.4 [8166-54] what cannot be invalidated ends the connection, and with it the
        // window
        if self.provider.post_local_invalidate(qp, Work::Invalidation(call).tag(), window).is_err()
        {
            self.provider.disconnect(qp);
        }
    }

    /// Handles a fenced window of ours.
    pub(crate) fn handle_fenced(&mut self, qp: Qp, fenced: Fenced) {
        let Some(peer) = self.core.peers.of_qp(qp) else { return };
        if let Some(call) = self.core.requester.deposit(peer, fenced) {
            self.finish_if_fenced(call);
        }
    }

    /// Reports the outcome to the app, once all keys of an ended call are dead.
    pub(super) fn finish_if_fenced(&mut self, key: Key) {
        let Some(call) = self.core.requester.calls.get_mut(key) else { return };
        if call.state == OutboundState::AwaitWhole {
            return self.go_again_if_whole(key);
        }
        // RFC 8166 §4.4.1 [8166-71]: a call ends only after all its keys are dead
        // draft 001 §2.2 [reminv-10]: all keys of a call are dead before it completes
        // RFC 5042 §A [5042-23]: a buffer is used only after its STag is dead
        if !call.has_ended() || !call.is_fenced() {
            return;
        }
        if let Err(fault) =
            call.look_at_long_reply(&mut self.core.counters.stats.requester.unwritten)
        {
            self.core.counters.peer_faults.count(fault);
            let peer = call.peer;
            return self.disconnect(peer);
        }
        let Some(mut call) = self.core.requester.take(key) else { return };
        let Some(offers) = &mut call.offers else { return };
        let room = offers.reply_room.take();
        let reply = match offers.reply.take() {
            Some(reply) if !call.cancelled => reply,
            _ => ReplyMemory::Fault(CallFault::Cancelled),
        };
        let octets = match &reply {
            ReplyMemory::Inline { message, payload_at } => {
                Ok(message.get(*payload_at..).unwrap_or_default())
            }
            ReplyMemory::Room(len) => {
                if let Some(entry) = self.core.peers.get_mut(call.peer) {
                    entry.note_reply();
                }
                Ok(room.as_deref().and_then(|room| room.get(..*len)).unwrap_or_default())
            }
            ReplyMemory::Fault(fault) => Err(*fault),
        };
        self.tell(call, octets);
    }

    /// Reports an outcome to the app.
    pub(super) fn tell(&mut self, call: EndedCall, reply: Result<&[u8], CallFault>) {
        let EndedCall { peer, token, offers, .. } = call;
        let peer = self.core.peers.known_as(peer);
        let (mut item, mut result) = (None, None);
        let each;
        let mut written = &[][..];
        if let Some(mut offers) = offers {
            // A buffer sent over TCP is ours alone again, unless part of it still waits to be sent.
            let shared = offers.shared.take();
            item = offers.item.take().or_else(|| shared?.try_into_buf().ok());
            result = offers.result.take();
            if let Some(result) = &mut result {
                debug_assert!(offers.written <= result.len(), "a result is inside its room");
                // RFC 8166 §4.3.2.2 [8166-40]: of a Write chunk, what was not returned counts as
                // changed, too
                result.truncate(offers.written);
                self.core.moved += result.len();
                self.core.counters.stats.requester.unwritten +=
                    clear_behind(result, offers.result_filled);
            }
            if let Some(rooms) = offers.rooms {
                each = offers.written_each;
                written = each.get(..rooms.lens().len()).unwrap_or_default();
            }
            self.core.requester.spare.give(offers);
        }
        let result = result.map(Room);
        let outcome = Outcome { token, peer, reply, item, result, written };
        self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
        self.empty_outbox();
    }
}
