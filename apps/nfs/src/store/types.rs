//! FileAttributes of files, and changes to them, as stores have them: for every version of NFS.
//!
//! Versions 3 and 4 show the same attributes, each in its own words: `crate::v3` converts for
//! version 3 (RFC 1813 §2.6), whoever serves version 4 for that one (RFC 8881 §5). Handles, kinds,
//! device numbers, rights and [`Status`](super::Status) are those of version 3, which version 4 has
//! with the same meaning; a status that version 3 lacks is told by one that the method in question
//! gives for nothing else ([`super::Procedures`] says which).

use stag_protocol::nfs::v3::{CreateVerifier, DeviceNumber, FileKind};

use super::SetMask;

/// A moment: time since 1970-01-01 00:00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after them. A client's value may be 10⁹ or more: stores refuse it with
    /// [`Status::Inval`](super::Status::Inval).
    pub nanos: u32,
}

impl FileTime {
    /// Nanoseconds in a second.
    pub const NANOS: u32 = 1_000_000_000;

    /// Returns true for nanoseconds that make no whole second.
    pub const fn is_valid(self) -> bool {
        self.nanos < Self::NANOS
    }

    /// The same moment in the range that version 3 can tell, 32 unsigned bits of seconds: one
    /// before 1970 becomes 1970, one after 2106 the end of 2106, as with Linux' server (RFC 1813
    /// §2.6).
    pub const fn in_32_bits(self) -> Self {
        if self.seconds < 0 {
            Self { seconds: 0, nanos: 0 }
        } else if self.seconds > u32::MAX as i64 {
            Self { seconds: u32::MAX as i64, nanos: Self::NANOS - 1 }
        } else {
            self
        }
    }

    /// The moment so many nanoseconds after 1970 began.
    pub const fn of_nanos(nanos: u64) -> Self {
        let second = Self::NANOS as u64;
        Self { seconds: (nanos / second) as i64, nanos: (nanos % second) as u32 }
    }

    /// Nanoseconds since 1970, modulo 2⁶⁴: different for moments that are less than 584 years
    /// apart.
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
    /// Octets of content.
    pub size: u64,
    /// Octets of storage.
    pub used: u64,
    /// The device it stands for, if it is a device.
    pub device: DeviceNumber,
    /// The file system it lies on: the export's, the same after a restart.
    pub fsid: u64,
    /// Its number there (the inode).
    pub fileid: u64,
    /// Last access to the content.
    pub atime: FileTime,
    /// Last change of the content.
    pub mtime: FileTime,
    /// Last change of the attributes.
    pub ctime: FileTime,
    /// Time at which it was made, where the file system knows it.
    pub birth: Option<FileTime>,
    /// Another value after each change of content, names or attributes (RFC 8881 §5.8.1.4). An
    /// access changes it not.
    pub change: u64,
}

/// Attributes of an object just before a change, by which a client sees whether someone else
/// changed it meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeforeChange {
    /// Octets of content.
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
    /// Just before the operation, only where nobody else can have changed the object between this
    /// and `after`.
    pub before: Option<BeforeChange>,
    /// Just after it, where they are known.
    pub after: Option<FileAttributes>,
}

impl ObjectChange {
    /// Nothing is known.
    pub const NONE: Self = Self { before: None, after: None };

    /// The operation changes nothing: the object is before it as it is after.
    pub fn leave(&mut self) {
        self.before = self.after.as_ref().map(Into::into);
    }

    /// True if nobody else changed the object between `before` and `after` (`atomic` of
    /// change_info4).
    pub const fn is_atomic(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// The change attribute before and after the operation, for change_info4. One that is not known
    /// is 0, which no object has, so that no client takes it for what it knows.
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
    /// It stays.
    #[default]
    Keep,
    /// It becomes the server's time.
    Server,
    /// It becomes this.
    Client(FileTime),
}

/// FileAttributes to set; what is `None` or [`NewTime::Keep`] stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Bits taken from the mode of a new object, unless its directory has a default access control
    /// list (RFC 8275 §4).
    pub umask: u32,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Octets of content: cut, or filled up with zeros.
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

    /// Those of them that an object with these attributes has as they were asked for: what was set,
    /// when nobody knows how far setting came.
    pub fn found_in(&self, found: &FileAttributes) -> SetMask {
        let is_time = |new, found| match new {
            NewTime::Keep => false,
            NewTime::Server => true,
            NewTime::Client(time) => time == found,
        };
        let is_regular = found.kind == FileKind::Regular;
        // A directory hands its group down, with the bit that says so.
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
    /// An existing file is taken, and only its size is set.
    Unchecked(NewAttributes),
    /// An existing file is an error.
    Guarded(NewAttributes),
    /// An existing file is an error, unless this very call, known by its verifier, made it.
    Exclusive {
        /// Verifier that the store keeps with the file until its times are set.
        verifier: CreateVerifier,
        /// FileAttributes of the new file, but for its size and times (`EXCLUSIVE4_1`). The other
        /// exclusive modes have none.
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
