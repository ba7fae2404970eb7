//! A probe of stalls: a thread pinned to each core reads the clock for a second and counts the gaps
//! in which it did not run.

use crate::CoreList;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// A gap that counts: a poll loop that misses it has lost several messages' time.
const GAP: Duration = Duration::from_micros(10);
/// Cores that are probed at most.
const CORES_MAX: usize = 128;

/// Gaps that one core showed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreGap {
    /// The core.
    pub core: usize,
    /// The time that was watched.
    pub watched: Duration,
    /// Gaps of more than 10 us.
    pub gaps: u64,
    /// All of these gaps together.
    pub lost: Duration,
    /// The longest one.
    pub longest: Duration,
    /// Times that the scheduler took the core away from the thread, if the kernel counts them.
    pub preempted: Option<u64>,
}

/// Watches `cores` for `time`, all at once. A core that this process may not use is left out.
#[must_use]
pub fn watch(cores: &CoreList, time: Duration) -> Vec<CoreGap> {
    let threads: Vec<_> = cores
        .0
        .iter()
        .take(CORES_MAX)
        .filter_map(|&core| {
            let named = thread::Builder::new().name(format!("stall-{core}"));
            named.spawn(move || watch_core(core, time)).ok()
        })
        .collect();
    threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
}

fn watch_core(core: usize, time: Duration) -> Option<CoreGap> {
    if core >= CpuSet::MAX_CPU {
        return None;
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).ok()?;
    let preempted_before = preemptions();
    let mut found = CoreGap { core, ..CoreGap::default() };
    let began = Instant::now();
    let mut last = began;
    while last - began < time {
        let now = Instant::now();
        let gap = now - last;
        if gap > GAP {
            found.gaps += 1;
            found.lost += gap;
            found.longest = found.longest.max(gap);
        }
        last = now;
    }
    found.watched = last - began;
    found.preempted = preemptions().zip(preempted_before).map(|(after, before)| after - before);
    Some(found)
}

fn preemptions() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_watched_for_its_time_and_gaps_are_within_it() {
        let found = watch(&CoreList([0].into()), Duration::from_millis(20));
        for gap in &found {
            assert!(gap.watched >= Duration::from_millis(20));
            assert!(gap.longest <= gap.lost && gap.lost <= gap.watched, "{gap:?}");
            assert!(gap.lost >= GAP * u32::try_from(gap.gaps).unwrap(), "{gap:?}");
        }
        assert!(watch(&CoreList([8191].into()), Duration::from_millis(1)).is_empty());
    }
}
