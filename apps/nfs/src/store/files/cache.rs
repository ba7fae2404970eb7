//! The open files of a shard: a fixed number of slots, looked up by inode.
//!
//! While a file is open here its inode number cannot be used again, so a handle with another birth time is stale. A file that
//! loses its last name works on until its slot is needed. The slot to reuse is found by a clock hand: a file that was used
//! since the hand passed is spared once, and one with data that is not yet on stable storage until nothing else is left.

use core::cell::Cell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use stag_nfs_os::KernelHandle;
use stag_protocol::nfs::v3::FileKind;

use super::rights::Cleared;
use crate::handle::{FileId, Identity, Named};

/// An open file.
#[derive(Debug)]
pub(super) struct Open {
    pub identity: Identity,
    pub kind: FileKind,
    /// Opened by path only: names the inode, reads nothing, gives no right to anybody.
    pub path: OwnedFd,
    /// The kernel's handle, where that is what clients get.
    pub kernel: Option<KernelHandle>,
    /// For content; opened on first need.
    pub data: Option<Data>,
    /// Who may use the content.
    pub cleared: Cleared,
    /// Written to, and not synced since.
    pub unsynced: bool,
}

impl Open {
    /// A file whose content nobody asked for yet, and that no kernel's handle is known of.
    pub fn by_path(identity: Identity, kind: FileKind, path: OwnedFd) -> Self {
        Self { identity, kind, path, kernel: None, data: None, cleared: Cleared::default(), unsynced: false }
    }

    /// What the file's handle says.
    pub fn named(&self) -> Named {
        match self.kernel {
            Some(handle) => Named::Kernel(self.identity.file, handle),
            None => Named::Birth(self.identity),
        }
    }
}

/// An open file's content.
#[derive(Debug)]
pub(super) struct Data {
    pub fd: OwnedFd,
    pub readable: bool,
    pub writable: bool,
    /// The file system does not say whether a read would wait.
    pub is_mute: Cell<bool>,
}

impl Data {
    /// A descriptor opened with this access.
    pub fn new(fd: OwnedFd, access: OFlags) -> Self {
        let (readable, writable) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
        Self { fd, readable, writable, is_mute: Cell::new(false) }
    }
}

/// Which slot; valid until the next insertion that does not keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(usize);

#[derive(Debug, Default)]
struct Slot {
    open: Option<Open>,
    used: bool,
    pinned: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Cache {
    slots: Vec<Slot>,
    by_file: HashMap<FileId, SlotId>,
    free: Vec<SlotId>,
    hand: usize,
}

/// Slots an insertion may be told to keep.
pub(super) const KEPT_MAX: usize = 2;

impl Cache {
    /// Descriptors an open file takes at most.
    pub const FDS_PER_FILE: usize = 2;

    /// Room for `capacity` files beside `pinned` ones; all memory it ever needs.
    pub fn new(capacity: usize, pinned: usize) -> Self {
        assert!(capacity > KEPT_MAX, "an operation keeps up to two files while it opens another");
        let slots = capacity + pinned;
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            // Twice the room: removals leave marks that a full map would grow to get rid of.
            by_file: HashMap::with_capacity(2 * slots),
            free: (0..slots).rev().map(SlotId).collect(),
            hand: 0,
        }
    }

    /// The slot of a file, if it is open.
    pub fn find(&mut self, file: FileId) -> Option<SlotId> {
        let slot = *self.by_file.get(&file)?;
        self.slots.get_mut(slot.0)?.used = true;
        Some(slot)
    }

    /// The file in a slot.
    pub fn get(&self, slot: SlotId) -> &Open {
        let open = self.slots.get(slot.0).and_then(|slot| slot.open.as_ref());
        open.expect("a slot id is used before its slot is given away")
    }

    /// The file in a slot, to change it.
    pub fn get_mut(&mut self, slot: SlotId) -> &mut Open {
        let open = self.slots.get_mut(slot.0).and_then(|slot| slot.open.as_mut());
        open.expect("a slot id is used before its slot is given away")
    }

