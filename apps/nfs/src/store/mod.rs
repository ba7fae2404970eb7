//! Stores of files, accessed through the trait [`Store`]. [`files`] serves directories of this
//! host, [`memory`] ends with the process.
//!
//! Operations use attributes and changes that belong to no version of NFS ([`FileAttributes`],
//! [`NewAttributes`], [`ObjectChange`]); the code of each version converts, and adds the wire
//! format. Handles and other common types are those of [`stag_protocol::nfs::v3`]. Content travels
//! in extents, so that a store with files in memory needs no copy.

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

/// The status of an operation of a store: version 3's, whose names and numbers version 4 shares.
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
    /// The user that the caller claims to be.
    pub user: User,
    /// The caller's address.
    pub address: PeerAddress,
    /// True if the caller is proven to be root of its host, or no proof is required.
    pub is_proven: bool,
}

/// The user that a caller claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// No particular user (AUTH_NONE).
    Anyone,
    /// A user with groups (AUTH_SYS).
    Unix {
        /// The user.
        uid: u32,
        /// The user's primary group.
        gid: u32,
        /// The user's other groups.
        gids: Gids,
    },
}

impl User {
    /// The number of the user, or the anonymous one.
    pub(crate) const fn uid(&self) -> u32 {
        match self {
            Self::Anyone => 65_534,
            Self::Unix { uid, .. } => *uid,
        }
    }
}

/// Lends an empty buffer for at least this number of bytes from the shard's memory; None when it
/// has none.
pub type Lender<'a> = dyn Fn(usize) -> Option<Buf> + 'a;

/// Takes an entry and returns true if it fitted; not called again after the first that did not.
pub type Visitor<'a> = dyn FnMut(&ListedEntry<'_>) -> bool + 'a;

/// The bytes of a WRITE.
#[derive(Debug)]
pub struct WritePayload<'a> {
    /// The octets.
    pub octets: &'a [u8],
    /// The same bytes in memory that can be kept, if they were pulled from the caller. Only bytes
    /// in a buffer of [`Store::sink`] may be kept for long.
    pub shared: Option<Extent>,
}

impl<'a> From<&'a [u8]> for WritePayload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, shared: None }
    }
}

/// The bytes that a READ requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpan {
    /// The offset of the first byte in the file.
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

/// The result of an operation: a failure carries the known attributes of the objects.
type StoreResult<T, About = Option<FileAttributes>> = Result<T, Failed<About>>;

/// The store of one shard, as its gateway uses it: state outside of calls, and two ways to make a
/// call. Most are answered at once by [`now`](Self::now). One that may [wait](Self::waits) is begun
/// as an owned [`StoreOperation`], and its outcome comes later from [`next_done`](Self::next_done);
/// meanwhile the gateway keeps its caller and its memory.
pub trait Store {
    /// True if calls may wait. If false, the methods on waiting are never called.
    const MAY_WAIT: bool = false;

    /// The procedures of calls that are answered at once.
    type Now: Procedures + Procedures4;

    /// The procedures of calls that do not [wait](Self::waits).
    fn now(&mut self) -> &mut Self::Now;

    /// Returns true if a call on `object` has to be begun by [`begin`](Self::begin). Looks at the
    /// handle only.
    fn waits(&self, _object: &FileHandle, _effort: Effort) -> bool {
        false
    }

    /// Returns true if MNT has to be begun by [`begin`](Self::begin).
    fn mount_waits(&self) -> bool {
        false
    }

    /// Begins a call that waits. `ticket` identifies it until [`next_done`](Self::next_done)
    /// returns it.
    fn begin(&mut self, call: StoreCall, _ticket: WaitTicket) -> Begun {
        Begun::Refused(call)
    }

    /// The next call that has completed. Called until there is none, once per pass.
    fn next_done(&mut self) -> Option<StoreCallDone> {
        None
    }

    /// Withdraws a call that was begun, if no work was done for it yet.
    fn withdraw(&mut self, _ticket: WaitTicket) -> Option<StoreCall> {
        None
    }

    /// The next READ deferred by [`Procedures::begin_read`] that can be completed. Called once per
    /// pass.
    fn next_fetched(&mut self) -> Option<Fetched> {
        None
    }

    /// The names of the exports, without the leading slash.
    fn exports(&self) -> impl Iterator<Item = &str>;

