//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 §3.3.8–3.3.11).
//!
//! The mode of a new object is the client's, whatever the process' umask. In a directory with a
//! default access control list the system combines mode and list, and the client's umask is ignored
//! (RFC 8275 §4). An owner that the caller may not set is left out, as in Linux' server for an
//! unprivileged caller. A mode that the client leaves open grants what the owner needs.
//!
//! **A file system may dictate owners** (vfat, FUSE with `uid=`), and refuse the maker mode and
//! times that only an owner sets. They are then left out. An exclusive CREATE, whose verifier is
//! kept in the times, is not supported there. An object found by name with another owner may also
//! have been put in its place by a local program: it is left unchanged.
//!
//! **Twins.** The clock of birth times ticks every few milliseconds, and some file systems (XFS)
//! reuse an inode number at once: a new object may get the inode number and birth time, and so the
//! handle, of one just removed. The index remembers the removed one; the twin is unlinked and held
//! open, so that the next attempt gets another inode. (A twin made by a local process goes
//! unnoticed.)

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Statx, makedev, mkdirat, mknodat, openat, symlinkat,
        unlinkat,
    },
    path::DecInt,
};
use stag_protocol::nfs::v3::{CreateVerifier, FileHandle, FileKind, Status};
use std::cell::Cell;

use super::{
    Files, Intent,
    attributes::{attributes, kind},
    cache::{FileSlotId, OpenData, OpenFile},
    errno::{status, status_of_io},
    name::Name,
    open_beneath,
};
use crate::{
    CreateMode, DeviceNode, Failed, FileAttributes, MadeObject, NewAttributes, ObjectChange,
    contract::exclusive::{carries, carrying},
    exports::handle::{Birth, Identity},
};

/// Number of times that CREATE retries when the name comes and goes in the meantime.
const RACES_MAX: u32 = 4;
/// Twins held at most before the client is asked to retry.
pub(super) const TWINS_MAX: usize = 32;
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

type Object = (FileHandle, FileAttributes);

