//! What serves files: [`files`], a directory of this host. Operations take and give the types of
//! [`stag_protocol::nfs::v3`] and octets in the caller's memory; a procedure handler adds only the wire.

pub mod files;

use stag_protocol::nfs::v3::{Attributes, CookieVerifier, FileHandle, StableHow, Status, Verifier, WccData};

/// An operation that failed, and what its reply says nevertheless about the objects it was asked about: the attributes of
/// a `resfail` arm (RFC 1813 §3.3). `About` is `()`, `Option<Attributes>`, [`WccData`], or what [`Renamed`] or [`Linked`] is.
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

/// What LOOKUP finds (RFC 1813 §3.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The object's handle.
    pub handle: FileHandle,
    /// The object's attributes.
    pub attributes: Attributes,
    /// The directory's attributes.
    pub directory: Option<Attributes>,
}

/// What READ did (RFC 1813 §3.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDone {
    /// Octets at the front of the caller's memory that are the file's.
    pub count: u32,
    /// Whether the last of them is the file's last, or the read began at or behind the end.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: Attributes,
}

/// What READLINK did (RFC 1813 §3.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadlinkDone {
    /// Octets at the front of the caller's memory that are the target's.
    pub count: u32,
    /// The link's attributes.
    pub attributes: Attributes,
}

/// What WRITE did (RFC 1813 §3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// Octets written: all of them, or fewer when the storage took no more.
    pub count: u32,
    /// How stable they are: never weaker than asked for.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost; as it was before the data was written.
    pub verifier: Verifier,
    /// The file before and after.
    pub file: WccData,
}

/// What COMMIT did (RFC 1813 §3.3.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitDone {
    /// Changes when unstable data may have been lost.
    pub verifier: Verifier,
    /// The file before and after.
    pub file: WccData,
}

/// What CREATE, MKDIR, SYMLINK and MKNOD made (RFC 1813 §3.3.8–3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// The object's handle.
    pub handle: FileHandle,
    /// The object's attributes.
    pub attributes: Attributes,
    /// The directory before and after.
    pub directory: WccData,
}

/// The directories of a RENAME (RFC 1813 §3.3.14); also what is known of them when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// The directory of the old name.
    pub from: WccData,
    /// The directory of the new name.
    pub to: WccData,
}

/// The objects of a LINK (RFC 1813 §3.3.15); also what is known of them when it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// The file that got one more name.
    pub file: Option<Attributes>,
    /// The directory of that name.
    pub directory: WccData,
}

/// Where READDIR and READDIRPLUS go on (RFC 1813 §3.3.16–17).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The cookie of the last entry seen; 0 at the beginning.
    pub cookie: u64,
    /// What came with it.
    pub verifier: CookieVerifier,
    /// About how many octets of entries the caller can take; only to read no more than that from the file system.
    pub window: usize,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The object's inode number.
    pub fileid: u64,
    /// Its name, 1 to 255 octets.
    pub name: &'a [u8],
    /// Goes on behind this entry.
    pub cookie: u64,
    /// Handle and attributes, for READDIRPLUS and where they are known.
    pub object: Option<(FileHandle, Attributes)>,
}

/// What READDIR and READDIRPLUS did. A call whose first entry did not fit is answered with NFS3ERR_TOOSMALL by its handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Whether the directory ends with the last entry that was taken.
    pub eof: bool,
    /// To be sent back with a cookie.
    pub verifier: CookieVerifier,
    /// The directory's attributes.
    pub attributes: Attributes,
}
