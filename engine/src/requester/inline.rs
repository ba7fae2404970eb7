//! Calls of ours with an argument or with room for a result, when call and reply travel inline
//! (RFC 8166 §3.5.1). A fast path with the same effect as `chunked`.

use super::set_xid;
use crate::{
    app::{App, CallFault, PeerId},
    payload::{insert_item, remove_item},
    shard::Shard,
    short_send::{ShortSend, send_short},
    state::{
        FabricLink, Link, Requester,
        outbound::{Outbound, OutboundState, Sent},
    },
};
use stag_pools::table::Key;
use stag_protocol::{
    rpcrdma::{MessageType, form::CallPlan, short::Layout},
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
        let core = &mut self.core;
        if !core.ways.are_short() {
            return false;
        }
        let Requester { calls, offered, xids, .. } = &mut core.requester;
        let Some(call) = calls.get_mut(key) else { return false };
        let Some(lists) = offered.get_mut(key.index()) else { return false };
        let Some(entry) = core.peers.get(peer) else { return false };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &entry.link else {
            return false;
        };
        let Some(inserted) = call.inserted(connection.short()) else { return false };
        let (Some(message), Some(offers)) = (&mut call.message, &call.offers) else { return false };
        debug_assert_eq!(call.state, OutboundState::AwaitCredit, "a call goes out once at a time");
        let xid = call.xid.unwrap_or_else(|| xids.fresh(key.index()));
        set_xid(message, xid);
        let item = offers.position.zip(offers.item.as_deref());
        if let Some((position, item)) = item {
            insert_item(message, position, item);
        }
        (call.state, call.xid, call.sent) = (OutboundState::AwaitReply, Some(xid), Sent::default());
        // A reply that names chunks is compared with them: nothing was offered.
        lists.clear();
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
        core.ways.note_short();
        let stats = &mut core.counters.stats.requester;
        stats.calls.short += 1;
        stats.versions.count_short(connection.short(), connection.side().calls());
        true
    }

    /// Hop 10: ends a call with parts none of which was exposed, by its reply without chunks, and
    /// sends the call that `waits` for its credit.
    #[inline(never)]
    pub(crate) fn end_inline(&mut self, key: Key, reply: &[u8], waits: Option<PeerId>) {
        if let Some(call) = self.core.requester.take(key) {
            let reply = if call.cancelled { Err(CallFault::Cancelled) } else { Ok(reply) };
            self.tell(call, reply);
        }
        if let Some(peer) = waits {
            self.start_waiting(peer);
        }
    }
}
