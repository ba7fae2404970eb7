//! Stores, which serve files: a [`Store`]. [`files`] is a directory of this host, [`memory`] lives
//! and dies with the process.
//!
//! Operations take and give attributes and changes that belong to no version of NFS
//! ([`FileAttributes`], [`NewAttributes`], [`ObjectChange`]); whoever serves a version converts,
//! and adds the wire. Handles and what else the versions have in common are the types of
//! [`stag_protocol::nfs::v3`]. Content travels in extents, so that a store which has a file in
//! memory gives and takes it without a copy.

mod answered;
mod carrier;
pub mod ceph;
pub(crate) mod content_copy;
mod exclusive;
mod faults;
pub mod files;
pub mod helpers;
mod helping;
mod host_groups;
mod listing;
pub mod memory;
mod name;
mod operation;
mod outcome;
mod procedures;
mod procedures4;
mod remote;
mod results;
mod types;
mod version4;

pub use answered::Answered;
pub(crate) use helping::make_node;
pub use helping::{Backend, FillRoom, HelperStore, perform};
pub use host_groups::GroupSource;
pub(crate) use operation::objects;
pub use operation::{Effort, OwnedName, StoreCall, StoreOperation, WaitTicket};
pub use outcome::{Begun, FilledLink, FilledListing, FilledRead, StoreCallDone, StoreOutcome};
pub use procedures::Procedures;
pub use procedures4::Procedures4;
pub use remote::RemoteStore;
pub(crate) use results::{Brought, LISTING_MAX};
pub use results::{
    CommitDone, Failed, Fetched, FoundObject, Linked, Listed, ListedEntry, ListingStart,
    MadeObject, Origin, ReadDone, ReadlinkDone, Renamed, WriteDone,
};

pub use types::{
    BeforeChange, CreateMode, FileAttributes, FileTime, NewAttributes, NewTime, ObjectChange,
};

pub use version4::{
    COPY_MAX, CopyDone, ExportRoot, FilePlace, FileSpan, LocalLock, SeekDone, SeekFor, SetDone,
    SetMask, StoreLimits, TouchedFile, XATTR_MAX, XATTR_NAME_MAX, XattrMode,
};

/// The status of an operation of a store: version 3's, in the words and numbers of both versions.
pub use stag_protocol::nfs::v3::Status;

use std::{collections::BTreeMap, io};

use stag_engine::{PeerAddress, Time as EngineTime};
use stag_pools::{Buf, Extent, Pool};
use stag_protocol::{
    nfs::{
        v3::{DeviceNumber, FileHandle, FileKind, Verifier},
        v4::state::LockRange,
    },
    rpc::Gids,
};

use crate::state::StartError;

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

impl User {
    /// The number of the user, or that of nobody.
    pub(crate) const fn uid(&self) -> u32 {
        match self {
            Self::Anyone => 65_534,
            Self::Unix { uid, .. } => *uid,
        }
    }
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
type StoreResult<T, About = Option<FileAttributes>> = Result<T, Failed<About>>;

/// The store of one shard, as its gateway sees it: what it is asked for beside the calls, and the
/// two ways of a call. Most are answered at once by [`now`](Self::now). One that may
/// [wait](Self::waits) is begun as an owned [`StoreOperation`], and its outcome comes later by
/// [`next_done`](Self::next_done); while it is under way the gateway keeps its caller and its
/// memory.
pub trait Store {
    /// True if calls may wait. Where it is false, nothing is ever asked about waiting.
    const MAY_WAIT: bool = false;

    /// The procedures of calls that are answered at once.
    type Now: Procedures + Procedures4;

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

    /// Judges whether a caller is one of an export's clients. Another store than a list's has all
    /// that may connect.
    ///
    /// # Errors
    /// [`Status::Acces`] when it is not, [`Status::Perm`] when its port proves nothing.
    fn admits(&self, _export: &str, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// The same of the export of an object, for operations that ask the store for nothing else.
    /// The handle is not judged.
    ///
    /// # Errors
    /// As [`admits`](Self::admits).
    fn admits_to(&self, _object: &FileHandle, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// Number of changes of the exports or their clients since the start.
    fn edition(&self) -> u64 {
        0
    }

    /// The exports with all that a pseudo file system tells of them (RFC 8881 §7.3). An export
    /// whose directory was made again has another number. Not for each call: it allocates.
    fn export_roots(&self) -> Vec<ExportRoot>;

    /// Takes back one [`pin`](Procedures4::pin) of a file: with the last one goes what has no name.
    /// Waits for nothing.
    fn unpin(&mut self, _file: &FileHandle) {}

    /// Returns true if other programs may lock files of the store: they are asked by
    /// [`find_local_lock`](Self::find_local_lock), and told by [`show_lock`](Self::show_lock).
    fn has_local_locks(&self) -> bool {
        false
    }

    /// Shows other programs the strongest lock that clients have of octets of a pinned file: a
    /// write lock (`Some(true)`), a read lock, or none. Waits for nothing, and does nothing where
    /// locks cannot be shown.
    ///
    /// # Errors
    /// The lock of a program that is in the way; nothing has changed.
    fn show_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        Ok(())
    }

    /// Looks for a lock of another program that a write lock (`exclusive`) or a read lock of octets
    /// of a pinned file would conflict with. Waits for nothing.
    fn find_local_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _exclusive: bool,
    ) -> Option<LocalLock> {
        None
    }

    /// Gets ready to [watch](Self::watch) files.
    ///
    /// # Errors
    /// A sentence, also where no other program can change files of the store, or none can be
    /// watched.
    fn start_watching(&mut self) -> Result<(), StartError> {
        Err(StartError("files of this store cannot be watched".to_owned()))
    }

    /// Watches a pinned file: from here on no other program opens it for writing or cuts it before
    /// [`unwatch`](Self::unwatch), and whatever changes otherwise is told by
    /// [`next_touched`](Self::next_touched). Nobody opens it for writing here either. Waits for
    /// nothing. False if the file cannot be watched, somebody has it open for writing, it has no
    /// name, or its change attribute is another one than `change` by now. One that is watched
    /// already stays so.
    fn watch(&mut self, _file: &FileHandle, _change: u64) -> bool {
        false
    }

    /// Stops watching a file: programs that wait for it go on. Waits for nothing.
    fn unwatch(&mut self, _file: &FileHandle) {}

    /// The next watched file that another program waits for, or has changed: each is told of once,
    /// and once more when a program waits that does not for ever.
    fn next_touched(&mut self) -> Option<TouchedFile> {
        None
    }

    /// Errors of file systems so far that blame the file system, of all shards together, by export.
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
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

    /// Carries out calls of other shards. Called once per pass; true if there were some.
    fn serve_others(&mut self) -> bool {
        false
    }

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

#[cfg(test)]
mod tests;
