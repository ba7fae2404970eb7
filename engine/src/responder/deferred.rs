//! Replies, errors and calls that wait for memory or room, and the end of peers that hold memory
//! for too long.

use crate::{
    account::{GRACE, GRACE_MIN, SMALL_MAX},
    app::{Answer, App, PeerId},
    bulk::Bulk,
    core::Core,
    memory::Lane,
    shard::Shard,
    state::{
        Link, Wait,
        inbound::{InboundState, Missing, Unsent},
    },
};
use stag_pools::table::{Key, Walk};
use stag_protocol::rpcrdma::Side;
use stag_verbs::{Cause, Provider, Qp};
use std::{collections::VecDeque, time::Duration};

/// The interval at which every waiting peer is retried, even without an event.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum of peers of one line that are served in one go, in case one needs less than those before
/// it.
const LOOK_MAX: usize = 32;
/// The time that a peer may wait in line before slow peers are disconnected.
const PATIENCE: Duration = Duration::from_millis(250);
/// The time that a call may wait if its peer makes no progress, or if there is no memory for it.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The long buffers that a call needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryNeed {
    /// Octets of the longest buffer for its chunks.
    pub(super) longest: usize,
    /// Octets of all buffers for its chunks.
    pub(super) pulled: u64,
    /// Octets that its reply may take.
    pub(super) expected: u64,
}

impl Core {
    /// Checks that a call with this need of memory may continue.
    pub(super) fn admit(
        &mut self,
        peer: PeerId,
        need: MemoryNeed,
        is_first: bool,
    ) -> Result<(), Missing> {
        let MemoryNeed { longest, pulled, expected } = need;
        if pulled + expected == 0 {
            return Ok(());
        }
        let Some(entry) = self.peers.get_mut(peer) else { return Ok(()) };
        entry.served.account.settle(self.now);
        if !entry.served.account.allows(pulled + expected, self.memory.share()) {
            return Err(Missing::Share);
        }
        let lane = self.lane(peer);
        // An item longer than every buffer has to go to the app's own memory.
        let longest = longest.max(expected as usize).min(self.memory.slot_max());
        if !is_first && self.is_awaited(lane) || !self.memory.can_lend(longest, lane) {
            return Err(Missing::Memory(longest));
        }
        Ok(())
    }

    /// Returns true if a complete call may go to the app, which may need `expected` octets for its
    /// reply.
    pub(crate) fn may_answer(&mut self, peer: PeerId, expected: u64) -> bool {
        expected == 0
            || self.first_deferred(peer).is_none()
                && self.admit(peer, MemoryNeed { longest: 0, pulled: 0, expected }, false).is_ok()
    }

    /// Charges a peer for the memory of a reply until the reply has been sent.
    pub(crate) fn hold_reply(&mut self, peer: PeerId, answer: &Answer) {
        if let Some((bulk, entry)) = Bulk::of(answer).zip(self.peers.get_mut(peer)) {
            entry.served.account.hold(bulk.held(), self.now);
        }
    }

    /// Ends [`hold_reply`](Self::hold_reply) for a reply that is not sent.
    pub(crate) fn let_reply_go(&mut self, peer: PeerId, answer: &Answer) {
        if let Some((bulk, entry)) = Bulk::of(answer).zip(self.peers.get_mut(peer)) {
            entry.served.account.let_go(bulk.held(), self.now);
        }
    }

