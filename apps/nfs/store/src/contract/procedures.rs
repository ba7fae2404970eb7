//! The procedures of a store, by which calls are executed: one table, and the two traits that are
//! made of it.
//!
//! A row of [`store_procedures`](crate::store_procedures) is all that the rest of the server needs
//! to know of a procedure: it also makes the call that another thread executes
//! ([`StoreRequest`](crate::StoreRequest)), its execution ([`perform`](crate::perform)), its answer
//! ([`Answered`](crate::Answered)), and the method by which operations of version 4 call it. Eight
//! procedures have no row and are written out in these places: MNT, which names no object, and
//! those whose results are longer than a reply's header and go to lent memory.

use self::types::*;
use super::tickets::ReadTicket;
use crate::{
    Brought, Caller, Lender, Listed, ListingStart, ReadDone, ReadSpan, ReadlinkDone, Visitor,
};
use stag_pools::Extent;
use stag_protocol::nfs::{v3::AttributeOctets, v4::StatOctets};

/// Arguments and results of the table, for the traits and
/// [all who expand it](crate::procedure_types).
pub(crate) mod types {
    pub use crate::{
        AclPart, CommitDone, CopyDone, CreateMode, DeviceNode, FileAttributes, FilePlace, FileSpan,
        FileTime, FoundObject, Linked, MadeObject, NameIn, NewAttributes, ObjectChange, Renamed,
        SeekDone, SeekFor, SetDone, Status, StoreLimits, StoreResult, WriteDone, WritePayload,
        XattrMode,
    };
    pub use stag_protocol::nfs::v3::{Access, FileHandle, FsInfo, FsStat, PathConf, StableHow};
}

