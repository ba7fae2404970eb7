//! Stores, which serve files: a [`Store`]. [`files`] is a directory of this host, [`memory`] lives
//! and dies with the process.
//!
//! Operations take and give the types of [`stag_protocol::nfs::v3`]; a procedure handler adds only
//! the wire. Content travels in extents, so that a store which has a file in memory gives and takes
//! it without a copy.

mod answered;
pub mod ceph;
mod exclusive;
pub mod files;
pub mod helpers;
mod helping;
mod listing;
pub mod memory;
mod name;
mod operation;
mod outcome;
mod remote;
mod results;

pub use answered::Answered;
pub(crate) use helping::make_node;
pub use helping::{Backend, FillRoom, HelperStore, perform};
pub(crate) use operation::objects;
pub use operation::{Effort, OwnedName, StoreCall, StoreOperation, WaitTicket};
pub use outcome::{Begun, FilledLink, FilledListing, FilledRead, StoreCallDone, StoreOutcome};
pub use remote::RemoteStore;
pub(crate) use results::{Brought, LISTING_MAX};
pub use results::{
    CommitDone, Failed, Fetched, FoundObject, Linked, Listed, ListedEntry, ListingStart,
    MadeObject, Origin, ReadDone, ReadlinkDone, Renamed, WriteDone,
};

use std::io;

use stag_engine::{PeerAddress, Time as EngineTime};
use stag_pools::{Buf, Extent, Pool};
use stag_protocol::{
    nfs::v3::{
        Access, AttributeOctets, Attributes, CreateHow, DeviceNumber, FileHandle, FileKind, FsInfo,
        FsStat, PathConf, SetAttributes, StableHow, Status, Time, Verifier, WccData,
    },
    rpc::Gids,
};

use crate::helpers::ReadTicket;

/// Octets of the largest READ and WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// User and address of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// As whom.
    pub user: User,
    /// From where.
    pub address: PeerAddress,
    /// True if he is root of his host, as far as his connection proves that, or nobody asks.
    pub is_proven: bool,
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

/// Gives an empty buffer for at least so many octets, from the memory of the shard; None when it
/// has none.
pub type Lender<'a> = dyn Fn(usize) -> Option<Buf> + 'a;

/// Takes an entry and says whether it fitted; after the first that did not, none comes.
pub type Visitor<'a> = dyn FnMut(&ListedEntry<'_>) -> bool + 'a;

/// The octets of a WRITE.
#[derive(Debug)]
pub struct WritePayload<'a> {
    /// The octets.
    pub octets: &'a [u8],
    /// The same octets in memory that can be kept, when they were pulled from the caller's. Only
    /// what lies in a buffer of [`Store::sink`] may be kept for long.
    pub shared: Option<Extent>,
}

impl<'a> From<&'a [u8]> for WritePayload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, shared: None }
    }
}

/// The octets that a READ asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpan {
    /// The place of the first in the file.
    pub offset: u64,
    /// Octets, at most [`TRANSFER_MAX`].
    pub count: u32,
}

/// A special file to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The kind of the file.
    pub kind: FileKind,
    /// The device, if the kind has one.
    pub device: DeviceNumber,
}

/// A name in a directory (RFC 1813 §2.5, diropargs3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameIn<'a, D> {
    /// The directory.
    pub directory: D,
    /// The name.
    pub name: &'a [u8],
}

impl<'a, D> NameIn<'a, D> {
    /// The name `name` in `directory`.
    pub const fn new(directory: D, name: &'a [u8]) -> Self {
        Self { directory, name }
    }
}

/// The result of an operation: with a failure comes what is known of the objects.
type StoreResult<T, About = Option<Attributes>> = Result<T, Failed<About>>;

/// The store of one shard, as its gateway sees it: what it is asked for beside the calls, and the
/// two ways of a call. Most are answered at once by [`now`](Self::now). One that may
/// [wait](Self::waits) is begun as an owned [`StoreOperation`], and its outcome comes later by
/// [`next_done`](Self::next_done); while it is under way the gateway keeps its caller and its
/// memory.
pub trait Store {
    /// True if calls may wait. Where it is false, nothing is ever asked about waiting.
    const MAY_WAIT: bool = false;

    /// The procedures of calls that are answered at once.
    type Now: Procedures;

    /// The procedures of calls that do not [wait](Self::waits).
    fn now(&mut self) -> &mut Self::Now;

    /// Returns true if a call about `object` has to be begun by [`begin`](Self::begin). Looks at
    /// the handle only.
    fn waits(&self, _object: &FileHandle, _effort: Effort) -> bool {
        false
    }

    /// Returns true if MNT has to be begun by [`begin`](Self::begin).
    fn mount_waits(&self) -> bool {
        false
    }

    /// Begins a call that waits. It stands for `ticket` until [`next_done`](Self::next_done) gives
    /// it back.
    fn begin(&mut self, call: StoreCall, _ticket: WaitTicket) -> Begun {
        Begun::Refused(call)
    }

    /// The next call that was begun and is over. Asked until there is none, once per pass.
    fn next_done(&mut self) -> Option<StoreCallDone> {
        None
    }

    /// Takes back a call that was begun, if nothing was done for it yet.
    fn withdraw(&mut self, _ticket: WaitTicket) -> Option<StoreCall> {
        None
    }