    /// Ends [`hold_reply`](Self::hold_reply) for a sent reply, and credits its octets.
    pub(crate) fn end_bulk(&mut self, peer: PeerId, bulk: Bulk) {
        let (now, share) = (self.now, self.memory.share());
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.served.account.let_go(bulk.held(), now);
            entry.served.account.earn(bulk.pushed(), share);
        }
        self.wake(peer);
    }

    /// Keeps a reply that could not be sent.
    pub(crate) fn keep_unsent(&mut self, peer: PeerId, call: Key, answer: Answer) {
        let Some(entry) = self.responder.calls.get_mut(call) else { return };
        debug_assert_eq!(entry.state, InboundState::AwaitAnswer, "a call has one reply");
        entry.state = InboundState::AwaitRoom;
        let held = if Bulk::of(&answer).is_some() { 0 } else { answer.message.capacity() as u64 };
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.served.account.hold(held, self.now);
        }
        let replies = &mut self.responder.replies;
        debug_assert!(replies.len() < replies.capacity(), "each call has an entry");
        replies.push_back(Unsent { call, answer, held });
    }

    /// Releases the memory of a long reply that has been sent.
    pub(crate) fn handle_bulk_sent(&mut self, qp: Qp, bulk: Bulk) {
        if let Some(peer) = self.peers.of_qp(qp) {
            self.end_bulk(peer, bulk);
        }
    }

    /// Records the obstacle of the first waiting call of a peer.
    pub(crate) fn await_missing(&mut self, peer: PeerId, missing: Option<Missing>) {
        let wait = match missing {
            Some(Missing::Memory(len)) => Wait::Memory(len),
            Some(Missing::Share | Missing::Room | Missing::Buffers) => Wait::Itself,
            None => Wait::Nothing,
        };
        self.set_wait(peer, wait);
    }

    /// Returns true if the peer is a server that we connected to over TCP.
    fn is_tcp_server(&self, peer: PeerId) -> bool {
        self.peers.get(peer).is_some_and(|entry| {
            entry.side == Side::Client && matches!(entry.link, Link::Stream(_))
        })
    }

    /// Gives a peer its turn, because work has completed on its connection and its send queue may
    /// have room.
    pub(crate) fn note_room(&mut self, qp: Qp) {
        self.responder.has_room = true;
        if let Some(peer) = self.peers.of_qp(qp) {
            self.wake(peer);
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Retries deferred work. Replies go first, because they free memory, and each independently,
    /// so that a peer which accepts nothing delays no other.
    #[inline(never)]
    pub(crate) fn retry_deferred(&mut self) -> bool {
        let is_due = self.core.now >= self.core.responder.next_look;
        if is_due {
            self.core.responder.next_look = self.core.now + LOOK_INTERVAL;
            self.core.wake_all();
            self.end_slow();
        }
        let mut progress = self.core.inits > 0 && self.answer_inits(is_due);
        progress |= self.core.protecting > 0 && self.go_on_protecting();
        if std::mem::take(&mut self.core.responder.has_room) || is_due {
            progress |= self.retry_errors() | self.retry_replies();
        }
        for _ in 0..self.core.responder.line.turns() {
            let Some(peer) = self.core.responder.line.next_turn() else { break };
            if self.core.peers.get(peer).is_some_and(|entry| entry.served.wait == Wait::Turn) {
                progress |= self.serve(peer, false);
            }
        }
        let available = self.core.memory.available();
        if is_due || available != self.core.responder.line.seen {
            progress |= self.serve_lane(Lane::Proven) | self.serve_lane(Lane::Newcomer);
            self.core.responder.line.seen = self.core.memory.available();
        }
        progress
    }

    fn retry_replies(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..self.core.responder.replies.len() {
            let Some(Unsent { call, answer, held }) = self.core.responder.replies.pop_front()
            else {
                break;
            };
            self.core.stamp(call, crate::stage_times::Stage::Send);
            let peer = self.core.responder.calls.get(call).map(|call| call.peer);
            match self.answer_fabric(call, answer) {
                Ok(()) => {
                    progress = true;
                    let now = self.core.now;
                    if let Some(entry) = peer.and_then(|peer| self.core.peers.get_mut(peer)) {
                        entry.served.account.let_go(held, now);
                    }
                }
                Err(answer) => self.core.responder.replies.push_back(Unsent { call, answer, held }),
            }
        }
        progress
    }

    /// Serves the first peers of a line, in order. After a peer that finds no buffer, only peers
    /// that need shorter ones are served, and replies to our calls, which have a buffer of their
    /// own.
    fn serve_lane(&mut self, lane: Lane) -> bool {
        let (mut progress, mut shortest, mut at) = (false, usize::MAX, 0);
        while at < LOOK_MAX
            && let Some(peer) = self.core.responder.line.lane(lane).get(at).copied()
        {
            let waits = self.core.peers.get(peer).map(|entry| entry.served.wait);
            debug_assert!(
                matches!(waits, Some(Wait::Memory(_))),
                "a peer in line waits for a buffer"
            );
            if self.core.change_lane(peer, lane) {
                continue;
            }
            if self.core.awaited_len(peer) < shortest || self.core.is_tcp_server(peer) {
                progress |= self.serve(peer, true);
            }
            // A peer that continues leaves the line.
            if self.core.responder.line.lane(lane).get(at) == Some(&peer) {
                shortest = shortest.min(self.core.awaited_len(peer));
                at += 1;
            }
        }
        progress
    }

    /// Continues the waiting work of a peer: one call, or its record. Returns true if that was
    /// possible.
    fn serve(&mut self, peer: PeerId, is_first: bool) -> bool {
        let Some(call) = self.core.first_deferred(peer) else {
            let is_stream = matches!(
                self.core.peers.get(peer),
                Some(entry) if matches!(entry.link, Link::Stream(_))
            );
            if is_stream && let Err(wanted) = self.lengthen_record(peer) {
                self.core.set_wait(peer, Wait::Memory(wanted));
                return false;
            }
            self.core.set_wait(peer, Wait::Nothing);
            return is_stream;
        };
        // Before the call continues, because afterwards it may be over, and its connection may
        // belong to another peer.
        let waits_since = self.core.advance(peer);
        if let Err(missing) = self.pull(call, is_first) {
            self.core.put_back(peer, call, waits_since);
            self.core.await_missing(peer, Some(missing));
            return false;
        }
        // Other peers have their turn first.
        let rest = self.core.first_deferred(peer).is_some();
        self.core.set_wait(peer, Wait::Nothing);
        if rest {
            self.core.set_wait(peer, Wait::Turn);
        }
        true
    }

    /// Ends the connections of slow peers, up to the number of waiting ones, if some peer has
    /// waited for memory for a while.
    fn end_slow(&mut self) {
        let replies = self.core.gss.as_ref().map(|gss| &gss.waiting);
        let first = replies.and_then(|replies| replies.front());
        let longest = first.map(|reply| self.core.now.since(reply.since));
        if longest.max(self.core.longest_wait()).is_none_or(|wait| wait < PATIENCE) {
            return;
        }
        let mut wanted = self.core.responder.line.waiting() + replies.map_or(0, VecDeque::len);
        let rounds = wanted / self.core.config.slots.last().copied().unwrap_or(0).max(1);
        let grace = GRACE / u32::try_from(1 + rounds).unwrap_or(u32::MAX);
        let mut walk = Walk::default();
        while wanted > 0
            && let Some((peer, entry)) = self.core.peers.next(&mut walk)
        {
            entry.served.account.settle(self.core.now);
            if !entry.is_ending() && entry.served.account.is_slow(grace.max(GRACE_MIN)) {
                wanted -= 1;
                self.core.counters.stats.limits.slow += 1;
                self.end_because(peer, Cause::Slow);
            }
        }
    }

    /// Ends connections whose peer holds memory of ours, or keeps its own calls waiting, and makes
    /// next to no progress.
    pub(crate) fn end_stalled(&mut self) {
        let now = self.core.now;
        let mut walk = Walk::default();
        while let Some((peer, entry)) = self.core.peers.next(&mut walk) {
            let is_blamed = match entry.served.wait {
                Wait::Memory(_) => true,
                Wait::Itself | Wait::Turn => entry.served.account.occupied() == 0,
                Wait::Nothing => false,
            };
            let waits = is_blamed && now.since(entry.served.waits_since) >= WAIT_MAX;
            if !entry.is_ending() && (waits || entry.served.account.is_stalled(now)) {
                self.core.counters.stats.limits.stalled += 1;
                self.end_because(peer, Cause::Stalled);
            }
        }
    }

    /// Ends a connection, and records the reason.
    fn end_because(&mut self, peer: PeerId, cause: Cause) {
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.end_because(cause);
        }
        self.disconnect(peer);
    }
}

// Memory that fits a message slot is never waited for in line, and never counted.
const _: () = assert!(SMALL_MAX >= crate::config::INLINE_LEN);
