//! Outcomes of operations that were executed elsewhere.

use crate::{
    CommitDone, CopyDone, Failed, FileAttributes, FoundObject, Linked, MadeObject, ObjectChange,
    Renamed, SeekDone, SetDone, StoreCall, StoreLimits, StoreResult, WriteDone,
    contract::tickets::WaitTicket,
};
use stag_protocol::nfs::v3::{
    Access, CookieVerifier, FileHandle, FsInfo, FsStat, PathConf, Status,
};

/// READ whose bytes are at the front of the lent room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledRead {
    /// Their number.
    pub count: u32,
    /// True if the last of them is the file's last, or the read began at or past the end.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: FileAttributes,
}

/// READLINK whose target is at the front of the lent room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledLink {
    /// Octets of the target.
    pub count: u32,
    /// The link's attributes.
    pub attributes: FileAttributes,
}

/// Listing whose entries are at the front of the lent room, in a plain form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilledListing {
    /// Octets of the room that are entries.
    pub len: usize,
    /// True if the directory ends with the last entry in the room.
    pub eof: bool,
    /// To be returned with a cookie.
    pub verifier: CookieVerifier,
    /// The directory's attributes from before the listing.
    pub before: FileAttributes,
    /// The directory's attributes after it.
    pub attributes: FileAttributes,
}

/// Outcome of a [`StoreRequest`](crate::StoreRequest): the result of the
/// [`Procedures`](crate::Procedures) method with that name, without bytes, which are in the room.
#[derive(Clone, Copy, Debug)]
pub enum StoreOutcome {
    /// The operation was not completed; its reply has this status and no attributes.
    Failed(Status),
    /// MNT.
    Mounted(Result<FileHandle, Status>),
    /// GETATTR.
    Attributes(Result<FileAttributes, Status>),
    /// SETATTR.
    Set(StoreResult<SetDone, SetDone>),
    /// REMOVE, RMDIR, ALLOCATE, DEALLOCATE, CLONE, SETXATTR, REMOVEXATTR and SETACL.
    Changed(StoreResult<ObjectChange, ObjectChange>),
    /// LOOKUP and LOOKUPP.
    Found(StoreResult<FoundObject>),
    /// ACCESS.
    Access(StoreResult<(Access, FileAttributes)>),
    /// READLINK.
    ReadLink(StoreResult<FilledLink>),
    /// READ.
    Read(StoreResult<FilledRead>),
    /// WRITE.
    Written(StoreResult<WriteDone, ObjectChange>),
    /// CREATE, MKDIR, SYMLINK and MKNOD.
    Made(StoreResult<MadeObject, ObjectChange>),
    /// RENAME.
    Renamed(Result<Renamed, Failed<Renamed>>),
    /// LINK.
    Linked(Result<Linked, Failed<Linked>>),
    /// READDIR and READDIRPLUS.
    Listed(StoreResult<FilledListing>),
    /// FSSTAT.
    FsStat(StoreResult<(FsStat, FileAttributes)>),
    /// FSINFO.
    FsInfo(StoreResult<(FsInfo, FileAttributes)>),
    /// PATHCONF.
    PathConf(StoreResult<(PathConf, FileAttributes)>),
    /// COMMIT.
    Committed(StoreResult<CommitDone, ObjectChange>),
    /// Result of pinning a file.
    Pinned(Result<(), Status>),
    /// SEEK.
    Sought(StoreResult<SeekDone>),
    /// COPY.
    Copied(StoreResult<CopyDone, ObjectChange>),
    /// GETXATTR, LISTXATTRS and GETACL: bytes in the room.
    Xattr(StoreResult<u32>),
    /// Properties of a file system.
    Limits(Result<StoreLimits, Status>),
}

/// A call that was begun and has completed, with its memory.
#[derive(Debug)]
pub struct StoreCallDone {
    /// Number of the call.
    pub ticket: WaitTicket,
    /// The call, as it was given.
    pub call: StoreCall,
    /// The outcome.
    pub outcome: StoreOutcome,
}

/// Result of beginning a call.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub enum Begun {
    /// The call has completed.
    Done(StoreCallDone),
    /// The call is in flight: the store has the ticket.
    Later,
    /// Too many calls are in flight. Nothing was done, and the caller may retry later.
    Refused(StoreCall),
}
