//! The time that a core gives to connections that come and go.
//!
//! A queue pair is made, brought to the state in which it sends, and destroyed by system calls of
//! the core that polls. A crowd that connects at once would keep it from its other connections. So
//! a core with calls of connections that have lasted for [`SETTLED`] gives such chores one part in
//! [`SHARE`] of its time, a few at a time, and rests from them in between. Without such calls it
//! does chores as they come: neither the clients of a server that was just started nor those that
//! connect, call once and leave slow each other down.

use crate::Ibverbs;
use stag_verbs::Time;
use std::time::Duration;

/// A busy core gives chores one part in so many.
const SHARE: u32 = 10;
/// Age from which the calls of a connection count as other work.
pub(crate) const SETTLED: Duration = Duration::from_secs(1);
/// Chores of a busy core without a rest.
const AT_ONCE: usize = 2;

/// Account of chores.
#[derive(Debug, Default)]
pub(crate) struct Chores {
    /// Time spent since the last rest was decided.
    spent: Duration,
    /// There was other work since then.
    is_busy: bool,
    rest_until: Time,
}

impl Chores {
    /// There was other work.
    pub(crate) const fn note_work(&mut self) {
        self.is_busy = true;
    }

    /// Chores that may be done now without looking at the time again.
    pub(crate) const fn at_once(&self) -> usize {
        if self.is_busy { AT_ONCE } else { usize::MAX }
    }

    /// Decides on a rest for the time that was spent. Returns true until it is over.
    pub(crate) fn rests(&mut self, now: Time) -> bool {
        let spent = std::mem::take(&mut self.spent);
        // Work since the chores before counts, and then work during the rest.
        if !spent.is_zero() && std::mem::take(&mut self.is_busy) {
            self.rest_until = now + spent * (SHARE - 1);
        }
        now < self.rest_until
    }
}

/// The clock for what chores take: calls to the device are real also where time is not.
#[cfg(not(test))]
fn clock() -> Duration {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
fn clock() -> Duration {
    crate::fake::clock()
}

impl Ibverbs {
    /// Does a chore on the account.
    pub(crate) fn chore<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let began = clock();
        let result = work(self);
        self.chores.spent += clock().saturating_sub(began);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_core_rests_nine_times_as_long_as_it_did_chores() {
        let spent = Duration::from_micros(100);
        let mut chores = Chores { spent, ..Chores::default() };
        assert!(!chores.rests(Time(1)), "without other work there is no rest");
        assert_eq!(chores.at_once(), usize::MAX);
        chores.note_work();
        assert!(!chores.rests(Time(2)), "nothing was spent since");
        assert_eq!(chores.at_once(), AT_ONCE);
        chores.spent = spent;
        assert!(chores.rests(Time(1_000)));
        assert!(chores.rests(Time(900_999)) && !chores.rests(Time(901_000)));
    }
}
