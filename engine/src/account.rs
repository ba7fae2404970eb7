//! Accounts of the memory that each peer holds: fair shares and minimum progress (RFC 8166 §8.1.4,
//! RFC 5042 §6.4).
//!
//! A peer *holds* the memory that waits for it: buffers that its Reads are to fill, replies that it
//! has not taken, records whose end it has not sent. Holding costs one unit of credit per octet and
//! microsecond; octets that move earn credit. Memory that waits for us to go on with the peer's
//! calls counts against what it may hold, and costs nothing. A newcomer has no credit and may hold
//! [`FIRST_OCTETS`]. With credit a peer may hold more, up to its share, and may use the memory that
//! is reserved for proven peers. A peer deep in debt loses its connection while others wait; so
//! does one that barely moves any octets.

use crate::config::{LARGE_LEN, MESSAGE_LEN};
use stag_verbs::Time;
use std::time::Duration;

/// Items up to this length use message slots. There is one for every call, so no peer can hold too
/// many.
pub(crate) const SMALL_MAX: usize = MESSAGE_LEN;
/// Octets that a peer may hold before any of its octets have moved: the longest call and its reply.
pub(crate) const FIRST_OCTETS: u64 = 2 * LARGE_LEN as u64;
/// Holding time that each moved octet pays for: a peer keeps its credit if it holds each octet for
/// less.
const PAID: Duration = Duration::from_secs(1);
/// A peer may hold as much as its credit pays for during this time.
const AHEAD: Duration = Duration::from_millis(250);
/// A peer is slow when its debt exceeds the cost of its holdings for this time. The time is shorter
/// when more peers wait than there are buffers, down to [`GRACE_MIN`].
pub(crate) const GRACE: Duration = Duration::from_millis(500);
pub(crate) const GRACE_MIN: Duration = Duration::from_millis(100);
/// A peer that holds memory has to move [`STALL_OCTETS`] in each period of this length, even while
/// no other peer waits.
const STALL_MAX: Duration = Duration::from_secs(30);
/// Octets that a peer has to move to be proven, or its share if that is less. More than the buffers
/// of two kernels absorb without a reader.
const PROOF: u64 = 16 << 20;
/// 4 KiB per second; less if it holds less.
const STALL_OCTETS: u64 = 4_096 * STALL_MAX.as_secs();

/// The memory that one connection holds, and the credit that it has earned.
#[derive(Debug)]
pub(crate) struct Account {
    /// Octets of memory that other peers cannot use until this peer does its part.
    held: u64,
    /// Octets of memory that we work on for this peer, in several passes.
    worked_on: u64,
    /// Octet-microseconds, as of `settled_at`; negative in debt.
    credit: i64,
    settled_at: Time,
    /// Start of the current stall check: when the peer began to hold memory, and the octets moved
    /// since.
    since: Time,
    moved: u64,
    /// Octets that have moved on this connection.
    total: u64,
}

impl Account {
    /// The account of a connection that begins.
    pub(crate) const fn new(now: Time) -> Self {
        Self { held: 0, worked_on: 0, credit: 0, settled_at: now, since: now, moved: 0, total: 0 }
    }

    /// Octets that the peer holds.
    pub(crate) const fn held(&self) -> u64 {
        self.held
    }

    /// Octets that the peer holds or that we work on for it.
    pub(crate) const fn occupied(&self) -> u64 {
        self.held.saturating_add(self.worked_on)
    }

    /// Returns true if we work on calls of the peer.
    pub(crate) const fn has_work(&self) -> bool {
        self.worked_on > 0
    }

    /// Adds to what we work on for the peer.
    pub(crate) const fn begin_work(&mut self, octets: u64) {
        self.worked_on = self.worked_on.saturating_add(octets);
    }

    /// Subtracts from what we work on for the peer.
    pub(crate) fn end_work(&mut self, octets: u64) {
        debug_assert!(octets <= self.worked_on, "work ends that has begun");
        self.worked_on = self.worked_on.saturating_sub(octets);
    }

    /// Charges for the octets held until `now`.
    pub(crate) fn settle(&mut self, now: Time) {
        let elapsed = as_micros(now.since(self.settled_at));
        if elapsed == 0 {
            return; // Less than a microsecond is counted with the next one.
        }
        self.settled_at = now;
        let cost = as_units(self.held).saturating_mul(elapsed);
        let deepest = -as_units(self.held.max(FIRST_OCTETS)).saturating_mul(2 * as_micros(GRACE));
        let credit = self.credit;
        self.credit = credit.saturating_sub(cost).max(deepest.min(credit));
        debug_assert!(self.credit <= credit, "holding earns nothing");
    }

