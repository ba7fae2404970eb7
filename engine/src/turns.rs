//! Turns: shares of a core, measured in time.
//!
//! Calls cost between a microsecond and milliseconds, so equal numbers of calls are not equal
//! shares. While peers of more than one host have work, the time of each call is charged to its
//! connection ([`Meter`](crate::clock::Meter)), multiplied by the number of active connections of
//! the same host. A connection whose account is more than [`LEAD`] above the lowest one waits: its
//! messages stay queued until the others have had as much. If the core is idle while it waits,
//! because the others have not sent their next call yet, the idle time is charged to the others.
//! After 0.2 ms they are no longer waited for.
//!
//! A call that arrived at another shard, but is executed here, is charged to its host as well
//! (`state/turns/remote.rs`).
//!
//! Sending is charged at the doorbell (`sending.rs`).
//!
//! With one host nothing is measured. Tables have an entry for each peer, and no call allocates.

mod sending;
mod table;

use crate::{
    core::Core,
    peer_view::PeerId,
    state::{Payer, Peer, TurnHolder},
};
use stag_protocol::rpcrdma::Side;
use stag_verbs::Qp;
use std::time::Duration;

/// Time in nanoseconds that a connection may be ahead of the one with the least.
const LEAD: u64 = 100_000;
/// Time for which one call may use the core, if it can be continued later.
const SLICE: Duration = Duration::from_micros(100);
/// Time for which calls are still measured after several hosts had work.
const LINGER: Duration = Duration::from_millis(10);
/// Calls of one connection between two reads of the clock while nothing is measured, and the time
/// of a pass after which its other calls wait for the next one.
const LOOK_EVERY: u32 = 8;
const LONG: Duration = Duration::from_millis(1);
/// The most that one call is charged: any more is a pause of the host.
const COST_MAX: Duration = Duration::from_millis(100);

impl Core {
    /// Records a call of a peer while nothing is measured: once several hosts call, all calls are
    /// measured.
    #[inline(always)]
    pub(crate) fn note_caller(&mut self, peer: PeerId) {
        if self.turns.latest != Some(peer) {
            self.note_other_caller(Payer::Peer(peer));
        }
    }

    /// The same for a message of the fabric.
    #[inline(always)]
    pub(crate) fn note_caller_at(&mut self, qp: Qp) {
        if self.turns.latest_qp != Some(qp) {
            self.note_other_caller_at(qp);
        }
    }

    #[inline(never)]
    fn note_other_caller_at(&mut self, qp: Qp) {
        self.turns.latest_qp = Some(qp);
        if let Some(peer) = self.peers.of_qp(qp) {
            self.note_other_caller(Payer::Peer(peer));
        }
    }

    #[inline(never)]
    fn note_other_caller(&mut self, payer: Payer) {
        if self.turns.meter.is_none() || self.turns.is_metered {
            return;
        }
        let pass = self.counters.stats.passes.total;
        let former =
            [self.turns.latest.map(Payer::Peer), self.turns.latest_remote.map(Payer::Remote)];
        for former in former.into_iter().flatten() {
            let account = self.turns.account(&mut self.peers, former);
            (account.served_at, account.served_in) = (self.now, pass);
        }
        match payer {
            Payer::Peer(peer) => self.turns.latest = Some(peer),
            Payer::Remote(place) => self.turns.latest_remote = Some(place),
            Payer::Passers => {}
        }
        self.hear(payer);
        if self.turns.count > 1 {
            self.turns.metered_until = self.now + LINGER;
            self.turns.is_metered = true;
            self.turns.has_served = true;
            self.turns.is_moved_stale = true;
            self.turns.mark = self.turns.clock();
        }
    }

    /// Records that a payer has work.
    fn hear(&mut self, payer: Payer) {
        let (now, pass) = (self.now, self.counters.stats.passes.total);
        if self.turns.known(&self.peers, payer).is_none() {
            return;
        }
        let account = self.turns.account(&mut self.peers, payer);
        if account.served_in != pass {
            account.is_brisk = account.host.is_some() && account.is_fresh(now, pass);
        }
        (account.served_at, account.served_in) = (now, pass);
        self.activate(payer);
    }

