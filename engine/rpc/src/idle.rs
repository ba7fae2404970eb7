//! The wait of a thread that makes the passes of its own shard.

use stag_engine::Time;
use std::{hint, thread, time::Duration};

/// Time for which a core spins before it yields, and time for which it yields before it sleeps.
const SPIN: Duration = Duration::from_micros(20);
const YIELD: Duration = Duration::from_micros(500);
/// Sleep where the system refuses a longer one.
const NAP: Duration = Duration::from_micros(50);

/// A time without work: the thread spins, then yields, then sleeps.
#[derive(Debug)]
pub(crate) struct Idle {
    busy_at: Time,
}

impl Idle {
    pub(crate) const fn since(now: Time) -> Self {
        Self { busy_at: now }
    }

    /// Waits a little after a pass at `now` without work. Returns true if it is time to sleep.
    #[inline]
    pub(crate) fn is_long(&mut self, now: Time, worked: bool) -> bool {
        if worked {
            self.busy_at = now;
            return false;
        }
        match now.since(self.busy_at) {
            idle if idle < SPIN => hint::spin_loop(),
            idle if idle < YIELD => thread::yield_now(),
            _ => return true,
        }
        false
    }
}

/// Sleeps briefly.
pub(crate) fn nap() {
    thread::sleep(NAP);
}