    /// Makes the next `time` free of charge: the shard did not run, so no octet could move.
    pub(crate) fn forgive(&mut self, time: Duration) {
        self.settled_at = self.settled_at + time;
        self.since = self.since + time;
    }

    /// Adds to what the peer holds.
    pub(crate) fn hold(&mut self, octets: u64, now: Time) {
        self.hold_in_all(self.held.saturating_add(octets), now);
    }

    /// Subtracts from what the peer holds.
    pub(crate) fn let_go(&mut self, octets: u64, now: Time) {
        debug_assert!(octets <= self.held, "a peer returns what it held");
        self.hold_in_all(self.held.saturating_sub(octets), now);
    }

    /// Sets what the peer holds.
    pub(crate) fn hold_in_all(&mut self, octets: u64, now: Time) {
        self.settle(now);
        if self.held == 0 && octets > 0 {
            (self.since, self.moved) = (now, 0);
        }
        self.held = octets;
    }

    /// Credits the account for octets moved to or from the peer. Credit beyond the limit for
    /// `share` is dropped.
    pub(crate) fn earn(&mut self, octets: u64, share: u64) {
        let most = as_units(share).saturating_mul(as_micros(AHEAD));
        let earned = as_units(octets).saturating_mul(as_micros(PAID));
        self.credit = self.credit.saturating_add(earned).min(most.max(self.credit));
        self.moved = self.moved.saturating_add(octets);
        self.total = self.total.saturating_add(octets);
    }

    /// Returns true for a proven peer: enough octets have moved, and it has credit for a newcomer's
    /// share.
    pub(crate) fn is_proven(&self, share: u64) -> bool {
        self.total >= PROOF.min(share)
            && self.credit >= as_units(FIRST_OCTETS).saturating_mul(as_micros(AHEAD))
    }

    /// Returns true if the peer may occupy `octets` more, of at most `share`. A peer that occupies
    /// nothing always may: one call is always possible.
    pub(crate) fn allows(&self, octets: u64, share: u64) -> bool {
        let paid = self.credit.max(0) / as_micros(AHEAD);
        let most = FIRST_OCTETS.saturating_add(paid.unsigned_abs()).min(share);
        let occupied = self.occupied();
        occupied == 0 || occupied.saturating_add(octets) <= most
    }

    /// Returns true if octets move too slowly for the memory that the peer holds: it may not stay
    /// while others wait.
    pub(crate) fn is_slow(&self, grace: Duration) -> bool {
        let grace = as_units(self.held.max(LARGE_LEN as u64)).saturating_mul(as_micros(grace));
        self.held > 0 && self.credit < -grace
    }

    /// Returns true if next to nothing moved for [`STALL_MAX`] while the peer held something.
    pub(crate) fn is_stalled(&mut self, now: Time) -> bool {
        if self.held == 0 || now.since(self.since) < STALL_MAX {
            return false;
        }
        let moved = std::mem::take(&mut self.moved);
        self.since = now;
        moved < STALL_OCTETS.min(self.held)
    }
}

const fn as_units(octets: u64) -> i64 {
    if octets > i64::MAX as u64 { i64::MAX } else { octets as i64 }
}

