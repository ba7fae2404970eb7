//! The open files of a shard: a fixed number of slots, looked up by inode.
//!
//! While a file is open here its inode number cannot be reused, so a handle with another birth time
//! is stale. Unused files are closed (`eviction`). A clock hand finds the slot to reuse: a file
//! used since the hand passed is spared once, and one with unstable data until nothing else is
//! left.

use core::cell::Cell;
use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::OFlags;
use stag_nfs_os::KernelHandle;
use stag_protocol::nfs::v3::FileKind;

use super::{inside::LastJudged, rights::Cleared};
use crate::exports::handle::{FileId, Identity, Named};

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub identity: Identity,
    pub kind: FileKind,
    /// Opened by path only: names the inode, permits no reads, confers no rights.
    pub path: OwnedFd,
    /// The kernel's handle, where clients get that.
    pub kernel: Option<KernelHandle>,
    /// For content; opened on first need.
    pub data: Option<OpenData>,
    /// Users that may use the content.
    pub cleared: Cleared,
    /// Written to since the last sync.
    pub unsynced: bool,
    /// Known to have lost its last name.
    pub is_removed: Cell<bool>,
    /// The last judgement whether it is inside its export.
    pub judged: Cell<LastJudged>,
}

impl OpenFile {
    /// A file whose content was not requested yet, and whose kernel handle is unknown.
    pub fn by_path(identity: Identity, kind: FileKind, path: OwnedFd) -> Self {
        Self {
            identity,
            kind,
            path,
            kernel: None,
            data: None,
            cleared: Cleared::default(),
            unsynced: false,
            is_removed: Cell::new(false),
            judged: Cell::default(),
        }
    }

    /// Returns the content of the file's handle.
    pub fn named(&self) -> Named {
        match self.kernel {
            Some(handle) => Named::Kernel(self.identity.file, handle),
            None => Named::Birth(self.identity),
        }
    }
}

/// An open file's content.
#[derive(Debug)]
pub(super) struct OpenData {
    pub fd: OwnedFd,
    pub readable: bool,
    pub writable: bool,
    /// The file system does not report whether a read would wait.
    pub is_mute: Cell<bool>,
    /// Written through since the last check for use.
    pub is_in_use_to_write: bool,
}

impl OpenData {
    /// A descriptor opened with this access.
    pub fn new(fd: OwnedFd, access: OFlags) -> Self {
        let (readable, writable) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
        Self { fd, readable, writable, is_mute: Cell::new(false), is_in_use_to_write: writable }
    }
}

/// Index of a slot; valid until the next insertion that does not keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSlotId(usize);

#[derive(Debug, Default)]
struct FileSlot {
    open: Option<OpenFile>,
    /// Used since the clock hand passed.
    used: bool,
    /// Calls of [`FileCache::grow_older`] since the file was used.
    age: u8,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileCache {
    slots: Vec<FileSlot>,
    by_file: HashMap<FileId, FileSlotId>,
    free: Vec<FileSlotId>,
    /// Slots whose files never leave: the roots of the exports.
    pinned: Vec<FileSlotId>,
    /// The files of a call on two files.
    pair: Option<[FileSlotId; 2]>,
    hand: usize,
}

/// Slots an insertion may be asked to keep.
pub(super) const KEPT_MAX: usize = 2;

impl FileCache {
    /// Descriptors an open file takes at most.
    pub const FDS_PER_FILE: usize = 2;

    /// Room for `capacity` files in addition to `pinned` ones; allocates all memory it ever needs.
    pub fn new(capacity: usize, pinned: usize) -> Self {
        assert!(capacity > KEPT_MAX, "an operation keeps up to two files while it opens another");
        let slots = capacity + pinned;
        Self {
            slots: (0..slots).map(|_| FileSlot::default()).collect(),
            // Twice the room: removals leave tombstones, and a full map would grow to clear them.
            by_file: HashMap::with_capacity(2 * slots),
            free: (0..slots).rev().map(FileSlotId).collect(),
            pinned: Vec::with_capacity(pinned),
            pair: None,
            hand: 0,
        }
    }

    /// The slot of a file, if it is open.
    pub fn find(&mut self, file: FileId) -> Option<FileSlotId> {
        let slot = *self.by_file.get(&file)?;
        let place = self.slots.get_mut(slot.0)?;
        (place.used, place.age) = (true, 0);
        Some(slot)
    }

    /// As [`find`](Self::find), without marking the file used.
    pub fn look_for(&self, file: FileId) -> Option<FileSlotId> {
        self.by_file.get(&file).copied()
    }

    /// All slots, in use or not.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// True when only pinned files are open, and none for its content.
    pub fn is_empty(&self) -> bool {
        let is_closed = |slot: &FileSlotId| self.get(*slot).data.is_none();
        self.by_file.len() <= self.pinned.len() && self.pinned.iter().all(is_closed)
    }

