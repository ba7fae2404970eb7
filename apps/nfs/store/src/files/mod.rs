//! The store that serves directories of this host, in one of two modes ([`CallerMode`], DESIGN
//! D12).
//!
//! *Unprivileged*: every caller acts as the server's own user. *Privileged*: the calling thread
//! assumes the caller's user and groups ([`Files::act_as`]), so that the kernel checks each
//! operation as for a local process of that user. Files are opened by kernel handles
//! (`kernel_handles`) before any check, and an open file serves only users with the right to it
//! (`rights`).
//!
//! | file | what |
//! |---|---|
//! | `procedures.rs`, `procedures4.rs` | the procedures of a store, each by one of the next files |
//! | `object.rs`, `attributes.rs`, `xattrs.rs` | GETATTR to READLINK; attributes |
//! | `create.rs`, `umask.rs`, `spare.rs` | new objects |
//! | `namespace.rs`, `directory.rs`, `system.rs` | REMOVE to LINK; listings; FSSTAT to PATHCONF |
//! | `data.rs`, `ranges.rs`, `sync.rs` | READ, WRITE, COMMIT; SEEK to CLONE; stable storage |
//! | `resolve.rs`, `kernel_handles.rs`, `inside.rs` | from handles and names to open files |
//! | `cache.rs`, `eviction.rs`, `cross_shard_cache.rs`, `pins.rs` | open and pinned files |
//! | `identity.rs`, `rights.rs`, `access_table.rs` | users that callers act as, and their rights |
//! | `shared.rs`, `serving.rs`, `reload.rs`, `paths.rs` | state of all shards; the exports |
//! | `blocking_exports.rs`, `watch.rs` | work of helpers; watched files |
//! | `errno.rs`, `blame.rs`, `cold.rs` | system errors, reported faults; cache misses for tests |
//!
//! **Nothing outside an export is reachable.** Files are opened one component at a time by
//! `openat2` beneath a directory that is already open, never through a symbolic link. The opened
//! file is compared (inode and birth time) with the intended one. A handle carries a tag that only
//! this server can make. A file that a local program moves out of an export is stale (`inside`);
//! for kernel handles see `kernel_handles`.
//!
//! **Mount points inside an export are not crossed.** LOOKUP of one is refused with NFS3ERR_ACCES;
//! READDIRPLUS lists it without handle and attributes. The same holds for subvolumes with their own
//! device number, and for the state directory.
//!
//! **An owner may read and write a file regardless of its mode** (RFC 1813 §4.4): a client calls
//! ACCESS when it opens a file, and keeps the right from then on. Without privilege, a file of the
//! server's user whose mode forbids access is opened from within a user namespace
//! (`stag_nfs_os::owner`). It is refused if the system does not allow such namespaces, or the file
//! has another group. Its mode is never changed.
//!
//! Calls run in the calling thread and wait for the file system, with three exceptions if there are
//! helpers ([`crate::helpers`]). A READ that misses the page cache is deferred until the system has
//! read to its buffer (`stag_nfs_os::ring`), or a helper to memory. Syncs that precede an answer
//! are made by a helper (`blocking_exports`). For an export whose file system is on the network, or
//! is another process, helpers carry out all calls.

mod access_table;
mod acls;
mod attributes;
mod blame;
mod blocking_exports;
mod cache;
mod cold;
mod create;
mod cross_shard_cache;
mod data;
pub mod directory;
mod errno;
mod eviction;
mod identity;
mod inside;
mod kernel_handles;
mod namespace;
mod object;
mod paths;
mod pins;
mod procedures;
mod procedures4;
mod ranges;
mod reload;
mod resolve;
mod rights;
mod serving;
mod shared;
mod spare;
mod sync;
pub mod system;
mod umask;
mod watch;
mod xattrs;

use core::{cell::Cell, mem::MaybeUninit};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

#[cfg(test)]
use rustix::io::Errno;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    path::DecInt,
};

pub use stag_nfs_os::Ring;
use stag_nfs_os::{Done, User as ActingUser};
use stag_protocol::nfs::v3::Status;

use crate::{
    Brought, Caller, Failed, Fetched, FileAttributes, ObjectChange, User,
    contract::{name, tickets::ReadTicket},
    exports::{
        config::{Export, ExportId},
        host_groups::SeenGroups,
        index::Index,
    },
    helpers::{self, Helpers, SyncExtent},
    start_error::StartError,
};
use access_table::Guest;
use attributes::attributes;
pub(crate) use blocking_exports::LateCalls;
pub use blocking_exports::{FilesBackend, SlowExports, WaitingConfig};
use cache::{FileCache, FileSlotId};
use cold::ColdLooks;
use cross_shard_cache::SiblingMail;
pub use data::ReadDone;
use eviction::Rounds;
use identity::Acting;
use inside::InsideJudge;
pub use object::ReadlinkDone;
pub use reload::{ExportChanges, ExportSet, RuledExport};
use serving::Serving;
pub use shared::{FilesConfig, SharedFiles};
use spare::SpareDescriptor;
use watch::HostWatch;

