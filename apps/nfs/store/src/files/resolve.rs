//! Resolution of handles to open files, and of names to handles.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, openat2, readlinkat_raw, statx},
    io::Errno,
    path::DecInt,
};
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};

use super::{
    Files, Intent,
    attributes::kind,
    cache::{FileSlotId, OpenFile},
    errno::{status, status_of_io},
    name::{Name, NameCopy},
    open_beneath,
};
use crate::exports::{
    config::{HostInode, STAT_MASK, stat},
    handle::{Birth, FileId, Identity, Named},
};

/// Names tried for one handle, over all directories on the way: bounds the work, and the depth at
/// which a handle is found.
const TRIES_MAX: u32 = 256;
/// Directories between a directory and its export's root, at most.
const DEPTH_MAX: usize = 4096;

/// Bytes of the longest path that the system reports.
pub(super) const PATH_MAX: usize = 4096;

/// A file to open: its inode, and its birth time if known.
#[derive(Clone, Copy)]
struct WantedFile {
    file: FileId,
    birth: Option<Birth>,
}

impl WantedFile {
    fn is(&self, stat: &Statx) -> bool {
        // RFC 1813 §2.6 [1813-5]: equal handles name one object, also if an inode is reused
        stat.stx_ino == self.file.inode && self.birth.is_none_or(|birth| birth == Birth::of(stat))
    }
}

/// The remaining tries of a search, and the slot that it must not close.
struct HandleSearch {
    tries: u32,
    keep: Option<FileSlotId>,
}

impl Files {
    /// The open file named by a handle.
    ///
    /// # Errors
    ///
    /// [`Status::BadHandle`] for a handle that this server did not issue, [`Status::Stale`] for a
    /// file that is gone or an export that is no longer served, [`Status::RoFs`] for a change on a
    /// read-only export.
    pub(super) fn resolve(
        &mut self,
        handle: &FileHandle,
        intent: Intent,
    ) -> Result<FileSlotId, Status> {
        self.resolve_beside(handle, intent, None)
    }

    /// [`Files::resolve`] without closing `keep`.
    pub(super) fn resolve_beside(
        &mut self,
        handle: &FileHandle,
        intent: Intent,
        keep: Option<FileSlotId>,
    ) -> Result<FileSlotId, Status> {
        let named = self.shared.handles.open(handle)?;
        if keep.is_none() && self.serving.export(named.file().export).is_none() {
            // Another shard may have found that the directory was made again.
            self.renew();
        }
        let id = named.file().export;
        self.serving.export(id).ok_or(Status::Stale)?;
        let is_read_only = self.enter(id)?;
        if intent == Intent::Change && is_read_only {
            return Err(Status::RoFs);
        }
        self.must_act_as_someone()?;
        if keep.is_none() {
            self.inside.begin_call();
        }
        let slot = self.open_named(&named, keep)?;
        if self.must_be_inside(slot, intent).is_ok() {
            return Ok(slot);
        }
        if keep == Some(slot) || self.cache.is_pinned(slot) {
            return Err(Status::Stale);
        }
        // The name by which it is open leads outside; another may be inside.
        self.close(slot);
        let slot = self.open_named(&named, keep)?;
        self.must_be_inside(slot, Intent::Change)?;
        Ok(slot)
    }

    /// The open file named by a handle, wherever it is.
    fn open_named(
        &mut self,
        named: &Named,
        keep: Option<FileSlotId>,
    ) -> Result<FileSlotId, Status> {
        match *named {
            Named::Birth(Identity { file, birth }) => {
                let wanted = WantedFile { file, birth: Some(birth) };
                self.open_file(wanted, &mut HandleSearch { tries: TRIES_MAX, keep })
            }
            Named::Kernel(file, handle) => self.open_by_handle(file, &handle, keep),
        }
    }