    /// Adds a payer to the active ones.
    fn activate(&mut self, payer: Payer) {
        let known = self.turns.known(&self.peers, payer);
        if known.is_none_or(|account| account.host.is_some()) {
            return;
        }
        if self.turns.active.len() == self.turns.active.capacity() {
            // Some of them are gone: there is an entry for each.
            let (now, pass) = (self.now, self.counters.stats.passes.total);
            self.turns.review(&mut self.peers, now, pass);
        }
        let Some(host) = self.turns.host_of(&self.peers, payer) else { return };
        let (place, floor) = (self.turns.activate(payer, host), self.turns.floor);
        let account = self.turns.account(&mut self.peers, payer);
        account.spent = account.spent.max(floor);
        account.host = Some(place);
    }

    /// Begins a pass in which calls are measured.
    #[inline(never)]
    pub(crate) fn begin_turns(&mut self) {
        let (now, pass) = (self.now, self.counters.stats.passes.total);
        let Self { turns, peers, .. } = self;
        if !std::mem::take(&mut turns.has_served) {
            turns.charge_idle(peers, now, pass);
        }
        turns.review(peers, now, pass);
        if turns.count > 1 || turns.has_waiting(peers, pass) {
            turns.metered_until = now + LINGER;
        } else if now >= turns.metered_until {
            turns.is_metered = false;
            (turns.latest, turns.latest_qp, turns.latest_remote) = (None, None, None);
        }
        turns.begun = now;
        turns.mark = turns.clock();
    }

    /// Returns true if newly arrived calls of this peer have to wait: it used more time than others
    /// that have work, or a call of it was put aside and goes first.
    #[inline]
    pub(crate) fn must_wait(&mut self, peer: PeerId) -> bool {
        self.turns.is_metered && self.judge(Payer::Peer(peer), true)
    }

    /// Returns true if this payer has to wait.
    #[inline(never)]
    fn judge(&mut self, payer: Payer, is_new: bool) -> bool {
        let (floor, pass) = (self.turns.floor, self.counters.stats.passes.total);
        // A returning payer has the account that it left.
        self.activate(payer);
        let account = self.turns.account(&mut self.peers, payer);
        let must_wait = account.spent > floor + LEAD || is_new && account.has_aside(pass);
        if must_wait {
            let since = if is_new { &mut account.waits_in } else { &mut account.aside_in };
            *since = pass;
        }
        must_wait
    }

    /// Returns true if no connection is accepted in this pass: short-lived connections used more
    /// time than others that have work.
    pub(crate) fn must_passers_wait(&mut self) -> bool {
        if !self.turns.is_metered {
            return false;
        }
        let must_wait = self.judge(Payer::Passers, true);
        self.has_worked |= must_wait;
        must_wait
    }

    /// Charges short-lived connections for the time since the latest charge.
    pub(crate) fn charge_passers(&mut self) {
        if self.turns.is_metered {
            self.charge_time(Payer::Passers);
        }
    }

    /// Charges a peer for the time since the latest charge.
    #[inline]
    pub(crate) fn charge(&mut self, peer: PeerId) {
        if self.turns.is_metered {
            self.charge_time(Payer::Peer(peer));
        }
    }

    #[inline(never)]
    fn charge_time(&mut self, payer: Payer) {
        let now = self.turns.clock();
        let cost = now.since(self.turns.mark).min(COST_MAX).as_nanos() as u64;
        self.turns.mark = now;
        if let Payer::Peer(peer) = payer {
            let is_ours = |entry: &Peer| entry.side == Side::Client;
            if self.peers.get(peer).is_some_and(is_ours) {
                // The cost of a server's replies to us is charged to no client.
                return;
            }
            let replies = self.counters.stats.responder.replies.total();
            if std::mem::replace(&mut self.turns.replies, replies) != replies {
                self.note_posted(peer);
            }
        }
        self.hear(payer);
        self.turns.has_served = true;
        self.turns.account(&mut self.peers, payer).waits_in = 0;
        self.add_cost(payer, cost);
    }

