//! Calls of ours without a reply: sent again, failed or expired.

use crate::{
    app::{App, CallFault, PeerId},
    shard::Shard,
    state::outbound::{Outbound, OutboundState, ReplyMemory},
};
use stag_pools::table::{Key, Walk};
use stag_protocol::rpcrdma::Xid;
use stag_verbs::{Cause, Provider};
use std::collections::VecDeque;

impl Outbound {
    /// Drops the room for a long reply: a call that is sent again gets another one.
    fn drop_reply_room(&mut self) {
        if let Some(offers) = &mut self.offers {
            offers.reply_room = None;
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Sends a call again as version 1, for the peer does not speak version 2, once all its keys
    /// are invalidated (draft 000 §5.2).
    pub(crate) fn handle_again(&mut self, peer: PeerId, xid: Xid) {
        let stats = &mut self.core.counters.stats.requester;
        (stats.errors, stats.version_errors) = (stats.errors + 1, stats.version_errors + 1);
        let Some((key, call)) = self.core.requester.by_xid(peer, xid) else { return };
        if call.state != OutboundState::AwaitReply {
            return;
        }
        call.state = OutboundState::AwaitWhole;
        let windows = call.windows();
        if let Some((qp, _)) = self.core.peers.connection(peer) {
            windows.into_iter().flatten().for_each(|window| self.invalidate(qp, key, window.key));
        }
        self.go_again_if_whole(key);
    }

    /// Queues a call first for sending it again, once all its posted and exposed buffers are back.
    /// Until then it keeps the only credit.
    pub(super) fn go_again_if_whole(&mut self, key: Key) {
        let whole = |call: &Outbound| call.is_fenced() && call.has_message();
        let Some(call) = self.core.requester.calls.get_mut(key).filter(|call| whole(call)) else {
            return;
        };
        debug_assert_eq!(call.state, OutboundState::AwaitWhole, "it was to go out again");
        call.state = OutboundState::AwaitCredit;
        call.drop_reply_room();
        let (peer, cancelled) = (call.peer, call.cancelled);
        if let Some((_, connection)) = self.core.peers.connection(peer) {
            connection.give_credit();
        }
        if cancelled {
            if let Some(call) = self.core.requester.calls.remove(key) {
                self.give_back(call, CallFault::Cancelled);
            }
        } else if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.wait_first(key);
        }
        self.start_waiting(peer);
    }

    /// Requeues the calls to `peer`, whose connection is gone with everything that they had posted
    /// or exposed. They wait for the next connection of `successor`, which is `peer` itself unless
    /// the client has already come back as another peer.
    pub(crate) fn take_calls_back(&mut self, peer: PeerId, successor: PeerId) {
        let mut again = VecDeque::new();
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.requester.calls) {
            if call.peer != peer || call.state == OutboundState::AwaitCredit {
                continue;
            }
            debug_assert!(call.is_fenced(), "windows end before their connection");
            call.peer = successor;
            let over = match (call.state, call.cancelled) {
                _ if call.has_ended() => None,
                (OutboundState::AwaitEnd, _) => Some(CallFault::TimedOut),
                (_, true) => Some(CallFault::Cancelled),
                (_, false) if !call.has_message() => Some(CallFault::Disconnected(Cause::Local)),
                (_, false) => {
                    call.state = OutboundState::AwaitCredit;
                    call.drop_reply_room();
                    again.push_back((call.xid, key));
                    continue;
                }
            };
            if let Some(fault) = over {
                call.end(ReplyMemory::Fault(fault), &mut self.core.requester.spare);
            }
            self.finish_if_fenced(key);
        }
        // The oldest goes first, as before.
        again.make_contiguous().sort_unstable_by_key(|(xid, _)| xid.map(|xid| xid.0));
        if let Some(entry) = self.core.peers.get_mut(successor) {
            while let Some((_, key)) = again.pop_back() {
                entry.wait_first(key);
            }
        }
    }

    /// Fails the calls to a peer whose connection is gone; all their windows are fenced.
    pub(crate) fn fail_calls_of(&mut self, peer: PeerId, cause: Cause) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.requester.calls) {
            if call.peer != peer {
                continue;
            }
            let fault = match call.state {
                OutboundState::AwaitEnd => CallFault::TimedOut,
                _ => CallFault::Disconnected(cause),
            };
            call.end(ReplyMemory::Fault(fault), &mut self.core.requester.spare);
            debug_assert!(call.is_fenced(), "windows end before their connection");
            self.finish_if_fenced(key);
        }
    }

    /// Ends calls past their deadline: unsent ones at once, others by closing their connection,
    /// which never carries them again (DESIGN D9).
    pub(crate) fn expire_calls(&mut self) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.requester.calls) {
            if call.deadline > self.core.now {
                self.core.deadlines.no_later(call.deadline);
                continue;
            }
            let peer = call.peer;
            match call.state {
                OutboundState::AwaitCredit => {
                    self.core.counters.stats.requester.timeouts += 1;
                    if let Some(call) = self.core.requester.calls.remove(key) {
                        self.give_back(call, CallFault::TimedOut);
                    }
                }
                OutboundState::AwaitReply => {
                    call.state = OutboundState::AwaitEnd;
                    self.core.counters.stats.requester.timeouts += 1;
                    self.disconnect(peer);
                }
                OutboundState::AwaitFence | OutboundState::AwaitWhole => self.disconnect(peer),
                OutboundState::AwaitEnd | OutboundState::AwaitNext => {}
            }
        }
        self.empty_outbox();
    }
}
