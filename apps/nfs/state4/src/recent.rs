//! Files whose delegations were recalled not long ago: another would be recalled again.

use crate::FileId;
use std::collections::VecDeque;

/// Milliseconds for which a file gets no delegation after a recall.
pub const CONTENTION_MS: u64 = 60_000;

/// Files that are remembered at most; the oldest is dropped first.
const FILES_MAX: usize = 256;

/// The files of the last recalls.
#[derive(Debug)]
pub(crate) struct RecentRecalls(VecDeque<RecentFile>);

#[derive(Debug)]
struct RecentFile {
    file: FileId,
    until: u64,
}

impl RecentRecalls {
    pub fn new() -> Self {
        Self(VecDeque::with_capacity(FILES_MAX))
    }

    pub fn add(&mut self, file: FileId, now: u64) {
        if self.0.len() == FILES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(RecentFile { file, until: now.saturating_add(CONTENTION_MS) });
    }

    pub fn has(&self, file: FileId, now: u64) -> bool {
        self.0.iter().any(|recent| recent.file == file && now < recent.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_remembered_for_a_minute_or_until_many_others_follow() {
        let mut recent = RecentRecalls::new();
        recent.add(FileId(1), 5);
        assert!(recent.has(FileId(1), 5 + CONTENTION_MS - 1));
        assert!(!recent.has(FileId(1), 5 + CONTENTION_MS));
        assert!(!recent.has(FileId(2), 5));
        (0..FILES_MAX).for_each(|file| recent.add(FileId(file as u128 + 10), 5));
        assert!(!recent.has(FileId(1), 5) && recent.has(FileId(10), 5));
    }
}
