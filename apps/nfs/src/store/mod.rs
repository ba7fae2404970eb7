//! What serves files: a [`Store`]. [`files`] is a directory of this host, [`memory`] lives and dies with the process.
//!
//! Operations take and give the types of [`stag_protocol::nfs::v3`]; a procedure handler adds only the wire. Content travels
//! in extents, so that a store which has a file in memory gives and takes it without a copy.

pub mod files;
pub mod memory;
mod name;

use std::io;

use stag_engine::{Extents, PeerAddress, Time as EngineTime};
use stag_pools::{Buf, Extent, Pool};
use stag_protocol::{
    nfs::v3::{
        Access, Attributes, CookieVerifier, CreateHow, DeviceNumber, FileHandle, FileKind, FsInfo, FsStat,
        PathConf, PlusRoom, SetAttributes, StableHow, Status, Time, Verifier, WccData,
    },
    rpc::Gids,
};

use crate::helpers::Ticket;

/// Octets of the largest READ and WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As whom.
    pub user: User,
    /// From where.
    pub address: PeerAddress,
}

/// As whom somebody calls, as far as he says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Nobody in particular (AUTH_NONE).
    Anyone,
    /// A user with his groups (AUTH_SYS).
    Unix {
        /// The user.
        uid: u32,
        /// His first group.
        gid: u32,
        /// His other groups.
        gids: Gids,
    },
}

/// Gives an empty buffer for at least so many octets, from the memory of the shard; None when it has none.
pub type Lender<'a> = dyn Fn(usize) -> Option<Buf> + 'a;

/// Takes an entry and says whether it fitted; after the first that did not, none comes.
pub type Visitor<'a> = dyn FnMut(&Entry<'_>) -> bool + 'a;

/// The octets of a WRITE.
#[derive(Debug)]
pub struct Payload<'a> {
    /// The octets.
    pub octets: &'a [u8],
    /// The same octets in memory that can be kept, when they were pulled from the caller's. Only what lies in a buffer
    /// of [`Store::sink`] may be kept for long.
    pub shared: Option<Extent>,
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, shared: None }
    }
}

type Outcome<T, About = Option<Attributes>> = Result<T, Failed<About>>;

/// The store of one shard. What each operation does, RFC 1813 §3.3 says; an error is the status of the reply, never
/// [`Status::Ok`], with what is known of the objects.
pub trait Store {
    /// Who makes the calls that follow. The gateway says so before each procedure of NFS.
    fn act_as(&mut self, caller: &Caller);

    /// The names of the exports, without the slash before them.
    fn exports(&self) -> impl Iterator<Item = &str>;

    /// The write verifier at this moment (RFC 1813 §3.3.7): another one when unstable data may have been lost.
    fn verifier(&self) -> Verifier;

    /// Makes the handles issued since the last call survive what they promise to survive. Called once per pass, before the
    /// replies leave.
    ///
    /// # Errors
    /// When that cannot be done: those handles live as long as this process, or until a later call succeeds.
    fn flush(&mut self) -> io::Result<()>;

    /// Lets go of what nobody used for a while. Called once per pass, before
    /// [`flush`](Self::flush); `now` is its time. A shard makes a pass at least once a second.
    fn tidy(&mut self, _now: EngineTime) {}

    /// A buffer of the store's own to pull `len` octets of a WRITE into, which may then become the file's.
    fn sink(&self, _len: usize) -> Option<Buf> {
        None
    }

    /// Memory of the store's own that READs push from and WRITEs are pulled into: the fabric has to know it.
    fn pool(&self) -> Option<&Pool> {
        None
    }

    /// The handle that MOUNT's MNT answers for `/NAME` or a directory below it, `/NAME/A/B` (RFC 1813 §5.2.1). The server itself
    /// walks the path, whoever acted last.
    ///
    /// # Errors
    /// [`Status::NoEnt`] when no export has that name, [`Status::NotDir`] when the path ends at another object; else as LOOKUP.
    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status>;

    /// GETATTR (RFC 1813 §3.3.1).
    fn getattr(&mut self, file: &FileHandle) -> Result<Attributes, Status>;

    /// SETATTR (RFC 1813 §3.3.2), only if the file's ctime is `guard`.
    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> Outcome<WccData, WccData>;

    /// LOOKUP (RFC 1813 §3.3.3).
    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Found>;

    /// ACCESS (RFC 1813 §3.3.4): which of the asked rights the caller has.
    fn access(&mut self, file: &FileHandle, asked: Access) -> Outcome<(Access, Attributes)>;

    /// READLINK (RFC 1813 §3.3.5).
    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> Outcome<ReadlinkDone>;

    /// READ (RFC 1813 §3.3.6) of at most `count` octets, which are at most [`TRANSFER_MAX`].
    fn read(&mut self, lender: &Lender<'_>, file: &FileHandle, offset: u64, count: u32) -> Outcome<ReadDone>;

    /// READ that may be put off: Ok(None) when a disk has to bring the octets, and somebody else waits for it. `ticket` then comes out of
    /// [`next_fetched`](Store::next_fetched) when it is time to [`end_read`](Store::end_read) it.
    fn begin_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        (offset, count): (u64, u32),
        _ticket: Ticket,
    ) -> Outcome<Option<ReadDone>> {
        self.read(lender, file, offset, count).map(Some)
    }

