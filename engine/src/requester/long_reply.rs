//! Checks of replies that RDMA Write brought, before the app reads them (RFC 8166 §4.2.1; DESIGN
//! D2, D7).

use crate::state::outbound::{Outbound, OutboundState, ReplyMemory};
use stag_protocol::rpcrdma::{PeerFault, requester};

/// Clears the octets that a reply claims past the `filled` ones that can belong to a reply; returns
/// their number.
pub(super) fn clear_behind(octets: &mut [u8], filled: usize) -> u64 {
    let unwritten = octets.get_mut(filled..).unwrap_or_default();
    unwritten.fill(0);
    unwritten.len() as u64
}

impl Outbound {
    /// Checks the content of the Reply chunk, once the peer can no longer reach it. Unless it is
    /// the reply to this call, the call waits for the end of the connection. Octets that were not
    /// written are cleared, and counted in `unwritten`.
    #[inline]
    pub(super) fn look_at_long_reply(&mut self, unwritten: &mut u64) -> Result<(), PeerFault> {
        let (Some(offers), Some(xid), false) = (&mut self.offers, self.xid, self.cancelled) else {
            return Ok(());
        };
        let Some(ReplyMemory::Room(len)) = offers.reply else { return Ok(()) };
        let room = offers
            .reply_room
            .as_deref_mut()
            .and_then(|room| room.get_mut(..len))
            .unwrap_or_default();
        *unwritten += clear_behind(room, offers.reply_filled);
        // RFC 8166 §4.2.1 [8166-31]: the header has the XID of its RPC message
        requester::check_message(xid, room).inspect_err(|_| {
            (offers.reply, self.state) = (None, OutboundState::AwaitNext);
        })
    }
}
