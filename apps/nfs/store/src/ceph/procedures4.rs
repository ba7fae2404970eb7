//! Version 4 procedures on a file system of Ceph, and the files that outlive their last name
//! (`Procedures4::pin`). Without native support, SEEK reports data everywhere, and there is no
//! ALLOCATE, COPY, CLONE and no extended attribute.

use super::{
    CephShared,
    held::HeldInode,
    rights::{self, kind, must_be_regular},
    session::{CallPurpose, CephSession, failed, root_of},
};
use crate::{
    Failed, FoundObject, Procedures4, SeekDone, SeekFor, Status, StoreLimits, StoreResult,
};
use stag_ceph::Vino;
use stag_protocol::nfs::v3::{FileHandle, FileKind};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Pinned files at most.
const PINS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct PinnedInodes {
    files: HashMap<Vino, (u64, Arc<HeldInode>)>,
    /// Files with no pin left: the next helper releases them, as that calls the library.
    gone: Vec<Arc<HeldInode>>,
}

/// The pinned files of a process. A pin does not survive the loss of both name and mount.
#[derive(Debug, Default)]
pub(super) struct CephPins(Mutex<PinnedInodes>);

impl CephPins {
    fn inodes(&self) -> MutexGuard<'_, PinnedInodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pin(&self, held: &Arc<HeldInode>) -> Result<(), Status> {
        let mut inodes = self.inodes();
        let is_full = inodes.files.len() >= PINS_MAX;
        match inodes.files.get_mut(&held.vino) {
            Some((times, _)) => *times += 1,
            None if is_full => return Err(Status::Jukebox),
            None => drop(inodes.files.insert(held.vino, (1, Arc::clone(held)))),
        }
        Ok(())
    }

    fn unpin(&self, vino: Vino) {
        let mut inodes = self.inodes();
        let Some((times, _)) = inodes.files.get_mut(&vino) else { return };
        *times -= 1;
        if *times == 0
            && let Some((_, held)) = inodes.files.remove(&vino)
        {
            inodes.gone.push(held);
        }
    }

    /// Returns true if a file is pinned.
    pub(super) fn has(&self, vino: Vino) -> bool {
        self.inodes().files.contains_key(&vino)
    }

    /// Takes the files with no pin left.
    pub(super) fn take_gone(&self) -> Vec<Arc<HeldInode>> {
        std::mem::take(&mut self.inodes().gone)
    }
}

impl CephShared {
    pub(super) fn unpin(&self, file: &FileHandle) {
        if let Ok((_, vino)) = self.handles.open_inode(file) {
            self.pins.unpin(vino);
        }
    }
}

impl Procedures4 for CephSession {
    fn lookupp(&mut self, directory: &FileHandle) -> StoreResult<FoundObject> {
        let found = self.directory(directory, CallPurpose::Look)?;
        let attributes = self.attributes_of(&found);
        let about = failed(Some(attributes));
        if found.held.vino == root_of(&found.live, &found.export).map_err(&about)? {
            return Err(about(Status::NoEnt));
        }
        let above = self.as_caller(|user| self.entry(&found, b"..", user)).map_err(&about)?;
        Ok(FoundObject {
            handle: self.handle(&above.export, above.held.vino),
            attributes: self.attributes_of(&above),
            directory: Some(attributes),
        })
    }

    fn pin(&mut self, file: &FileHandle) -> Result<(), Status> {
        let found = self.resolve(file, CallPurpose::Look)?;
        match kind(&found.stat) {
            FileKind::Regular => self.shared.pins.pin(&found.held),
            FileKind::Directory => Err(Status::IsDir),
            _ => Err(Status::Inval),
        }
    }

    /// Ceph does not report holes: all is data up to the end of the file, where every file has its
    /// implicit hole.
    fn seek(&mut self, file: &FileHandle, offset: u64, what: SeekFor) -> StoreResult<SeekDone> {
        let found = self.resolve(file, CallPurpose::Look)?;
        let about = |status| Failed { status, about: Some(self.attributes_of(&found)) };
        must_be_regular(&found.stat).map_err(about)?;
        self.judge(&found, rights::READ).map_err(about)?;
        let size = found.stat.size;
        // RFC 7862 §15.11.3: past the end of the file there is nothing to find
        if offset >= size {
            return Err(about(Status::NxIo));
        }
        Ok(match what {
            SeekFor::Data => SeekDone { eof: false, offset },
            SeekFor::Hole => SeekDone { eof: true, offset: size },
        })
    }

    fn limits(&mut self, object: &FileHandle) -> Result<StoreLimits, Status> {
        self.resolve(object, CallPurpose::Look)?;
        Ok(StoreLimits {
            clone_block: None,
            has_xattrs: false,
            has_acls: false,
            time_delta_ns: 1,
            change_grows: false,
        })
    }
}