/// Calls the macro `$then` with the rows of the table of procedures: those of `version3`, those of
/// `version4`, or `all`. A row is
///
/// ```text
/// /// What it does, and its errors.
/// VARIANT: "LABEL", EFFORT, reads | changes, [OBJECTS];
/// fn METHOD(ARGUMENT: TYPE as OWNED, ...) -> RESULT as OUTCOME;
/// ```
///
/// `VARIANT` is the call as a [`StoreRequest`](crate::StoreRequest), with the label that the log
/// uses, its [`Effort`](crate::Effort), whether it may change anything, and references to the
/// handles of its one or two objects. `METHOD` is the procedure in the trait. Each argument has its
/// type there, and as a field of the variant ([`Lend`](crate::Lend) and [`Own`](crate::Own) convert
/// the two): bytes of any length are a [`LentArgument`](crate::LentArgument), one at most.
/// `OUTCOME` is the variant of [`StoreOutcome`](crate::StoreOutcome) with that result. A procedure
/// that only version 4 calls has a row in the second group, and is [`Status::NotSupp`] in a store
/// without it.
#[macro_export]
macro_rules! store_procedures {
    ($group:ident $then:ident) => { $crate::select_procedures! { $group $then
        version3 {
            /// GETATTR (RFC 1813 §3.3.1).
            GetAttr: "GETATTR", Effort::Plain, reads, [file];
            fn getattr(
                file: &FileHandle as FileHandle
            ) -> Result<FileAttributes, Status> as Attributes;

            /// SETATTR (RFC 1813 §3.3.2), only if the file's ctime is `guard` [in version 3's
            /// range](FileTime::in_32_bits), which is how a client of that version knows it.
            SetAttr: "SETATTR", Effort::Change, changes, [file];
            fn setattr(
                file: &FileHandle as FileHandle,
                set: &NewAttributes as NewAttributes,
                guard: Option<FileTime> as Option<FileTime>
            ) -> StoreResult<SetDone, SetDone> as Set;

            /// LOOKUP (RFC 1813 §3.3.3).
            Lookup: "LOOKUP", Effort::Plain, reads, [directory];
            fn lookup(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName
            ) -> StoreResult<FoundObject> as Found;

            /// ACCESS (RFC 1813 §3.3.4): the requested rights that the caller has.
            Access: "ACCESS", Effort::Plain, reads, [file];
            fn access(
                file: &FileHandle as FileHandle,
                asked: Access as Access
            ) -> StoreResult<(Access, FileAttributes)> as Access;

            /// WRITE (RFC 1813 §3.3.7) of at most [`TRANSFER_MAX`](crate::TRANSFER_MAX) bytes.
            Write: "WRITE", Effort::of_write(stable), changes, [file];
            fn write(
                file: &FileHandle as FileHandle,
                offset: u64 as u64,
                data: WritePayload<'_> as LentArgument,
                stable: StableHow as StableHow
            ) -> StoreResult<WriteDone, ObjectChange> as Written;

            /// COMMIT (RFC 1813 §3.3.21) of the whole file, whatever range is requested, since the
            /// verifier covers all of it.
            Commit: "COMMIT", Effort::Sync, changes, [file];
            fn commit(
                file: &FileHandle as FileHandle
            ) -> StoreResult<CommitDone, ObjectChange> as Committed;

            /// CREATE (RFC 1813 §3.3.8).
            Create: "CREATE", Effort::Change, changes, [directory];
            fn create(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName,
                how: &CreateMode as CreateMode
            ) -> StoreResult<MadeObject, ObjectChange> as Made;

            /// MKDIR (RFC 1813 §3.3.9).
            MkDir: "MKDIR", Effort::Change, changes, [directory];
            fn mkdir(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName,
                set: &NewAttributes as NewAttributes
            ) -> StoreResult<MadeObject, ObjectChange> as Made;

            /// SYMLINK (RFC 1813 §3.3.10).
            Symlink: "SYMLINK", Effort::Change, changes, [directory];
            fn symlink(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName,
                target: &[u8] as LentArgument,
                set: &NewAttributes as NewAttributes
            ) -> StoreResult<MadeObject, ObjectChange> as Made;

            /// MKNOD (RFC 1813 §3.3.11).
            MkNod: "MKNOD", Effort::Change, changes, [directory];
            fn mknod(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName,
                node: DeviceNode as DeviceNode,
                set: &NewAttributes as NewAttributes
            ) -> StoreResult<MadeObject, ObjectChange> as Made;

            /// REMOVE (RFC 1813 §3.3.12).
            Remove: "REMOVE", Effort::Change, changes, [directory];
            fn remove(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// RMDIR (RFC 1813 §3.3.13).
            RmDir: "RMDIR", Effort::Change, changes, [directory];
            fn rmdir(
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// RENAME (RFC 1813 §3.3.14): from a name in a directory to another.
            Rename: "RENAME", Effort::Change, changes, [from.directory, to.directory];
            fn rename(
                from: NameIn<'_, &FileHandle> as OwnedNameIn,
                to: NameIn<'_, &FileHandle> as OwnedNameIn
            ) -> StoreResult<Renamed, Renamed> as Renamed;

            /// LINK (RFC 1813 §3.3.15).
            Link: "LINK", Effort::Change, changes, [file, directory];
            fn link(
                file: &FileHandle as FileHandle,
                directory: &FileHandle as FileHandle,
                name: &[u8] as OwnedName
            ) -> StoreResult<Linked, Linked> as Linked;

            /// FSSTAT (RFC 1813 §3.3.18).
            FsStat: "FSSTAT", Effort::Plain, reads, [object];
            fn fsstat(
                object: &FileHandle as FileHandle
            ) -> StoreResult<(FsStat, FileAttributes)> as FsStat;

            /// FSINFO (RFC 1813 §3.3.19).
            FsInfo: "FSINFO", Effort::Plain, reads, [object];
            fn fsinfo(
                object: &FileHandle as FileHandle
            ) -> StoreResult<(FsInfo, FileAttributes)> as FsInfo;

            /// PATHCONF (RFC 1813 §3.3.20).
            PathConf: "PATHCONF", Effort::Plain, reads, [object];
            fn pathconf(
                object: &FileHandle as FileHandle
            ) -> StoreResult<(PathConf, FileAttributes)> as PathConf;
        }
        version4 {
            /// LOOKUPP (RFC 8881 §18.14): the parent; `FoundObject::directory` has `directory`'s
            /// attributes.
            ///
            /// # Errors
            /// [`Status::NoEnt`] at the root of an export, whose parent is not the store's.
            /// [`Status::NotDir`] for a non-directory.
            LookupParent: "LOOKUPP", Effort::Plain, reads, [directory];
            fn lookupp(directory: &FileHandle as FileHandle) -> StoreResult<FoundObject> as Found;

            /// Keeps a file after its last name is removed: its handle stays valid, with `nlink` 0,
            /// until [`Store::unpin`](crate::Store::unpin) was called as often. For opens, locks
            /// and delegations.
            ///
            /// # Errors
            /// [`Status::Stale`] and the like when there is no such file, [`Status::IsDir`] for a
            /// directory, [`Status::Inval`] for any other object but a regular file,
            /// [`Status::Jukebox`] when too many are pinned.
            Pin: "OPEN", Effort::Plain, changes, [file];
            fn pin(file: &FileHandle as FileHandle) -> Result<(), Status> as Pinned;

            /// SEEK (RFC 7862 §15.11).
            ///
            /// # Errors
            /// [`Status::NxIo`] at or past the end of the file.
            Seek: "SEEK", Effort::Plain, reads, [file];
            fn seek(
                file: &FileHandle as FileHandle,
                offset: u64 as u64,
                what: SeekFor as SeekFor
            ) -> StoreResult<SeekDone> as Sought;

            /// ALLOCATE (RFC 7862 §15.1).
            ///
            /// # Errors
            /// [`Status::NotSupp`] if the file system cannot, [`Status::Inval`] for an empty range,
            /// [`Status::FBig`] past the largest offset.
            Allocate: "ALLOCATE", Effort::Change, changes, [file];
            fn allocate(
                file: &FileHandle as FileHandle,
                span: FileSpan as FileSpan
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// DEALLOCATE (RFC 7862 §15.4).
            ///
            /// # Errors
            /// As in [`allocate`](Self::allocate).
            Deallocate: "DEALLOCATE", Effort::Change, changes, [file];
            fn deallocate(
                file: &FileHandle as FileHandle,
                span: FileSpan as FileSpan
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// COPY (RFC 7862 §15.2) of `count` bytes, or of all to the end if that is 0, or of a
            /// part from the first on ([`COPY_MAX`](crate::COPY_MAX)). Holes of the source are
            /// holes of the copy.
            ///
            /// # Errors
            /// [`Status::Inval`] for a copy within one file, and for bytes past the source's end;
            /// [`Status::XDev`] between exports.
            Copy: "COPY", Effort::Long, changes, [&from.file, &to.file];
            fn copy(
                from: FilePlace as FilePlace,
                to: FilePlace as FilePlace,
                count: u64 as u64
            ) -> StoreResult<CopyDone, ObjectChange> as Copied;

            /// CLONE (RFC 7862 §15.13) of `count` bytes, or of all to the end if that is 0.
            ///
            /// # Errors
            /// [`Status::NotSupp`] if the file system cannot, [`Status::Inval`] for places that do
            /// not match its unit ([`StoreLimits::clone_block`]), else as in [`copy`](Self::copy).
            Clone: "CLONE", Effort::Change, changes, [&from.file, &to.file];
            fn clone_range(
                from: FilePlace as FilePlace,
                to: FilePlace as FilePlace,
                count: u64 as u64
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// SETXATTR (RFC 8276 §8.4.2).
            ///
            /// # Errors
            /// [`Status::Exist`] and [`Status::NoEnt`] (NFS4ERR_NOXATTR) according to `how`,
            /// [`Status::TooSmall`] for a value that is too long (NFS4ERR_XATTR2BIG),
            /// [`Status::NoSpc`].
            SetXattr: "SETXATTR", Effort::Change, changes, [file];
            fn set_xattr(
                file: &FileHandle as FileHandle,
                name: &[u8] as OwnedName,
                value: &[u8] as LentArgument,
                how: XattrMode as XattrMode
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// REMOVEXATTR (RFC 8276 §8.4.4).
            ///
            /// # Errors
            /// [`Status::NoEnt`] when the file has no such attribute (NFS4ERR_NOXATTR).
            RemoveXattr: "REMOVEXATTR", Effort::Change, changes, [file];
            fn remove_xattr(
                file: &FileHandle as FileHandle,
                name: &[u8] as OwnedName
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// Replaces one of an object's access control lists by `list`
            /// ([`Acl::octets`](crate::Acl::octets)), or removes it if that is empty. The access
            /// list decides about the mode's rights, too.
            ///
            /// # Errors
            /// [`Status::NotSupp`] if the file system has no such lists, [`Status::Perm`] unless
            /// the caller owns the object, [`Status::Inval`] for a list that is not valid, and
            /// for a default list of anything but a directory; [`Status::NoSpc`].
            SetAcl: "SETACL", Effort::Change, changes, [file];
            fn set_acl(
                file: &FileHandle as FileHandle,
                part: AclPart as AclPart,
                list: &[u8] as LentArgument
            ) -> StoreResult<ObjectChange, ObjectChange> as Changed;

            /// Properties of an object's file system that only version 4 reports.
            Limits: "GETATTR", Effort::Plain, reads, [object];
            fn limits(object: &FileHandle as FileHandle) -> Result<StoreLimits, Status> as Limits;
        }
    } };
}

/// Calls a macro with one group of the table, or with all of it.
#[doc(hidden)]
#[macro_export]
macro_rules! select_procedures {
    (version3 $then:ident version3 { $($rows:tt)* } version4 { $($others:tt)* }) => {
        $then! { $($rows)* }
    };
    (version4 $then:ident version3 { $($others:tt)* } version4 { $($rows:tt)* }) => {
        $then! { $($rows)* }
    };
    (all $then:ident version3 { $($rows3:tt)* } version4 { $($rows4:tt)* }) => {
        $then! { $($rows3)* $($rows4)* }
    };
}

/// Makes methods of the table that every store has.
macro_rules! required {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        $(
            $(#[$doc])*
            fn $method(&mut self, $($arg: $lent),*) -> $result;
        )*
    };
}

/// Makes methods of the table that a store may leave out.
macro_rules! optional {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        $(
            $(#[$doc])*
            #[allow(unused_variables, reason = "a store without it looks at no argument")]
            fn $method(&mut self, $($arg: $lent),*) -> $result {
                Err(Status::NotSupp.into())
            }
        )*
    };
}

/// The procedures of MOUNT and NFS, executed by the calling thread, as specified in RFC
/// 1813 §3.3. An error is the status of the reply, never [`Status::Ok`], with the known
/// attributes of the objects.
pub trait Procedures {
    /// Sets the caller of the calls that follow. The gateway does so before each procedure
    /// of NFS.
    fn act_as(&mut self, caller: &Caller);

    /// The handle that MOUNT's MNT returns for `/NAME` or a directory below it, `/NAME/A/B`
    /// (RFC 1813 §5.2.1). The server itself looks up the path, not the last caller.
    ///
    /// # Errors
    ///
    /// [`Status::NoEnt`] when no export has that name, [`Status::NotDir`] when the path
    /// ends at another object; else as LOOKUP.
    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status>;

    /// GETATTR as encoded in version 3's reply: a store with cached ones need not encode
    /// them.
    fn getattr_octets(&mut self, file: &FileHandle) -> Result<AttributeOctets, Status> {
        self.getattr(file).map(|attributes| AttributeOctets::from(&attributes))
    }

    /// GETATTR as the attributes of a stat() as encoded in version 4's reply: likewise.
    fn stat_octets(&mut self, file: &FileHandle) -> Result<StatOctets, Status> {
        self.getattr(file).map(|attributes| StatOctets::from(&attributes))
    }

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

    /// READ that may be deferred: Ok(None) when a disk has to deliver the bytes, which does
    /// not block this thread. [`Store::next_fetched`](crate::Store::next_fetched) then
    /// returns `ticket` when it is time to [`end_read`](Self::end_read) it.
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

    crate::store_procedures!(version3 required);
}

/// Procedures that only version 4 calls (RFC 8881, 7862, 8276), for the same caller. An
/// error is the status of the reply, with the known attributes of the objects. A store
/// without support for one returns [`Status::NotSupp`], the default here.
///
/// A call is made by [`Store::now`](crate::Store::now), or, if
/// [`Store::waits`](crate::Store::waits) returns true for one of
/// [`StoreRequest::objects`](crate::StoreRequest::objects) at its
/// [`StoreRequest::effort`](crate::StoreRequest::effort), begun as that operation by
/// [`Store::begin`](crate::Store::begin). Its outcome is then a store of its own
/// ([`Answered`](crate::Answered)) with one answer, so that the code that writes a reply is
/// the same for both ways. Longer data is lent: a payload for SETXATTR and SETACL, a room of
/// [`StoreRequest::room_len`](crate::StoreRequest::room_len) for GETXATTR, LISTXATTRS and GETACL.
/// [`Store::unpin`](crate::Store::unpin) never waits and is no operation.
pub trait Procedures4 {
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

    /// LISTXATTRS (RFC 8276 §8.4.3): the names of all extended attributes in `user.`,
    /// without that prefix, each followed by a zero byte, in byte order. A position in the
    /// list serves as cookie.
    ///
    /// # Errors
    /// [`Status::TooSmall`] when their total length exceeds
    /// [`XATTR_MAX`](crate::XATTR_MAX).
    fn list_xattrs(&mut self, _lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<Extent> {
        Err(Status::NotSupp.into())
    }

    /// The access control lists of an object, by [`AclPair::parse`](crate::AclPair::parse).
    ///
    /// # Errors
    /// [`Status::NotSupp`] if the file system has no such lists, [`Status::TooSmall`] for lists of
    /// more than [`ACL_ENTRIES_MAX`](crate::ACL_ENTRIES_MAX) entries.
    fn get_acls(&mut self, _lender: &Lender<'_>, _file: &FileHandle) -> StoreResult<Extent> {
        Err(Status::NotSupp.into())
    }

    crate::store_procedures!(version4 optional);
}
