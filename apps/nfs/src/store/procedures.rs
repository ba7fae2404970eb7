//! The procedures of a store, by which calls are executed.

use stag_protocol::nfs::v3::{
    Access, AttributeOctets, FileHandle, FileKind, FsInfo, FsStat, PathConf, StableHow,
};

use super::{
    Brought, Caller, CommitDone, CreateMode, DeviceNode, FileAttributes, FileTime, FoundObject,
    Lender, Linked, Listed, ListingStart, MadeObject, NameIn, NewAttributes, ObjectChange,
    ReadDone, ReadSpan, ReadlinkDone, Renamed, SetDone, Status, StoreResult, Visitor, WriteDone,
    WritePayload,
};
#[allow(unused_imports, reason = "for the documentation")]
use super::{Store, TRANSFER_MAX};
use crate::helpers::ReadTicket;

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

    /// READ (RFC 1813 §3.3.6) of at most `count` bytes, which are at most [`TRANSFER_MAX`].
    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone>;

    /// READ that may be deferred: Ok(None) when a disk has to deliver the bytes, which does not
    /// block this thread. [`Store::next_fetched`] then returns `ticket` when it is time to
    /// [`end_read`](Self::end_read) it.
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

    /// WRITE (RFC 1813 §3.3.7) of at most [`TRANSFER_MAX`] bytes.
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
