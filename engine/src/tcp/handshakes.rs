//! Scheduling of TLS handshakes: their share of a core, and the order of the waiting connections.
//!
//! A step of a handshake may cost a signature, nearly a millisecond, during which the shard serves
//! no call. So a pass makes at most one step. After it, while calls are served, the next step waits
//! for [`SHARE`] times the processor time that the step took. The turn goes to the address whose
//! steps took least: a client that connects again and again delays itself.

use rustix::time::{ClockId, clock_gettime};
use stag_pools::table::Key;
use stag_verbs::Time;
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

/// Handshakes get one part in `SHARE` of a core's time while calls are served.
pub(crate) const SHARE: u32 = 16;
/// The time without calls after which handshakes may use all of the core.
const QUIET: Duration = Duration::from_millis(20);
/// The minimum that one step counts for. Where the clock of processor time ticks a hundred times a
/// second, most steps measure zero, and would never wait.
pub(crate) const COST_MIN: Duration = Duration::from_micros(50);
/// The maximum that one step counts for.
const COST_MAX: Duration = Duration::from_millis(100);

/// Connections whose handshakes proceed in turn.
#[derive(Debug)]
pub(crate) struct Handshakes {
    /// Connections that have something to read, each once, and their addresses.
    line: VecDeque<(Key, IpAddr)>,
    /// Maximum length of the line: one entry for each connection.
    most: usize,
    /// The connection whose turn it is.
    turn: Option<(Key, IpAddr)>,
    /// Processor time of each address's steps, from the same base.
    spent: HashMap<IpAddr, Duration>,
    /// Starting value of an address without steps: the time of the address that was served last.
    base: Duration,
    /// The time of the next turn while calls are served.
    next_at: Time,
    /// The time of the latest pass that served calls of others; `calls` is their number at that
    /// time.
    busy_at: Option<Time>,
    calls: u64,
    /// Calls that asked for TLS.
    probes: u64,
}

impl Handshakes {
    /// Turns for `most` connections.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            line: VecDeque::new(),
            most,
            turn: None,
            spent: HashMap::new(),
            base: Duration::ZERO,
            next_at: Time(0),
            busy_at: None,
            calls: 0,
            probes: 0,
        }
    }

    /// Starts the first of several handshakes, when `calls` had been served.
    pub(crate) const fn begin(&mut self, calls: u64) {
        self.calls = calls;
    }

    /// Counts a call that requests TLS.
    pub(crate) const fn note_probe(&mut self) {
        self.probes += 1;
    }

    /// Calls that requested TLS.
    pub(crate) const fn probes(&self) -> u64 {
        self.probes
    }

    /// Records the calls served up to this pass: `calls` over TCP, and `is_fabric_busy` for others.
    pub(crate) fn note_calls(&mut self, now: Time, calls: u64, is_fabric_busy: bool) {
        if std::mem::replace(&mut self.calls, calls) != calls || is_fabric_busy {
            self.busy_at = Some(now);
        }
    }

    /// Returns true if it is the turn of this connection.
    pub(crate) fn has_turn(&self, key: Key) -> bool {
        self.turn.is_some_and(|(turn, _)| turn == key)
    }

    /// Puts a connection in the line; `is_live` recognizes connections that still exist.
    pub(crate) fn wait(&mut self, key: Key, from: IpAddr, is_live: impl Fn(Key) -> bool) {
        if self.line.len() >= self.most {
            self.line.retain(|(key, _)| is_live(*key));
        }
        debug_assert!(self.line.len() < self.most, "a connection is in line once");
        self.line.push_back((key, from));
    }

    /// The time of the next turn, if a connection waits for one.
    pub(crate) fn due_at(&self) -> Option<Time> {
        if self.line.is_empty() {
            return None;
        }
        let quiet_at = self.busy_at.map_or(Time(0), |at| at + QUIET);
        Some(self.next_at.min(quiet_at))
    }

    /// Gives a connection its turn, if one is due.
    pub(crate) fn next_turn(&mut self, now: Time, is_live: impl Fn(Key) -> bool) -> Option<Key> {
        if self.due_at().is_none_or(|at| now < at) {
            return None;
        }
        self.line.retain(|(key, _)| is_live(*key));
        let spent = |from: &IpAddr| self.spent.get(from).copied().unwrap_or(self.base);
        let (place, _) = self.line.iter().enumerate().min_by_key(|(_, (_, from))| spent(from))?;
        self.turn = self.line.remove(place);
        self.turn.map(|(key, _)| key)
    }

    /// Ends a turn whose step took `cost`.
    pub(crate) fn end_turn(&mut self, now: Time, cost: Duration) {
        let Some((_, from)) = self.turn.take() else { return };
        let cost = cost.min(COST_MAX);
        self.next_at = now + cost * SHARE;
        if self.line.is_empty() {
            self.spent.clear();
            self.base = Duration::ZERO;
            return;
        }
        if self.spent.len() >= self.most {
            let line = &self.line;
            self.spent.retain(|from, _| line.iter().any(|(_, waiting)| waiting == from));
        }
        let spent = self.spent.entry(from).or_insert(self.base);
        self.base = self.base.max(*spent);
        *spent += cost;
    }
}

