//! TCP connections without a first call, which is due within a time limit
//! ([`Config::first_call_within`](crate::Config::first_call_within)). Until it has arrived
//! completely, the connection may be closed in favour of a newcomer when all places are taken.
//!
//! A call that has begun to arrive gets the same time again, and once more for each [`PROGRESS`]
//! octets that come meanwhile. So a long first call over a slow link is served, but a peer that
//! sends an octet now and then keeps no place.

use super::table::Streams;
use stag_pools::table::Key;
use stag_verbs::Time;
use std::{collections::VecDeque, time::Duration};

/// Octets of a first call that gain the connection more time.
const PROGRESS: usize = 16 << 10;

/// Connections in the order in which they were accepted, each with the time at which its first call
/// is due. Some of them may be gone or have called.
#[derive(Debug)]
pub(crate) struct SilentPeers {
    line: VecDeque<(Key, Time)>,
    /// Length of the line above which it is pruned: one entry for each connection.
    most: usize,
    within: Option<Duration>,
}

impl SilentPeers {
    /// Room for `most` connections.
    pub(crate) const fn new(most: usize, within: Option<Duration>) -> Self {
        Self { line: VecDeque::new(), most, within }
    }

    /// Adds a connection that was just accepted. `is_silent` recognizes connections without a call.
    pub(crate) fn add(&mut self, key: Key, now: Time, is_silent: impl Fn(Key) -> bool) {
        let Some(within) = self.within else { return };
        if self.line.len() >= self.most {
            self.line.retain(|(key, _)| is_silent(*key));
        }
        debug_assert!(self.line.len() < self.most, "a connection is in line once");
        self.line.push_back((key, now + within));
    }

    /// The time at which the next call is due.
    pub(crate) fn due_at(&self) -> Option<Time> {
        self.line.front().map(|(_, due)| *due)
    }

    /// Takes the connection that has been silent for the longest time, if its call was due at
    /// `until`. With `None` it is taken in any case.
    fn next(&mut self, until: Option<Time>, is_silent: impl Fn(Key) -> bool) -> Option<Key> {
        loop {
            let (key, due) = *self.line.front()?;
            if is_silent(key) && until.is_some_and(|until| until < due) {
                return None;
            }
            self.line.pop_front();
            if is_silent(key) {
                return Some(key);
            }
        }
    }
}

impl Streams {
    /// Registers a connection that was just accepted.
    pub(crate) fn await_first_call(&mut self, key: Key, now: Time) {
        let connections = &self.connections;
        let is_silent = |key| connections.get(key).is_some_and(|stream| stream.is_silent());
        self.silent.add(key, now, is_silent);
    }

    /// Gives a connection whose first call makes progress more time, or one that waits for us.
    /// Returns false for others.
    pub(crate) fn prolong_first_call(&mut self, key: Key, now: Time) -> bool {
        let Some(stream) = self.connections.get_mut(key).filter(|it| it.is_silent()) else {
            return false;
        };
        let octets = stream.record.as_ref().map_or(0, |record| record.len());
        let awaits_us = stream.wanted > 0 || stream.pending.is_some() || stream.is_put_off;
        let goes_on = awaits_us || octets >= stream.first_due;
        if goes_on {
            stream.first_due = octets + PROGRESS;
            self.await_first_call(key, now);
        }
        goes_on
    }

    pub(crate) fn next_silent(&mut self, until: Option<Time>) -> Option<Key> {
        let connections = &self.connections;
        let is_silent = |key| connections.get(key).is_some_and(|stream| stream.is_silent());
        self.silent.next(until, is_silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key::from_bits(number)
    }

    #[test]
    fn the_first_calls_are_due_in_the_order_of_the_connections() {
        let second = Duration::from_secs(1);
        let mut silent = SilentPeers::new(8, Some(second));
        (1..=3).for_each(|number| silent.add(key(number), Time(number), |_| true));
        assert_eq!(silent.due_at(), Some(Time(1) + second));
        assert_eq!(silent.next(Some(Time(1)), |_| true), None);
        // The first one has called.
        let is_silent = |it: Key| it != key(1);
        assert_eq!(silent.next(Some(Time(1) + second), is_silent), None);
        assert_eq!(silent.next(Some(Time(2) + second), is_silent), Some(key(2)));
        assert_eq!(silent.next(Some(Time(2) + second), is_silent), None);
        assert_eq!(silent.next(None, is_silent), Some(key(3)), "a newcomer needs its place");
        assert_eq!(silent.due_at(), None);
    }

    #[test]
    fn connections_that_called_or_are_gone_take_no_room() {
        let mut silent = SilentPeers::new(4, Some(Duration::from_secs(1)));
        for number in 1..=100 {
            silent.add(key(number), Time(0), |it| it == key(100));
        }
        assert!(silent.line.len() <= 4);
        assert_eq!(silent.next(None, |it| it == key(100)), Some(key(100)));
    }

    #[test]
    fn without_a_time_no_call_is_due() {
        let mut silent = SilentPeers::new(4, None);
        silent.add(key(1), Time(0), |_| true);
        assert_eq!((silent.due_at(), silent.next(None, |_| true)), (None, None));
    }
}
