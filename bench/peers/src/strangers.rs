//! CPU time that other processes use during a measurement (`proc_stat(5)`, `proc_pid_stat(5)`).

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

/// Ticks of a second in files of `/proc` (`USER_HZ`), on x86-64 and AArch64 alike.
const TICKS: f64 = 100.0;
/// The part of a core that others may have had in a round that counts.
pub const PART_MAX: f64 = 0.2;

/// Time that others had, until some moment.
#[derive(Clone, Copy, Debug)]
pub struct Strangers {
    ticks: u64,
    at: Instant,
}

impl Strangers {
    /// Until this moment. None where the system does not say.
    pub fn look() -> Option<Self> {
        let all = busy(&fs::read_to_string("/proc/stat").ok()?)?;
        Some(Self { ticks: all.saturating_sub(ours()?), at: Instant::now() })
    }

    /// The part of a core that they had since `earlier`; none when too little time passed to say
    /// so.
    pub fn since(self, earlier: Self) -> Option<f64> {
        let passed = self.at.duration_since(earlier.at);
        let ticks = self.ticks.saturating_sub(earlier.ticks) as f64;
        (passed >= Duration::from_millis(100)).then(|| ticks / TICKS / passed.as_secs_f64())
    }
}

/// Ticks of all cores in which a process ran. Work that the kernel does for the network on its own
/// account belongs to no process and is left out.
fn busy(stat: &str) -> Option<u64> {
    let mut ticks = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|word| word.parse().ok());
    let [user, nice, system]: [u64; 3] = [ticks.next()?, ticks.next()?, ticks.next()?];
    Some(user + nice + system)
}

/// Ticks of this process, of its children and their descendants, and of all that ended and were
/// waited for.
fn ours() -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let (parent, ticks) = process(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some((pid, (parent, ticks)))
    });
    let processes: BTreeMap<u32, (u32, u64)> = processes.collect();
    let own = std::process::id();
    let descends = |mut pid: u32| {
        // A process that ended meanwhile leaves a gap, and no circle.
        for _ in 0..processes.len() {
            if pid == own {
                return true;
            }
            let Some((parent, _)) = processes.get(&pid) else { return false };
            pid = *parent;
        }
        false
    };
    Some(processes.iter().filter(|(pid, _)| descends(**pid)).map(|(_, (_, ticks))| ticks).sum())
}

/// The parent of a process, and its ticks with those of children that were waited for.
fn process(stat: &str) -> Option<(u32, u64)> {
    // The name, in brackets, may have anything in it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let parent = fields.get(1)?.parse().ok()?;
    let ticks =
        fields.get(11..15)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some((parent, ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_processes() {
        assert_eq!(busy("cpu  100 20 3 4000 50 6 7 8 0 0\ncpu0 1 1 1 1\n"), Some(123));
        let stat = "42 (a) odd) name) S 7 42 42 0 -1 0 0 0 0 0 11 22 33 44 20 0 1 0 5";
        assert_eq!(process(stat), Some((7, 110)));
        for odd in ["", "cpu", "42 (a) S 7", "cpu0 1 2 3"] {
            assert_eq!((busy(odd), process(odd)), (None, None), "{odd}");
        }
    }

    #[test]
    fn what_this_process_does_is_not_a_strangers() {
        let before = ours().unwrap();
        let began = Instant::now();
        // Under other load this thread may have a processor for a small part of the time only.
        while ours().unwrap() == before {
            assert!(began.elapsed() < Duration::from_secs(60), "spinning takes ticks");
            (0..1000).for_each(|_| std::hint::spin_loop());
        }
        let one = Strangers::look().unwrap();
        let later =
            |ms| Strangers { ticks: one.ticks + 10, at: one.at + Duration::from_millis(ms) };
        assert_eq!(later(99).since(one), None, "too early to say");
        assert_eq!(later(200).since(one), Some(0.5));
    }
}