pub use crate::exports::client_rules::Squash;
pub(crate) use errno::status as errno_status;
pub(crate) use identity::Policy;
pub use identity::{Callers, Mode as CallerMode, NetworkSquash};
pub(crate) use sync::Epoch;

/// Files a shard keeps open at most, if descriptors allow it.
pub const OPEN_FILES_MAX: usize = 16_384;
/// Files a shard keeps open at least; with fewer the start fails.
pub const OPEN_FILES_MIN: usize = 16;
/// Descriptors that an open file takes at most.
pub const DESCRIPTORS_PER_FILE: usize = FileCache::FDS_PER_FILE;
/// Descriptors left to the rest of the process: connections, logs, libraries, helpers.
const DESCRIPTORS_RESERVED: u64 = 256 + helpers::DESCRIPTORS_MAX as u64;
/// Octets of directory entries read at once.
const LISTING_LEN: usize = 64 << 10;

/// Opens `name` in `directory`: never a symbolic link's target, another mount, or anything above.
fn open_beneath<P: rustix::path::Arg>(
    directory: impl AsFd,
    name: P,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, resolve)
}

/// Counters of a store in addition to the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of user switches: consecutive calls of one user count once.
    pub switches: u64,
    /// Blocking reads, made because not all bytes were in memory.
    pub waits: u64,
    /// Directory entries that READDIRPLUS looked up.
    pub looks: u64,
}

/// Intent of an operation: to look, or to change something. A read-only export refuses changes
/// before they take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Look,
    Change,
}

/// A READ whose buffer is in use by the ring.
#[derive(Debug)]
pub struct Late {
    ticket: ReadTicket,
    /// Bytes to read.
    len: usize,
    /// The file's attributes before the read.
    before: FileAttributes,
}

/// The store of one shard. See the module.
#[derive(Debug)]
pub struct Files {
    shared: Arc<SharedFiles>,
    serving: Serving,
    cache: FileCache,
    rounds: Rounds,
    inside: InsideJudge,
    messages: SiblingMail,
    index: Index,
    acting: Acting,
    groups: Option<SeenGroups>,
    guest: Guest,
    /// Ring that waits for the disk in place of this shard.
    ring: Option<Ring<Late>>,
    /// Threads that wait for the disk without a ring, or when it is full.
    helpers: Option<Helpers>,
    /// This shard's calls that helpers complete.
    late: LateCalls,
    /// True for the store of a helper, which may block.
    is_helpers: bool,
    /// Watch for changes by local programs, for delegations.
    watch: Option<HostWatch>,
    /// Simulated cache misses, so that a test needs no slow disk.
    cold_looks: Option<ColdLooks>,
    /// Reads that blocked nevertheless.
    waits: Cell<u64>,
    looks: Cell<u64>,
    listing: Box<[MaybeUninit<u8>]>,
    /// Objects indistinguishable from removed ones, held open so that others get made; see
    /// [`create`].
    twins: Vec<OwnedFd>,
    /// For opening new objects.
    spare: SpareDescriptor,
    /// Number of next new objects to treat as twins.
    #[cfg(test)]
    pretended_twins: core::cell::Cell<u32>,
    /// Pretended own user: the file system then seems to give new objects to another user, and
    /// refuses owner-only operations.
    #[cfg(test)]
    pretended_uid: core::cell::Cell<Option<u32>>,
    /// Number of next syncs to fail, which simulates a failing disk in a test.
    #[cfg(test)]
    failing_syncs: core::cell::Cell<u32>,
}

impl Files {
    /// The store of shard number `shard`; to be opened once for each. Allocates all memory but the
    /// index's.
    ///
    /// # Errors
    /// A sentence when the shard's files cannot be opened.
    pub fn open(shared: &Arc<SharedFiles>, shard: usize) -> Result<Self, StartError> {
        Self::open_with(shared, shard, shared.open_files)
    }

