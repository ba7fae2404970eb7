//! The clock of a shard that runs in real time.

use stag_verbs::Time;
use std::time::{Instant, SystemTime};

/// Nanoseconds since 1970-01-01 UTC, as this host believes.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

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
