//! Calls of ours without chunks, with a header of a few words: most calls take this path.

use super::set_xid;
use crate::{
    call::Token,
    peer_view::PeerId,
    short_send::{SHORT_ROOM, ShortSend, send_short, send_written},
    state::{
        Requester, WrittenRoom,
        outbound::{Outbound, OutboundState},
    },
};
use stag_protocol::rpcrdma::{Connection, MessageType, Xid};
use stag_verbs::{Provider, Qp};

impl Outbound {
    /// Returns true if this call and its longest reply fit inline on `connection`, and it has no
    /// other parts.
    #[inline]
    pub(super) fn is_short(&self, connection: &Connection) -> bool {
        let Some(len) = self.message_len() else { return false };
        self.offers.is_none() && connection.short().fits_call(len, self.reply_max)
    }
}

/// Sends a [short](Outbound::is_short) call if the fabric accepts it at once, with XID `fresh` if
/// it has none. Its message then stays in the call.
#[inline(always)]
pub(super) fn send<P: Provider>(
    provider: &mut P,
    qp: Qp,
    connection: &Connection,
    call: &mut Outbound,
    written: &mut WrittenRoom,
    fresh: Xid,
) -> bool {
    debug_assert_eq!(call.state, OutboundState::AwaitCredit, "a call goes out once at a time");
    let xid = call.xid.unwrap_or(fresh);
    let send = ShortSend { qp, message_type: MessageType::Call, xid };
    let sent = match &mut call.message {
        Some(message) => {
            set_xid(message, xid);
            send_short(provider, connection, send, message)
        }
        // It has had its XID since it was written.
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

/// The call that a reply without chunks is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Replied {
    /// This call, which has ended: there is no window to fence.
    Over { token: Token, cancelled: bool },
    /// A call with parts, which may have been exposed.
    WithParts,
    /// None of ours.
    Unknown,
}

impl Requester {
    /// Hop 10: ends the call of `peer` that a reply without chunks is for. Its buffer is freed
    /// first, for reuse by the next call.
    #[inline]
    pub(crate) fn end_short(&mut self, peer: PeerId, xid: Xid) -> Replied {
        let Some((key, call)) = self.by_xid(peer, xid) else { return Replied::Unknown };
        if call.state != OutboundState::AwaitReply || call.offers.is_some() {
            return Replied::WithParts;
        }
        let &mut Outbound { token, cancelled, .. } = call;
        // All other fields are plain words.
        call.message = None;
        self.calls.forget(key);
        Replied::Over { token, cancelled }
    }
}
