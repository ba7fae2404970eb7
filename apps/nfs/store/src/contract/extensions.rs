//! Arguments and results of version 4 procedures of a store: SEEK, ALLOCATE, COPY and CLONE (RFC
//! 7862 §15), extended attributes (RFC 8276), and exports.

use std::{ops::BitOr, time::Duration};

use stag_protocol::nfs::{
    v3::{FileHandle, StableHow, Verifier},
    v4::state::LockRange,
};

use crate::{Failed, NewAttributes, ObjectChange, StoreResult};

/// Bytes of the longest value of an extended attribute, and of all names of a file's (Linux'
/// limit).
pub const XATTR_MAX: usize = 65_536;
/// Bytes of the longest name of an extended attribute, without its namespace `user.`.
pub const XATTR_NAME_MAX: usize = 255 - 5;
/// Maximum bytes of data, holes not counted, that a shard copies in one COPY. The client requests
/// the rest (RFC 7862 §15.2.3).
pub const COPY_MAX: u64 = 4 << 20;

/// A lock held by a program that is not a client of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLock {
    /// Its byte range.
    pub range: LockRange,
    /// True for a write lock.
    pub exclusive: bool,
}

/// A [watched](crate::Store::watch) file that another program waits for, or has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchedFile {
    /// The file.
    pub file: FileHandle,
    /// Maximum time that the program waits; none if it does not wait, or waits forever.
    pub patience: Option<Duration>,
}

/// Attributes that a SETATTR, CREATE or OPEN has set: version 4's bitmap `attrsset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetMask(u8);

impl SetMask {
    /// None.
    pub const NONE: Self = Self(0);
    /// The size.
    pub const SIZE: Self = Self(1);
    /// The owner.
    pub const UID: Self = Self(2);
    /// The group.
    pub const GID: Self = Self(4);
    /// The mode.
    pub const MODE: Self = Self(8);
    /// The time of access.
    pub const ATIME: Self = Self(16);
    /// The time of modification.
    pub const MTIME: Self = Self(32);

    /// Returns true if this includes all of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns this mask if `is_set`, else none.
    pub const fn when(self, is_set: bool) -> Self {
        if is_set { self } else { Self::NONE }
    }

    /// Returns this mask without the bits of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for SetMask {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Result of SETATTR, even a partly failed one (RFC 8881 §18.30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetDone {
    /// The object before and after.
    pub object: ObjectChange,
    /// Attributes that were set; after a failure, possibly some.
    pub set: SetMask,
}

impl SetDone {
    /// The outcome of setting `asked`; after a failure, the attributes that the object then has.
    pub(crate) fn of(
        asked: &NewAttributes,
        outcome: StoreResult<ObjectChange, ObjectChange>,
    ) -> StoreResult<Self, Self> {
        outcome.map(|object| Self { object, set: asked.mask() }).map_err(|failed| {
            let Failed { status, about: object } = failed;
            let set = object.after.map_or(SetMask::NONE, |after| asked.found_in(&after));
            Failed { status, about: Self { object, set } }
        })
    }
}

/// Bytes of a file from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSpan {
    /// The offset of the first byte.
    pub offset: u64,
    /// Their number.
    pub len: u64,
}

impl FileSpan {
    /// The offset past the last byte; none past the largest offset that a file can have.
    pub fn end(self) -> Option<u64> {
        let end = self.offset.checked_add(self.len)?;
        i64::try_from(end).is_ok().then_some(end)
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The file.
    pub file: FileHandle,
    /// The offset.
    pub offset: u64,
}

/// Content that SEEK looks for (`data_content4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// Data.
    Data,
    /// A hole. Every file has one past its end.
    Hole,
}

/// Result of SEEK (RFC 7862 §15.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekDone {
    /// True if there is none before the end of the file, which `offset` then is.
    pub eof: bool,
    /// The offset of the first byte found.
    pub offset: u64,
}

/// Result of COPY (RFC 7862 §15.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyDone {
    /// Bytes copied: all, or fewer, in which case the client requests the rest.
    pub count: u64,
    /// Stability of the bytes copied.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost; taken before the data was copied.
    pub verifier: Verifier,
    /// The target file.
    pub file: ObjectChange,
}

/// Treatment of an existing or missing extended attribute (`setxattr_option4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces it.
    Either,
    /// Fails if it exists: [`Status::Exist`](crate::Status::Exist).
    Create,
    /// Fails if it does not exist: [`Status::NoEnt`](crate::Status::NoEnt).
    Replace,
}

/// Properties of an object's file system in addition to those of FSINFO and PATHCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLimits {
    /// Unit of CLONE in bytes (`clone_blksize`); none if CLONE is not supported.
    pub clone_block: Option<u32>,
    /// True if extended attributes are supported (`xattr_support`).
    pub has_xattrs: bool,
    /// True if access control lists are supported.
    pub has_acls: bool,
    /// Resolution of the change times in nanoseconds (`time_delta`).
    pub time_delta_ns: u32,
    /// True if the change attribute grows with each change (`change_attr_type`), rather than only
    /// differs.
    pub change_grows: bool,
}

/// An export, as a client of version 4 sees it in the pseudo file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportRoot {
    /// Its name, without a slash.
    pub name: String,
    /// Its number: the same after a restart, except for exports of memory.
    pub id: u32,
    /// `fsid` of all objects in it.
    pub fsid: u64,
    /// True if changes are refused.
    pub is_read_only: bool,
    /// The handle of its root; none if a helper has to find it
    /// ([`StoreRequest::Mount`](crate::StoreRequest::Mount)).
    pub root: Option<FileHandle>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_where_a_file_can_end() {
        let end = |offset, len| FileSpan { offset, len }.end();
        assert_eq!(end(5, 6), Some(11));
        assert_eq!(end(i64::MAX as u64, 0), Some(i64::MAX as u64));
        assert_eq!(end(i64::MAX as u64, 1), None);
        assert_eq!(end(u64::MAX, 1), None);
        assert_eq!(end(0, u64::MAX), None);
    }

    #[test]
    fn masks_are_joined_and_taken_apart() {
        let both = SetMask::SIZE | SetMask::MODE.when(true) | SetMask::UID.when(false);
        assert!(both.contains(SetMask::SIZE) && both.contains(SetMask::MODE));
        assert!(!both.contains(SetMask::UID) && !both.contains(SetMask::SIZE | SetMask::UID));
        assert_eq!(both.without(SetMask::SIZE), SetMask::MODE);
    }
}
