//! The times of the next checks that depend on time alone.

use stag_verbs::Time;
use std::time::Duration;

/// Longest time between two checks of deadlines; a check happens earlier if one is known to be due.
const EXPIRY_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The times of the next checks that depend on time alone.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Deadlines of calls and of attempts to connect: the first one, or earlier.
    expiry: Time,
    /// Peers that make no progress.
    stall: Time,
}

impl Deadlines {
    pub(crate) const fn new() -> Self {
        Self { expiry: Time(0), stall: Time(0) }
    }

    /// Schedules a check of deadlines at `at` or earlier.
    #[inline]
    pub(crate) fn no_later(&mut self, at: Time) {
        self.expiry = self.expiry.min(at);
    }

    #[inline]
    pub(crate) fn are_due(&self, now: Time) -> bool {
        now >= self.next()
    }

    /// The time of the next check.
    #[inline]
    fn next(&self) -> Time {
        self.expiry.min(self.stall)
    }

    pub(crate) const fn expiry(&self) -> Time {
        self.expiry
    }

    /// Returns true if it is time to check deadlines, and schedules the next check.
    pub(crate) fn take_expiry(&mut self, now: Time) -> bool {
        let is_due = now >= self.expiry;
        if is_due {
            self.expiry = now + EXPIRY_INTERVAL_MAX;
            debug_assert!(self.expiry > now, "a check schedules the next one");
        }
        is_due
    }

    /// Returns true if it is time to check for peers that make no progress.
    pub(crate) fn take_stall(&mut self, now: Time) -> bool {
        let is_due = now >= self.stall;
        if is_due {
            self.stall = now + EXPIRY_INTERVAL_MAX;
        }
        is_due
    }
}
