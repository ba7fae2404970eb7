//! Results of the operations of a store.

use crate::helpers::ReadTicket;
use crate::store::{FileAttributes, NewAttributes, ObjectChange, SetMask};
use stag_engine::Extents;
use stag_pools::{Buf, Extent};
use stag_protocol::nfs::v3::{
    AttributeOctets, CookieVerifier, FileHandle, FileKind, PlusRoom, ReadDirArgs, ReadDirPlusArgs,
    StableHow, Status, Verifier,
};

/// An operation that failed, and what its reply says nevertheless about the objects it was asked
/// about: the attributes of a `resfail` arm (RFC 1813 §3.3). `About` is `()`,
/// `Option<FileAttributes>`, [`ObjectChange`], or what [`Renamed`] or [`Linked`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<About> {
    /// Why; never [`Status::Ok`].
    pub status: Status,
    /// The objects, as far as they are known.
    pub about: About,
}

impl<About: Default> From<Status> for Failed<About> {
    fn from(status: Status) -> Self {
        Self { status, about: About::default() }
    }
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

/// Source of the octets of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In memory.
    Memory,
    /// Not all in memory: the system brought them straight to the shard's buffer.
    Ring,
    /// Not all in memory: the shard waited for them.
    Disk,
    /// Wherever: a helper read them, and the shard waited for none.
    Helper,
    /// The file system does not say.
    Unknown,
}

/// A READ that was put off and can be carried out.
#[derive(Debug)]
pub struct Fetched {
    /// Ticket of the READ.
    pub ticket: ReadTicket,
    /// Its octets, where a buffer of the shard's has them, and not only the system.
    pub brought: Option<Brought>,
}

/// Octets that the system brought straight to a buffer of the shard's. Nobody sees them before his
/// rights are checked again.
#[derive(Debug)]
pub struct Brought {
    pub(crate) octets: Buf,
    /// Octets that were asked of the system.
    pub(crate) len: usize,
    /// The file before they were read.
    pub(crate) before: FileAttributes,
}

/// Result of READ (RFC 1813 §3.3.6).
#[derive(Debug)]
pub struct ReadDone {
    /// The octets.
    pub data: Extents,
    /// True if there are fewer octets than the file has because there was no memory for more.
    pub is_cut: bool,
    /// Source of the octets that were read.
    pub origin: Origin,
    /// True if the last octet that was read is the file's last, or the read began at or behind the
    /// end.
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
    /// Octets written: all of them, or fewer when the storage took no more.
    pub count: u32,
    /// Stability of the octets written: never weaker than asked for.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost; as it was before the data was written.
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
    /// False if the object was there before, as an UNCHECKED or a repeated EXCLUSIVE one may be.
    pub is_new: bool,
    /// Attributes asked for that were set; the times among them if an exclusive CREATE keeps its
    /// verifier there.
    pub set: SetMask,
}

impl MadeObject {
    /// A new object, which tells the attributes that were set of those `asked` for.
    pub(super) fn new(
        handle: FileHandle,
        attributes: FileAttributes,
        directory: ObjectChange,
        asked: &NewAttributes,
    ) -> Self {
        let set = asked.found_in(&attributes);
        Self { handle, attributes, directory, is_new: true, set }
    }

    /// The same, if it was there before and only its size was set, of what was `asked` for.
    pub(super) fn found(self, asked: &NewAttributes) -> Self {
        let set = SetMask::SIZE.when(asked.size.is_some());
        Self { is_new: false, set, ..self }
    }
}

/// The directories of a RENAME (RFC 1813 §3.3.14); also what is known of them when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// The directory of the old name.
    pub from: ObjectChange,
    /// The directory of the new name.
    pub to: ObjectChange,
}

/// The objects of a LINK (RFC 1813 §3.3.15); also what is known of them when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The file that got one more name.
    pub file: Option<FileAttributes>,
    /// The directory of that name.
    pub directory: ObjectChange,
}

/// Position at which READDIR and READDIRPLUS go on (RFC 1813 §3.3.16–17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingStart {
    /// The cookie of the last entry seen; 0 at the beginning.
    pub cookie: u64,
    /// Verifier that came with the cookie.
    pub verifier: CookieVerifier,
    /// About how many octets of entries the caller can take; only to read no more than that from
    /// the file system.
    pub window: usize,
    /// The room that READDIRPLUS has; only to look at no entry that cannot be taken.
    pub room: PlusRoom,
}

/// Octets of the longest listing: what the largest read of a client asks for in one call, and what
/// a medium buffer holds. The client asks again for the rest.
pub(crate) const LISTING_MAX: u32 = 65_536;
/// Ratio of the length of an entry with attributes and handle to that of the file system's own
/// entry: more is not read than can be sent.
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
    pub(crate) fn plus(args: &ReadDirPlusArgs, room: PlusRoom) -> Self {
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
    /// Its name, 1 to 255 octets.
    pub name: &'a [u8],
    /// Goes on behind this entry.
    pub cookie: u64,
    /// The object's kind, where the file system tells it with the name.
    pub kind: Option<FileKind>,
    /// Handle and attributes, for READDIRPLUS and where they are known.
    pub object: Option<(FileHandle, FileAttributes)>,
}

/// Result of READDIR and READDIRPLUS. A call whose first entry did not fit is answered with
/// NFS3ERR_TOOSMALL by its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// True if the directory ends with the last entry that was taken.
    pub eof: bool,
    /// To be sent back with a cookie.
    pub verifier: CookieVerifier,
    /// The directory's attributes.
    pub attributes: FileAttributes,
}
