//! The change attribute of file systems that expose no counter, derived from a file's ctime (RFC
//! 8881 §5.8.1.4).
//!
//! Linux 6.13 and later change a file's ctime at the first change after each query, on ext4, XFS,
//! btrfs and tmpfs: the time itself distinguishes changes ([`TimeGrain::Fine`]). Elsewhere the
//! clock of these times ticks every few milliseconds, and two changes within a tick have the same
//! time ([`TimeGrain::Coarse`]). There a time younger than two ticks is *unsettled*, as another
//! change may yet get it, and is reported as the nanosecond before. A client that cached a file
//! under an unsettled value looks again once, and no client keeps stale data.

use rustix::{
    fs::{AtFlags, StatxFlags, statx},
    io::pwrite,
    time::{ClockId, clock_gettime},
};
use std::os::fd::OwnedFd;

use crate::FileTime;

/// Longest tick of the clock of such times, with HZ = 100.
const TICK_NS: u64 = 10_000_000;
/// Changes that a file system has to distinguish in the probe.
const PROBES: usize = 50;

/// Ability of a file system's times to distinguish changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeGrain {
    /// Each change that follows a query has a time of its own.
    Fine,
    /// Changes within a tick have the same time.
    #[default]
    Coarse,
}

impl TimeGrain {
    /// Probes a file without a name: queries it after each of many changes.
    pub(crate) fn probe(file: &OwnedFd) -> Self {
        let mut last = None;
        for _ in 0..PROBES {
            let changed = pwrite(file, b"x", 0).ok().and_then(|_| changed_at(file));
            if changed.is_none() || changed == last {
                return Self::Coarse;
            }
            last = changed;
        }
        Self::Fine
    }

    /// The change attribute of a file whose last change was at `ctime`, queried just now.
    pub(crate) fn change(self, ctime: FileTime) -> u64 {
        match self {
            Self::Fine => ctime.wrapping_nanos(),
            Self::Coarse => {
                let now = clock_gettime(ClockId::RealtimeCoarse);
                let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
                Self::coarse_change(ctime, FileTime { seconds: now.tv_sec, nanos })
            }
        }
    }

    /// Nanoseconds between two times that differ: for a coarse clock the tick of a kernel with HZ =
    /// 250, since the actual tick is unknown.
    pub(crate) const fn delta_ns(self) -> u32 {
        match self {
            Self::Fine => 1,
            Self::Coarse => 4_000_000,
        }
    }

    /// The change attribute of a coarse time at the time `now` of the same clock.
    fn coarse_change(ctime: FileTime, now: FileTime) -> u64 {
        let changed = ctime.wrapping_nanos();
        // A time in the future, after the clock was set back, is as unsettled as a fresh one.
        let age = now.wrapping_nanos().wrapping_sub(changed).cast_signed();
        let is_settled = age > (2 * TICK_NS).cast_signed();
        if is_settled { changed } else { changed.wrapping_sub(1) }
    }
}

fn changed_at(file: &OwnedFd) -> Option<(i64, u32)> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::CTIME).ok()?;
    Some((stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTIME: FileTime = FileTime { seconds: 100, nanos: 4_000_000 };

    fn at(nanos_later: i64) -> FileTime {
        let nanos = 100_004_000_000 + nanos_later;
        FileTime { seconds: nanos / 1_000_000_000, nanos: (nanos % 1_000_000_000) as u32 }
    }

    #[test]
    fn a_coarse_time_is_told_as_another_one_until_no_change_can_share_it() {
        let settled = CTIME.wrapping_nanos();
        for (age, expected) in [
            (0, settled - 1),
            (4_000_000, settled - 1),
            (20_000_000, settled - 1),
            (20_000_001, settled),
            (3_600_000_000_000, settled),
            // The clock was set back.
            (-50_000_000_000, settled - 1),
        ] {
            assert_eq!(TimeGrain::coarse_change(CTIME, at(age)), expected, "{age} ns");
        }
    }

    #[test]
    fn a_file_changed_twice_in_a_tick_is_seen_to_have_changed_in_the_end() {
        let first_look = TimeGrain::coarse_change(CTIME, at(1_000));
        // Changed again within the tick: the same time.
        assert_ne!(TimeGrain::coarse_change(CTIME, at(30_000_000)), first_look);
    }

    #[test]
    fn fine_times_are_told_as_they_are() {
        assert_eq!(TimeGrain::Fine.change(CTIME), CTIME.wrapping_nanos());
    }
}
