//! REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.12–3.3.15).

use rustix::fs::{AtFlags, Statx, linkat, renameat, unlinkat};
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};

use super::{Files, Intent, attributes::kind, cache::FileSlotId, errno::status, name::Name};
use crate::{Failed, Linked, NameIn, ObjectChange, Renamed, exports::handle::Identity};

/// State of the names after a RENAME that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamesAfter {
    Moved,
    /// Both are names of one file, or the same name.
    AsBefore,
}

impl Files {
    /// REMOVE (RFC 1813 §3.3.12). Removing a file's last name makes its handle stale, on every
    /// shard.
    ///
    /// # Errors
    ///
    /// The status of the reply; [`Status::IsDir`] for a directory, [`Status::Acces`] for
    /// `.` and `..`.
    pub fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ObjectChange, Failed<ObjectChange>> {
        let name = Name::of(name, Status::Acces, Status::Acces);
        self.take_away(directory, name, AtFlags::empty())
    }

    /// RMDIR (RFC 1813 §3.3.13).
    ///
    /// # Errors
    /// The status of the reply; [`Status::Inval`] for `.`, [`Status::Exist`] for `..`.
    pub fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<ObjectChange, Failed<ObjectChange>> {
        // RFC 1813 §3.3.13 [1813-69]: a RMDIR of . gets NFS3ERR_INVAL, of .. NFS3ERR_EXIST
        let name = Name::of(name, Status::Inval, Status::Exist);
        self.take_away(directory, name, AtFlags::REMOVEDIR)
    }

    fn take_away(
        &mut self,
        directory: &FileHandle,
        name: Result<Name<'_>, Status>,
        how: AtFlags,
    ) -> Result<ObjectChange, Failed<ObjectChange>> {
        let slot = self.directory(directory, Intent::Change)?;
        self.must_be_there(slot)?;
        let outcome = name.and_then(|name| self.unlink(slot, name, how));
        self.changed(slot, outcome).map(|((), wcc)| wcc)
    }

    fn unlink(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        how: AtFlags,
    ) -> Result<(), Status> {
        let found = self.entry(directory, name)?;
        let remove = |files: &Self| unlinkat(files.cache.path(directory), name.octets(), how);
        self.insist(&[directory], remove).map_err(status)?;
        let identity = self.identity(directory, &found);
        self.forget(identity, directory, name);
        self.let_go_of_last(identity, &found);
        self.sync_object(directory)
    }

    /// Closes a file that lost its last name.
    fn let_go_of_last(&mut self, identity: Identity, found: &Statx) {
        if found.stx_nlink <= 1 || kind(found) == FileKind::Directory {
            self.let_go(identity, kind(found));
        }
    }

    fn forget(&mut self, identity: Identity, directory: FileSlotId, name: Name<'_>) {
        if !self.is_indexed(identity.file.export) {
            return;
        }
        let parent = self.cache.get(directory).identity.file.inode;
        // A stale name in the index costs a lookup, nothing else.
        let _ = self.index.forget(identity, parent, name.octets());
    }

    /// RENAME (RFC 1813 §3.3.14). Handles of the object, and of all below it, stay valid.
    ///
    /// # Errors
    ///
    /// The status of the reply; [`Status::Inval`] for `.` and `..`, [`Status::XDev`]
    /// between exports.
    pub fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> Result<Renamed, Failed<Renamed>> {
        let source = self.directory(from.directory, Intent::Change)?;
        let target = self.directory_beside(to.directory, source)?;
        self.must_be_there(source)?;
        self.must_be_there(target)?;
        self.cache.pair(source, target);
        let outcome =
            self.rename_entry(NameIn::new(source, from.name), NameIn::new(target, to.name));
        self.cache.part();
        let mut about = Renamed { from: self.wcc(source), to: self.wcc(target) };
        if outcome == Ok(NamesAfter::AsBefore) {
            about.from.leave();
            about.to.leave();
        }
        outcome.map(|_| about).map_err(|status| Failed { status, about })
    }