    /// The inode in a slot.
    pub fn path(&self, slot: SlotId) -> BorrowedFd<'_> {
        self.get(slot).path.as_fd()
    }

    /// Adds a file that is not there yet and never leaves.
    pub fn pin(&mut self, open: Open) {
        let (slot, evicted) = self.insert(open, &[]);
        debug_assert!(evicted.is_none(), "pinned files come first");
        self.slots.get_mut(slot.0).expect("just filled").pinned = true;
    }

    /// Adds a file that is not there yet; returns the one that had to leave for it.
    pub fn insert(&mut self, open: Open, keep: &[SlotId]) -> (SlotId, Option<Open>) {
        debug_assert!(keep.len() <= KEPT_MAX);
        let file = open.identity.file;
        let evicted = if self.free.is_empty() { Some(self.evict(keep)) } else { None };
        let slot = self.free.pop().expect("evicted one if there was none");
        let previous = self.by_file.insert(file, slot);
        debug_assert!(previous.is_none(), "a file is open once");
        *self.slots.get_mut(slot.0).expect("slot ids are in range") =
            Slot { open: Some(open), used: true, pinned: false };
        (slot, evicted)
    }

    /// Takes a file out, unless it is pinned.
    pub fn remove(&mut self, file: FileId) -> Option<Open> {
        let slot = *self.by_file.get(&file)?;
        let place = self.slots.get_mut(slot.0)?;
        if place.pinned {
            return None;
        }
        let open = place.open.take();
        self.by_file.remove(&file);
        self.free.push(slot);
        open
    }

    fn evict(&mut self, keep: &[SlotId]) -> Open {
        let len = self.slots.len();
        // The first round clears every mark, the second finds any clean file, the third any file at all.
        for step in 0..3 * len {
            let at = self.hand;
            self.hand = (self.hand + 1) % len;
            let slot = self.slots.get_mut(at).expect("the hand stays in range");
            let spared = slot.pinned || keep.contains(&SlotId(at)) || core::mem::take(&mut slot.used);
            let dirty = slot.open.as_ref().is_some_and(|open| open.unsynced);
            if spared || (dirty && step < 2 * len) {
                continue;
            }
            if let Some(open) = slot.open.take() {
                self.by_file.remove(&open.identity.file);
                self.free.push(SlotId(at));
                return open;
            }
        }
        unreachable!("there are more slots than pinned and kept files")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ExportId;
    use crate::handle::Birth;

    fn open(inode: u64) -> Open {
        let identity = Identity { file: file(inode), birth: Birth::default() };
        Open::by_path(identity, FileKind::Regular, std::fs::File::open("/dev/null").unwrap().into())
    }

    fn file(inode: u64) -> FileId {
        FileId { export: ExportId(1), inode }
    }

    #[test]
    fn a_full_cache_gives_up_what_was_not_used() {
        let mut cache = Cache::new(4, 0);
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
        let mut cache = Cache::new(3, 1);
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
            cache.find(file(0)).is_some() && cache.find(file(1)).is_some() && cache.find(file(2)).is_some()
        );
        assert!(cache.remove(file(0)).is_none(), "pinned");
    }

    #[test]
    fn an_unsynced_file_leaves_when_nothing_else_can() {
        let mut cache = Cache::new(3, 0);
        for inode in 0..3 {
            let (slot, _) = cache.insert(open(inode), &[]);
            cache.get_mut(slot).unsynced = true;
        }
        assert!(cache.insert(open(3), &[]).1.unwrap().unsynced);
    }

    #[test]
    fn a_removed_file_makes_room() {
        let mut cache = Cache::new(3, 0);
        for inode in 0..3 {
            cache.insert(open(inode), &[]);
        }
        assert!(cache.remove(file(1)).is_some() && cache.remove(file(1)).is_none());
        assert!(cache.insert(open(9), &[]).1.is_none());
    }

    #[test]
    fn the_map_never_grows() {
        let mut cache = Cache::new(8, 0);
        let capacity = cache.by_file.capacity();
        for inode in 0..10_000 {
            cache.insert(open(inode), &[]);
        }
        assert_eq!(cache.by_file.capacity(), capacity);
    }
}