    /// The open directory named by a handle.
    ///
    /// # Errors
    /// As in [`Files::resolve`], and [`Status::NotDir`].
    pub(super) fn directory(
        &mut self,
        handle: &FileHandle,
        intent: Intent,
    ) -> Result<FileSlotId, Status> {
        let slot = self.resolve(handle, intent)?;
        if intent == Intent::Look {
            // Names in it are looked up.
            self.must_be_inside(slot, Intent::Change)?;
        }
        self.must_be_directory(slot)
    }

    /// [`Files::directory`] without closing `keep`.
    pub(super) fn directory_beside(
        &mut self,
        handle: &FileHandle,
        keep: FileSlotId,
    ) -> Result<FileSlotId, Status> {
        let slot = self.resolve_beside(handle, Intent::Change, Some(keep))?;
        self.must_be_directory(slot)
    }

    fn must_be_directory(&self, slot: FileSlotId) -> Result<FileSlotId, Status> {
        // RFC 1813 §3.3.3 [1813-26]: a LOOKUP in a non-directory gets NFS3ERR_NOTDIR
        if self.cache.get(slot).kind == FileKind::Directory {
            Ok(slot)
        } else {
            Err(Status::NotDir)
        }
    }

    fn open_file(
        &mut self,
        wanted: WantedFile,
        search: &mut HandleSearch,
    ) -> Result<FileSlotId, Status> {
        if let Some(slot) = self.cache.find(wanted.file) {
            // The open file holds the inode number, so another birth time belongs to a removed
            // file.
            let found = self.cache.get(slot).identity.birth;
            return if wanted.birth.is_none_or(|birth| birth == found) {
                Ok(slot)
            } else {
                Err(Status::Stale)
            };
        }
        let _raised = self.search_anywhere()?;
        // RFC 1813 §2.6 [1813-6]: a handle of a removed object gets NFS3ERR_STALE
        let mut refusal = Status::Stale;
        let news = self.index.news();
        for round in 0..2 {
            // The search for a directory on the way may have read the new records already.
            if round > 0 && !self.index.catch_up() && self.index.news() == news {
                break;
            }
            let mut nth = 0;
            // RFC 1813 §2.6 [1813-8]: a handle outlives renames and restarts of the server
            while let Some(location) = self.index.names(wanted.file).get(nth) {
                nth += 1;
                let (parent, name) = (location.parent, NameCopy::of(&location.name));
                search.tries = search.tries.checked_sub(1).ok_or(Status::Stale)?;
                match self.open_at(wanted, parent, &name, search) {
                    Ok(slot) => return Ok(slot),
                    Err(Status::Stale) => {}
                    Err(status) => refusal = status,
                }
            }
        }
        match refusal {
            Status::Stale => {
                let is_meant =
                    |open: &OpenFile| wanted.birth.is_none_or(|birth| birth == open.identity.birth);
                self.open_pinned(wanted.file, search.keep, is_meant)
            }
            other => Err(other),
        }
    }