    /// Networks that may mount an export, for EXPORT; none if every host that may connect may.
    fn client_networks(&self, _export: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns true if a caller's rights depend on its proof.
    fn asks_for_proof(&self) -> bool {
        false
    }

    /// Checks whether a caller is one of an export's clients. A store without client lists admits
    /// every caller that may connect.
    ///
    /// # Errors
    /// [`Status::Acces`] for another host, [`Status::Perm`] for an unprivileged source port.
    fn admits(&self, _export: &str, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// The same for the export of an object, for operations that call nothing else in the store.
    /// The handle is not verified.
    ///
    /// # Errors
    /// As in [`admits`](Self::admits).
    fn admits_to(&self, _object: &FileHandle, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// Number of changes of the exports or their clients since the start.
    fn edition(&self) -> u64 {
        0
    }

    /// The exports with all that a pseudo file system shows of them (RFC 8881 §7.3). An export
    /// whose directory was made again has another number. Not for each call: it allocates.
    fn export_roots(&self) -> Vec<ExportRoot>;

    /// Removes one [`pin`](Procedures4::pin) of a file; the last one drops a file without a name.
    /// Does not block.
    fn unpin(&mut self, _file: &FileHandle) {}

    /// Returns true if other programs may lock files of the store: their locks are found by
    /// [`find_local_lock`](Self::find_local_lock), and clients' locks shown by
    /// [`show_lock`](Self::show_lock).
    fn has_local_locks(&self) -> bool {
        false
    }

    /// Shows other programs the strongest lock that clients hold on bytes of a pinned file: a write
    /// lock (`Some(true)`), a read lock, or none. Does not block, and does nothing if locks cannot
    /// be shown.
    ///
    /// # Errors
    /// A program's conflicting lock; nothing has changed.
    fn show_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        Ok(())
    }

    /// Looks for another program's lock that would conflict with a write lock (`exclusive`) or a
    /// read lock on bytes of a pinned file. Does not block.
    fn find_local_lock(
        &mut self,
        _file: &FileHandle,
        _range: LockRange,
        _exclusive: bool,
    ) -> Option<LocalLock> {
        None
    }

    /// Prepares to [watch](Self::watch) files.
    ///
    /// # Errors
    /// A sentence, also if no other program can change files of the store, or none can be watched.
    fn start_watching(&mut self) -> Result<(), StartError> {
        Err(StartError("files of this store cannot be watched".to_owned()))
    }

    /// Watches a pinned file: from here on no other program opens it for writing or truncates it
    /// before [`unwatch`](Self::unwatch), and [`next_touched`](Self::next_touched) reports any
    /// other change. The server must not open it for writing either. Does not block. False if the
    /// file cannot be watched, is open for writing, has no name, or its change attribute differs
    /// from `change`. One that is watched already stays so.
    fn watch(&mut self, _file: &FileHandle, _change: u64) -> bool {
        false
    }

    /// Stops watching a file: programs that wait for it proceed. Does not block.
    fn unwatch(&mut self, _file: &FileHandle) {}

    /// The next watched file that another program waits for, or has changed: each is reported once,
    /// and once more when a program starts a limited wait.
    fn next_touched(&mut self) -> Option<TouchedFile> {
        None
    }

    /// Errors so far that blame the file system, of all shards together, by export.
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The current write verifier (RFC 1813 §3.3.7); it changes when unstable data may have been
    /// lost.
    fn verifier(&self) -> Verifier;

    /// Makes the handles issued since the last call survive as promised. Called before sending a
    /// reply that carries one, and once per pass.
    ///
    /// # Errors
    ///
    /// On failure those handles live as long as this process, or until a later call succeeds.
    fn flush(&mut self) -> io::Result<()>;

    /// Executes calls of other shards. Called once per pass; true if there were any.
    fn serve_others(&mut self) -> bool {
        false
    }

    /// Releases resources that were unused for a while. Called once per pass, before
    /// [`flush`](Self::flush); `now` is its time. A shard makes a pass at least once a second.
    fn tidy(&mut self, _now: EngineTime) {}

    /// Returns true if [`tidy`](Self::tidy) or [`flush`](Self::flush) may have work without a call:
    /// because time has passed, or because another thread requests it.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    /// A buffer of the store's own to pull `len` bytes of a WRITE into, which may then become the
    /// file's.
    fn sink(&self, _len: usize) -> Option<Buf> {
        None
    }

    /// Memory of the store's own that READs push from and WRITEs are pulled into: the fabric has to
    /// register it.
    fn pool(&self) -> Option<&Pool> {
        None
    }
}

#[cfg(test)]
mod tests;