    /// Ages the file in the slot with this number by one step; returns the slot and the steps since
    /// the file was used.
    pub fn grow_older(&mut self, number: usize) -> Option<(FileSlotId, u8)> {
        let slot = self.slots.get_mut(number)?;
        slot.open.as_ref()?;
        slot.age = slot.age.saturating_add(1);
        Some((FileSlotId(number), slot.age))
    }

    /// The slot with this number, if a file is in it.
    pub fn slot(&self, number: usize) -> Option<FileSlotId> {
        self.slots.get(number)?.open.as_ref().map(|_| FileSlotId(number))
    }

    /// True for a file that is never evicted.
    pub fn is_pinned(&self, slot: FileSlotId) -> bool {
        self.pinned.contains(&slot)
    }

    /// Keeps two files until [`part`](Self::part): a call on both uses them after opening another.
    pub fn pair(&mut self, one: FileSlotId, other: FileSlotId) {
        self.pair = Some([one, other]);
    }

    /// Ends the call on two files.
    pub fn part(&mut self) {
        self.pair = None;
    }

    /// True for a file of the pair.
    pub fn is_paired(&self, slot: FileSlotId) -> bool {
        self.pair.is_some_and(|pair| pair.contains(&slot))
    }

    /// The file in a slot.
    pub fn get(&self, slot: FileSlotId) -> &OpenFile {
        let open = self.slots.get(slot.0).and_then(|slot| slot.open.as_ref());
        open.expect("a slot id is used before its slot is given away")
    }

    /// The file in a slot, to change it.
    pub fn get_mut(&mut self, slot: FileSlotId) -> &mut OpenFile {
        let open = self.slots.get_mut(slot.0).and_then(|slot| slot.open.as_mut());
        open.expect("a slot id is used before its slot is given away")
    }

    /// The inode in a slot.
    pub fn path(&self, slot: FileSlotId) -> BorrowedFd<'_> {
        self.get(slot).path.as_fd()
    }