    fn rename_entry(
        &mut self,
        from: NameIn<'_, FileSlotId>,
        to: NameIn<'_, FileSlotId>,
    ) -> Result<NamesAfter, Status> {
        let name = Name::of(from.name, Status::Inval, Status::Inval)?;
        // RFC 1813 §3.3.14 [1813-75]: a RENAME of . or .. gets NFS3ERR_INVAL
        let new_name = Name::of(to.name, Status::Inval, Status::Inval)?;
        self.same_export(from.directory, to.directory)?;
        let found = self.entry(from.directory, name)?;
        let replaced = match self.entry(to.directory, new_name) {
            Ok(replaced) => Some(replaced),
            Err(Status::NoEnt) => None,
            Err(status) => return Err(status),
        };
        // RFC 1813 §3.3.14 [1813-71]: a RENAME is atomic: a replaced name never disappears
        // RFC 1813 §3.3.14 [1813-73]: a RENAME replaces only its own sort, and empty directories
        let rename = |files: &Self| {
            let (old, new) = (files.cache.path(from.directory), files.cache.path(to.directory));
            renameat(old, name.octets(), new, new_name.octets())
        };
        self.insist(&[from.directory, to.directory], rename).map_err(status)?;
        let identity = self.identity(from.directory, &found);
        if let Some(replaced) = replaced {
            let replaced_identity = self.identity(to.directory, &replaced);
            if replaced_identity == identity {
                // RFC 1813 §3.3.14 [1813-76]: a RENAME between two names of one file does nothing
                return Ok(NamesAfter::AsBefore); // The system leaves both.
            }
            self.forget(replaced_identity, to.directory, new_name);
            self.let_go_of_last(replaced_identity, &replaced);
        }
        self.forget(identity, from.directory, name);
        // RFC 1813 §3.3.14 [1813-77]: handles stay valid after a RENAME
        self.record(identity, to.directory, new_name)?;
        self.sync_object(to.directory)?;
        if from.directory != to.directory {
            self.sync_object(from.directory)?;
        }
        Ok(NamesAfter::Moved)
    }

    pub(super) fn same_export(&self, a: FileSlotId, b: FileSlotId) -> Result<(), Status> {
        let export = |slot| self.cache.get(slot).identity.file.export;
        // RFC 1813 §3.3.14 [1813-72]: a RENAME between file systems gets NFS3ERR_XDEV
        if export(a) == export(b) { Ok(()) } else { Err(Status::XDev) }
    }

    /// LINK (RFC 1813 §3.3.15).
    ///
    /// # Errors
    ///
    /// The status of the reply; [`Status::Inval`] for a directory, [`Status::Exist`] for
    /// `.` and `..`, [`Status::XDev`] between exports.
    pub fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<Linked, Failed<Linked>> {
        let slot = self.resolve(file, Intent::Change)?;
        let target = self.directory_beside(directory, slot)?;
        self.must_be_there(target)?;
        self.cache.pair(slot, target);
        let outcome = self.link_entry(slot, target, name);
        self.cache.part();
        let about = Linked { file: self.attributes(slot).ok(), directory: self.wcc(target) };
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    fn link_entry(
        &mut self,
        file: FileSlotId,
        directory: FileSlotId,
        name: &[u8],
    ) -> Result<(), Status> {
        let name = Name::of(name, Status::Exist, Status::Exist)?;
        // RFC 1813 §3.3.15 [1813-79]: a LINK between file systems gets NFS3ERR_XDEV
        self.same_export(file, directory)?;
        if self.cache.get(file).kind == FileKind::Directory {
            return Err(Status::Inval);
        }
        let link = |files: &Self| {
            let (descriptors, number) = files.magic(file);
            linkat(
                descriptors,
                number,
                files.cache.path(directory),
                name.octets(),
                AtFlags::SYMLINK_FOLLOW,
            )
        };
        // Both are open: a missing object is one of them, not a name.
        // RFC 1813 §3.3.15 [1813-78]: a LINK adds one to nlink and names the same file
        self.insist(&[file, directory], link).map_err(|error| match status(error) {
            Status::NoEnt => Status::Stale,
            other => other,
        })?;
        self.record(self.cache.get(file).identity, directory, name)?;
        self.sync_object(directory)
    }
}