    /// Opens the file if the index's name still leads to it.
    fn open_at(
        &mut self,
        wanted: WantedFile,
        parent: u64,
        name: &NameCopy,
        search: &mut HandleSearch,
    ) -> Result<FileSlotId, Status> {
        let above = WantedFile { file: FileId { inode: parent, ..wanted.file }, birth: None };
        let parent = self.open_file(above, search)?;
        if let Some(slot) = self.cache.find(wanted.file) {
            return Ok(slot); // Damaged hints can lead in a circle.
        }
        let keep = [parent, search.keep.unwrap_or(parent)];
        let open = |files: &Self| {
            open_beneath(files.cache.path(parent), name.octets(), OFlags::PATH, Mode::empty())
        };
        let path = self.insist(&keep, open).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Status::Stale,
            Errno::XDEV => Status::Acces,
            error => status(error),
        })?;
        let found = stat(&path).map_err(status)?;
        self.admit(wanted.file, &found)?;
        if !wanted.is(&found) {
            return Err(Status::Stale);
        }
        let identity = Identity { file: wanted.file, birth: Birth::of(&found) };
        let open = self.opened(identity, kind(&found), path)?;
        Ok(self.insert(open, search.keep))
    }

    /// A file just opened by path, with the parts of its handle.
    pub(super) fn opened(
        &self,
        identity: Identity,
        kind: FileKind,
        path: OwnedFd,
    ) -> Result<OpenFile, Status> {
        let kernel = self.kernel_handle(identity.file.export, &path)?;
        Ok(OpenFile { kernel, ..OpenFile::by_path(identity, kind, path) })
    }

    /// Adds an open file to the cache; the evicted one is synced first, so that a lost write is
    /// noticed.
    pub(super) fn insert(&mut self, open: OpenFile, keep: Option<FileSlotId>) -> FileSlotId {
        let (slot, evicted) = self.cache.insert(open, keep.as_slice());
        self.part_with(evicted);
        slot
    }

    /// Refuses objects on another mount or device, and the state directory.
    pub(super) fn admit(&self, file: FileId, found: &Statx) -> Result<(), Status> {
        let is_foreign = !self.export(file.export).holds(found);
        if is_foreign || HostInode::in_stat(found) == self.shared.state_place {
            Err(Status::Acces)
        } else {
            Ok(())
        }
    }

    /// The attributes of an entry of a directory.
    pub(super) fn entry(&self, directory: FileSlotId, name: Name<'_>) -> Result<Statx, Status> {
        // RFC 1813 §3.3.3 [1813-27]: a LOOKUP returns a symbolic link and does not follow it
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found =
            statx(self.cache.path(directory), name.octets(), flags, STAT_MASK).map_err(status)?;
        // RFC 1813 §3.3.3 [1813-28]: a LOOKUP does not cross into another file system
        self.admit(self.cache.get(directory).identity.file, &found)?;
        Ok(found)
    }

    /// The identity of a file in the same export as an open one.
    pub(super) fn identity(&self, beside: FileSlotId, found: &Statx) -> Identity {
        let export = self.cache.get(beside).identity.file.export;
        Identity { file: FileId { export, inode: found.stx_ino }, birth: Birth::of(found) }
    }

    /// A handle for a directory's entry; where files are found by their names, the index records
    /// this one.
    pub(super) fn issue(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        found: &Statx,
    ) -> Result<FileHandle, Status> {
        let identity = self.identity(directory, found);
        if self.is_indexed(identity.file.export) {
            self.record(identity, directory, name)?;
            return Ok(self.shared.handles.seal(&Named::Birth(identity)));
        }
        // An open file holds its inode number: it is the entry just found.
        if let Some(slot) = self.cache.find(identity.file) {
            return Ok(self.handle_of(slot));
        }
        let handle = self.kernel_handle_at(directory, name.octets())?.expect("asked above");
        Ok(self.shared.handles.seal(&Named::Kernel(identity.file, handle)))
    }

    /// Records a name in the index, where files are found by their names.
    pub(super) fn record(
        &mut self,
        identity: Identity,
        directory: FileSlotId,
        name: Name<'_>,
    ) -> Result<(), Status> {
        if !self.is_indexed(identity.file.export) {
            return Ok(());
        }
        let parent = self.cache.get(directory).identity.file.inode;
        self.index.record(identity, parent, name.octets()).map_err(|error| status_of_io(&error))
    }

    /// The handle of an open file.
    pub(super) fn handle_of(&self, slot: FileSlotId) -> FileHandle {
        self.shared.handles.seal(&self.cache.get(slot).named())
    }

    /// The parent of an open directory; the export's root is its own.
    ///
    /// # Errors
    /// [`Status::Stale`] when the directory was moved out of its export.
    pub(super) fn above(&mut self, directory: FileSlotId) -> Result<FileSlotId, Status> {
        let identity = self.cache.get(directory).identity;
        if identity == self.export_of(directory).identity() {
            return Ok(directory);
        }
        let path = self.insist(&[directory], |files| open_above(files.cache.path(directory)));
        let path = path.map_err(status_above)?;
        self.must_lie_inside(&path, identity.file)?;
        let found = stat(&path).map_err(status)?;
        let identity = self.identity(directory, &found);
        if let Some(slot) = self.cache.find(identity.file) {
            return Ok(slot);
        }
        if self.is_indexed(identity.file.export) && self.index.names(identity.file).is_empty() {
            let mut buffer = [0; PATH_MAX];
            if let Some(path) = self.path_of(&path, &mut buffer) {
                self.learn(identity, path);
            }
        }
        let open = self.opened(identity, FileKind::Directory, path)?;
        Ok(self.insert(open, Some(directory)))
    }

    /// Refuses a directory that is neither the root of the file's export nor below it.
    pub(super) fn must_lie_inside(&self, directory: &OwnedFd, file: FileId) -> Result<(), Status> {
        let _raised = self.search_anywhere()?;
        let root = HostInode::of(self.export(file.export).root()).map_err(status)?;
        let mut here = directory.try_clone().map_err(|error| status_of_io(&error))?;
        for _ in 0..DEPTH_MAX {
            let place = HostInode::of(&here).map_err(status)?;
            if place == root {
                return Ok(());
            }
            let above = open_above(&here).map_err(status_above)?;
            if HostInode::of(&above).map_err(status)? == place {
                break;
            }
            here = above;
        }
        Err(Status::Stale)
    }

    /// Records an open file's current name in the index, where files are found by their names.
    pub(super) fn learn_name(&mut self, slot: FileSlotId) {
        let open = self.cache.get(slot);
        let identity = open.identity;
        if !self.is_indexed(identity.file.export) || self.cache.is_pinned(slot) {
            return;
        }
        let mut buffer = [0; PATH_MAX];
        if let Some(path) = self.path_of(&open.path, &mut buffer) {
            self.learn(identity, path);
        }
    }

    /// Records an object's name, and those of the directories above it, from its path. Names that
    /// cannot be determined are left out: the handle of an object without a known name is valid
    /// while it is open here.
    fn learn(&mut self, identity: Identity, path: &[u8]) {
        let Ok(_raised) = self.search_anywhere() else { return };
        let mut buffer = [0; PATH_MAX];
        let Some(root) = self.path_of(self.export(identity.file.export).root(), &mut buffer) else {
            return;
        };
        let root = if root == b"/" { &b""[..] } else { root };
        let (mut child, mut path) = (identity, path);
        while let Some(at) = path.iter().rposition(|octet| *octet == b'/')
            && path.starts_with(root)
            && at >= root.len()
        {
            let (above, name) = path.split_at(at);
            let name = name.get(1..).unwrap_or_default();
            let place = if above.is_empty() { &b"/"[..] } else { above };
            let Ok(found) =
                statx(CWD, place, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, STAT_MASK)
            else {
                return;
            };
            if !self.export(identity.file.export).holds(&found) || !(1..=255).contains(&name.len())
            {
                return;
            }
            // A hint like all others: a lookup verifies what it finds.
            let _ = self.index.record(child, found.stx_ino, name);
            let file = FileId { inode: found.stx_ino, ..identity.file };
            (child, path) = (Identity { file, birth: Birth::of(&found) }, above);
        }
    }

    /// The path of an open file; none when it has none left.
    fn path_of<'a>(&self, file: impl AsFd, buffer: &'a mut [u8; PATH_MAX]) -> Option<&'a [u8]> {
        let number = DecInt::from_fd(file);
        let len = readlinkat_raw(&self.shared.descriptors, number, buffer.as_mut_slice()).ok()?;
        let path = buffer.get(..len)?;
        (path.starts_with(b"/") && !path.ends_with(b" (deleted)")).then_some(path)
    }
}

/// The parent directory, on the same mount.
fn open_above(directory: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(directory, c"..", flags, Mode::empty(), resolve)
}

/// The status when the parent directory cannot be opened.
fn status_above(error: Errno) -> Status {
    if error == Errno::XDEV { Status::Stale } else { status(error) }
}