impl Files {
    /// CREATE (RFC 1813 §3.3.8). The verifier of an exclusive one is kept in the file's times until
    /// its client sets them.
    ///
    /// # Errors
    /// The status of the reply; [`Status::Exist`] also for `.`, `..` and anything but a regular
    /// file.
    pub fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        let how = &how.with(self.under_umask(directory, how.attributes()));
        // An exclusive CREATE stores its verifier in the times.
        let asked = match how {
            CreateMode::Exclusive { verifier, set } => carrying(*verifier, set),
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => *set,
        };
        let is_new = Cell::new(true);
        let made = self.make(directory, name, &asked, |files, slot, name| {
            files.create_in(slot, name, how, &is_new)
        })?;
        match how {
            CreateMode::Unchecked(set) if !is_new.get() => Ok(made.found(set)),
            _ => Ok(MadeObject { is_new: is_new.get(), ..made }),
        }
    }

    /// MKDIR (RFC 1813 §3.3.9).
    ///
    /// # Errors
    /// The status of the reply; [`Status::Exist`] also for `.` and `..`.
    pub fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        let set = &self.under_umask(directory, set);
        self.make(directory, name, set, |files, slot, name| {
            let mode = Mode::from_bits_truncate(set.mode.unwrap_or(DIRECTORY_MODE) & 0o1777);
            let make = |files: &Self| mkdirat(files.cache.path(slot), name.octets(), mode);
            files.insist(&[slot], make).map_err(status)?;
            files.finish(slot, name, FileKind::Directory, set)
        })
    }

    /// SYMLINK (RFC 1813 §3.3.10). A link has no mode of its own: the requested one is ignored.
    ///
    /// # Errors
    /// The status of the reply; [`Status::Inval`] for a target that is empty or has a zero octet.
    pub fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        self.make(directory, name, set, |files, slot, name| {
            if target.is_empty() || target.contains(&0) {
                return Err(Status::Inval);
            }
            // RFC 1813 §3.3.10 [1813-65]: a symbolic link is never visible without its target
            let make = |files: &Self| symlinkat(target, files.cache.path(slot), name.octets());
            files.insist(&[slot], make).map_err(status)?;
            files.finish(slot, name, FileKind::Symlink, set)
        })
    }

    /// MKNOD (RFC 1813 §3.3.11). A device requires all rights, which only a caller acting as root
    /// in privileged mode has.
    ///
    /// # Errors
    ///
    /// The status of the reply; [`Status::Perm`] for a device, [`Status::BadType`] for a
    /// kind that has its own procedure.
    pub fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        let DeviceNode { kind, device } = node;
        let device = self.shared.policy.as_ref().map(|_| makedev(device.major, device.minor));
        let set = &self.under_umask(directory, set);
        self.make(directory, name, set, |files, slot, name| {
            let (file_type, device) = match (kind, device) {
                (FileKind::Fifo, _) => (FileType::Fifo, 0),
                (FileKind::Socket, _) => (FileType::Socket, 0),
                (FileKind::Block, Some(device)) => (FileType::BlockDevice, device),
                (FileKind::Character, Some(device)) => (FileType::CharacterDevice, device),
                (FileKind::Block | FileKind::Character, None) => return Err(Status::Perm),
                (FileKind::Regular | FileKind::Directory | FileKind::Symlink, _) => {
                    // RFC 1813 §3.3.11 [1813-66]: a MKNOD of a file, directory or link gets
                    // NFS3ERR_BADTYPE
                    return Err(Status::BadType);
                }
            };
            let mode = Mode::from_bits_truncate(set.mode.unwrap_or(FILE_MODE) & 0o7777);
            let make = |files: &Self| {
                mknodat(files.cache.path(slot), name.octets(), file_type, mode, device)
            };
            files.insist(&[slot], make).map_err(status)?;
            files.finish(slot, name, kind, set)
        })
    }

    fn make(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        asked: &NewAttributes,
        make: impl Fn(&mut Self, FileSlotId, Name<'_>) -> Result<Object, Status>,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        let slot = self.directory(directory, Intent::Change)?;
        self.must_be_there(slot)?;
        self.await_spare(slot)?;
        // RFC 1813 §3.3.9 [1813-64]: a MKDIR of . or .. gets NFS3ERR_EXIST
        let name = Name::of(name, Status::Exist, Status::Exist);
        let outcome = name.and_then(|name| self.make_no_twin(slot, name, &make));
        self.cache.part();
        let outcome = outcome.and_then(|object| {
            self.sync_object(slot)?;
            Ok(object)
        });
        let ((handle, attributes), directory) = self.changed(slot, outcome)?;
        Ok(MadeObject::new(handle, attributes, directory, asked))
    }

    fn make_no_twin(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        make: &impl Fn(&mut Self, FileSlotId, Name<'_>) -> Result<Object, Status>,
    ) -> Result<Object, Status> {
        self.index.catch_up();
        loop {
            let held = self.twins.len();
            let outcome = make(self, directory, name);
            if self.twins.len() == held || held == TWINS_MAX {
                self.twins.clear();
                return outcome;
            }
        }
    }

    /// Unlinks a new object if it is a twin.
    ///
    /// # Errors
    /// [`Status::Jukebox`] for a twin: the client retries.
    pub(super) fn must_be_no_twin(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        open: &OpenFile,
    ) -> Result<(), Status> {
        // Without birth times every reused inode number would look like a twin's.
        let is_twin = open.kernel.is_none()
            && open.identity.birth != Birth::default()
            && self.index.has_met(open.identity);
        #[cfg(test)]
        let is_twin = is_twin
            || self.pretended_twins.replace(self.pretended_twins.get().saturating_sub(1)) > 0;
        if !is_twin {
            return Ok(());
        }
        self.unmake(directory, name, open.identity, open.kind)?;
        if self.twins.len() < TWINS_MAX {
            self.twins.push(open.path.try_clone().map_err(|error| status_of_io(&error))?);
        }
        Err(Status::Jukebox)
    }

    fn create_in(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        how: &CreateMode,
        is_new: &Cell<bool>,
    ) -> Result<Object, Status> {
        for _ in 0..RACES_MAX {
            let entry = self.entry(directory, name);
            is_new.set(entry.is_err());
            match entry {
                Ok(_) => match self.use_existing(directory, name, how) {
                    Err(Status::NoEnt) => {}
                    outcome => return outcome,
                },
                Err(Status::NoEnt) => match self.create_file(directory, name, how) {
                    Err(Status::Exist) => {}
                    outcome => return outcome,
                },
                Err(status) => return Err(status),
            }
        }
        Err(Status::Jukebox)
    }

    fn use_existing(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        how: &CreateMode,
    ) -> Result<Object, Status> {
        let found = self.entry(directory, name)?;
        // RFC 1813 §3.3.8 [1813-61]: a CREATE over another kind of object gets NFS3ERR_EXIST
        if kind(&found) != FileKind::Regular {
            return Err(Status::Exist);
        }
        match how {
            // RFC 1813 §3.3.8 [1813-56]: a GUARDED CREATE of an existing name gets NFS3ERR_EXIST
            CreateMode::Guarded(_) => Err(Status::Exist),
            CreateMode::Exclusive { verifier, .. } => {
                let found_attributes = attributes(&found, self.export_of(directory));
                // RFC 1813 §3.3.8 [1813-58]: an EXCLUSIVE CREATE succeeds again with the same
                // verifier
                if found_attributes.size != 0 || !carries(&found_attributes, *verifier) {
                    return Err(Status::Exist);
                }
                Ok((self.issue(directory, name, &found)?, found_attributes))
            }
            CreateMode::Unchecked(set) => {
                let (open, _) = self.look(directory, name)?;
                let slot = self.adopt(directory, open);
                if set.size.is_some() {
                    // For an existing file, only the size is set.
                    // RFC 1813 §3.3.8 [1813-55]: an UNCHECKED CREATE of an existing file sets its
                    // size only
                    self.apply(
                        slot,
                        &NewAttributes { size: set.size, ..NewAttributes::default() },
                    )?;
                    self.sync_object(slot)?;
                }
                self.object(directory, name, slot)
            }
        }
    }

    fn create_file(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        how: &CreateMode,
    ) -> Result<Object, Status> {
        let set = match how {
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => *set,
            // RFC 1813 §3.3.8 [1813-57]: the verifier of an EXCLUSIVE CREATE is stored with the
            // file
            CreateMode::Exclusive { verifier, set } => carrying(*verifier, set),
        };
        let mode = Mode::from_bits_truncate(set.mode.unwrap_or(FILE_MODE) & 0o7777);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let make =
            |files: &Self| open_beneath(files.cache.path(directory), name.octets(), flags, mode);
        let fd = self.insist(&[directory], make).map_err(status)?;
        // Opened through the descriptor, not the name: this is the new file even if the name
        // changes.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let open = |files: &Self| {
            openat(&files.shared.descriptors, DecInt::from_fd(&fd), flags, Mode::empty())
        };
        let path = self.open_made(directory, open).map_err(status)?;
        let found = crate::exports::config::stat(&path).map_err(status)?;
        let identity = self.identity(directory, &found);
        let data = Some(OpenData::new(fd, OFlags::RDWR));
        let open = OpenFile { data, ..self.opened(identity, FileKind::Regular, path)? };
        self.must_be_no_twin(directory, name, &open)?;
        let slot = self.adopt(directory, open);
        self.settle(directory, slot, &set)?;
        if let CreateMode::Exclusive { verifier, .. } = how {
            self.must_carry(*verifier, directory, name, slot)?;
        }
        self.sync_object(slot)?;
        self.object(directory, name, slot)
    }

    /// Unlinks a new file that cannot store its client's verifier (RFC 1813 §3.3.8).
    ///
    /// # Errors
    /// [`Status::NotSupp`] for such a file: the client then retries with GUARDED.
    pub(super) fn must_carry(
        &mut self,
        verifier: CreateVerifier,
        directory: FileSlotId,
        name: Name<'_>,
        slot: FileSlotId,
    ) -> Result<(), Status> {
        if carries(&self.attributes(slot)?, verifier) {
            return Ok(());
        }
        let identity = self.cache.get(slot).identity;
        self.unmake(directory, name, identity, FileKind::Regular)?;
        // The file is not used further.
        self.cache.part();
        self.let_go(identity, FileKind::Regular);
        Err(Status::NotSupp)
    }

    /// Unlinks a new object, unless its name was moved and leads to another object or to none.
    fn unmake(
        &self,
        directory: FileSlotId,
        name: Name<'_>,
        made: Identity,
        kind: FileKind,
    ) -> Result<(), Status> {
        match self.entry(directory, name) {
            Ok(found) if self.identity(directory, &found) == made => {}
            Ok(_) | Err(Status::NoEnt) => return Ok(()),
            Err(status) => return Err(status),
        }
        let how = if kind == FileKind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(self.cache.path(directory), name.octets(), how).map_err(status)
    }

    /// Opens the new object `name` and sets its attributes.
    fn finish(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        made: FileKind,
        set: &NewAttributes,
    ) -> Result<Object, Status> {
        let (open, found) = self.look(directory, name)?;
        if open.kind != made {
            return Err(Status::Jukebox); // Someone put another object in its place.
        }
        self.must_be_no_twin(directory, name, &open)?;
        let slot = self.adopt(directory, open);
        // An object with another owner is left unchanged.
        if found.stx_uid == self.uid() {
            self.settle(directory, slot, set)?;
        }
        if made == FileKind::Directory {
            self.sync_object(slot)?;
        }
        self.object(directory, name, slot)
    }

    /// Opens an entry by path, without keeping it.
    fn look(&mut self, directory: FileSlotId, name: Name<'_>) -> Result<(OpenFile, Statx), Status> {
        let open = |files: &Self| {
            open_beneath(files.cache.path(directory), name.octets(), OFlags::PATH, Mode::empty())
        };
        let path = self.open_made(directory, open).map_err(status)?;
        let found = crate::exports::config::stat(&path).map_err(status)?;
        let identity = self.identity(directory, &found);
        self.admit(identity.file, &found)?;
        Ok((self.opened(identity, kind(&found), path)?, found))
    }

    /// Keeps a new object and its directory open until the call is over.
    fn adopt(&mut self, directory: FileSlotId, open: OpenFile) -> FileSlotId {
        self.cache.part();
        let slot = match self.cache.find(open.identity.file) {
            Some(slot) => slot,
            None => self.insert(open, Some(directory)),
        };
        self.cache.pair(directory, slot);
        slot
    }

    /// Sets the requested attributes that the system did not set on a new object.
    fn settle(
        &mut self,
        directory: FileSlotId,
        slot: FileSlotId,
        set: &NewAttributes,
    ) -> Result<(), Status> {
        if set.uid.is_some() || set.gid.is_some() {
            match self.set_owner(slot, set) {
                Err(Status::Perm) => {}
                outcome => outcome?,
            }
        }
        let found = self.attributes(slot)?;
        let wanted = match found.kind {
            FileKind::Symlink => None,
            // A directory passes its group on to subdirectories.
            FileKind::Directory => Some(set.mode.unwrap_or(DIRECTORY_MODE) | found.mode & 0o2000),
            _ => Some(set.mode.unwrap_or(FILE_MODE)),
        };
        let differs = |mode: &u32| *mode != found.mode;
        let mode = wanted.map(|mode| mode & 0o7777).filter(differs).and_then(|mode| {
            // A default list has restricted the mode, as it does for local programs.
            let is_cut = (mode ^ found.mode) & 0o777 != 0 && self.has_default_list(directory);
            let mode = if is_cut { mode & 0o7000 | found.mode & 0o777 } else { mode };
            Some(mode).filter(differs)
        });
        let size = set.size.filter(|size| found.kind == FileKind::Regular && *size != found.size);
        // RFC 1813 §3.3.8 [1813-63]: a new object has the attributes asked for
        let nothing = NewAttributes::default();
        self.apply(slot, &NewAttributes { size, ..nothing })?;
        let is_forced = found.uid != self.uid();
        let (atime, mtime) = (set.atime, set.mtime);
        for part in [NewAttributes { mode, ..nothing }, NewAttributes { atime, mtime, ..nothing }] {
            match self.apply(slot, &part) {
                Err(Status::Perm) if is_forced => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        directory: FileSlotId,
        name: Name<'_>,
        slot: FileSlotId,
    ) -> Result<Object, Status> {
        let found = self.stat(slot)?;
        let handle = self.issue(directory, name, &found)?;
        Ok((handle, attributes(&found, self.export_of(slot))))
    }
}
