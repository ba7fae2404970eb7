//! Calls of ours over TCP.

use super::set_xid;
use crate::{
    app::{App, CallFault, PeerId},
    shard::Shard,
    state::outbound::OutboundState,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::rpcrdma::Xid;
use stag_verbs::Provider;

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends a call over TCP: everything inline, the item without a copy.
    pub(super) fn send_call_by_stream(&mut self, key: Key, stream: Key) {
        let xid = self.core.requester.xid(key.index());
        let Some(call) = self.core.requester.calls.get_mut(key) else { return };
        if let Err(fault) = call.sign(xid) {
            if let Some(call) = self.core.requester.calls.remove(key) {
                self.give_back(call, fault);
            }
            return;
        }
        let Some(mut message) = call.message.take() else { return };
        debug_assert_eq!(call.state, OutboundState::AwaitCredit, "a call goes out once at a time");
        set_xid(&mut message, xid);
        call.xid = Some(xid);
        call.state = OutboundState::AwaitReply;
        let item = call.offers.as_mut().and_then(|offers| {
            offers.shared = offers.item.take().map(Buf::freeze);
            offers.position.zip(offers.shared.as_ref())
        });
        self.streams.send_call(stream, message, item, &self.core.zeros);
    }

    /// Handles a reply that came over TCP.
    pub(crate) fn handle_record(&mut self, peer: PeerId, xid: Xid, record: &[u8]) {
        // RFC 5531 §9 [5531-14]: a reply without a call of its XID is dropped
        if let Some((key, _)) = self.core.requester.by_xid(peer, xid)
            && let Some(call) = self.core.requester.take(key)
        {
            let reply = if call.cancelled { Err(CallFault::Cancelled) } else { Ok(record) };
            self.tell(call, reply);
        }
        self.start_waiting(peer);
    }
}