/// Processor time of this thread: the cost of a step, whatever else runs on its core.
pub(crate) fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(800);

    fn key(number: u64) -> Key {
        Key::from_bits(number)
    }

    fn from(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    /// Runs passes of 10 µs for a second of virtual time, with `calls_each` calls per pass; returns
    /// the time that steps took. There are as many waiting connections as turns.
    fn second_of_handshakes(calls_each: u64) -> Duration {
        let mut handshakes = Handshakes::new(8);
        let (mut now, mut calls, mut taken) = (Time(0), 0, Duration::ZERO);
        let end = now + Duration::from_secs(1);
        while now < end {
            if handshakes.line.is_empty() {
                handshakes.wait(key(1), from(1), |_| true);
            }
            calls += calls_each;
            handshakes.note_calls(now, calls, false);
            if handshakes.next_turn(now, |_| true).is_some() {
                handshakes.end_turn(now, STEP);
                (now, taken) = (now + STEP, taken + STEP);
            }
            now = now + Duration::from_micros(10);
        }
        taken
    }

    #[test]
    fn handshakes_have_their_share_while_calls_are_served_and_all_of_an_idle_core() {
        let beside = second_of_handshakes(1);
        assert!(beside <= Duration::from_secs(1) / SHARE + STEP, "{beside:?}");
        assert!(beside >= Duration::from_secs(1) / (SHARE + 1), "{beside:?}");
        let alone = second_of_handshakes(0);
        assert!(alone >= Duration::from_millis(980), "{alone:?}");
    }

    #[test]
    fn calls_of_a_fabric_count_and_the_core_is_idle_some_time_after_the_last() {
        let mut handshakes = Handshakes::new(8);
        let turn = |handshakes: &mut Handshakes, now: Time| {
            let turn = handshakes.next_turn(now, |_| true).is_some();
            handshakes.end_turn(now, STEP);
            turn
        };
        (1..=4).for_each(|number| handshakes.wait(key(number), from(1), |_| true));
        handshakes.note_calls(Time(0), 0, true);
        assert!(turn(&mut handshakes, Time(0)));
        assert!(!turn(&mut handshakes, Time(0) + STEP));
        assert_eq!(handshakes.due_at(), Some(Time(0) + STEP * SHARE));
        assert!(turn(&mut handshakes, Time(0) + STEP * SHARE));
        assert!(turn(&mut handshakes, Time(0) + QUIET) && turn(&mut handshakes, Time(0) + QUIET));
        assert_eq!(handshakes.due_at(), None);
    }

    #[test]
    fn the_turn_goes_to_the_address_that_took_least() {
        let mut handshakes = Handshakes::new(64);
        (1..=20).for_each(|number| handshakes.wait(key(number), from(1), |_| true));
        let turn = |handshakes: &mut Handshakes| {
            let turn = handshakes.next_turn(Time(0), |_| true);
            handshakes.end_turn(Time(0), STEP);
            turn
        };
        assert_eq!(turn(&mut handshakes), Some(key(1)));
        assert_eq!(turn(&mut handshakes), Some(key(2)));
        // A newcomer is next, and has half of the turns from then on, not all of them.
        (21..=24).for_each(|number| handshakes.wait(key(number), from(2), |_| true));
        let turns: Vec<_> = std::iter::from_fn(|| turn(&mut handshakes)).take(8).collect();
        let of_newcomer = turns.iter().filter(|turn| (21..=24).any(|it| **turn == key(it)));
        assert_eq!((turns.first(), of_newcomer.count()), (Some(&key(21)), 4));
    }

    #[test]
    fn connections_that_are_gone_have_no_turn_and_no_place() {
        let mut handshakes = Handshakes::new(4);
        for number in 1..=100 {
            handshakes.wait(key(number), from(1), |it| it == key(100));
        }
        assert!(handshakes.line.len() <= 4);
        assert_eq!(handshakes.next_turn(Time(0), |it| it == key(100)), Some(key(100)));
        assert!(handshakes.has_turn(key(100)) && !handshakes.has_turn(key(1)));
        handshakes.end_turn(Time(0), STEP);
        assert_eq!(handshakes.next_turn(Time(0) + QUIET, |_| true), None);
    }
}
