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
    core::Core,
    state::{Requester, outbound::OutboundState},
};
use stag_pools::{Buf, table::Key};
use stag_protocol::rpcrdma::Xid;
use stag_verbs::Time;

impl Core {
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

/// Writes the XID into the first word of an RPC message.
fn set_xid(message: &mut Buf, xid: Xid) {
    if let Some(word) = message.first_chunk_mut() {
        // RFC 8166 §4.2.1 [8166-31]: the header has the XID of its RPC message
        // RFC 8167 §5.1 [8167-3]: a reverse call begins with the XID of its header
        // draft 002 §5.1 [bidir-3]: a reverse call begins with the XID of its header
        *word = xid.0.to_be_bytes();
    }
}
