//! Rate limit for log messages of one kind.

use stag_engine::Time;
use std::time::Duration;

/// Default limit of events logged in each interval.
const EVENTS_MAX: u32 = 20;
/// The default interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Counts events of one kind; beyond a limit in each interval they are counted but not logged.
#[derive(Debug)]
pub struct EventRate {
    /// Name of the events, in the plural.
    events: &'static str,
    most: u32,
    interval: Duration,
    since: Time,
    logged: u32,
    left_out: u64,
}

impl EventRate {
    /// A counter with the default limit.
    pub const fn new(events: &'static str) -> Self {
        Self::limited(events, EVENTS_MAX, INTERVAL)
    }

    /// A counter that logs at most `most` events in each `interval`.
    pub const fn limited(events: &'static str, most: u32, interval: Duration) -> Self {
        Self { events, most, interval, since: Time(0), logged: 0, left_out: 0 }
    }

    /// True while suppressed events are not yet reported.
    #[inline]
    pub const fn has_left_out(&self) -> bool {
        self.left_out > 0
    }

    /// Logs the number of suppressed events, if there are any and their interval is over at `now`.
    pub fn settle(&mut self, now: Time) {
        if now.since(self.since) < self.interval {
            return;
        }
        let left_out = std::mem::take(&mut self.left_out);
        (self.since, self.logged) = (now, 0);
        if left_out > 0 {
            let events = self.events;
            tracing::warn!(target: "stag", left_out, events, "too many to be logged");
        }
    }

    /// Returns true if an event at `now` is to be logged. Reports suppressed events first, if any.
    pub fn allows(&mut self, now: Time) -> bool {
        self.settle(now);
        let is_allowed = self.logged < self.most;
        if is_allowed {
            self.logged += 1;
        } else {
            self.left_out += 1;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_of_events_is_logged_in_part_and_counted() {
        let mut rate = EventRate::new("tests");
        let at = |millis: u64| Time(millis * 1_000_000);
        let logged = (0..100).filter(|millis| rate.allows(at(2_000 + millis))).count();
        assert_eq!((logged, rate.left_out), (EVENTS_MAX as usize, 80));
        assert!(!rate.allows(at(2_999)));
        rate.settle(at(2_999));
        assert!(rate.has_left_out(), "the second is not over");
        assert!(rate.allows(at(3_000)), "another second begins");
        assert!(!rate.has_left_out());
        while rate.allows(at(3_000)) {}
        assert!(rate.has_left_out());
        rate.settle(at(4_000));
        assert!(!rate.has_left_out(), "it is told also where nothing more comes");
    }
}
