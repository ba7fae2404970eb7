//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 §3.3.8–3.3.11).

use super::{
    attributes::set_stat,
    rights::{self, kind},
    session::{CName, CallPurpose, CephSession, FoundFile},
};
use crate::{
    CreateMode, DeviceNode, Failed, MadeObject, NewAttributes, ObjectChange, StoreResult,
    contract::{
        exclusive::{carries, carrying},
        name::Name,
    },
};
use rustix::{fs::makedev, io::Errno};
use stag_ceph::{CephInode, CephStat, UserPerm};
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};
use std::ffi::CString;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Octets of a link's longest target, as on Linux.
const TARGET_MAX: usize = 4095;

/// A new object.
type Made = Result<(CephInode, CephStat), Errno>;

impl CephSession {
    /// Makes an object in a directory by `make`.
    fn make(
        &self,
        directory: &FileHandle,
        name: &[u8],
        asked: &NewAttributes,
        make: impl FnOnce(&FoundFile, Name<'_>) -> Result<FoundFile, Status>,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let parent = self.directory(directory, CallPurpose::Change)?;
        // RFC 1813 §3.3.9 [1813-64]: a MKDIR of . or .. gets NFS3ERR_EXIST
        let outcome = Name::of(name, Status::Exist, Status::Exist).and_then(|name| {
            self.must_be_no_snapshot(&parent, name, Status::Acces)?;
            make(&parent, name)
        });
        let about = self.wcc(&parent);
        match outcome {
            Ok(made) => {
                let handle = self.handle(&made.export, made.held.vino);
                Ok(MadeObject::new(handle, self.attributes_of(&made), about, asked))
            }
            Err(status) => Err(Failed { status, about }),
        }
    }

    /// Creates an object as the caller with the requested attributes; removes it again if they
    /// cannot be set.
    fn make_new(
        &self,
        parent: &FoundFile,
        name: Name<'_>,
        set: &NewAttributes,
        make: impl FnOnce(&CName, &UserPerm<'_>) -> Made,
    ) -> Result<FoundFile, Status> {
        set_stat(set)?;
        let text = CName::of(name);
        let made = self.as_caller(|user| make(&text, user));
        let (inode, stat) = made.map_err(|errno| self.fails_once(&parent.live, errno))?;
        let made = self.hold(parent, inode, stat);
        match self.settle(&made, set) {
            Ok(()) => self.look(made.live, made.export, made.held),
            Err(status) => {
                let remove = match kind(&made.stat) {
                    FileKind::Directory => CephInode::remove_directory,
                    _ => CephInode::unlink,
                };
                // If removal fails, the object stays, as after a crash.
                let _ = remove(&parent.held.inode, text.text(), &self.root());
                made.live.table.let_go(made.held.vino);
                Err(status)
            }
        }
    }

    /// Sets the requested attributes that the library did not set on a new object.
    fn settle(&self, made: &FoundFile, set: &NewAttributes) -> Result<(), Status> {
        let nothing = NewAttributes::default();
        let owner = NewAttributes { uid: set.uid, gid: set.gid, ..nothing };
        if set.uid.is_some_and(|uid| uid != made.stat.uid)
            || set.gid.is_some_and(|gid| gid != made.stat.gid)
        {
            // Clients name owners that the server may refuse.
            match self.apply(made, &owner) {
                Ok(()) | Err(Status::Perm) => {}
                Err(status) => return Err(status),
            }
        }
        let found = u32::from(made.stat.mode) & 0o7777;
        let wanted = match kind(&made.stat) {
            FileKind::Symlink => None,
            // A directory passes its group on to subdirectories.
            FileKind::Directory => {
                Some(set.masked_mode().unwrap_or(DIRECTORY_MODE) | found & 0o2000)
            }
            _ => Some(set.masked_mode().unwrap_or(FILE_MODE)),
        };
        let mode = wanted.map(|mode| mode & 0o7777).filter(|mode| *mode != found);
        let size = set.size.filter(|size| kind(&made.stat) == FileKind::Regular && *size != 0);
        let (atime, mtime) = (set.atime, set.mtime);
        // RFC 1813 §3.3.8 [1813-63]: a new object has the attributes asked for
        for part in [
            NewAttributes { size, ..nothing },
            NewAttributes { mode, ..nothing },
            NewAttributes { atime, mtime, ..nothing },
        ] {
            self.apply(made, &part)?;
        }
        Ok(())
    }

    pub(super) fn create_file(
        &self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let set = match how {
            CreateMode::Unchecked(set) | CreateMode::Guarded(set) => *set,
            // RFC 1813 §3.3.8 [1813-57]: the verifier of an EXCLUSIVE CREATE is stored with the
            // file
            CreateMode::Exclusive { verifier, set } => carrying(*verifier, set),
        };
        let mut is_new = true;
        let made = self.make(directory, name, &set, |parent, name| {
            let mode = set.masked_mode().unwrap_or(FILE_MODE) & 0o7777;
            let mut opened = None;
            let made = self.make_new(parent, name, &set, |text, user| {
                let parent = &parent.held.inode;
                let (inode, file, stat) = parent.create(text.text(), mode, true, user)?;
                opened = Some(file);
                Ok((inode, stat))
            });
            // Opened as one caller, not as root: other callers would read and write through it.
            drop(opened);
            match made {
                Err(Status::Exist) => {
                    is_new = false;
                    self.create_again(parent, name, how)
                }
                other => other,
            }
        })?;
        match how {
            CreateMode::Unchecked(set) if !is_new => Ok(made.found(set)),
            _ => Ok(MadeObject { is_new, ..made }),
        }
    }

    /// CREATE of a name that is taken.
    fn create_again(
        &self,
        parent: &FoundFile,
        name: Name<'_>,
        how: &CreateMode,
    ) -> Result<FoundFile, Status> {
        let found = self.as_caller(|user| self.entry(parent, name.octets(), user))?;
        // RFC 1813 §3.3.8 [1813-61]: a CREATE over another kind of object gets NFS3ERR_EXIST
        if kind(&found.stat) != FileKind::Regular {
            return Err(Status::Exist);
        }
        match how {
            // RFC 1813 §3.3.8 [1813-58]: an EXCLUSIVE CREATE succeeds again with the same verifier
            CreateMode::Exclusive { verifier, .. }
                if found.stat.size == 0 && carries(&self.attributes_of(&found), *verifier) =>
            {
                Ok(found)
            }
            // RFC 1813 §3.3.8 [1813-56]: a GUARDED CREATE of an existing name gets NFS3ERR_EXIST
            CreateMode::Exclusive { .. } | CreateMode::Guarded(_) => Err(Status::Exist),
            CreateMode::Unchecked(set) => {
                // RFC 1813 §3.3.8 [1813-55]: an UNCHECKED CREATE of an existing file sets its size
                // only
                let only = NewAttributes { size: set.size, ..NewAttributes::default() };
                self.apply(&found, &only)?;
                self.look(found.live, found.export, found.held)
            }
        }
    }

    pub(super) fn make_directory(
        &self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let mode = set.masked_mode().unwrap_or(DIRECTORY_MODE) & 0o7777;
        let set = &NewAttributes { size: None, ..*set };
        self.make(directory, name, set, |parent, name| {
            self.make_new(parent, name, set, |text, user| {
                parent.held.inode.make_directory(text.text(), mode, user)
            })
        })
    }

    pub(super) fn make_symlink(
        &self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let set = &NewAttributes { size: None, ..*set };
        self.make(directory, name, set, |parent, name| {
            if target.is_empty() {
                return Err(Status::Inval);
            }
            if target.len() > TARGET_MAX {
                return Err(Status::NameTooLong);
            }
            let target = CString::new(target).map_err(|_| Status::Inval)?;
            // RFC 1813 §3.3.10 [1813-65]: a symbolic link is never visible without its target
            self.make_new(parent, name, set, |text, user| {
                parent.held.inode.make_link(text.text(), &target, user)
            })
        })
    }

    pub(super) fn make_special(
        &self,
        directory: &FileHandle,
        name: &[u8],
        DeviceNode { kind, device }: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let set = &NewAttributes { size: None, ..*set };
        self.make(directory, name, set, |parent, name| {
            let is_device = matches!(kind, FileKind::Block | FileKind::Character);
            let format = match kind {
                FileKind::Fifo => 0o010_000,
                FileKind::Character => 0o020_000,
                FileKind::Block => 0o060_000,
                FileKind::Socket => 0o140_000,
                // RFC 1813 §3.3.11 [1813-66]: a MKNOD of a file, directory or link gets
                // NFS3ERR_BADTYPE
                FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                    return Err(Status::BadType);
                }
            };
            // The library creates devices for any user who may create a name.
            if is_device && self.user().uid() != 0 {
                return Err(Status::Perm);
            }
            let number = if is_device { makedev(device.major, device.minor) } else { 0 };
            let mode = format | set.masked_mode().unwrap_or(FILE_MODE) & 0o7777;
            self.make_new(parent, name, set, |text, user| {
                parent.held.inode.make_node(text.text(), mode, number, user)
            })
        })
    }

    /// The requested rights that the caller has to an object.
    pub(super) fn rights_of(&self, file: &FoundFile) -> Result<u32, Status> {
        rights::rights(&file.held.inode, &file.stat, self.user())
            .map_err(|errno| self.fails(&file.live, errno))
    }
}
