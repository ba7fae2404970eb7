//! The procedures of a store, by which calls are executed.

use crate::{
    Brought, Caller, CommitDone, CopyDone, CreateMode, DeviceNode, FileAttributes, FilePlace,
    FileSpan, FileTime, FoundObject, Lender, Linked, Listed, ListingStart, MadeObject, NameIn,
    NewAttributes, ObjectChange, ReadDone, ReadSpan, ReadlinkDone, Renamed, SeekDone, SeekFor,
    SetDone, Status, StoreLimits, StoreResult, Visitor, WriteDone, WritePayload, XattrMode,
};
use stag_pools::Extent;
use stag_protocol::nfs::v3::{
    Access, AttributeOctets, FileHandle, FileKind, FsInfo, FsStat, PathConf, StableHow,
};

use super::tickets::ReadTicket;

/// The procedures of MOUNT and NFS, executed by the calling thread, as specified in RFC 1813 §3.3.
/// An error is the status of the reply, never [`Status::Ok`], with the known attributes of the
/// objects.
pub trait Procedures {
    /// Sets the caller of the calls that follow. The gateway does so before each procedure of NFS.
    fn act_as(&mut self, caller: &Caller);

    /// The handle that MOUNT's MNT returns for `/NAME` or a directory below it, `/NAME/A/B` (RFC
    /// 1813 §5.2.1). The server itself looks up the path, not the last caller.
    ///
    /// # Errors
    ///
    /// [`Status::NoEnt`] when no export has that name, [`Status::NotDir`] when the path
    /// ends at another object; else as LOOKUP.
    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status>;

    /// GETATTR (RFC 1813 §3.3.1).
    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status>;

    /// The same as encoded in version 3's reply: a store with cached ones need not encode them.
    fn getattr_octets(&mut self, file: &FileHandle) -> Result<AttributeOctets, Status> {
        self.getattr(file).map(|attributes| AttributeOctets::from(&attributes))
    }

    /// SETATTR (RFC 1813 §3.3.2), only if the file's ctime is `guard`
    /// [in version 3's range](FileTime::in_32_bits), which is how a client of that version knows
    /// it.
    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone>;

    /// LOOKUP (RFC 1813 §3.3.3).
    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject>;

    /// ACCESS (RFC 1813 §3.3.4): the requested rights that the caller has.
    fn access(&mut self, file: &FileHandle, asked: Access)
    -> StoreResult<(Access, FileAttributes)>;

    /// READLINK (RFC 1813 §3.3.5).
    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone>;

    /// READ (RFC 1813 §3.3.6) of at most `count` bytes, which are at most
    /// [`TRANSFER_MAX`](crate::TRANSFER_MAX).
    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone>;

    /// READ that may be deferred: Ok(None) when a disk has to deliver the bytes, which does not
    /// block this thread. [`Store::next_fetched`](crate::Store::next_fetched) then returns `ticket`
    /// when it is time to [`end_read`](Self::end_read) it.
    fn begin_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        span: ReadSpan,
        _ticket: ReadTicket,
    ) -> StoreResult<Option<ReadDone>> {
        self.read(lender, file, span.offset, span.count).map(Some)
    }

    /// Completes a deferred READ, for the same caller, with the bytes fetched for it.
    fn end_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        span: ReadSpan,
        _brought: Option<Brought>,
    ) -> StoreResult<ReadDone> {
        self.read(lender, file, span.offset, span.count)
    }

    /// WRITE (RFC 1813 §3.3.7) of at most [`TRANSFER_MAX`](crate::TRANSFER_MAX) bytes.
    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange>;

    /// COMMIT (RFC 1813 §3.3.21) of the whole file, whatever range is requested, since the verifier
    /// covers all of it.
    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange>;

    /// CREATE (RFC 1813 §3.3.8).
    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange>;

    /// MKDIR (RFC 1813 §3.3.9).
    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange>;

    /// SYMLINK (RFC 1813 §3.3.10).
    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange>;

    /// MKNOD (RFC 1813 §3.3.11).
    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange>;

    /// MKNOD of a device (RFC 1813 §3.3.11).
    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange>;

    /// REMOVE (RFC 1813 §3.3.12).
    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange>;

    /// RMDIR (RFC 1813 §3.3.13).
    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange>;

    /// RENAME (RFC 1813 §3.3.14): from a name in a directory to another.
    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed>;

    /// LINK (RFC 1813 §3.3.15).
    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked>;

    /// READDIR (RFC 1813 §3.3.16).
    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed>;

    /// READDIRPLUS (RFC 1813 §3.3.17).
    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed>;

    /// FSSTAT (RFC 1813 §3.3.18).
    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)>;

    /// FSINFO (RFC 1813 §3.3.19).
    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)>;

    /// PATHCONF (RFC 1813 §3.3.20).
    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)>;
}

/// Procedures that only version 4 calls (RFC 8881, 7862, 8276), for the same caller. An error is
/// the status of the reply, with the known attributes of the objects. A store without support for
/// one returns [`Status::NotSupp`], the default here.
///
/// A call is made by [`Store::now`](crate::Store::now), or, if
/// [`Store::waits`](crate::Store::waits) returns true for one of
/// [`StoreRequest::objects`](crate::StoreRequest::objects) at its
/// [`StoreRequest::effort`](crate::StoreRequest::effort), begun as that operation by
/// [`Store::begin`](crate::Store::begin). Its outcome is then a store of its own
/// ([`Answered`](crate::Answered)) with one answer, so that the code that writes a reply is the
/// same for both ways. Longer data is lent: a payload for SETXATTR, a room of
/// [`StoreRequest::room_len`](crate::StoreRequest::room_len) for GETXATTR and LISTXATTRS.
/// [`Store::unpin`](crate::Store::unpin) never waits and is no operation.
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
    /// [`Store::unpin`](crate::Store::unpin) was called as often. For opens, locks and delegations.
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
    /// the first on ([`COPY_MAX`](crate::COPY_MAX)). Holes of the source are holes of the copy.
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
    /// # Errors [`Status::NoEnt`] when the file has no such attribute (NFS4ERR_NOXATTR),
    /// [`Status::TooSmall`] when the value is longer than [`XATTR_MAX`](crate::XATTR_MAX)
    /// (NFS4ERR_XATTR2BIG).
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
    /// [`Status::TooSmall`] when their total length exceeds [`XATTR_MAX`](crate::XATTR_MAX).
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
