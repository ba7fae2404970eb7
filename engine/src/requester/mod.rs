//! Calls of ours: queued, sent, completed.
//!
//! `start` sends the calls of a peer in order, and chooses the path of each: `short` (no chunks, a
//! header of a few words), `inline` (an argument or a result that travels inline), `one_chunk` (one
//! segment), or `chunked` (all others). `reply` handles replies, `ends` every end of a call without
//! a reply.

mod chunked;
mod ends;
mod inline;
mod long_reply;
mod one_chunk;
mod queue;
mod records;
mod reply;
mod short;
mod start;
mod written;
pub(crate) use reply::ReplyMessage;
pub(crate) use short::Replied;

use crate::{
    call::CannotSign,
    core::Core,
    fault::CallFault,
    peer_view::PeerId,
    state::{
        FabricLink, Link, Requester, Xids,
        outbound::{Outbound, OutboundState, Sent},
    },
    stats,
    ways::Ways,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::rpcrdma::{ChunkLists, Connection, Xid};
use stag_verbs::Time;

/// A call of ours that may take a fast path, with its connection and everything else that it needs.
#[derive(Debug)]
struct FastCall<'a> {
    call: &'a mut Outbound,
    /// The chunks that it offers.
    lists: &'a mut ChunkLists,
    connection: &'a mut Connection,
    xids: &'a mut Xids,
    ways: &'a mut Ways,
    stats: &'a mut stats::Requester,
}

impl FastCall<'_> {
    /// Notes that the call goes out, without chunks so far. Returns its XID.
    #[inline(always)]
    fn begin(&mut self, key: Key) -> Xid {
        let Self { call, lists, xids, .. } = self;
        debug_assert_eq!(call.state, OutboundState::AwaitCredit, "a call goes out once at a time");
        let xid = call.xid.unwrap_or_else(|| xids.fresh(key.index()));
        (call.state, call.xid, call.sent) = (OutboundState::AwaitReply, Some(xid), Sent::default());
        lists.clear_chunks();
        xid
    }
}

impl Core {
    /// None: no call takes a fast path, or this one has no connection over the fabric.
    #[inline(always)]
    fn fast_call(&mut self, key: Key, peer: PeerId) -> Option<FastCall<'_>> {
        let Self { requester, peers, ways, counters, .. } = self;
        if !ways.are_short() {
            return None;
        }
        let Requester { calls, offered, xids, .. } = requester;
        let (call, lists) = (calls.get_mut(key)?, offered.get_mut(key.index())?);
        let Link::Fabric(FabricLink { state: Some(connection), .. }) =
            &mut peers.get_mut(peer)?.link
        else {
            return None;
        };
        let stats = &mut counters.stats.requester;
        Some(FastCall { call, lists, connection, xids, ways, stats })
    }

    /// Records a call that is made outside of a pass.
    #[inline]
    fn note_unclocked(&mut self, key: Key) {
        if self.is_in_pass() {
            return;
        }
        self.is_quiet = false;
        let Requester { unclocked, calls, .. } = &mut self.requester;
        if unclocked.len() == unclocked.capacity() {
            // Calls that have ended since the latest pass are removed; there is an entry for each
            // other one.
            unclocked.retain(|key| calls.get(*key).is_some());
        }
        debug_assert!(unclocked.len() < unclocked.capacity(), "there is an entry for each call");
        unclocked.push(key);
    }

    /// Counts the deadlines of calls that were made since the latest pass from this one, which
    /// begins at `now`.
    #[inline]
    pub(crate) fn clock_calls(&mut self, now: Time) {
        let passed = now.since(self.now);
        let is_settling = std::mem::take(&mut self.requester.is_settling);
        while let Some(key) = self.requester.unclocked.pop() {
            let Some(call) = self.requester.calls.get_mut(key) else { continue };
            call.deadline = call.deadline + passed;
            if is_settling
                && call.state == OutboundState::AwaitReply
                && let Some(entry) = self.peers.get_mut(call.peer)
                && let Some(by) = &mut entry.calls.version_by
            {
                *by = *by + passed;
            }
        }
    }
}

impl Outbound {
    /// Writes the XID into the message of a call with a signer, which then completes it.
    fn sign(&mut self, xid: Xid) -> Result<(), CallFault> {
        let signer = self.offers.as_ref().and_then(|offers| offers.signer.as_ref());
        let (Some(signer), Some(message)) = (signer, &mut self.message) else { return Ok(()) };
        set_xid(message, xid);
        signer.sign(message).map_err(|CannotSign| CallFault::Limit)
    }
}

/// Writes the XID into the first word of an RPC message.
fn set_xid(message: &mut Buf, xid: Xid) {
    if let Some(word) = message.first_chunk_mut() {
        // RFC 8166 §4.2.1 [8166-31]: the header has the XID of its RPC message
        // RFC 8167 §5.1 [8167-3]: a reverse call begins with the XID of its header
        // draft 002 §5.1 [bidir-3]: a reverse call begins with the XID of its header
        *word = xid.0.to_be_bytes();
    }
}
