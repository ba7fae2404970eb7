//! Exports whose files are opened by kernel handles, in privileged mode. They need no index.
//!
//! A handle leads to its inode anywhere on the file system, so a directory is followed up to its
//! export's root when it is opened: one moved out of the export is stale. For other files the
//! containing directory is unknown (there may be several, and none is passed on the way). Such a
//! file moved out of the export stays reachable by its old handle, under its own mode as ever, like
//! with Linux' server and `no_subtree_check`; no other file becomes reachable.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    thread::CapabilitySet,
};
use stag_nfs_os::{KernelHandle, Raised, user};
use stag_protocol::nfs::v3::{FileKind, Status};

use super::{
    Files, attributes,
    cache::{FileSlotId, OpenFile},
    errno::status,
};
use crate::{
    exports::{
        blocking_probe::{START_LIMIT, within},
        config::{Export, ExportId, Exports, stat},
        handle::{Birth, FileId, Identity},
    },
    start_error::StartError,
};

/// Opens by path only, a symbolic link too.
const BY_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// An export whose files the kernel opens by handle.
#[derive(Debug)]
struct ExportMount {
    export: ExportId,
    /// The root's inode number.
    inode: u64,
    /// The export's root, open for reading: the kernel rejects a descriptor opened by path only.
    root: OwnedFd,
    handle: KernelHandle,
}

/// All such exports; none in unprivileged mode.
#[derive(Debug, Default)]
pub(super) struct ExportMounts(Vec<Arc<ExportMount>>);

impl ExportMounts {
    /// Determines the exports whose files the kernel opens by handle; returns a sentence on each
    /// other export.
    ///
    /// # Errors
    /// A sentence when a file system does not answer.
    pub fn open(exports: &Exports) -> Result<(Self, Vec<String>), StartError> {
        let mut mounts = Vec::new();
        let mut notices = Vec::new();
        for export in exports.shared() {
            let copy = Arc::clone(export);
            match within(START_LIMIT, export.path(), move || ExportMount::open(&copy))? {
                Ok(mount) => mounts.push(Arc::new(mount)),
                Err(error) => notices.push(format!(
                    "the file system of /{} has no handles that can be used ({error}): its files \
                     are found by the index of their names",
                    export.name()
                )),
            }
        }
        Ok((Self(mounts), notices))
    }

    /// The known mounts of `exports`, and those of exports added since.
    pub fn renewed(&self, exports: &Exports) -> Self {
        let mount = |export: &Export| {
            let known = self.0.iter().find(|mount| {
                mount.export == export.id() && mount.inode == export.identity().file.inode
            });
            known.cloned().or_else(|| ExportMount::open(export).ok().map(Arc::new))
        };
        Self(exports.iter().filter_map(mount).collect())
    }

    /// The handle of an export's root.
    pub fn root(&self, export: ExportId) -> Option<KernelHandle> {
        self.get(export).map(|mount| mount.handle)
    }

    fn get(&self, export: ExportId) -> Option<&ExportMount> {
        self.0.iter().map(|mount| &**mount).find(|mount| mount.export == export)
    }
}

impl ExportMount {
    fn open(export: &Export) -> rustix::io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(export.root(), c".", flags, Mode::empty())?;
        let handle = KernelHandle::of(&root)?;
        let found = stat(handle.open(&root, BY_PATH)?)?;
        if export.identity().file.inode != found.stx_ino || !export.holds(&found) {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Self { export: export.id(), inode: found.stx_ino, root, handle })
    }
}

/// A root's handle fits, and the handles of a file system are alike. A longer one cannot have been
/// issued to a client.
fn status_of_handle(error: Errno) -> Status {
    if error == Errno::OVERFLOW { Status::ServerFault } else { status(error) }
}

impl Files {
    /// The kernel's handle of an open file, in an export that has them.
    pub(super) fn kernel_handle(
        &self,
        export: ExportId,
        file: impl AsFd,
    ) -> Result<Option<KernelHandle>, Status> {
        match self.serving.mounts.get(export) {
            Some(_) => KernelHandle::of(file).map(Some).map_err(status_of_handle),
            None => Ok(None),
        }
    }

    /// The kernel's handle of a directory's entry, in an export that has them. If the name leads to
    /// another file than a moment ago, the handle made of both names no file.
    pub(super) fn kernel_handle_at(
        &self,
        directory: FileSlotId,
        name: &[u8],
    ) -> Result<Option<KernelHandle>, Status> {
        let open = self.cache.get(directory);
        match self.serving.mounts.get(open.identity.file.export) {
            Some(_) => KernelHandle::at(&open.path, name).map(Some).map_err(status_of_handle),
            None => Ok(None),
        }
    }

    /// Returns true if the index keeps the names of an export's files.
    pub(super) fn is_indexed(&self, export: ExportId) -> bool {
        self.serving.mounts.get(export).is_none()
    }

    /// The open file named by a kernel handle.
    pub(super) fn open_by_handle(
        &mut self,
        file: FileId,
        handle: &KernelHandle,
        keep: Option<FileSlotId>,
    ) -> Result<FileSlotId, Status> {
        if let Some(slot) = self.cache.find(file) {
            // The open file holds the inode number, so another handle with it belongs to a removed
            // file.
            let is_it = self.cache.get(slot).kernel == Some(*handle);
            return if is_it { Ok(slot) } else { Err(Status::Stale) };
        }
        let mount = self.serving.mounts.get(file.export).ok_or(Status::Stale)?;
        let _raised = self.search_anywhere()?;
        let export = mount.export;
        let open = |files: &Self| match files.serving.mounts.get(export) {
            Some(mount) => handle.open(&mount.root, BY_PATH),
            None => Err(Errno::STALE),
        };
        let is_meant = |open: &OpenFile| open.kernel == Some(*handle);
        let path = match self.insist(keep.as_slice(), open) {
            Ok(path) => path,
            // EINVAL is the file system's answer to bytes that are no handle of its own.
            Err(Errno::STALE | Errno::INVAL) => return self.open_pinned(file, keep, is_meant),
            Err(error) => return Err(status(error)),
        };
        let found = stat(&path).map_err(status)?;
        if found.stx_ino != file.inode {
            return Err(Status::Stale);
        }
        if found.stx_nlink == 0 {
            return self.open_pinned(file, keep, is_meant);
        }
        self.admit(file, &found)?;
        let kind = attributes::kind(&found);
        if kind == FileKind::Directory {
            self.must_lie_inside(&path, file)?;
        }
        let identity = Identity { file, birth: Birth::of(&found) };
        let kernel = Some(*handle);
        let open = OpenFile { kernel, ..OpenFile::by_path(identity, kind, path) };
        Ok(self.insert(open, keep))
    }

    /// Lets the thread search anywhere while the guard lives: any holder of a handle may open it,
    /// and the rights to the file are checked afterwards.
    pub(super) fn search_anywhere(&self) -> Result<Raised, Status> {
        user::raise(CapabilitySet::DAC_READ_SEARCH).map_err(status)
    }
}