    /// Charges a payer that has work.
    fn add_cost(&mut self, payer: Payer, cost: u64) {
        let known = self.turns.known(&self.peers, payer);
        let weight = self.turns.weight(known.and_then(|account| account.host));
        let least = self.turns.floor.saturating_sub(LEAD);
        let account = self.turns.account(&mut self.peers, payer);
        // Unused time is not saved up.
        account.spent = account.spent.max(least);
        account.spent = account.spent.saturating_add(cost.saturating_mul(weight));
    }

    /// Returns true if `count` consecutive calls of one connection have used the core for so long
    /// that others are to be checked, although none is known to have work. Only one call in
    /// [`LOOK_EVERY`] reads the clock.
    #[inline]
    pub(crate) fn has_taken_long(&self, count: u32) -> bool {
        count > 0
            && count.is_multiple_of(LOOK_EVERY)
            && self.turns.meter.as_ref().is_some_and(|meter| meter.now().since(self.now) >= LONG)
    }

    /// Returns true once the call of this holder that the app serves has used the core for long
    /// enough while others have work, or if the holder used more time than others before.
    #[inline]
    pub(crate) fn is_turn_over(&mut self, holder: TurnHolder) -> bool {
        self.turns.is_metered && self.has_had_enough(holder)
    }

    #[inline(never)]
    fn has_had_enough(&mut self, holder: TurnHolder) -> bool {
        let is_long = self.turns.clock().since(self.turns.mark) >= SLICE;
        let (payer, most) = (self.payer_of(holder), self.turns.floor + LEAD);
        is_long || self.turns.account(&mut self.peers, payer).spent > most
    }

    /// Begins work that is charged afterwards: time until now is charged to no client.
    #[inline]
    pub(crate) fn begin_work(&mut self) {
        if self.turns.is_metered {
            self.turns.mark = self.turns.clock();
        }
    }

    /// Records that the app has put a call aside, which then needs a turn.
    pub(crate) fn put_aside(&mut self, holder: TurnHolder) {
        let pass = self.counters.stats.passes.total;
        let payer = self.payer_of(holder);
        self.turns.account(&mut self.peers, payer).aside_in = pass;
        (self.has_aside, self.has_worked) = (true, true);
    }

    /// Gives a call that was put aside, or that another shard has sent, its turn, if it is due.
    pub(crate) fn take_turn(&mut self, holder: TurnHolder) -> bool {
        let payer = self.payer_of(holder);
        if let Payer::Remote(place) = payer
            && self.turns.latest_remote != Some(place)
        {
            self.note_other_caller(payer);
        }
        let must_wait = match (self.turns.is_metered, payer) {
            (true, _) => self.judge(payer, false),
            // Others are checked before more calls of another shard, although none is known to have
            // work.
            (false, Payer::Remote(_)) => self.turns.clock().since(self.now) >= LONG,
            (false, _) => false,
        };
        if must_wait {
            (self.has_aside, self.has_worked) = (true, true);
            return false;
        }
        self.turns.account(&mut self.peers, payer).aside_in = 0;
        self.turns.mark = self.turns.clock();
        true
    }

    /// Charges for the time since [`take_turn`](Self::take_turn), or since the latest charge.
    pub(crate) fn end_turn(&mut self, holder: TurnHolder) {
        if self.turns.is_metered {
            let payer = self.payer_of(holder);
            self.charge_time(payer);
        }
    }

    /// The account of a holder.
    fn payer_of(&mut self, holder: TurnHolder) -> Payer {
        match holder {
            TurnHolder::Here(peer) => Payer::Peer(peer),
            TurnHolder::Elsewhere(caller) => {
                let pass = self.counters.stats.passes.total;
                Payer::Remote(self.turns.remotes.place_of(caller, pass))
            }
        }
    }
}
