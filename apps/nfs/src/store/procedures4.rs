//! Procedures of a store for version 4 only (RFC 8881, 7862, 8276).
//!
//! As with version 3, a call is made by [`Store::now`], or, if [`Store::waits`] returns true for
//! one of [`StoreOperation::objects`] at its [`StoreOperation::effort`], begun as that operation by
//! [`Store::begin`]. Its outcome is then a store of its own ([`Answered`]) with one answer, so that
//! the code that writes a reply is the same for both ways. Longer data is lent: a payload for
//! SETXATTR, a room of [`StoreOperation::room_len`] for GETXATTR and LISTXATTRS. [`Store::unpin`]
//! never waits and is no operation.

use stag_pools::Extent;
use stag_protocol::nfs::v3::FileHandle;

#[allow(unused_imports, reason = "for the documentation")]
use super::{Answered, COPY_MAX, Store, StoreOperation, XATTR_MAX};
use super::{
    CopyDone, FilePlace, FileSpan, FoundObject, Lender, ObjectChange, SeekDone, SeekFor, Status,
    StoreLimits, StoreResult, XattrMode,
};

/// The version 4 procedures in addition to [`Procedures`](super::Procedures), for the same caller.
/// An error is the status of the reply, with the known attributes of the objects. A store without
/// support for one returns [`Status::NotSupp`], the default here.
pub trait Procedures4 {
    /// LOOKUPP (RFC 8881 §18.14): the parent; `FoundObject::directory` has `_directory`'s
    /// attributes.
    ///
    /// # Errors
    /// [`Status::NoEnt`] at the root of an export, whose parent is not the store's.
    /// [`Status::NotDir`] for a non-directory.
    fn lookupp(&mut self, _directory: &FileHandle) -> StoreResult<FoundObject> {
        Err(Status::NotSupp.into())
    }

    /// Keeps a file after its last name is removed: its handle stays valid, with `nlink` 0, until
    /// [`Store::unpin`] was called as often. For opens, locks and delegations.
    ///
    /// # Errors
    /// [`Status::Stale`] and the like when there is no such file, [`Status::IsDir`] for a
    /// directory, [`Status::Inval`] for any other object but a regular file, [`Status::Jukebox`]
    /// when too many are pinned.
    fn pin(&mut self, _file: &FileHandle) -> Result<(), Status> {
        Err(Status::NotSupp)
    }

    /// SEEK (RFC 7862 §15.11).
    ///
    /// # Errors
    /// [`Status::NxIo`] at or past the end of the file.
    fn seek(&mut self, _file: &FileHandle, _offset: u64, _what: SeekFor) -> StoreResult<SeekDone> {
        Err(Status::NotSupp.into())
    }

    /// ALLOCATE (RFC 7862 §15.1).
    ///
    /// # Errors
    /// [`Status::NotSupp`] if the file system cannot, [`Status::Inval`] for an empty range,
    /// [`Status::FBig`] past the largest offset.
    fn allocate(
        &mut self,
        _file: &FileHandle,
        _span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// DEALLOCATE (RFC 7862 §15.4).
    ///
    /// # Errors
    /// As in [`allocate`](Self::allocate).
    fn deallocate(
        &mut self,
        _file: &FileHandle,
        _span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// COPY (RFC 7862 §15.2) of `count` bytes, or of all to the end if that is 0, or of a part from
    /// the first on ([`COPY_MAX`]). Holes of the source are holes of the copy.
    ///
    /// # Errors
    /// [`Status::Inval`] for a copy within one file, and for bytes past the source's end;
    /// [`Status::XDev`] between exports.
    fn copy(
        &mut self,
        _from: FilePlace,
        _to: FilePlace,
        _count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// CLONE (RFC 7862 §15.13) of `count` bytes, or of all to the end if that is 0.
    ///
    /// # Errors
    /// [`Status::NotSupp`] if the file system cannot, [`Status::Inval`] for places that do not
    /// match its unit ([`StoreLimits::clone_block`]), else as in [`copy`](Self::copy).
    fn clone_range(
        &mut self,
        _from: FilePlace,
        _to: FilePlace,
        _count: u64,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// GETXATTR (RFC 8276 §8.4.1): the value of the extended attribute `user.NAME`.
    ///
    /// # Errors
    /// [`Status::NoEnt`] when the file has no such attribute (NFS4ERR_NOXATTR),
    /// [`Status::TooSmall`] when the value is longer than [`XATTR_MAX`] (NFS4ERR_XATTR2BIG).
    fn get_xattr(
        &mut self,
        _lender: &Lender<'_>,
        _file: &FileHandle,
        _name: &[u8],
    ) -> StoreResult<Extent> {
        Err(Status::NotSupp.into())
    }

    /// LISTXATTRS (RFC 8276 §8.4.3): the names of all extended attributes in `user.`, without that
    /// prefix, each followed by a zero byte, in byte order. A position in the list serves as
    /// cookie.
    ///
    /// # Errors
    /// [`Status::TooSmall`] when their total length exceeds [`XATTR_MAX`].
    fn list_xattrs(&mut self, _lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<Extent> {
        Err(Status::NotSupp.into())
    }

    /// SETXATTR (RFC 8276 §8.4.2).
    ///
    /// # Errors
    /// [`Status::Exist`] and [`Status::NoEnt`] (NFS4ERR_NOXATTR) according to `how`,
    /// [`Status::TooSmall`] for a value that is too long (NFS4ERR_XATTR2BIG), [`Status::NoSpc`].
    fn set_xattr(
        &mut self,
        _file: &FileHandle,
        _name: &[u8],
        _value: &[u8],
        _how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// REMOVEXATTR (RFC 8276 §8.4.4).
    ///
    /// # Errors
    /// [`Status::NoEnt`] when the file has no such attribute (NFS4ERR_NOXATTR).
    fn remove_xattr(
        &mut self,
        _file: &FileHandle,
        _name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Err(Status::NotSupp.into())
    }

    /// Properties of an object's file system that only version 4 reports.
    fn limits(&mut self, _object: &FileHandle) -> Result<StoreLimits, Status> {
        Err(Status::NotSupp)
    }
}
