//! Going on with what had to wait: replies, errors, and calls in line for memory; and ending who
//! holds it for too long.

use crate::{
    account::{GRACE, GRACE_MIN, SMALL_MAX},
    app::{Answer, App, PeerId},
    core::{Core, InboundState, Link, Unsent},
    memory::Lane,
    responder::line::Wait,
    responder::pull::Missing,
    responder::reply::Bulk,
    shard::Shard,
};
use stag_pools::table::{Key, Walk};
use stag_verbs::{Cause, Provider, Qp};
use std::time::Duration;

/// The interval at which every waiting peer gets its turn, though no event gave it one.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Peers of one line that are served together, in case one needs less than those before it.
const LOOK_MAX: usize = 32;
/// For how long a peer may stand in line before slow ones lose what they hold.
const PATIENCE: Duration = Duration::from_millis(250);
/// For how long a call may wait when its peer does nothing, or there is no memory for it.
const WAIT_MAX: Duration = Duration::from_secs(30);

impl Core {
    /// Checks that a call may go on which needs long buffers, the longest of `longest` octets and
    /// all of `needed` octets, and then `expected` octets for its reply.
    pub(crate) fn admit(
        &mut self,
        peer: PeerId,
        (longest, needed): (usize, u64),
        expected: u64,
        is_first: bool,
    ) -> Result<(), Missing> {
        if needed + expected == 0 {
            return Ok(());
        }
        let Some(entry) = self.peers.get_mut(peer.0) else { return Ok(()) };
        entry.account.settle(self.now);
        if !entry.account.allows(needed + expected, self.memory.share()) {
            return Err(Missing::Share);
        }
        let lane = self.lane(peer);
        // What is longer than every buffer has to go to the app's own memory.
        let longest = longest.max(expected as usize).min(self.memory.slot_max());
        if !is_first && self.is_awaited(lane) || !self.memory.can_lend(longest, lane) {
            return Err(Missing::Memory(longest));
        }
        Ok(())
    }

    /// Returns true if a call that is whole may go to the app, which may need `expected` octets for
    /// its reply.
    pub(crate) fn may_answer(&mut self, peer: PeerId, expected: u64) -> bool {
        expected == 0
            || self.first_deferred(peer).is_none() && self.admit(peer, (0, 0), expected, false).is_ok()
    }

    /// Charges a peer for the memory of a reply, until the reply has left.
    pub(crate) fn hold_reply(&mut self, peer: PeerId, answer: &Answer) {
        if let Some((bulk, entry)) = Bulk::of(answer).zip(self.peers.get_mut(peer.0)) {
            entry.account.hold(bulk.held(), self.now);
        }
    }

    /// Ends [`hold_reply`](Self::hold_reply) for a reply that is not sent.
    pub(crate) fn let_reply_go(&mut self, peer: PeerId, answer: &Answer) {
        if let Some((bulk, entry)) = Bulk::of(answer).zip(self.peers.get_mut(peer.0)) {
            entry.account.let_go(bulk.held(), self.now);
        }
    }

    /// Ends [`hold_reply`](Self::hold_reply) for a reply that has left, and pays for its octets.
    pub(crate) fn end_bulk(&mut self, peer: PeerId, bulk: Bulk) {
        let (now, share) = (self.now, self.memory.share());
        if let Some(entry) = self.peers.get_mut(peer.0) {
            entry.account.let_go(bulk.held(), now);
            entry.account.earn(bulk.pushed(), share);
        }
        self.wake(peer);
    }

    /// Keeps a reply that could not be sent.
    pub(crate) fn keep_unsent(&mut self, peer: PeerId, call: Key, answer: Answer) {
        let Some(entry) = self.inbound.get_mut(call) else { return };
        entry.state = InboundState::AwaitRoom;
        let held = if Bulk::of(&answer).is_some() { 0 } else { answer.message.capacity() as u64 };
        if let Some(entry) = self.peers.get_mut(peer.0) {
            entry.account.hold(held, self.now);
        }
        self.replies.push_back(Unsent { call, answer, held });
    }

    /// Notes the obstacle of the first waiting call of a peer.
    pub(crate) fn await_missing(&mut self, peer: PeerId, missing: Option<Missing>) {
        let wait = match missing {
            Some(Missing::Memory(len)) => Wait::Memory(len),
            Some(Missing::Share | Missing::Room | Missing::Buffers) => Wait::Itself,
            None => Wait::Nothing,
        };
        self.set_wait(peer, wait);
    }

