//! A filter that shows other shards, and version 3, which files may have delegations or share
//! denials that an access without a stateid has to respect.

use crate::{FileId, StateTables};
use stag_pools::table::Key;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

/// Buckets of files.
const BUCKETS: usize = 65_536;

/// Bit of a bucket's octet: one of its files has a delegation or denies access.
const PRESENT: u8 = 1;
/// Bit of a bucket's octet: one of its files has a delegation for writing.
const HELD: u8 = 2;

/// One octet for each bucket of files: zero if none of its files has a delegation or denies access.
/// Each bucket is written by the shard that owns its files, and read by all.
///
/// A change without a stateid (version 3, SETATTR, REMOVE, RENAME, LINK) checks
/// [`ConflictFilter::may_conflict`] before it is made. The owner sets the octet, and grants a
/// delegation after every shard has confirmed that calls which may have checked before are complete
/// (`v4/announce.rs`). It reads the file's attributes after the grant.
#[derive(Debug)]
pub struct ConflictFilter(Box<[AtomicU8]>);

impl ConflictFilter {
    /// A filter for files without state.
    pub fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns true if the owner of the file has to be asked.
    pub fn may_conflict(&self, file: FileId) -> bool {
        // A missing bucket is impossible; if there were one, the owner would have to be asked.
        self.0.get(bucket(file)).is_none_or(|octet| octet.load(Ordering::Relaxed) != 0)
    }

    /// Returns true if a client may have changed the file without reporting it yet: it, or another
    /// one of its bucket, has a delegation for writing.
    pub fn may_be_held(&self, file: FileId) -> bool {
        self.0.get(bucket(file)).is_none_or(|octet| octet.load(Ordering::Relaxed) & HELD != 0)
    }

    /// The number of the shard that owns the file's state, out of `shards`.
    pub fn owner(file: FileId, shards: usize) -> usize {
        bucket(file) % shards.max(1)
    }

    fn set(&self, bucket: usize, value: u8) {
        if let Some(octet) = self.0.get(bucket) {
            octet.store(value, Ordering::Relaxed);
            fence(Ordering::SeqCst); // what the owner reads of the file from here on is newer
        }
    }
}

impl Default for ConflictFilter {
    fn default() -> Self {
        Self::new()
    }
}

/// The bucket of a file.
const fn bucket(file: FileId) -> usize {
    let folded = (file.0 >> 64) as u64 ^ file.0 as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

/// Files of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct BucketCounts {
    /// Number with delegations or denials.
    present: u32,
    /// Number with a delegation for writing.
    held: u32,
}

impl BucketCounts {
    fn octet(self) -> u8 {
        let present = if self.present > 0 { PRESENT } else { 0 };
        let held = if self.held > 0 { HELD } else { 0 };
        present | held
    }
}

/// The owner's side: the number of files in each bucket.
#[derive(Debug)]
pub(crate) struct Presence {
    filter: Arc<ConflictFilter>,
    counts: Box<[BucketCounts]>,
    /// Files of all buckets.
    files: usize,
    /// Number with a delegation for writing.
    held: usize,
}

impl Presence {
    pub fn new(filter: Arc<ConflictFilter>) -> Self {
        Self { filter, counts: vec![BucketCounts::default(); BUCKETS].into(), files: 0, held: 0 }
    }

    fn count(&mut self, file: FileId, is_present: bool) {
        self.files = if is_present { self.files + 1 } else { self.files - 1 };
        self.change(file, |counts| add(&mut counts.present, is_present));
    }

    fn count_held(&mut self, file: FileId, is_held: bool) {
        self.held = if is_held { self.held + 1 } else { self.held - 1 };
        self.change(file, |counts| add(&mut counts.held, is_held));
    }

    fn change(&mut self, file: FileId, change: impl FnOnce(&mut BucketCounts)) {
        let Some(counts) = self.counts.get_mut(bucket(file)) else { return };
        let before = counts.octet();
        change(counts);
        let octet = counts.octet();
        if octet != before {
            self.filter.set(bucket(file), octet);
        }
    }
}

/// Adds or subtracts one.
const fn add(count: &mut u32, is_more: bool) {
    *count = if is_more { *count + 1 } else { *count - 1 };
}

impl StateTables {
    /// Updates the filter after delegations or denials of a file changed.
    pub(crate) fn show_presence(&mut self, file: Key) {
        let states = &self.states;
        let Some(file) = self.files.get_mut(file) else { return };
        let is_live = |key: &Key| states.get(*key).is_some_and(|state| state.kind.is_live());
        let is_present = file.delegations.iter().any(is_live) || file.opens.any_denies();
        if file.is_present != is_present {
            file.is_present = is_present;
            self.presence.count(file.id, is_present);
        }
        let is_held = file.delegations.iter().any(|key| {
            states.get(*key).is_some_and(|state| state.kind.is_live() && state.kind.is_to_write())
        });
        if file.is_held != is_held {
            file.is_held = is_held;
            self.presence.count_held(file.id, is_held);
        }
    }

    /// Shows in the filter that a file may get a delegation at any moment, or no longer.
    pub fn show_announced(&mut self, file: FileId, is_announced: bool) {
        self.presence.count(file, is_announced);
    }

    /// Returns true if any file of this shard has delegations or denials.
    pub const fn has_presence(&self) -> bool {
        self.presence.files > 0
    }

    /// The filter, if any file has a delegation for writing.
    pub fn held_files(&self) -> Option<Arc<ConflictFilter>> {
        (self.presence.held > 0).then(|| self.presence())
    }

    /// The filter, for other shards and version 3.
    pub fn presence(&self) -> Arc<ConflictFilter> {
        Arc::clone(&self.presence.filter)
    }
}
