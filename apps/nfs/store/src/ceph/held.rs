//! Held inodes: each known file keeps its capabilities in the client, and an open file once its
//! content was requested. When there are too many, the least recently used goes first; inodes that
//! the metadata servers recall go at once.

use super::shared_sync::SharedSync;
use rustix::io::Errno;
use stag_ceph::{CephFile, CephInode, CephMount, OpenFlags, Released, UserPerm, Vino};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// A held file.
#[derive(Debug)]
pub(super) struct HeldInode {
    pub(super) vino: Vino,
    pub(super) inode: CephInode,
    /// Opened as root for all callers: rights to read and write are checked per call.
    file: OnceLock<CephFile>,
    pub(super) syncs: SharedSync,
}

impl HeldInode {
    pub(super) fn new(vino: Vino, inode: CephInode) -> Self {
        Self { vino, inode, file: OnceLock::new(), syncs: SharedSync::default() }
    }

    /// Stores a file that is already open.
    pub(super) fn keep(&self, file: CephFile) {
        // If one is stored already, it serves as well.
        let _ = self.file.set(file);
    }

    /// The open file, for reading and, where possible, writing.
    pub(super) fn file(&self) -> Result<&CephFile, Errno> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let root = UserPerm::root(self.inode.library());
        // Two threads may open it at once: one file is kept, and no thread waits while holding a
        // lock.
        let opened = match self.inode.open(OpenFlags::ReadWrite, &root) {
            // A snapshot, or a Ceph user that may only read.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
                self.inode.open(OpenFlags::Read, &root)?
            }
            other => other?,
        };
        Ok(self.file.get_or_init(|| opened))
    }
}

#[derive(Debug, Default)]
struct InodePlaces {
    places: HashMap<Vino, (Arc<HeldInode>, u64)>,
    /// Inodes by the time of their last use.
    order: BTreeMap<u64, Vino>,
    clock: u64,
}

impl InodePlaces {
    fn touch(&mut self, vino: Vino) -> Option<Arc<HeldInode>> {
        let (held, used) = self.places.get_mut(&vino)?;
        self.clock += 1;
        self.order.remove(used);
        *used = self.clock;
        self.order.insert(self.clock, vino);
        Some(Arc::clone(held))
    }

    fn take(&mut self, vino: Vino) -> Option<Arc<HeldInode>> {
        let (held, used) = self.places.remove(&vino)?;
        self.order.remove(&used);
        Some(held)
    }
}

/// The inodes that a mount holds.
#[derive(Debug)]
pub(super) struct HeldTable {
    held: Mutex<InodePlaces>,
    capacity: usize,
}

impl HeldTable {
    pub(super) fn new(capacity: usize) -> Self {
        Self { held: Mutex::default(), capacity: capacity.max(1) }
    }

    fn places(&self) -> MutexGuard<'_, InodePlaces> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file with this number.
    pub(super) fn hold(&self, mount: &CephMount, vino: Vino) -> Result<Arc<HeldInode>, Errno> {
        let known = self.places().touch(vino);
        match known {
            Some(held) => Ok(held),
            None => Ok(self.add(HeldInode::new(vino, mount.inode(vino)?))),
        }
    }

    /// Adds an inode returned by a call. The evicted one is dropped after the lock is released,
    /// since closing a file may take long.
    pub(super) fn add(&self, held: HeldInode) -> Arc<HeldInode> {
        let vino = held.vino;
        let mut places = self.places();
        if let Some(known) = places.touch(vino) {
            drop(places);
            if let Some(file) = held.file.into_inner() {
                known.keep(file);
            }
            return known;
        }
        let held = Arc::new(held);
        places.clock += 1;
        let now = places.clock;
        places.places.insert(vino, (Arc::clone(&held), now));
        places.order.insert(now, vino);
        let mut gone = Vec::new();
        while places.places.len() > self.capacity
            && let Some((_, oldest)) = places.order.pop_first()
        {
            gone.extend(places.places.remove(&oldest));
        }
        drop(places);
        drop(gone);
        held
    }

    /// Releases a file.
    pub(super) fn let_go(&self, vino: Vino) {
        let gone = self.places().take(vino);
        drop(gone);
    }

    /// Releases what the metadata servers recall.
    pub(super) fn give_back(&self, released: Released) {
        let gone: Vec<_> = match released {
            Released::All => {
                let mut places = self.places();
                let all = std::mem::take(&mut *places);
                drop(places);
                all.places.into_values().map(|(held, _)| held).collect()
            }
            Released::These(inodes) => {
                let mut places = self.places();
                inodes.into_iter().filter_map(|vino| places.take(vino)).collect()
            }
        };
        drop(gone);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.places().places.len()
    }
}