    fn open_with(
        shared: &Arc<SharedFiles>,
        shard: usize,
        open_files: usize,
    ) -> Result<Self, StartError> {
        let serving = shared.roster.serving();
        let exports = Arc::clone(&serving.exports);
        let mut files = Self {
            cache: FileCache::new(open_files, exports.iter().count()),
            shared: Arc::clone(shared),
            serving,
            rounds: Rounds::default(),
            inside: InsideJudge::default(),
            messages: shared.siblings.open(shard),
            index: Index::open(&shared.base, shard)?,
            acting: Acting::new(),
            // Stores of helpers have numbers above those of the shards.
            groups: shared
                .policy
                .as_ref()
                .and_then(|policy| policy.groups(shard >= shared.helping.first)),
            guest: Guest::default(),
            ring: None,
            helpers: None,
            late: LateCalls::default(),
            is_helpers: shard >= shared.helping.first,
            watch: None,
            cold_looks: None,
            waits: Cell::new(0),
            looks: Cell::new(0),
            listing: Box::new_uninit_slice(LISTING_LEN),
            twins: Vec::with_capacity(create::TWINS_MAX),
            spare: SpareDescriptor::of(shared),
            #[cfg(test)]
            pretended_twins: core::cell::Cell::new(0),
            #[cfg(test)]
            pretended_uid: core::cell::Cell::new(None),
            #[cfg(test)]
            failing_syncs: core::cell::Cell::new(0),
        };
        for export in exports.iter() {
            let root = files.root_of(export).map_err(|error| {
                StartError(format!("cannot open the export /{} once more: {error}", export.name()))
            })?;
            files.cache.pin(root);
        }
        Ok(files)
    }

    /// Lets helpers wait for the disk; without them, the shard does.
    #[must_use]
    pub fn with_helpers(mut self, helpers: Helpers) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// Lets the system read missing bytes directly to the shard's buffers. The ring's event has to
    /// wake the shard.
    #[must_use]
    pub fn with_ring(mut self, ring: Ring<Late>) -> Self {
        self.ring = Some(ring);
        self
    }

    /// The next deferred READ whose bytes have arrived.
    fn next_fetched(&mut self) -> Option<Fetched> {
        if let Some(Done { buf: octets, outcome, kept: Late { ticket, len, before } }) =
            self.ring.as_mut().and_then(Ring::next_done)
        {
            // An error recurs on the second read, and is reported then.
            let brought = outcome.is_ok().then_some(Brought { octets, len, before });
            return Some(Fetched { ticket, brought });
        }
        let ticket = self.helpers.as_ref()?.next_fetched()?;
        Some(Fetched { ticket, brought: None })
    }

    /// Returns the state that the stores of all shards have in common.
    pub fn shared(&self) -> &Arc<SharedFiles> {
        &self.shared
    }