    /// The next READ that was put off by [`Procedures::begin_read`] and can be carried out. Asked
    /// once per pass.
    fn next_fetched(&mut self) -> Option<Fetched> {
        None
    }

    /// The names of the exports, without the slash before them.
    fn exports(&self) -> impl Iterator<Item = &str>;

    /// Networks whose hosts alone may mount an export, for EXPORT; none when all may that may
    /// connect.
    fn client_networks(&self, _export: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if it depends on a caller's proof what he may do.
    fn asks_for_proof(&self) -> bool {
        false
    }

    /// The write verifier at this moment (RFC 1813 §3.3.7): another one when unstable data may have
    /// been lost.
    fn verifier(&self) -> Verifier;

    /// Makes the handles issued since the last call survive what they promise to survive. Called
    /// before a reply that carries one may leave, and once per pass.
    ///
    /// # Errors
    ///
    /// When that cannot be done: those handles live as long as this process, or until a
    /// later call succeeds.
    fn flush(&mut self) -> io::Result<()>;

    /// Lets go of what nobody used for a while. Called once per pass, before
    /// [`flush`](Self::flush); `now` is its time. A shard makes a pass at least once a second.
    fn tidy(&mut self, _now: EngineTime) {}

    /// Returns true if [`tidy`](Self::tidy) or [`flush`](Self::flush) may have something to do
    /// although nobody calls: because time has passed, or because another thread asks for it.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    /// A buffer of the store's own to pull `len` octets of a WRITE into, which may then become the
    /// file's.
    fn sink(&self, _len: usize) -> Option<Buf> {
        None
    }

    /// Memory of the store's own that READs push from and WRITEs are pulled into: the fabric has to
    /// know it.
    fn pool(&self) -> Option<&Pool> {
        None
    }
}

/// The procedures of MOUNT and NFS, carried out by the thread that calls them. What each does, RFC
/// 1813 §3.3 says; an error is the status of the reply, never [`Status::Ok`], with what is known of
/// the objects.
pub trait Procedures {
    /// Sets the caller of the calls that follow. The gateway does so before each procedure of NFS.
    fn act_as(&mut self, caller: &Caller);

    /// The handle that MOUNT's MNT answers for `/NAME` or a directory below it, `/NAME/A/B` (RFC
    /// 1813 §5.2.1). The server itself walks the path, whoever acted last.
    ///
    /// # Errors
    ///
    /// [`Status::NoEnt`] when no export has that name, [`Status::NotDir`] when the path
    /// ends at another object; else as LOOKUP.
    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status>;

    /// GETATTR (RFC 1813 §3.3.1).
    fn getattr(&mut self, file: &FileHandle) -> Result<Attributes, Status>;

    /// The same as octets of the reply: a store that keeps them need not make them.
    fn getattr_octets(&mut self, file: &FileHandle) -> Result<AttributeOctets, Status> {
        self.getattr(file).map(|attributes| AttributeOctets::from(&attributes))
    }

    /// SETATTR (RFC 1813 §3.3.2), only if the file's ctime is `guard`.
    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> StoreResult<WccData, WccData>;

    /// LOOKUP (RFC 1813 §3.3.3).
    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject>;

    /// ACCESS (RFC 1813 §3.3.4): which of the asked rights the caller has.
    fn access(&mut self, file: &FileHandle, asked: Access) -> StoreResult<(Access, Attributes)>;

    /// READLINK (RFC 1813 §3.3.5).
    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone>;

    /// READ (RFC 1813 §3.3.6) of at most `count` octets, which are at most [`TRANSFER_MAX`].
    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone>;

    /// READ that may be put off: Ok(None) when a disk has to bring the octets, and somebody else
    /// waits for it. `ticket` then comes out of [`Store::next_fetched`] when it is time to
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

    /// Carries out a READ that was put off, for the same caller, with what was brought for it.
    fn end_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        span: ReadSpan,
        _brought: Option<Brought>,
    ) -> StoreResult<ReadDone> {
        self.read(lender, file, span.offset, span.count)
    }

    /// WRITE (RFC 1813 §3.3.7) of at most [`TRANSFER_MAX`] octets.
    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, WccData>;

    /// COMMIT (RFC 1813 §3.3.21) of the whole file, whatever range is asked for: the verifier
    /// covers it all.
    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, WccData>;

    /// CREATE (RFC 1813 §3.3.8).
    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateHow,
    ) -> StoreResult<MadeObject, WccData>;

    /// MKDIR (RFC 1813 §3.3.9).
    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData>;

    /// SYMLINK (RFC 1813 §3.3.10).
    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData>;

    /// MKNOD (RFC 1813 §3.3.11).
    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData>;

    /// MKNOD of a device (RFC 1813 §3.3.11).
    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData>;

    /// REMOVE (RFC 1813 §3.3.12).
    fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<WccData, WccData>;

    /// RMDIR (RFC 1813 §3.3.13).
    fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<WccData, WccData>;

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
    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, Attributes)>;

    /// FSINFO (RFC 1813 §3.3.19).
    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, Attributes)>;

    /// PATHCONF (RFC 1813 §3.3.20).
    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, Attributes)>;
}

#[cfg(test)]
mod tests;
