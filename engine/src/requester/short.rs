//! Calls of ours without chunks, with the header of a few words: most calls.

use super::{
    outbound::{Outbound, OutboundState},
    set_xid,
    written::WrittenRoom,
};
use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId},
    peer::Link,
    shard::Shard,
    short_send::{SHORT_ROOM, ShortSend, send_short, send_written},
};
use stag_protocol::rpcrdma::{Connection, MessageType, Xid};
use stag_verbs::{Provider, Qp};

impl Outbound {
    /// Returns true if this call and its longest reply fit inline on `connection`, and nothing else
    /// belongs to it.
    #[inline]
    pub(super) fn is_short(&self, connection: &Connection) -> bool {
        let Some(len) = self.message_len() else { return false };
        self.offers.is_none() && connection.short().fits_call(len, self.reply_max)
    }
}

/// Sends a [short](Outbound::is_short) call, with `fresh` for an XID if it has none, and if the
/// fabric takes it at once. Then its message stays here.
#[inline(always)]
pub(super) fn send<P: Provider>(
    provider: &mut P,
    qp: Qp,
    connection: &Connection,
    call: &mut Outbound,
    written: &mut WrittenRoom,
    fresh: Xid,
) -> bool {
    let xid = call.xid.unwrap_or(fresh);
    let send = ShortSend { qp, message_type: MessageType::Call, xid };
    let sent = match &mut call.message {
        Some(message) => {
            set_xid(message, xid);
            send_short(provider, connection, send, message)
        }
        // It has its XID since it was written.
        None => {
            let octets = written.get_mut(..SHORT_ROOM + usize::from(call.written));
            let octets = octets.unwrap_or_default();
            send_written(provider, connection, send, octets)
        }
    };
    if sent {
        (call.state, call.xid) = (OutboundState::AwaitReply, Some(xid));
    }
    sent
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: takes a reply without chunks, by its RPC message. None: it has to be judged by what
    /// its call offered, and nothing was done.
    #[inline]
    pub(crate) fn handle_short_reply(
        &mut self,
        peer: PeerId,
        xid: Xid,
        payload: &[u8],
    ) -> Option<()> {
        let Some((key, call)) = self.core.requester.by_xid(peer, xid) else { return Some(()) };
        if call.state != OutboundState::AwaitReply || call.offers.is_some() {
            return None;
        }
        let entry = self.core.peers.get_mut(peer)?;
        let known_as = entry.known_as(peer);
        entry.note_reply();
        let waits = !entry.calls.waiting.is_empty();
        if let Link::Fabric { state: Some(connection), .. } = &mut entry.link {
            connection.give_credit();
        }
        self.core.counters.stats.requester.replies.short += 1;
        // There is no window to fence, so the call is over. Its buffer goes first: the next call
        // takes it.
        let Outbound { token, cancelled, .. } = self.core.requester.calls.remove(key)?;
        let reply = if cancelled { Err(CallFault::Cancelled) } else { Ok(payload) };
        let outcome = Outcome { token, peer: known_as, reply, item: None, result: None };
        self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
        self.empty_outbox();
        if waits {
            self.start_waiting(peer);
        }
        Some(())
    }
}
