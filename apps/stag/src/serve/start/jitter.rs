//! Random start delay (`--start-jitter`): servers that a job starts at once on many nodes do not
//! all ask the same metadata server, or mount the same cluster, in the same moment.

use crate::caller::aside;
use rustix::rand::{GetRandomFlags, getrandom};
use std::{thread, time::Duration};

/// Waits for a random time, up to `limit` seconds. Nothing was opened before; a signal ends the
/// process.
pub(super) fn wait(limit: Option<u32>) {
    let Some(limit) = limit else { return };
    let mut drawn = [0; 8];
    // Without random numbers from the system all servers start at once.
    if getrandom(&mut drawn, GetRandomFlags::empty()).is_err() {
        return;
    }
    let pause = part_of(limit, u64::from_ne_bytes(drawn));
    let seconds = pause.as_secs_f64();
    aside(format!("waits {seconds:.1} s before it starts (--start-jitter {limit})\n"));
    thread::sleep(pause);
}

/// The part of `limit` seconds that `drawn` is of all 64-bit numbers.
fn part_of(limit: u32, drawn: u64) -> Duration {
    let nanos = (u128::from(limit) * 1_000_000_000 * u128::from(drawn)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_time_is_drawn_from_and_no_more() {
        assert_eq!(part_of(60, 0), Duration::ZERO);
        assert_eq!(part_of(60, 1 << 63), Duration::from_secs(30));
        let last = part_of(60, u64::MAX);
        assert!(last < Duration::from_secs(60) && last > Duration::from_millis(59_999));
        assert_eq!(part_of(0, u64::MAX), Duration::ZERO);
        assert!(part_of(u32::MAX, u64::MAX) < Duration::from_secs(1 << 32));
    }

    #[test]
    fn a_fleet_is_spread_evenly() {
        let mut tenths = [0; 10];
        for number in 0..1_000_u64 {
            let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            tenths[(part_of(10, drawn).as_secs_f64() as usize).min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (80..=120).contains(count)), "{tenths:?}");
    }
}
