//! Pinned files, and the locks on them that local programs see (`Store::show_lock`). A pinned file
//! outlives its last name (`Procedures4::pin`), because a client has it open or has locks on it
//! (RFC 8881 §8, §18.25.4).
//!
//! Each is held by its own descriptor, opened by path only, which all shards and helpers share. The
//! mutex is taken to pin and unpin, when version 4 opens and closes a file; to lock bytes of it;
//! and to find a file that is reachable in no other way, or is found without a name. No READ or
//! WRITE of a file with a name takes it.

use std::{
    collections::{HashMap, hash_map::Entry},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::fcntl_dupfd_cloexec,
    path::DecInt,
};
use stag_nfs_os::{
    KernelHandle,
    range_lock::{self, FoundLock, LockedOctets},
};
use stag_protocol::nfs::{
    v3::{FileHandle, FileKind, Status},
    v4::state::LockRange,
};

use super::{
    Files, Intent,
    cache::{FileSlotId, OpenFile},
    errno::status,
};
use crate::{
    LocalLock,
    exports::handle::{FileId, Identity},
};

/// Pinned files at most; each takes a descriptor.
const PINS_MAX: usize = 65_536;

/// A file that is pinned.
#[derive(Debug)]
struct PinnedFile {
    identity: Identity,
    kernel: Option<KernelHandle>,
    path: OwnedFd,
    /// Number of its pins.
    times: u64,
    /// The open file description of the locks visible to local programs. It is opened for the first
    /// lock, and never replaced, which would release them.
    locks: Option<OwnedFd>,
}

impl PinnedFile {
    /// The open file description for locks: for writing where possible, because write locks require
    /// that. `descriptors` is `/proc/self/fd`.
    fn locks(&mut self, descriptors: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        if self.locks.is_none() {
            let flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
            let open = |access| {
                let link = DecInt::from_fd(&self.path);
                openat(descriptors, link, access | flags, Mode::empty())
            };
            self.locks = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY)).ok();
        }
        self.locks.as_ref().map(AsFd::as_fd)
    }
}

/// The pinned files of a process.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<HashMap<FileId, PinnedFile>>);

impl Pins {
    fn files(&self) -> MutexGuard<'_, HashMap<FileId, PinnedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a pin to an open file.
    fn pin(&self, open: &OpenFile) -> Result<(), Status> {
        let mut files = self.files();
        let is_full = files.len() >= PINS_MAX;
        match files.entry(open.identity.file) {
            Entry::Occupied(mut known) => known.get_mut().times += 1,
            Entry::Vacant(_) if is_full => return Err(Status::Jukebox),
            Entry::Vacant(place) => {
                let path = fcntl_dupfd_cloexec(&open.path, 0).map_err(status)?;
                let (identity, kernel) = (open.identity, open.kernel);
                place.insert(PinnedFile { identity, kernel, path, times: 1, locks: None });
            }
        }
        Ok(())
    }

    /// Removes one pin; the last one closes the file.
    pub(super) fn unpin(&self, file: FileId) {
        let mut files = self.files();
        let Entry::Occupied(mut known) = files.entry(file) else { return };
        known.get_mut().times -= 1;
        if known.get().times == 0 {
            let gone = known.remove();
            // Closing may take time.
            drop(files);
            drop(gone);
        }
    }

    /// Sets the strongest lock on bytes of a file, visible to local programs (`Store::show_lock`).
    pub(super) fn show_lock(
        &self,
        descriptors: BorrowedFd<'_>,
        file: FileId,
        range: LockRange,
        lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        let mut files = self.files();
        let Some(pinned) = files.get_mut(&file) else { return Ok(()) };
        // Without a description there is nothing to unlock.
        if lock.is_none() && pinned.locks.is_none() {
            return Ok(());
        }
        let Some(locks) = pinned.locks(descriptors) else { return Ok(()) };
        match range_lock::set(locks, octets(range), lock) {
            Err(error) if range_lock::is_conflict(error) => {
                let exclusive = lock.unwrap_or_default();
                let found = found(locks, range, exclusive);
                // The conflicting lock may be gone since. A retry then succeeds.
                Err(found.unwrap_or(LocalLock { range, exclusive: true }))
            }
            // Locks that the file system or a read-only descriptor does not support are not shown.
            _ => Ok(()),
        }
    }

    /// Looks for a local program's lock that another would conflict with
    /// (`Store::find_local_lock`).
    pub(super) fn find_lock(
        &self,
        descriptors: BorrowedFd<'_>,
        file: FileId,
        range: LockRange,
        exclusive: bool,
    ) -> Option<LocalLock> {
        let mut files = self.files();
        let locks = files.get_mut(&file)?.locks(descriptors)?;
        found(locks, range, exclusive)
    }

    /// Duplicates the path-only descriptor of a pinned file.
    pub(super) fn path(&self, file: FileId) -> Option<OwnedFd> {
        fcntl_dupfd_cloexec(&self.files().get(&file)?.path, 0).ok()
    }

    /// Returns true if a file is pinned.
    pub(super) fn has(&self, file: FileId) -> bool {
        self.files().contains_key(&file)
    }

    /// A pinned file, opened once more.
    fn open(&self, file: FileId) -> Option<Result<OpenFile, Status>> {
        let files = self.files();
        let pinned = files.get(&file)?;
        let path = fcntl_dupfd_cloexec(&pinned.path, 0).map_err(status);
        Some(path.map(|path| OpenFile {
            kernel: pinned.kernel,
            ..OpenFile::by_path(pinned.identity, FileKind::Regular, path)
        }))
    }
}

const fn octets(range: LockRange) -> LockedOctets {
    LockedOctets { first: range.offset(), last: range.last() }
}

fn found(locks: BorrowedFd<'_>, range: LockRange, exclusive: bool) -> Option<LocalLock> {
    let FoundLock { octets, exclusive } =
        range_lock::find(locks, octets(range), exclusive).ok().flatten()?;
    Some(LocalLock { range: LockRange::between(octets.first, octets.last)?, exclusive })
}

impl Files {
    pub(super) fn pin_file(&mut self, file: &FileHandle) -> Result<(), Status> {
        let slot = self.resolve(file, Intent::Look)?;
        match self.cache.get(slot).kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        // A file that is gone and not pinned is stale.
        self.stat(slot)?;
        self.shared.pins.pin(self.cache.get(slot))
    }

    /// Opens a pinned file that has lost its name, if `is_meant` accepts it.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is not pinned.
    pub(super) fn open_pinned(
        &mut self,
        file: FileId,
        keep: Option<FileSlotId>,
        is_meant: impl Fn(&OpenFile) -> bool,
    ) -> Result<FileSlotId, Status> {
        let open = self.shared.pins.open(file).ok_or(Status::Stale)??;
        if is_meant(&open) { Ok(self.insert(open, keep)) } else { Err(Status::Stale) }
    }
}
