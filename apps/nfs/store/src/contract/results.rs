//! Results of the operations of a store.

use super::tickets::ReadTicket;
use crate::{FileAttributes, NewAttributes, ObjectChange, SetMask};
use stag_engine::Extents;
use stag_pools::{Buf, Extent};
use stag_protocol::nfs::v3::{
    AttributeOctets, CookieVerifier, FileHandle, FileKind, PlusRoom, ReadDirArgs, ReadDirPlusArgs,
    StableHow, Status, Verifier,
};

/// An operation that failed, and the object attributes of its reply: the `resfail` arm (RFC 1813
/// §3.3). `About` is `()`, `Option<FileAttributes>`, [`ObjectChange`], [`Renamed`] or [`Linked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<About> {
    /// The reason; never [`Status::Ok`].
    pub status: Status,
    /// The objects, as far as they are known.
    pub about: About,
}

impl<About: Default> From<Status> for Failed<About> {
    fn from(status: Status) -> Self {
        Self { status, about: About::default() }
    }
}

/// The outcome of a procedure.
pub trait StoreAnswer {
    /// Its result when it has succeeded.
    type Done;
}

impl<Done, Reason> StoreAnswer for Result<Done, Reason> {
    type Done = Done;
}

/// Result of LOOKUP (RFC 1813 §3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundObject {
    /// The object's handle.
    pub handle: FileHandle,
    /// The object's attributes.
    pub attributes: FileAttributes,
    /// The directory's attributes.
    pub directory: Option<FileAttributes>,
}

/// Source of the bytes of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In memory.
    Memory,
    /// Not all in memory: the system read them directly to the shard's buffer.
    Ring,
    /// Not all in memory: the shard waited for them.
    Disk,
    /// A helper read them, so the shard did not wait; their source is unknown.
    Helper,
    /// The file system does not say.
    Unknown,
}

/// A deferred READ that can be completed.
#[derive(Debug)]
pub struct Fetched {
    /// Ticket of the READ.
    pub ticket: ReadTicket,
    /// Its bytes, if they are in a buffer of the shard, not only in the system's memory.
    pub brought: Option<Brought>,
}

/// Bytes that the system read directly to a buffer of the shard. The caller's rights are checked
/// again before they are sent.
#[derive(Debug)]
pub struct Brought {
    pub(crate) octets: Buf,
    /// Bytes requested from the system.
    pub(crate) len: usize,
    /// The file's attributes before the read.
    pub(crate) before: FileAttributes,
}

/// Result of READ (RFC 1813 §3.3.6).
#[derive(Debug)]
pub struct ReadDone {
    /// The octets.
    pub data: Extents,
    /// True if the READ returns less than possible because memory was short.
    pub is_cut: bool,
    /// Source of the bytes.
    pub origin: Origin,
    /// True if the last byte read is the file's last, or the read began at or past the end.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: AttributeOctets,
}

/// Result of READLINK (RFC 1813 §3.3.5).
#[derive(Debug)]
pub struct ReadlinkDone {
    /// The target.
    pub target: Extent,
    /// The link's attributes.
    pub attributes: FileAttributes,
}

/// Result of WRITE (RFC 1813 §3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// Bytes written: all of them, or fewer when the storage took no more.
    pub count: u32,
    /// Stability of the bytes written: never weaker than requested.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost; taken before the data was written.
    pub verifier: Verifier,
    /// The file before and after.
    pub file: ObjectChange,
}

/// Result of COMMIT (RFC 1813 §3.3.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitDone {
    /// Changes when unstable data may have been lost.
    pub verifier: Verifier,
    /// The file before and after.
    pub file: ObjectChange,
}

/// Object made by CREATE, MKDIR, SYMLINK or MKNOD (RFC 1813 §3.3.8–3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeObject {
    /// The object's handle.
    pub handle: FileHandle,
    /// The object's attributes.
    pub attributes: FileAttributes,
    /// The directory before and after.
    pub directory: ObjectChange,
    /// False if the object existed before, as for an UNCHECKED or a repeated EXCLUSIVE one.
    pub is_new: bool,
    /// Requested attributes that were set; includes the times if an exclusive CREATE stores its
    /// verifier there.
    pub set: SetMask,
}

impl MadeObject {
    /// A new object, with the mask of the attributes set among those in `asked`.
    pub(crate) fn new(
        handle: FileHandle,
        attributes: FileAttributes,
        directory: ObjectChange,
        asked: &NewAttributes,
    ) -> Self {
        let set = asked.found_in(&attributes);
        Self { handle, attributes, directory, is_new: true, set }
    }

    /// The same for an existing object, of whose `asked` attributes only the size was set.
    pub(crate) fn found(self, asked: &NewAttributes) -> Self {
        let set = SetMask::SIZE.when(asked.size.is_some());
        Self { is_new: false, set, ..self }
    }
}

/// The directories of a RENAME (RFC 1813 §3.3.14); on failure, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// The directory of the old name.
    pub from: ObjectChange,
    /// The directory of the new name.
    pub to: ObjectChange,
}

/// The objects of a LINK (RFC 1813 §3.3.15); on failure, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The file that got one more name.
    pub file: Option<FileAttributes>,
    /// The directory of that name.
    pub directory: ObjectChange,
}

/// Position at which READDIR and READDIRPLUS continue (RFC 1813 §3.3.16–17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingStart {
    /// The cookie of the last entry seen; 0 at the beginning.
    pub cookie: u64,
    /// Verifier that came with the cookie.
    pub verifier: CookieVerifier,
    /// Approximate bytes of entries that the caller can take; only limits what is read from the
    /// file system.
    pub window: usize,
    /// The room of a READDIRPLUS; only saves looking up entries that do not fit.
    pub room: PlusRoom,
}

/// Bytes of the longest listing: a client's largest request in one call, and the length of a medium
/// buffer. The client requests the rest.
pub const LISTING_MAX: u32 = 65_536;
/// Ratio of the length of an entry with attributes and handle to that of the file system's own
/// entry: no more is read than can be sent.
const PLUS_FACTOR: usize = 4;

impl From<&ReadDirArgs> for ListingStart {
    fn from(args: &ReadDirArgs) -> Self {
        let window = args.count.min(LISTING_MAX) as usize;
        let (cookie, verifier) = (args.cookie, args.verifier);
        Self { cookie, verifier, window, ..Self::default() }
    }
}

impl ListingStart {
    /// Position and room of a READDIRPLUS.
    pub fn plus(args: &ReadDirPlusArgs, room: PlusRoom) -> Self {
        let count = args.max_count.min(LISTING_MAX).min(args.dir_count);
        let window = count as usize / PLUS_FACTOR;
        Self { cookie: args.cookie, verifier: args.verifier, window, room }
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntry<'a> {
    /// The object's inode number.
    pub fileid: u64,
    /// Its name, 1 to 255 bytes.
    pub name: &'a [u8],
    /// Position after this entry.
    pub cookie: u64,
    /// The object's kind, if the file system reports it with the name.
    pub kind: Option<FileKind>,
    /// Handle and attributes, for READDIRPLUS and if they are known.
    pub object: Option<(FileHandle, FileAttributes)>,
}

/// Result of READDIR and READDIRPLUS. If the first entry did not fit, the handler answers
/// NFS3ERR_TOOSMALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// True if the directory ends with the last entry that was taken.
    pub eof: bool,
    /// To be returned with a cookie.
    pub verifier: CookieVerifier,
    /// The directory's attributes.
    pub attributes: FileAttributes,
}
