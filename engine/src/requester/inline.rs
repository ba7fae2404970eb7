//! Calls of ours with an argument or with room for a result, when call and reply travel inline
//! (RFC 8166 §3.5.1). A fast path with the same effect as `chunked`.

use super::{FastCall, set_xid};
use crate::{
    app::{App, CallFault, PeerId},
    payload::{insert_item, remove_item},
    shard::Shard,
    short_send::{ShortSend, send_short},
    state::{
        FabricLink, Link,
        outbound::{Outbound, OutboundState},
    },
};
use stag_pools::table::Key;
use stag_protocol::{
    rpcrdma::{ChunkLists, MessageType, Xid, form::CallPlan, short::Layout},
    xdr::padded,
};
use stag_verbs::{Provider, Qp};

impl Outbound {
    /// Octets of the argument, with its padding, that are inserted into the message if call and
    /// reply travel inline. None: one of them does not, or the call takes another path.
    fn inserted(&self, layout: &Layout) -> Option<usize> {
        let (message, offers) = (self.message.as_ref()?, self.offers.as_ref()?);
        let position = offers.position.unwrap_or(0);
        let is_usual = offers.rooms.is_none()
            && offers.position.is_some() == offers.item.is_some()
            && position.is_multiple_of(4);
        if !is_usual {
            return None;
        }
        let inserted = offers.item.as_ref().map_or(0, |item| padded(item.len()));
        let result = offers.result.as_ref().map_or(0, |result| padded(result.len()));
        let (call, reply) = (message.len() + inserted, self.reply_max.saturating_add(result));
        layout.fits_call(call, reply).then_some(inserted)
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hops 2 to 5 of a call that travels inline, as its reply does, over a connection whose
    /// version is negotiated. Returns false if nothing was done.
    #[inline]
    pub(super) fn send_inline(&mut self, key: Key, peer: PeerId, qp: Qp) -> bool {
        let Some(mut fast) = self.core.fast_call(key, peer) else { return false };
        let Some(inserted) = fast.call.inserted(fast.connection.short()) else { return false };
        // Without chunks: a reply that names some is refused.
        let xid = fast.begin(key);
        let FastCall { call, connection, ways, stats, .. } = fast;
        let (Some(message), Some(offers)) = (&mut call.message, &call.offers) else { return true };
        set_xid(message, xid);
        let item = offers.position.zip(offers.item.as_deref());
        if let Some((position, item)) = item {
            insert_item(message, position, item);
        }
        let send = ShortSend { qp, message_type: MessageType::Call, xid };
        if !send_short(&mut self.provider, connection, send, message) {
            call.sent.inserted = inserted as u32;
            let Some(message) = call.message.take() else { return true };
            self.emit_call(key, qp, xid, &CallPlan::INLINE, message);
            return true;
        }
        // The call may be sent again, over another connection and in another form.
        if let Some((position, _)) = item {
            remove_item(message, position, inserted);
        }
        ways.note_short();
        stats.calls.short += 1;
        stats.versions.count_short(connection.short(), connection.side().calls());
        true
    }

    /// Hop 10: ends a call with parts, none of which was exposed, by its reply without chunks, and
    /// sends what waited for its credit. Returns false if nothing was done: the call has to be
    /// compared with its offers, or has ended.
    #[inline(never)]
    pub(crate) fn end_inline(&mut self, peer: PeerId, xid: Xid, reply: &[u8]) -> bool {
        let Self { core, .. } = self;
        let Some((key, call)) = core.requester.by_xid(peer, xid) else { return false };
        let is_plain = call.state == OutboundState::AwaitReply && call.is_fenced();
        let lists = core.requester.offered.get(key.index());
        if !is_plain || !lists.is_some_and(ChunkLists::is_empty) {
            return false;
        }
        let Some(entry) = core.peers.get_mut(peer) else { return false };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return false;
        };
        core.ways.note_short();
        connection.give_credit();
        entry.note_reply();
        core.counters.stats.requester.replies.short += 1;
        let waits = entry.has_waiting();
        if let Some(call) = core.requester.take(key) {
            let reply = if call.cancelled { Err(CallFault::Cancelled) } else { Ok(reply) };
            self.tell(call, reply);
        }
        if waits {
            self.start_waiting(peer);
        }
        true
    }
}