    /// Makes the handles issued since the last call survive a restart. Call it before sending a
    /// reply that carries one, and once per pass. One system call, or none when there is nothing to
    /// write.
    ///
    /// # Errors
    ///
    /// When the index cannot be written: those handles live as long as this process, or until a
    /// later call succeeds.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.index.flush()
    }

    /// Makes the calls that follow act as the user that the caller claims; no effect in
    /// unprivileged mode.
    ///
    /// The calling thread keeps that user's rights on files until the next such call, whatever it
    /// does. When the kernel refuses, calls are answered with NFS3ERR_ACCES.
    pub fn act_as(&mut self, user: &User) {
        let Some(policy) = &self.shared.policy else { return };
        self.act_squashed(user, policy.squash());
    }

    /// The same for a caller at an address, whose network may have a rule of its own.
    pub(crate) fn act_as_caller(&mut self, caller: &Caller) {
        if self.serving.access.is_some() {
            return self.await_export(Some(*caller));
        }
        let Some(policy) = &self.shared.policy else { return };
        self.act_squashed(&caller.user, policy.squash_at(caller.address));
    }

    fn act_squashed(&mut self, user: &User, squash: Squash) {
        let Some(policy) = &self.shared.policy else { return };
        self.assume(user, squash, policy.anonymous());
    }

    /// Acts as a caller, squashed like this. If the kernel refuses, or the caller's groups are
    /// unknown yet, the store acts as no user, and refuses calls.
    fn assume(&mut self, caller: &User, squash: Squash, anonymous: ActingUser) {
        let Some(policy) = &self.shared.policy else { return };
        match policy.acting(caller, squash, anonymous, self.groups.as_mut()) {
            Some(user) => drop(self.acting.become_user(&user)),
            None => self.acting.await_groups(),
        }
    }

    /// Returns the counters of the store since it was opened.
    pub fn counts(&self) -> Counts {
        Counts {
            switches: self.acting.switches(),
            waits: self.waits.get(),
            looks: self.looks.get(),
        }
    }

    /// In privileged mode a call is made as some user, or not at all.
    fn must_act_as_someone(&self) -> Result<(), Status> {
        match (&self.shared.policy, self.acting.current()) {
            (None, _) | (_, Some(_)) => Ok(()),
            (Some(_), None) if self.acting.awaits_groups() => Err(Status::Jukebox),
            (Some(_), None) => Err(Status::Acces),
        }
    }

    /// The user that new files belong to.
    fn uid(&self) -> u32 {
        #[cfg(test)]
        if let Some(uid) = self.pretended_uid.get() {
            return uid;
        }
        let own = || rustix::process::geteuid().as_raw();
        self.acting.current().map_or_else(own, |(user, _)| user.uid())
    }

    fn export(&self, id: ExportId) -> &Export {
        self.serving.export(id).expect("checked when the handle was resolved")
    }

    fn export_of(&self, slot: FileSlotId) -> &Export {
        self.export(self.cache.get(slot).identity.file.export)
    }

    /// The file's attributes from the system.
    fn stat(&self, slot: FileSlotId) -> Result<rustix::fs::Statx, Status> {
        let stat = crate::exports::config::stat(self.cache.path(slot)).map_err(errno::status)?;
        // Its handle would not open it again, unless it is pinned.
        if stat.stx_nlink == 0 && !self.shared.pins.has(self.cache.get(slot).identity.file) {
            self.cache.get(slot).is_removed.set(true);
            return Err(Status::Stale);
        }
        self.must_not_have_left(slot, &stat)?;
        Ok(stat)
    }

    fn attributes(&self, slot: FileSlotId) -> Result<FileAttributes, Status> {
        self.stat(slot).map(|stat| attributes(&stat, self.export_of(slot)))
    }

    /// Refuses a removed directory, where the system would only report names as missing.
    fn must_be_there(&self, slot: FileSlotId) -> Result<(), Status> {
        self.stat(slot).map(drop)
    }

    /// Adds the attributes from after a change to its outcome; see [`Files::wcc`].
    fn changed<T>(
        &self,
        slot: FileSlotId,
        outcome: Result<T, Status>,
    ) -> Result<(T, ObjectChange), Failed<ObjectChange>> {
        // RFC 1813 §3.1 [1813-13]: a reply carries attributes, also if the call failed
        let wcc = self.wcc(slot);
        match outcome {
            Ok(value) => Ok((value, wcc)),
            Err(status) => Err(Failed { status, about: wcc }),
        }
    }

    /// An object's attributes after a change, and none from before it.
    ///
    /// To a client the two mean that only this call changed the object in between; it keeps its
    /// cache if the first match those it has (RFC 1813 §2.6). Linux' server can send them because
    /// it holds the inode's lock throughout; it leaves them out of WRITE and COMMIT, and wherever a
    /// file system cannot be locked like that. A process has no such lock: other shards, local
    /// programs and other servers may change the object between two of its system calls. No
    /// attribute would show that, because the call itself changes the same times and the same size.
    fn wcc(&self, slot: FileSlotId) -> ObjectChange {
        // RFC 1813 §2.6 [1813-12]: attributes before a change are left out unless atomic
        ObjectChange { before: None, after: self.attributes(slot).ok() }
    }

    /// The link in `/proc/self/fd` to the inode: opens, changes and links objects that were opened
    /// by path only.
    fn magic(&self, slot: FileSlotId) -> (BorrowedFd<'_>, DecInt) {
        (self.shared.descriptors.as_fd(), DecInt::from_fd(self.cache.path(slot)))
    }

    /// Syncs a file's data. All users of unstable data see a failure.
    fn sync(&self, fd: impl AsFd, extent: SyncExtent) -> Result<(), Status> {
        self.judge_sync(extent.sync(fd))
    }

    fn judge_sync(&self, synced: rustix::io::Result<()>) -> Result<(), Status> {
        #[cfg(test)]
        let synced = match self.failing_syncs.get() {
            0 => synced,
            left => {
                self.failing_syncs.set(left - 1);
                Err(Errno::IO)
            }
        };
        match synced {
            Ok(()) => Ok(()),
            Err(error) => {
                // RFC 1813 §3.3.7 [1813-47]: a sync that failed changes the write verifier
                // everywhere
                self.shared.epoch.advance();
                Err(errno::status(error))
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The index on disk is a hint, and the store is being dropped: no caller is left to handle
        // a failure.
        let _ = self.index.flush();
        self.shared.siblings.leave(&self.messages);
    }
}

#[cfg(test)]
mod tests;