    /// The next READ that was put off and can be carried out. Asked once per pass.
    fn next_fetched(&mut self) -> Option<Fetched> {
        None
    }

    /// Carries out a READ that was put off, for the same caller, with what was brought for it.
    fn end_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        (offset, count): (u64, u32),
        _brought: Option<Brought>,
    ) -> Outcome<ReadDone> {
        self.read(lender, file, offset, count)
    }

    /// WRITE (RFC 1813 §3.3.7) of at most [`TRANSFER_MAX`] octets.
    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: Payload<'_>,
        stable: StableHow,
    ) -> Outcome<WriteDone, WccData>;

    /// COMMIT (RFC 1813 §3.3.21) of the whole file, whatever range is asked for: the verifier covers it all.
    fn commit(&mut self, file: &FileHandle) -> Outcome<CommitDone, WccData>;

    /// CREATE (RFC 1813 §3.3.8).
    fn create(&mut self, directory: &FileHandle, name: &[u8], how: &CreateHow) -> Outcome<Made, WccData>;

    /// MKDIR (RFC 1813 §3.3.9).
    fn mkdir(&mut self, directory: &FileHandle, name: &[u8], set: &SetAttributes) -> Outcome<Made, WccData>;

    /// SYMLINK (RFC 1813 §3.3.10).
    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Outcome<Made, WccData>;

    /// MKNOD (RFC 1813 §3.3.11).
    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &SetAttributes,
    ) -> Outcome<Made, WccData>;

    /// MKNOD of a device (RFC 1813 §3.3.11).
    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        device: (FileKind, DeviceNumber),
        set: &SetAttributes,
    ) -> Outcome<Made, WccData>;

    /// REMOVE (RFC 1813 §3.3.12).
    fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<WccData, WccData>;

    /// RMDIR (RFC 1813 §3.3.13).
    fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<WccData, WccData>;

    /// RENAME (RFC 1813 §3.3.14): from a name in a directory to another.
    fn rename(&mut self, from: (&FileHandle, &[u8]), to: (&FileHandle, &[u8])) -> Outcome<Renamed, Renamed>;

    /// LINK (RFC 1813 §3.3.15).
    fn link(&mut self, file: &FileHandle, directory: &FileHandle, name: &[u8]) -> Outcome<Linked, Linked>;

    /// READDIR (RFC 1813 §3.3.16).
    fn readdir(&mut self, directory: &FileHandle, place: Place, visit: &mut Visitor<'_>) -> Outcome<Listed>;

    /// READDIRPLUS (RFC 1813 §3.3.17).
    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: Place,
        visit: &mut Visitor<'_>,
    ) -> Outcome<Listed>;

    /// FSSTAT (RFC 1813 §3.3.18).
    fn fsstat(&mut self, object: &FileHandle) -> Outcome<(FsStat, Attributes)>;

    /// FSINFO (RFC 1813 §3.3.19).
    fn fsinfo(&mut self, object: &FileHandle) -> Outcome<(FsInfo, Attributes)>;

    /// PATHCONF (RFC 1813 §3.3.20).
    fn pathconf(&mut self, object: &FileHandle) -> Outcome<(PathConf, Attributes)>;
}

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

/// Where the octets of a READ were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In memory.
    Memory,
    /// Not all in memory: the system brought them straight to the shard's buffer.
    Ring,
    /// Not all in memory: the shard waited for them.
    Disk,
    /// The file system does not say.
    Unknown,
}

/// A READ that was put off and can be carried out.
#[derive(Debug)]
pub struct Fetched {
    /// Which.
    pub ticket: Ticket,
    /// Its octets, where a buffer of the shard's has them, and not only the system.
    pub brought: Option<Brought>,
}

/// Octets that the system brought straight to a buffer of the shard's. Nobody sees them before his rights are checked again.
#[derive(Debug)]
pub struct Brought {
    pub(crate) octets: Buf,
    /// Octets that were asked of the system.
    pub(crate) len: usize,
    /// The file before they were read.
    pub(crate) before: Attributes,
}

/// What READ did (RFC 1813 §3.3.6).
#[derive(Debug)]
pub struct ReadDone {
    /// The octets.
    pub data: Extents,
    /// Whether there are fewer than the file has because there was no memory for more.
    pub is_cut: bool,
    /// Where they were.
    pub origin: Origin,
    /// Whether the last of them is the file's last, or the read began at or behind the end.
    pub eof: bool,
    /// The file's attributes after the read.
    pub attributes: Attributes,
}

/// What READLINK did (RFC 1813 §3.3.5).
#[derive(Debug)]
pub struct ReadlinkDone {
    /// The target.
    pub target: Extent,
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
    /// The room that READDIRPLUS has; only to look at no entry that cannot be taken.
    pub room: PlusRoom,
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

#[cfg(test)]
mod tests;