    /// The descriptor for a file's content.
    pub fn data(&self, slot: FileSlotId) -> BorrowedFd<'_> {
        self.get(slot).data.as_ref().expect("the caller opened it").fd.as_fd()
    }

    /// Adds a file that is not open yet and is never evicted; its room was reserved from the start.
    pub fn pin(&mut self, open: OpenFile) -> Option<OpenFile> {
        let (slot, evicted) = self.insert(open, &[]);
        self.pinned.push(slot);
        evicted
    }

    /// Takes out the file in a slot, pinned or not.
    pub fn take(&mut self, slot: FileSlotId) -> Option<OpenFile> {
        let open = self.slots.get_mut(slot.0)?.open.take()?;
        self.pinned.retain(|pinned| *pinned != slot);
        self.by_file.remove(&open.identity.file);
        self.free.push(slot);
        Some(open)
    }

    /// Adds a file that is not open yet; returns the evicted one.
    pub fn insert(
        &mut self,
        open: OpenFile,
        keep: &[FileSlotId],
    ) -> (FileSlotId, Option<OpenFile>) {
        debug_assert!(keep.len() <= KEPT_MAX);
        let file = open.identity.file;
        let evicted = if self.free.is_empty() { self.evict(keep) } else { None };
        let slot = self.free.pop().expect("there are more slots than pinned and kept files");
        let previous = self.by_file.insert(file, slot);
        debug_assert!(previous.is_none(), "a file is open once");
        *self.slots.get_mut(slot.0).expect("slot ids are in range") =
            FileSlot { open: Some(open), used: true, age: 0 };
        (slot, evicted)
    }

    /// Evicts the least needed file; none when all are pinned, kept or paired.
    pub fn evict(&mut self, keep: &[FileSlotId]) -> Option<OpenFile> {
        let len = self.slots.len();
        // The first round clears every mark, the second finds any clean file, the third any file at
        // all.
        for step in 0..3 * len {
            let at = self.hand;
            self.hand = (self.hand + 1) % len;
            let slot = FileSlotId(at);
            let is_kept = self.is_pinned(slot) || self.is_paired(slot) || keep.contains(&slot);
            let slot = self.slots.get_mut(at).expect("the hand stays in range");
            let spared = is_kept || core::mem::take(&mut slot.used);
            let dirty = slot.open.as_ref().is_some_and(|open| open.unsynced);
            if spared || (dirty && step < 2 * len) {
                continue;
            }
            if let Some(open) = self.take(FileSlotId(at)) {
                return Some(open);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::{config::ExportId, handle::Birth};

    fn open(inode: u64) -> OpenFile {
        let identity = Identity { file: file(inode), birth: Birth::default() };
        OpenFile::by_path(
            identity,
            FileKind::Regular,
            std::fs::File::open("/dev/null").unwrap().into(),
        )
    }

    fn file(inode: u64) -> FileId {
        FileId { export: ExportId(1), inode }
    }

    #[test]
    fn a_full_cache_gives_up_what_was_not_used() {
        let mut cache = FileCache::new(4, 0);
        for inode in 0..4 {
            assert!(cache.insert(open(inode), &[]).1.is_none());
        }
        let first = cache.insert(open(4), &[]).1.unwrap().identity.file.inode;
        for inode in (0..5).filter(|inode| *inode != first && *inode != 2) {
            cache.find(file(inode)).unwrap();
        }
        assert_eq!(cache.insert(open(5), &[]).1.unwrap().identity.file.inode, 2);
    }

    #[test]
    fn kept_pinned_and_unsynced_files_stay() {
        let mut cache = FileCache::new(3, 1);
        cache.pin(open(0));
        let (kept, _) = cache.insert(open(1), &[]);
        let (dirty, _) = cache.insert(open(2), &[]);
        cache.get_mut(dirty).unsynced = true;
        cache.insert(open(3), &[]);
        for inode in 4..40 {
            let evicted = cache.insert(open(inode), &[kept]).1.unwrap();
            assert_eq!(evicted.identity.file.inode, inode - 1);
        }
        assert!(
            cache.find(file(0)).is_some()
                && cache.find(file(1)).is_some()
                && cache.find(file(2)).is_some()
        );
        let pinned = cache.look_for(file(0)).unwrap();
        assert!(cache.is_pinned(pinned) && !cache.is_pinned(kept));
        assert!(cache.take(pinned).is_some() && !cache.is_pinned(pinned));
    }

    #[test]
    fn a_pair_stays_until_it_is_parted() {
        let mut cache = FileCache::new(4, 0);
        let [one, other] = [0, 1].map(|inode| cache.insert(open(inode), &[]).0);
        cache.pair(one, other);
        for inode in 2..40 {
            cache.insert(open(inode), &[]);
        }
        assert!(cache.is_paired(one) && cache.is_paired(other));
        assert_eq!([0, 1].map(|inode| cache.look_for(file(inode))), [Some(one), Some(other)]);
        cache.evict(&[]).unwrap();
        cache.evict(&[]).unwrap();
        assert!(cache.evict(&[]).is_none(), "only the pair is left");
        cache.part();
        assert!(cache.evict(&[]).is_some() && cache.evict(&[]).is_some());
    }

    #[test]
    fn an_unsynced_file_leaves_when_nothing_else_can() {
        let mut cache = FileCache::new(3, 0);
        for inode in 0..3 {
            let (slot, _) = cache.insert(open(inode), &[]);
            cache.get_mut(slot).unsynced = true;
        }
        assert!(cache.insert(open(3), &[]).1.unwrap().unsynced);
    }

    #[test]
    fn a_removed_file_makes_room() {
        let mut cache = FileCache::new(3, 0);
        for inode in 0..3 {
            cache.insert(open(inode), &[]);
        }
        let slot = cache.look_for(file(1)).unwrap();
        assert!(cache.take(slot).is_some() && cache.take(slot).is_none());
        assert!(cache.insert(open(9), &[]).1.is_none());
    }

    #[test]
    fn a_file_ages_until_it_is_used_and_nothing_is_to_be_done_for_those_that_stay() {
        let mut cache = FileCache::new(3, 1);
        cache.pin(open(0));
        assert!(cache.is_empty());
        let (slot, _) = cache.insert(open(1), &[]);
        assert!(!cache.is_empty());
        let at = (0..cache.slots()).find(|at| cache.slot(*at) == Some(slot)).unwrap();
        for age in [1, 2, 3] {
            assert_eq!(cache.grow_older(at), Some((slot, age)));
            assert_eq!(cache.look_for(file(1)), Some(slot), "a look is no use");
        }
        cache.find(file(1)).unwrap();
        assert_eq!(cache.grow_older(at), Some((slot, 1)));
        cache.take(slot);
        assert_eq!(cache.grow_older(at), None);
        assert!(cache.is_empty());
    }

    #[test]
    fn the_largest_table_takes_at_most_what_the_readme_says() {
        let cache = FileCache::new(crate::files::OPEN_FILES_MAX, 8);
        // A map has a buffer of eight places for seven entries, and one byte per place.
        let places = cache.by_file.capacity() * 8 / 7;
        let map = places * (size_of::<(FileId, FileSlotId)>() + 1);
        let slots = cache.slots.capacity() * size_of::<FileSlot>();
        let octets = map + slots + cache.free.capacity() * size_of::<FileSlotId>();
        println!("{octets} octets");
        assert!(octets <= 6 << 20, "{octets} octets");
    }

    #[test]
    fn the_map_never_grows() {
        let mut cache = FileCache::new(8, 0);
        let capacity = cache.by_file.capacity();
        for inode in 0..10_000 {
            cache.insert(open(inode), &[]);
        }
        assert_eq!(cache.by_file.capacity(), capacity);
    }
}