const fn as_micros(time: Duration) -> i64 {
    let micros = time.as_micros();
    if micros > i64::MAX as u128 { i64::MAX } else { micros as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SHARE: u64 = 48 * MIB;

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    /// Simulates a peer that holds `held` octets throughout and moves `per_tick` every 10 ms, for
    /// the given milliseconds.
    fn moving(account: &mut Account, held: u64, per_tick: u64, millis: std::ops::Range<u64>) {
        account.hold_in_all(held, at(millis.start));
        for tick in millis.step_by(10) {
            account.settle(at(tick + 10));
            account.earn(per_tick, SHARE);
        }
    }

    #[test]
    fn a_newcomer_may_hold_two_items_and_one_that_holds_nothing_any_call() {
        let mut account = Account::new(at(0));
        assert!(account.allows(FIRST_OCTETS, SHARE) && account.allows(SHARE * 2, SHARE));
        account.hold(FIRST_OCTETS, at(0));
        assert!(!account.allows(1, SHARE) && !account.is_proven(SHARE) && !account.is_slow(GRACE));
    }

    #[test]
    fn memory_that_waits_for_us_counts_against_the_share_and_costs_nothing() {
        let mut account = Account::new(at(0));
        account.begin_work(FIRST_OCTETS);
        assert!(!account.allows(1, SHARE));
        account.settle(at(3_600_000));
        assert!(!account.is_slow(GRACE_MIN) && !account.is_stalled(at(3_600_000)));
        account.hold(1, at(3_600_000));
        account.end_work(FIRST_OCTETS);
        assert!(account.allows(FIRST_OCTETS - 1, SHARE) && !account.allows(FIRST_OCTETS, SHARE));
    }

    #[test]
    fn octets_that_move_quickly_earn_a_share_and_no_more_than_it() {
        let mut account = Account::new(at(0));
        moving(&mut account, 2 * MIB, MIB, 0..100);
        assert!(!account.is_proven(SHARE), "so much would fit the kernels' buffers");
        moving(&mut account, 2 * MIB, MIB, 100..200);
        assert!(account.is_proven(SHARE) && account.allows(20 * MIB, SHARE));
        moving(&mut account, 20 * MIB, 10 * MIB, 200..1_000);
        assert!(account.allows(28 * MIB, SHARE) && !account.allows(29 * MIB, SHARE));
    }

    #[test]
    fn a_peer_that_trickles_is_slow_after_half_a_second() {
        let mut account = Account::new(at(0));
        moving(&mut account, MIB, 150, 0..480);
        assert!(!account.is_slow(GRACE));
        moving(&mut account, MIB, 150, 480..540);
        assert!(account.is_slow(GRACE) && !account.is_proven(SHARE));
        account.hold_in_all(0, at(600));
        assert!(!account.is_slow(GRACE), "it keeps nothing from anybody");
    }

    #[test]
    fn a_fast_peer_that_stops_is_slow_after_three_quarters_of_a_second() {
        let mut account = Account::new(at(0));
        moving(&mut account, SHARE, 10 * MIB, 0..1_000);
        moving(&mut account, SHARE, 0, 1_000..1_700);
        assert!(!account.is_slow(GRACE));
        moving(&mut account, SHARE, 0, 1_700..1_800);
        assert!(account.is_slow(GRACE));
        // An hour costs no more than a second.
        account.settle(at(3_600_000));
        account.earn(2 * SHARE, SHARE);
        assert!(!account.is_slow(GRACE) && account.is_proven(SHARE));
    }

    #[test]
    fn a_time_that_is_forgiven_costs_nothing() {
        let mut account = Account::new(at(0));
        account.hold(MIB, at(0));
        account.forgive(Duration::from_secs(40));
        account.settle(at(40_400));
        assert!(!account.is_slow(GRACE) && !account.is_stalled(at(40_400)));
        account.settle(at(40_600));
        assert!(account.is_slow(GRACE));
    }

    #[test]
    fn a_share_follows_the_rate() {
        // 4 MiB per second: each octet is held for a second when the peer holds 4 MiB.
        let mut account = Account::new(at(0));
        moving(&mut account, 3 * MIB, MIB / 25, 0..10_000);
        assert!(account.is_proven(SHARE), "it lives within its rate");
        moving(&mut account, 8 * MIB, MIB / 25, 10_000..40_000);
        assert!(
            !account.is_proven(SHARE) && !account.allows(1, SHARE),
            "it may not hold twice as much"
        );
    }

    #[test]
    fn who_moves_four_kibibytes_a_second_is_not_stalled() {
        let mut account = Account::new(at(0));
        account.hold(MIB, at(0));
        for second in 1..=300 {
            account.earn(4_200, SHARE);
            assert!(!account.is_stalled(at(second * 1_000)), "after {second} s");
        }
        for second in 301..=360 {
            account.earn(1, SHARE);
            if account.is_stalled(at(second * 1_000)) {
                return;
            }
        }
        panic!("an octet a second is a stall");
    }

    #[test]
    fn a_short_piece_that_moves_whole_is_no_stall() {
        let mut account = Account::new(at(0));
        account.hold(1_000, at(0));
        account.earn(1_000, SHARE);
        assert!(!account.is_stalled(at(30_000)));
        assert!(account.is_stalled(at(60_000)));
    }

    #[test]
    fn no_number_is_too_large() {
        let mut account = Account::new(at(0));
        account.hold(u64::MAX, at(0));
        account.hold(u64::MAX, at(1));
        account.settle(Time(u64::MAX));
        account.earn(u64::MAX, u64::MAX);
        account.let_go(u64::MAX, Time(u64::MAX));
        account.let_go(0, Time(0));
        assert_eq!(account.held(), 0);
    }
}
