//! Description of the host that measures.

use crate::report::model::HostFacts;
use std::{fs, thread};

/// This host, without its floors.
pub(super) fn describe() -> HostFacts {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processor = read("/proc/cpuinfo");
    let processor =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let system = rustix::system::uname();
    HostFacts {
        name: system.nodename().to_string_lossy().into_owned(),
        kernel: system.release().to_string_lossy().into_owned(),
        processor: processor.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
        cores: thread::available_parallelism().map_or(1, Into::into),
        load: read("/proc/loadavg")
            .split(' ')
            .next()
            .and_then(|load| load.parse().ok())
            .unwrap_or(0.0),
        floors_ns: [None; 2],
    }
}

/// Time of all cores, and the stolen part of it, in ticks since the host's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Until this moment. None where the system does not say.
    pub(super) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of `/proc/stat` (`proc_stat(5)`): user, nice, system, idle, iowait, irq,
    /// softirq, steal, and two that are in the first ones, too.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// The part that was stolen since `earlier`. None when no tick passed.
    pub(super) fn stolen_since(self, earlier: Self) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64)
    }
}

/// Times that this thread lost its core to another one.
pub(super) fn preemptions() -> Option<u64> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_part_of_all_time() {
        let ticks = |text| Ticks::parse(text).unwrap();
        let first = ticks("cpu  100 0 50 800 10 0 5 35 7 7\ncpu0 1 2 3\n");
        assert_eq!(first, Ticks { all: 1_000, stolen: 35 });
        let second = ticks("cpu  100 0 50 890 10 0 5 45 0 0\n");
        assert_eq!(second.stolen_since(first), Some(0.1));
        assert_eq!((first.stolen_since(first), first.stolen_since(second)), (None, None));
        for odd in ["", "cpu", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3"] {
            assert_eq!(Ticks::parse(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn this_host_has_a_kernel_and_cores() {
        let host = describe();
        assert!(!host.kernel.is_empty() && host.cores > 0);
    }
}
