//! The clock of a shard that runs in real time.

use rustix::time::{ClockId, clock_gettime};
use stag_verbs::Time;
use std::time::SystemTime;

/// Nanoseconds since 1970-01-01 UTC, as this host believes.
pub(crate) fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Monotonic time since the clock was made. It is read in every pass, and at each stage of a call that is watched: so it is one
/// number, and not an `Instant`, whose difference to another takes longer than reading it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(u64);

impl Clock {
    /// A clock that shows zero.
    pub fn start() -> Self {
        Self(monotonic_ns())
    }

    /// The time.
    pub fn now(&self) -> Time {
        Time(monotonic_ns().saturating_sub(self.0))
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which never goes back.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_begins_at_zero_and_goes_on_as_time_does() {
        let (began, clock) = (std::time::Instant::now(), Clock::start());
        let first = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let later = clock.now();
        let elapsed = began.elapsed();
        assert!(later.0 >= first.0 + 5_000_000 && u128::from(later.0) <= elapsed.as_nanos());
    }
}
