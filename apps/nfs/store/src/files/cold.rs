//! Simulated cache misses for tests that need a slow disk.

use core::cell::RefCell;
use std::{
    collections::BTreeMap,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
};

use super::Files;

impl Files {
    /// Makes the first `times` looks at each place of each file miss memory: tests need a slow
    /// disk, and some disks deliver bytes while the system still looks.
    #[doc(hidden)]
    #[must_use]
    pub fn with_cold_looks(mut self, times: u32) -> Self {
        self.cold_looks = Some(ColdLooks::new(times));
        self
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ColdLooks {
    /// The number of misses at each place.
    times: u32,
    /// The looks at each place so far, by file and offset.
    seen: RefCell<BTreeMap<(RawFd, u64), u32>>,
}

impl ColdLooks {
    /// The first `times` looks at each place miss.
    pub(super) fn new(times: u32) -> Self {
        Self { times, seen: RefCell::default() }
    }

    /// Returns true if this look is to miss.
    pub(super) fn is_cold(&self, file: BorrowedFd<'_>, offset: u64) -> bool {
        let mut seen = self.seen.borrow_mut();
        let looks = seen.entry((file.as_raw_fd(), offset)).or_default();
        *looks = looks.saturating_add(1);
        *looks <= self.times
    }
}
