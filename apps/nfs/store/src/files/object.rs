//! GETATTR, SETATTR, LOOKUP, ACCESS, READLINK (RFC 1813 §3.3.1–3.3.5), and the path of MOUNT's MNT.

use rustix::{
    fs::{
        AtFlags, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat, chownat, ftruncate,
        readlinkat_raw, utimensat,
    },
    process::{Gid, Uid},
};
use stag_protocol::nfs::v3::{Access, FileHandle, FileKind, Status};

use super::{
    Files, Intent, attributes::attributes, cache::FileSlotId, data::Want, errno::status,
    name::Meaning,
};
use crate::{
    Failed, FileAttributes, FileTime, FoundObject, NewAttributes, NewTime, ObjectChange, User,
};

/// Result of [`Files::readlink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadlinkDone {
    /// Bytes of the target at the front of the caller's memory.
    pub count: u32,
    /// The link's attributes.
    pub attributes: FileAttributes,
}

impl Files {
    /// GETATTR (RFC 1813 §3.3.1).
    ///
    /// # Errors
    /// The status of the reply.
    pub fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        let slot = self.resolve(file, Intent::Look)?;
        self.attributes(slot)
    }

    /// SETATTR (RFC 1813 §3.3.2), only if the file's ctime is `guard`.
    ///
    /// Size, owner, mode and times are set in this order. The first failure ends it; earlier
    /// changes stay.
    ///
    /// # Errors
    /// The status of the reply; [`Status::NotSync`] when the guard does not match.
    pub fn set_attributes(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> Result<ObjectChange, Failed<ObjectChange>> {
        let slot = self.resolve(file, Intent::Change)?;
        let before = self.attributes(slot)?;
        // RFC 1813 §3.3.2 [1813-21]: a guard that differs from ctime gets NFS3ERR_NOT_SYNC
        let outcome = if guard.is_some_and(|ctime| ctime != before.ctime.in_32_bits()) {
            Err(Status::NotSync)
        } else {
            self.apply(slot, set).and_then(|()| self.sync_object(slot))
        };
        self.changed(slot, outcome).map(|((), wcc)| wcc)
    }

    /// Sets attributes without making them stable.
    pub(super) fn apply(&mut self, slot: FileSlotId, set: &NewAttributes) -> Result<(), Status> {
        let times = timestamps(set)?;
        if let Some(size) = set.size {
            self.truncate(slot, size)?;
        }
        // Truncation sets the modification time, for every user who may write. Setting that time
        // alone to the present is for the owner only, and O_TRUNC at a Linux client requests both
        // (RFC 1813 §3.3.2).
        let is_set =
            set.size.is_some() && (set.atime, set.mtime) == (NewTime::Keep, NewTime::Server);
        let times = times.filter(|_| !is_set);
        if set.uid.is_some() || set.gid.is_some() {
            self.set_owner(slot, set)?;
        }
        if let Some(mode) = set.mode {
            self.set_mode(slot, mode)?;
        }
        if let Some(times) = times {
            #[cfg(test)]
            self.must_own()?;
            let (descriptors, number) = self.magic(slot);
            utimensat(descriptors, number, &times, AtFlags::empty()).map_err(status)?;
        }
        Ok(())
    }

    pub(super) fn set_owner(&self, slot: FileSlotId, set: &NewAttributes) -> Result<(), Status> {
        // All ones means "unchanged" to the system; no user can have that number.
        if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
            return Err(Status::Inval);
        }
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        chownat(self.cache.path(slot), c"", uid, gid, AtFlags::EMPTY_PATH).map_err(status)
    }

    fn set_mode(&self, slot: FileSlotId, mode: u32) -> Result<(), Status> {
        if self.cache.get(slot).kind == FileKind::Symlink {
            // A link has no mode; kernels before 6.6 differ here.
            return Err(Status::NotSupp);
        }
        #[cfg(test)]
        self.must_own()?;
        let (descriptors, number) = self.magic(slot);
        chmodat(descriptors, number, Mode::from_bits_truncate(mode & 0o7777), AtFlags::empty())
            .map_err(status)
    }

    #[cfg(test)]
    fn must_own(&self) -> Result<(), Status> {
        self.pretended_uid.get().map_or(Ok(()), |_| Err(Status::Perm))
    }

    fn truncate(&mut self, slot: FileSlotId, size: u64) -> Result<(), Status> {
        if i64::try_from(size).is_err() {
            return Err(Status::FBig);
        }
        if self.shared.policy.is_some() {
            let before = self.attributes(slot)?;
            self.review(slot, &before);
        }
        self.data(slot, Want::Write)?;
        // RFC 1813 §3.3.2 [1813-22]: a new size cuts the file or extends it by zeros
        let cut = |files: &Self| ftruncate(files.cache.data(slot), size);
        self.insist(&[slot], cut).map_err(status)?;
        self.cache.get_mut(slot).unsynced = true;
        Ok(())
    }

    /// LOOKUP (RFC 1813 §3.3.3). `.` is the directory itself, `..` its parent; an export's root is
    /// its own parent.
    ///
    /// # Errors
    /// The status of the reply, and the directory's attributes.
    pub fn lookup(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<FoundObject, Failed<Option<FileAttributes>>> {
        let slot = self.directory(directory, Intent::Look)?;
        // `..` may open another file and evict this one, so its attributes are read first.
        let above = self.attributes(slot)?;
        match self.find(slot, name) {
            // RFC 1813 §3.3.3 [1813-25]: a LOOKUP returns object and directory attributes
            Ok((handle, attributes)) => {
                Ok(FoundObject { handle, attributes, directory: Some(above) })
            }
            Err(status) => Err(Failed { status, about: Some(above) }),
        }
    }

    fn find(
        &mut self,
        directory: FileSlotId,
        name: &[u8],
    ) -> Result<(FileHandle, FileAttributes), Status> {
        let slot = match Meaning::of(name)? {
            Meaning::Entry(name) => {
                let found = self.entry(directory, name)?;
                let handle = self.issue(directory, name, &found)?;
                return Ok((handle, attributes(&found, self.export_of(directory))));
            }
            Meaning::Itself => directory,
            Meaning::Above => self.above(directory)?,
        };
        Ok((self.handle_of(slot), self.attributes(slot)?))
    }

    /// The handle that MOUNT's MNT returns for `/NAME` or a directory below it, `/NAME/A/B` (RFC
    /// 1813 §5.2.1).
    ///
    /// # Errors
    /// [`Status::NoEnt`] when no export has that name, [`Status::Stale`] when its directory was
    /// deleted and not made again, [`Status::NotDir`] when the path ends at another object; else as
    /// LOOKUP.
    pub fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        let caller = self.guest.caller();
        self.revive(path);
        if caller.is_some() {
            // The current exports' rules apply to the caller.
            self.await_export(caller);
        }
        // The server itself looks up the path, not the last user; the result grants no rights yet.
        let (export, names) = self.serving.exports.by_path(path).ok_or(Status::NoEnt)?;
        let (id, mut handle) = (export.id(), self.root_handle(export));
        self.admit_to_mount(id)?;
        self.await_export(None);
        self.act_as(&User::Anyone);
        let _raised = self.search_anywhere()?;
        for name in names {
            handle = self.lookup(&handle, name).map_err(|failed| failed.status)?.handle;
        }
        let slot = self.directory(&handle, Intent::Look)?;
        // A deleted directory has no valid handle.
        self.stat(slot)?;
        Ok(handle)
    }

    /// ACCESS (RFC 1813 §3.3.4): the requested rights that the caller has, or in unprivileged mode
    /// the server's user.
    ///
    /// # Errors
    /// The status of the reply.
    pub fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> Result<(Access, FileAttributes), Failed<Option<FileAttributes>>> {
        let slot = self.resolve(file, Intent::Look)?;
        let found = self.attributes(slot)?;
        // RFC 1813 §3.3.4 [1813-31]: an ACCESS reply holds for this credential and export
        let read_only = self.is_read_only(slot);
        let mut granted = Access::NONE;
        for (right, need, changes) in rights(found.kind) {
            // RFC 1813 §3.3.4 [1813-30]: an ACCESS reply grants only rights that were asked for
            let wanted = asked.contains(*right) && !(*changes && read_only);
            if wanted && self.may(slot, *need)? {
                granted = granted | *right;
            }
        }
        Ok((granted, found))
    }

    fn may(&self, slot: FileSlotId, need: rustix::fs::Access) -> Result<bool, Status> {
        use rustix::io::Errno;
        match self.ask(slot, need) {
            Ok(()) => Ok(true),
            // RFC 1813 §3.3.4 [1813-29]: an ACCESS check that is made gets NFS3_OK, whatever it
            // finds
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => Ok(false),
            Err(error) => Err(status(error)),
        }
    }

    /// READLINK (RFC 1813 §3.3.5): copies the target to the front of `target`, truncated if it is
    /// longer. 4,096 bytes hold any target.
    ///
    /// # Errors
    /// The status of the reply; [`Status::Inval`] for anything but a symbolic link.
    pub fn readlink(
        &mut self,
        file: &FileHandle,
        target: &mut [u8],
    ) -> Result<ReadlinkDone, Failed<Option<FileAttributes>>> {
        let slot = self.resolve(file, Intent::Look)?;
        let found = self.attributes(slot)?;
        let refuse = |status| Failed { status, about: Some(found) };
        // RFC 1813 §3.3.5 [1813-32]: a READLINK of anything but a link gets NFS3ERR_INVAL
        if found.kind != FileKind::Symlink {
            return Err(refuse(Status::Inval));
        }
        if target.is_empty() {
            return Ok(ReadlinkDone { count: 0, attributes: found });
        }
        let count = readlinkat_raw(self.cache.path(slot), c"", target)
            .map_err(|error| refuse(status(error)))?;
        Ok(ReadlinkDone { count: u32::try_from(count).unwrap_or(u32::MAX), attributes: found })
    }
}

