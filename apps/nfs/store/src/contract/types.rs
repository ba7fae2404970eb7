//! Attributes of files, and changes to them, as used by stores for every version of NFS.
//!
//! Versions 3 and 4 have the same attributes in different forms: `version3` converts for
//! version 3 (RFC 1813 §2.6), the version 4 code for version 4 (RFC 8881 §5). Handles, kinds,
//! device numbers, rights and [`Status`](crate::Status) are those of version 3, which version 4
//! shares. A status that version 3 lacks is represented by one that the method returns for nothing
//! else ([`crate::Procedures`] lists them).

use stag_protocol::nfs::v3::{CreateVerifier, DeviceNumber, FileKind};

use crate::SetMask;

/// A moment: time since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after them. A client's value may be 10⁹ or more: stores refuse it with
    /// [`Status::Inval`](crate::Status::Inval).
    pub nanos: u32,
}

impl FileTime {
    /// Nanoseconds in a second.
    pub const NANOS: u32 = 1_000_000_000;

    /// Returns true if the nanoseconds are less than a second.
    pub const fn is_valid(self) -> bool {
        self.nanos < Self::NANOS
    }

    /// The same moment in version 3's range, 32 unsigned bits of seconds: one before 1970 becomes
    /// 1970, one after 2106 the end of 2106, as with Linux' server (RFC 1813 §2.6).
    pub const fn in_32_bits(self) -> Self {
        if self.seconds < 0 {
            Self { seconds: 0, nanos: 0 }
        } else if self.seconds > u32::MAX as i64 {
            Self { seconds: u32::MAX as i64, nanos: Self::NANOS - 1 }
        } else {
            self
        }
    }

    /// The moment `nanos` nanoseconds after the start of 1970.
    pub const fn of_nanos(nanos: u64) -> Self {
        let second = Self::NANOS as u64;
        Self { seconds: (nanos / second) as i64, nanos: (nanos % second) as u32 }
    }

    /// Nanoseconds since 1970, modulo 2⁶⁴: differs for moments less than 584 years apart.
    pub const fn wrapping_nanos(self) -> u64 {
        let seconds = self.seconds.cast_unsigned().wrapping_mul(Self::NANOS as u64);
        seconds.wrapping_add(self.nanos as u64)
    }
}

/// All attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttributes {
    /// Kind of the object.
    pub kind: FileKind,
    /// Permission bits, set-user-id, set-group-id and sticky bit: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of storage.
    pub used: u64,
    /// The device number, if it is a device.
    pub device: DeviceNumber,
    /// Its file system: the export's id, the same after a restart.
    pub fsid: u64,
    /// Its inode number there.
    pub fileid: u64,
    /// Last access to the content.
    pub atime: FileTime,
    /// Last change of the content.
    pub mtime: FileTime,
    /// Last change of the attributes.
    pub ctime: FileTime,
    /// Time of creation, if the file system records it.
    pub birth: Option<FileTime>,
    /// Differs after each change of content, names or attributes (RFC 8881 §5.8.1.4), but not after
    /// an access.
    pub change: u64,
}

/// Attributes of an object just before a change, by which a client detects changes by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeChange {
    /// Bytes of content.
    pub size: u64,
    /// Last change of the content.
    pub mtime: FileTime,
    /// Last change of the attributes.
    pub ctime: FileTime,
    /// The change attribute.
    pub change: u64,
}

impl From<&FileAttributes> for BeforeChange {
    fn from(attributes: &FileAttributes) -> Self {
        let FileAttributes { size, mtime, ctime, change, .. } = *attributes;
        Self { size, mtime, ctime, change }
    }
}

/// An object before and after an operation that changes it (RFC 1813 §2.6, wcc_data; RFC 8881
/// §3.3.3, change_info4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectChange {
    /// Just before the operation, only if no other change can come between this and `after`.
    pub before: Option<BeforeChange>,
    /// Just after it, if known.
    pub after: Option<FileAttributes>,
}

impl ObjectChange {
    /// Nothing is known.
    pub const NONE: Self = Self { before: None, after: None };

    /// Marks an operation that changed nothing: the object is before it as it is after.
    pub fn leave(&mut self) {
        self.before = self.after.as_ref().map(Into::into);
    }

    /// True if no other change came between `before` and `after` (`atomic` of change_info4).
    pub const fn is_atomic(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// The change attribute before and after the operation, for change_info4. An unknown one is 0,
    /// which no object has, so that it matches no client's cached value.
    pub const fn change_numbers(&self) -> [u64; 2] {
        let before = match &self.before {
            Some(before) => before.change,
            None => 0,
        };
        let after = match &self.after {
            Some(after) => after.change,
            None => 0,
        };
        [before, after]
    }
}

/// Change of a timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NewTime {
    /// Unchanged.
    #[default]
    Keep,
    /// Set to the server's time.
    Server,
    /// Set to this time.
    Client(FileTime),
}

