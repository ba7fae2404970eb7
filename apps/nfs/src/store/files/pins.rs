//! Files that stay although their last name goes (`Procedures::pin`): somebody has them open, or
//! has locks in them (RFC 8881 §8, §18.25.4).
//!
//! Each is held by a descriptor of its own, opened by path only, which all shards and helpers
//! share. The lock is taken by whoever pins and unpins, which is when a file is opened and closed
//! by version 4, and by whoever finds no other way to a file, or finds it without a name: no call
//! on a file that has one looks here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::fcntl_dupfd_cloexec;
use stag_nfs_os::KernelHandle;
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};

use super::cache::{FileSlotId, OpenFile};
use super::errno::status;
use super::{Files, Intent};
use crate::handle::{FileId, Identity};

/// Files that are pinned at most: as many descriptors.
const PINS_MAX: usize = 65_536;

/// A file that is pinned.
#[derive(Debug)]
struct PinnedFile {
    identity: Identity,
    kernel: Option<KernelHandle>,
    path: OwnedFd,
    /// Number of times that it is pinned.
    times: u64,
}

/// The pinned files of a process.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<HashMap<FileId, PinnedFile>>);

impl Pins {
    fn files(&self) -> MutexGuard<'_, HashMap<FileId, PinnedFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins an open file once more.
    fn pin(&self, open: &OpenFile) -> Result<(), Status> {
        let mut files = self.files();
        let is_full = files.len() >= PINS_MAX;
        match files.entry(open.identity.file) {
            Entry::Occupied(mut known) => known.get_mut().times += 1,
            Entry::Vacant(_) if is_full => return Err(Status::Jukebox),
            Entry::Vacant(place) => {
                let path = fcntl_dupfd_cloexec(&open.path, 0).map_err(status)?;
                let (identity, kernel) = (open.identity, open.kernel);
                place.insert(PinnedFile { identity, kernel, path, times: 1 });
            }
        }
        Ok(())
    }

    /// Takes one pin away; with the last one the file is closed.
    pub(super) fn unpin(&self, file: FileId) {
        let mut files = self.files();
        let Entry::Occupied(mut known) = files.entry(file) else { return };
        known.get_mut().times -= 1;
        if known.get().times == 0 {
            let gone = known.remove();
            // Closing may take its time.
            drop(files);
            drop(gone);
        }
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

impl Files {
    pub(super) fn pin_file(&mut self, file: &FileHandle) -> Result<(), Status> {
        let slot = self.resolve(file, Intent::Look)?;
        match self.cache.get(slot).kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::IsDir),
            _ => return Err(Status::Inval),
        }
        // One that is gone and not pinned is gone.
        self.stat(slot)?;
        self.shared.pins.pin(self.cache.get(slot))
    }

    /// Opens a file that has lost its name and is pinned, if `is_meant` says that it is the one.
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