/// For each right on an object of this kind: the permission it needs, and true if it allows
/// changes.
fn rights(kind: FileKind) -> &'static [(Access, rustix::fs::Access, bool)] {
    use rustix::fs::Access as Need;
    const DIRECTORY: &[(Access, Need, bool)] = &[
        (Access::READ, Need::READ_OK, false),
        (Access::LOOKUP, Need::EXEC_OK, false),
        (Access::MODIFY, Need::WRITE_OK.union(Need::EXEC_OK), true),
        (Access::EXTEND, Need::WRITE_OK.union(Need::EXEC_OK), true),
        (Access::DELETE, Need::WRITE_OK.union(Need::EXEC_OK), true),
    ];
    const OTHER: &[(Access, Need, bool)] = &[
        (Access::READ, Need::READ_OK, false),
        (Access::MODIFY, Need::WRITE_OK, true),
        (Access::EXTEND, Need::WRITE_OK, true),
        (Access::EXECUTE, Need::EXEC_OK, false),
    ];
    if kind == FileKind::Directory { DIRECTORY } else { OTHER }
}

/// The times to set, `None` when both stay.
fn timestamps(set: &NewAttributes) -> Result<Option<Timestamps>, Status> {
    let timespec = |time: NewTime| match time {
        // RFC 1813 §3.3.2 [1813-23]: attributes that SETATTR does not name stay unchanged
        NewTime::Keep => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
        // RFC 1813 §3.3.2 [1813-24]: a time is set to the server's or to the client's
        NewTime::Server => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
        NewTime::Client(time) if !time.is_valid() => Err(Status::Inval),
        NewTime::Client(time) => Ok(Timespec { tv_sec: time.seconds, tv_nsec: time.nanos.into() }),
    };
    if (set.atime, set.mtime) == (NewTime::Keep, NewTime::Keep) {
        return Ok(None);
    }
    Ok(Some(Timestamps {
        last_access: timespec(set.atime)?,
        last_modification: timespec(set.mtime)?,
    }))
}
