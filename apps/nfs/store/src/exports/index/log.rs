//! A shard's log, in segments: files that are appended to, closed, merged into the base, and
//! removed.
//!
//! A segment refers weakly to the next one: a reader that is slow, or sleeps, holds one open file
//! and not all that were written since. When the next one is gone, its records are in a base that
//! was published before.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
};

use super::record::{IndexRecord, RecordKey};

/// One file of a log.
#[derive(Debug)]
pub(super) struct LogSegment {
    pub path: PathBuf,
    pub file: File,
    number: u64,
    behind: OnceLock<Weak<LogSegment>>,
}

impl LogSegment {
    /// Makes the first file of a shard's log.
    pub fn first(directory: &Path, shard: usize) -> io::Result<Self> {
        Self::make(directory.join(format!("index.{shard}.log")), 0)
    }

    /// Makes the next file. This one is still written until [`LogSegment::close`].
    pub fn make_next(&self, directory: &Path, shard: usize) -> io::Result<Self> {
        let number = self.number + 1;
        Self::make(directory.join(format!("index.{shard}.{number}.log")), number)
    }

    fn make(path: PathBuf, number: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file, number, behind: OnceLock::new() })
    }

    /// Ends this segment; the log continues in `behind`.
    pub fn close(&self, behind: &Arc<Self>) {
        let set = self.behind.set(Arc::downgrade(behind));
        debug_assert!(set.is_ok(), "a segment is closed once");
    }

    /// The next segment: `None` while this one is written, `Some(None)` when the following records
    /// are in a later base.
    pub fn behind(&self) -> Option<Option<Arc<Self>>> {
        self.behind.get().map(Weak::upgrade)
    }

    /// All bytes from the beginning.
    pub fn content(&self) -> io::Result<Vec<u8>> {
        let len =
            usize::try_from(self.file.metadata()?.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut octets = vec![0; len];
        self.file.read_exact_at(&mut octets, 0)?;
        Ok(octets)
    }
}

/// A log, and the position up to which it was read.
#[derive(Debug)]
pub(super) struct Tail {
    segment: Arc<LogSegment>,
    offset: u64,
}

/// The result of reading a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogScan {
    /// At least one record.
    Some,
    /// No more records.
    Nothing,
    /// The log continues in a later base.
    Gap,
}

impl Tail {
    /// The log from the beginning of a segment.
    pub fn of(segment: Arc<LogSegment>) -> Self {
        Self { segment, offset: 0 }
    }

    /// Reads up to the end of the log, a buffer at a time.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        key: &RecordKey,
        mut apply: impl FnMut(&IndexRecord<'_>),
    ) -> LogScan {
        let mut found = LogScan::Nothing;
        loop {
            // Queried first: bytes read afterwards were written before the segment was closed.
            let behind = self.segment.behind();
            if self.read_some(buffer, key, &mut apply) {
                found = LogScan::Some;
                continue;
            }
            match behind {
                None => return found,
                Some(None) => return LogScan::Gap,
                Some(Some(behind)) => *self = Self::of(behind),
            }
        }
    }

    /// Reads one buffer of records; returns true if there was a whole one.
    fn read_some(
        &mut self,
        buffer: &mut [u8],
        key: &RecordKey,
        apply: &mut impl FnMut(&IndexRecord<'_>),
    ) -> bool {
        // An error looks like an empty log: the caller then finds no name, and the handle is stale
        // until the log can be read.
        let count = self.segment.file.read_at(buffer, self.offset).unwrap_or(0);
        let used =
            each_record(buffer.get(..count).expect("read_at fills at most the buffer"), key, apply);
        self.offset += used as u64;
        used > 0
    }
}

/// Applies the whole records at the front of `octets`; returns their length in bytes.
pub(super) fn each_record<'a>(
    octets: &'a [u8],
    key: &RecordKey,
    mut apply: impl FnMut(&IndexRecord<'a>),
) -> usize {
    let mut rest = octets;
    while let Ok((record, len)) = IndexRecord::parse(rest, key) {
        apply(&record);
        rest = rest.get(len..).expect("parse stays within");
    }
    octets.len() - rest.len()
}
