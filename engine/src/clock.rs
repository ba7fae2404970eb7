//! The clock of a shard that runs in real time.

use stag_verbs::Time;
use std::time::Instant;

/// Monotonic time since the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that shows zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
