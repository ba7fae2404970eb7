//! Calls of ours without chunks, with the header of a few words: most calls.

use super::{
    outbound::{Outbound, OutboundState},
    set_xid,
};
use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId},
    peers::Link,
    shard::Shard,
};
use stag_protocol::rpcrdma::{Connection, Xid, plain};
use stag_verbs::{Provider, Qp};

impl Outbound {
    /// Returns true if this call and its longest reply fit inline on `connection`, and nothing else belongs to it.
    #[inline]
    pub(super) fn is_short(&self, connection: &Connection) -> bool {
        let Some(message) = &self.message else { return false };
        self.offers.is_none() && connection.plain().fits_call(message.len(), self.reply_max)
    }
}

/// Sends a [short](Outbound::is_short) call, with `fresh` for an XID if it has none, and if the fabric takes it at once. Then its
/// message stays here.
#[inline]
pub(super) fn send<P: Provider>(
    provider: &mut P,
    qp: Qp,
    connection: &Connection,
    call: &mut Outbound,
    fresh: Xid,
) -> bool {
    let (xid, Some(message)) = (call.xid.unwrap_or(fresh), &mut call.message) else { return false };
    set_xid(message, xid);
    // draft 004 §3.1.1 [exp-2]
    let room = message.prepend(plain::HEADER_LEN).expect("a message begins behind its head room");
    let room = room.first_chunk_mut().expect("it has this length");
    let sent = connection.emit_plain_call(xid, room) && provider.send_inline(qp, message, None);
    message.trim_front(plain::HEADER_LEN);
    if sent {
        (call.state, call.xid) = (OutboundState::AwaitReply, Some(xid));
    }
    sent
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: takes a reply without chunks. None: it has to be judged by what its call offered, and nothing was done.
    #[inline]
    pub(crate) fn handle_short_reply(&mut self, peer: PeerId, xid: Xid, message: &[u8]) -> Option<()> {
        let Some((key, call)) = self.core.requester.by_xid(peer, xid) else { return Some(()) };
        if call.state != OutboundState::AwaitReply || call.offers.is_some() {
            return None;
        }
        let entry = self.core.peers.get_mut(peer)?;
        entry.note_reply();
        if let Link::Fabric { state: Some(connection), .. } = &mut entry.link {
            connection.give_credit();
        }
        self.core.counters.stats.requester.replies.short += 1;
        let known_as = self.core.peers.known_as(peer);
        // There is no window to fence, so the call is over. Its buffer goes first: the next call takes it.
        let Outbound { token, cancelled, .. } = self.core.requester.calls.remove(key)?;
        let payload = message.get(plain::HEADER_LEN..).unwrap_or_default();
        let reply = if cancelled { Err(CallFault::Cancelled) } else { Ok(payload) };
        let outcome = Outcome { token, peer: known_as, reply, item: None, result: None };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
        self.empty_outbox();
        if self.core.peers.get(peer).is_some_and(|entry| !entry.calls.waiting.is_empty()) {
            self.start_waiting(peer);
        }
        Some(())
    }
}