/// Attributes to set; `None` or [`NewTime::Keep`] leaves one unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Bits removed from the mode of a new object, unless its directory has a default access
    /// control list (RFC 8275 §4).
    pub umask: u32,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Bytes of content: truncates, or extends with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: NewTime,
    /// Last change of the content.
    pub mtime: NewTime,
}

impl NewAttributes {
    /// The mode of a new object in a directory without a default access control list.
    pub const fn masked_mode(&self) -> Option<u32> {
        match self.mode {
            Some(mode) => Some(mode & !self.umask),
            None => None,
        }
    }

    /// Attributes that are to be set.
    pub fn mask(&self) -> SetMask {
        SetMask::MODE.when(self.mode.is_some())
            | SetMask::UID.when(self.uid.is_some())
            | SetMask::GID.when(self.gid.is_some())
            | SetMask::SIZE.when(self.size.is_some())
            | SetMask::ATIME.when(self.atime != NewTime::Keep)
            | SetMask::MTIME.when(self.mtime != NewTime::Keep)
    }

    /// The requested attributes that `found` has: the ones that were set, when that is not known
    /// otherwise.
    pub fn found_in(&self, found: &FileAttributes) -> SetMask {
        let is_time = |new, found| match new {
            NewTime::Keep => false,
            NewTime::Server => true,
            NewTime::Client(time) => time == found,
        };
        let is_regular = found.kind == FileKind::Regular;
        // A directory passes its group on, along with the set-group-id bit.
        let mode = self.masked_mode().map(|mode| (mode ^ found.mode) & 0o5777);
        SetMask::MODE.when(mode == Some(0) && found.kind != FileKind::Symlink)
            | SetMask::UID.when(self.uid == Some(found.uid))
            | SetMask::GID.when(self.gid == Some(found.gid))
            | SetMask::SIZE.when(self.size == Some(found.size) && is_regular)
            | SetMask::ATIME.when(is_time(self.atime, found.atime))
            | SetMask::MTIME.when(is_time(self.mtime, found.mtime))
    }
}

/// Treatment of an existing name by CREATE and OPEN (RFC 1813 §3.3.8, RFC 8881 §18.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Opens an existing file, and sets only its size.
    Unchecked(NewAttributes),
    /// Fails if the file exists.
    Guarded(NewAttributes),
    /// Fails if the file exists, unless this very call, recognised by its verifier, made it.
    Exclusive {
        /// Verifier that the store keeps with the file until its times are set.
        verifier: CreateVerifier,
        /// Attributes of the new file, except size and times (`EXCLUSIVE4_1`). The other exclusive
        /// modes have none.
        set: NewAttributes,
    },
}

impl CreateMode {
    /// An exclusive mode without attributes (version 3, `EXCLUSIVE4`).
    pub fn exclusive(verifier: CreateVerifier) -> Self {
        Self::Exclusive { verifier, set: NewAttributes::default() }
    }

    /// The same mode with other attributes.
    #[must_use]
    pub const fn with(&self, set: NewAttributes) -> Self {
        match *self {
            Self::Unchecked(_) => Self::Unchecked(set),
            Self::Guarded(_) => Self::Guarded(set),
            Self::Exclusive { verifier, .. } => Self::Exclusive { verifier, set },
        }
    }

    /// The attributes of a new file.
    pub const fn attributes(&self) -> &NewAttributes {
        match self {
            Self::Unchecked(set) | Self::Guarded(set) | Self::Exclusive { set, .. } => set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_become_numbers_that_differ() {
        let at = |seconds, nanos| FileTime { seconds, nanos }.wrapping_nanos();
        assert_eq!(at(0, 7), 7);
        assert_eq!(at(2, 7), 2_000_000_007);
        assert_eq!(FileTime::of_nanos(2_000_000_007), FileTime { seconds: 2, nanos: 7 });
        assert_eq!(at(-1, 0), u64::MAX - 999_999_999);
        assert_eq!(at(-1, 999_999_999).wrapping_add(1), at(0, 0));
        assert!(FileTime { seconds: -5, nanos: 999_999_999 }.is_valid());
        assert!(!FileTime { seconds: 0, nanos: FileTime::NANOS }.is_valid());
    }

    #[test]
    fn a_change_of_which_the_beginning_is_unknown_is_not_atomic() {
        let none = ObjectChange::NONE;
        assert!(!none.is_atomic());
        assert_eq!(none.change_numbers(), [0, 0]);
    }
}
