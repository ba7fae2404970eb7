//! The clock of a shard that runs in real time.

use rustix::time::{ClockId, clock_gettime};
use stag_verbs::Time;
use std::fmt;

/// Monotonic time since the clock was made.
// Stored as nanoseconds: every pass reads the clock, and subtracting two `Instant`s was half of
// that cost.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
}

impl Clock {
    /// A clock that starts at zero.
    pub fn start() -> Self {
        Self { zero: nanoseconds() }
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time(nanoseconds().saturating_sub(self.zero))
    }
}

/// The system's monotonic clock, which is never negative.
fn nanoseconds() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec
        .cast_unsigned()
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec.cast_unsigned())
}

/// The clock that measures calls, with the same zero as the times given to
/// [`Shard::pass`](crate::Shard::pass).
pub trait Meter: fmt::Debug + Send + Sync {
    /// The time.
    fn now(&self) -> Time;
}

impl Meter for Clock {
    fn now(&self) -> Time {
        Self::now(self)
    }
}