    /// Gives a peer its turn, for work has ended on its connection and its send queue may have
    /// room.
    pub(crate) fn note_room(&mut self, qp: Qp) {
        self.has_room = true;
        if let Some(peer) = self.peer_of(qp) {
            self.wake(peer);
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Tries again what had to wait. Replies first, for they give memory back; each by itself, so
    /// that a peer which takes nothing holds up nobody else.
    pub(crate) fn retry_deferred(&mut self) -> bool {
        let is_due = self.core.now >= self.core.next_look;
        if is_due {
            self.core.next_look = self.core.now + LOOK_INTERVAL;
            self.core.wake_all();
            self.end_slow();
        }
        let mut progress = false;
        if std::mem::take(&mut self.core.has_room) || is_due {
            progress |= self.retry_errors() | self.retry_replies();
        }
        for _ in 0..self.core.line.turns() {
            let Some(peer) = self.core.line.next_turn() else { break };
            if self.core.peers.get(peer.0).is_some_and(|entry| entry.wait == Wait::Turn) {
                progress |= self.serve(peer, false);
            }
        }
        let available = self.core.memory.available();
        if is_due || available != self.core.line.seen {
            progress |= self.serve_lane(Lane::Proven) | self.serve_lane(Lane::Newcomer);
            self.core.line.seen = self.core.memory.available();
        }
        progress
    }

    fn retry_errors(&mut self) -> bool {
        let before = self.core.errors.len();
        for _ in 0..before {
            let Some((qp, reply)) = self.core.errors.pop_front() else { break };
            if self.core.peer_of(qp).is_some() {
                self.send_error(qp, &reply);
            }
        }
        self.core.errors.len() < before
    }

    fn retry_replies(&mut self) -> bool {
        let mut progress = false;
        for _ in 0..self.core.replies.len() {
            let Some(Unsent { call, answer, held }) = self.core.replies.pop_front() else { break };
            self.core.stamp(call, crate::stages::Stage::Send);
            let peer = self.core.inbound.get(call).map(|call| call.peer);
            match self.answer_fabric(call, answer) {
                Ok(()) => {
                    progress = true;
                    let now = self.core.now;
                    if let Some(entry) = peer.and_then(|peer| self.core.peers.get_mut(peer.0)) {
                        entry.account.let_go(held, now);
                    }
                }
                Err(answer) => self.core.replies.push_back(Unsent { call, answer, held }),
            }
        }
        progress
    }

    /// Serves the first peers of a line, in order. Behind a peer that finds no buffer, only those
    /// are served that need shorter ones.
    fn serve_lane(&mut self, lane: Lane) -> bool {
        let (mut progress, mut shortest, mut at) = (false, usize::MAX, 0);
        while at < LOOK_MAX
            && let Some(peer) = self.core.line.lane(lane).get(at).copied()
        {
            if self.core.change_lane(peer, lane) {
                continue;
            }
            if self.core.awaited_len(peer) < shortest {
                progress |= self.serve(peer, true);
            }
            // A peer that goes on leaves the line.
            if self.core.line.lane(lane).get(at) == Some(&peer) {
                shortest = shortest.min(self.core.awaited_len(peer));
                at += 1;
            }
        }
        progress
    }

    /// Goes on with what a peer has waiting: one call, or its record. True if it did.
    fn serve(&mut self, peer: PeerId, is_first: bool) -> bool {
        let Some(call) = self.core.first_deferred(peer) else {
            let is_stream =
                matches!(self.core.peers.get(peer.0), Some(entry) if matches!(entry.link, Link::Stream(_)));
            if is_stream && let Err(wanted) = self.lengthen_record(peer) {
                self.core.set_wait(peer, Wait::Memory(wanted));
                return false;
            }
            self.core.set_wait(peer, Wait::Nothing);
            return is_stream;
        };
        // Before it goes on, for then it may be over, and its connection may be another peer's.
        let waits_since = self.core.advance(peer);
        if let Err(missing) = self.pull(call, is_first) {
            self.core.put_back(peer, call, waits_since);
            self.core.await_missing(peer, Some(missing));
            return false;
        }
        // Others have their turn first.
        let rest = self.core.first_deferred(peer).is_some();
        self.core.set_wait(peer, Wait::Nothing);
        if rest {
            self.core.set_wait(peer, Wait::Turn);
        }
        true
    }

    /// Ends the connections of peers that are slow, if somebody has waited for memory for a while:
    /// as many as there are waiting.
    fn end_slow(&mut self) {
        if self.core.longest_wait().is_none_or(|wait| wait < PATIENCE) {
            return;
        }
        let mut wanted = self.core.line.waiting();
        let rounds = wanted / self.core.config.slots.last().copied().unwrap_or(0).max(1);
        let grace = GRACE / u32::try_from(1 + rounds).unwrap_or(u32::MAX);
        let mut walk = Walk::default();
        while wanted > 0
            && let Some((key, entry)) = walk.next(&mut self.core.peers)
        {
            entry.account.settle(self.core.now);
            if entry.ending.is_none() && entry.account.is_slow(grace.max(GRACE_MIN)) {
                wanted -= 1;
                self.core.counters.stats.limits.slow += 1;
                self.end_because(PeerId(key), Cause::Slow);
            }
        }
    }

    /// Ends connections whose peer holds memory of ours, or keeps its own calls waiting, and makes
    /// next to no progress.
    pub(crate) fn end_stalled(&mut self) {
        let now = self.core.now;
        let mut walk = Walk::default();
        while let Some((key, entry)) = walk.next(&mut self.core.peers) {
            let is_blamed = match entry.wait {
                Wait::Memory(_) => true,
                Wait::Itself | Wait::Turn => entry.account.held() == 0,
                Wait::Nothing => false,
            };
            let waits = is_blamed && now.since(entry.waits_since) >= WAIT_MAX;
            if entry.ending.is_none() && (waits || entry.account.is_stalled(now)) {
                self.core.counters.stats.limits.stalled += 1;
                self.end_because(PeerId(key), Cause::Stalled);
            }
        }
    }

    /// Ends a connection, and remembers why.
    fn end_because(&mut self, peer: PeerId, cause: Cause) {
        if let Some(entry) = self.core.peers.get_mut(peer.0) {
            entry.ending = Some(cause);
        }
        self.disconnect(peer);
    }
}

// What a message slot takes is never waited for in line, and never counted.
const _: () = assert!(SMALL_MAX >= crate::config::INLINE_LEN);
