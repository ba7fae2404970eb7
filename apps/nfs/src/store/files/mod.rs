//! The store that serves directories of this host, in one of two modes ([`CallerMode`], DESIGN D12).
//!
//! *Unprivileged*: every caller acts as the server's own user. *Privileged*: the calling thread takes the caller's user and groups
//! ([`Files::act_as`]), so that the kernel judges each operation as if that user did it here; files are opened by the kernel's
//! own handles (`kernel`) before anything is judged, and what is open serves only who has the right (`rights`).
//!
//! **Nothing outside an export is reachable.** Files are opened one component at a time by
//! `openat2` beneath a directory that is open already, never through a symbolic link; what was
//! opened is compared (inode and birth time) with what was meant. A handle carries a tag that only
//! this server makes. What a local user moves out of an export while the gateway has it open stays
//! reachable until it is closed (`idle`), as with Linux' server and `no_subtree_check`; with the
//! kernel's handles see `kernel`.
//!
//! **Mount points inside an export are not crossed.** LOOKUP of one is refused with NFS3ERR_ACCES; READDIRPLUS lists it without
//! handle and attributes. The same holds for a subvolume with a device number of its own, and for the state directory.
//!
//! **An owner may read and write his file whatever its mode says** (RFC 1813 §4.4): a client asks ACCESS when it opens one, and
//! has the right from then on. Without privilege, a file of the server's user that its mode closes is opened from within a user
//! namespace (`stag_nfs_os::owner`); where the system makes none, or the file has another group, it is refused. Its mode is never touched.
//!
//! Calls are made in the calling thread and wait for the file system. Only a READ whose octets are not in memory is put off until
//! the system has brought them to its buffer (`stag_nfs_os::ring`), or a helper ([`crate::helpers`]) to memory; syncs of WRITE and COMMIT are waited for.

mod attributes;
mod cache;
mod callers;
mod create;
mod data;
pub mod directory;
mod errno;
mod idle;
mod kernel;
mod namespace;
mod object;
mod resolve;
mod rights;
mod serving;
mod siblings;
mod store;
mod sync;
pub mod system;

use core::cell::Cell;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::path::DecInt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use stag_nfs_os::Done;
pub use stag_nfs_os::Ring;
use stag_protocol::nfs::v3::{Attributes, Status, Verifier, WccData};

use crate::export::{Export, ExportConfig, ExportId, Exports, Place};
use crate::handle::{Birth, HandleKey};
use crate::helpers::{self, Helpers, Ticket};
use crate::index::{Base, Index};
use crate::state::{StartError, State, cannot};
use crate::store::{Brought, Failed, Fetched, User, name};
use attributes::attributes;
use cache::{Cache, SlotId};
use callers::{Acting, Policy};
pub use data::ReadDone;
use idle::Rounds;
use kernel::Mounts;
pub use object::ReadlinkDone;
use serving::{Roster, Serving};
use siblings::{Letters, Siblings};
use sync::{Epoch, Extent};

pub use callers::{Callers, Mode as CallerMode, Squash};

/// Files a shard keeps open at most, if descriptors allow it.
pub const OPEN_FILES_MAX: usize = 16_384;
/// Files a shard keeps open at least, or the start fails.
pub const OPEN_FILES_MIN: usize = 16;
/// Descriptors that an open file takes at most.
pub const DESCRIPTORS_PER_FILE: usize = Cache::FDS_PER_FILE;
/// Descriptors left to the rest of the process: connections, logs, libraries, helpers.
const DESCRIPTORS_RESERVED: u64 = 256 + helpers::DESCRIPTORS_MAX as u64;
/// Octets of directory entries read at once.
const LISTING_LEN: usize = 64 << 10;

/// What a gateway is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where key, export ids and index are kept; made if it is missing.
    pub state_dir: PathBuf,
    /// The directories to serve.
    pub exports: Vec<ExportConfig>,
    /// Stores to open: one for each shard.
    pub shards: usize,
    /// Whether a change of a directory, and SETATTR, is on stable storage before it is answered. RFC 1813 §4.7 asks for it.
    pub sync_directories: bool,
    /// Whom callers act as.
    pub callers: Callers,
    /// Files each shard keeps open; `None`: as many as RLIMIT_NOFILE allows, up to [`OPEN_FILES_MAX`].
    pub open_files: Option<usize>,
}

/// What the stores of all shards have in common.
#[derive(Debug)]
pub struct Shared {
    roster: Roster,
    siblings: Siblings,
    handles: HandleKey,
    /// Who acts as whom, in privileged mode.
    policy: Option<Policy>,
    base: Base,
    state_place: Place,
    epoch: Epoch,
    sync_directories: bool,
    open_files: usize,
    /// `/proc/self/fd`: through it a descriptor opened by path only becomes one for content.
    descriptors: OwnedFd,
    notices: Vec<String>,
    /// Locked as long as this lives.
    state: State,
}

impl Shared {
    /// Opens the state directory and the exports.
    ///
    /// # Errors
    /// A sentence for whoever starts the server.
    pub fn open(config: &Config) -> Result<Arc<Self>, StartError> {
        // Else a WRITE behind the process' file size limit would end it. NFS3ERR_FBIG is the
        // answer.
        let ignored = stag_nfs_os::signal::ignore_file_size_limit();
        ignored.map_err(|error| StartError(format!("cannot ignore SIGXFSZ: {error}")))?;
        let (policy, mode) = config.callers.decide()?;
        let state = State::open(&config.state_dir)?;
        let exports = Exports::open(&config.exports, &state)?;
        for export in exports.iter() {
            check_openat2(export)?;
        }
        let base = Base::open(&state, config.shards)?;
        let (mounts, indexed) = match policy {
            Some(_) => Mounts::open(&exports),
            None => Default::default(),
        };
        let weak = notices(&exports, &mounts, &base, policy.is_none());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = Path::new("/proc/self/fd");
        let descriptors = openat(CWD, path, flags, Mode::empty()).map_err(cannot("open", path))?;
        Ok(Arc::new(Self {
            notices: [mode].into_iter().chain(indexed).chain(weak).collect(),
            policy,
            roster: Roster::new(exports, mounts),
            siblings: Siblings::new(config.shards),
            handles: HandleKey::new(&state.handle_key()),
            base,
            state_place: state.place(),
            epoch: epoch()?,
            sync_directories: config.sync_directories,
            open_files: open_files(config)?,
            descriptors,
            state,
        }))
    }

    /// The exports at this moment.
    pub fn exports(&self) -> Arc<Exports> {
        self.roster.serving().exports
    }

    /// Lets `ring` wake the shard with this number when another one meets a full file system.
    /// Without it, or before, space of files that it has open and the other removed is free within
    /// a second. Only the first counts.
    pub fn attach_bell(&self, shard: usize, ring: impl Fn() + Send + Sync + 'static) {
        self.siblings.attach(shard, ring);
    }

    /// Whether each caller acts as the user it names.
    pub fn is_privileged(&self) -> bool {
        self.policy.is_some()
    }

    /// Sentences to print at the start: the mode, and what is weaker than it could be.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Files each shard keeps open at most.
    pub fn open_files(&self) -> usize {
        self.open_files
    }

    /// The write verifier at this moment (RFC 1813 §3.3.7).
    pub fn verifier(&self) -> Verifier {
        self.epoch.verifier()
    }
}

fn notices(exports: &Exports, mounts: &Mounts, base: &Base, is_unprivileged: bool) -> Vec<String> {
    let mut notices = Vec::new();
    if is_unprivileged && rustix::process::geteuid().is_root() {
        notices
            .push("the server runs as root: whoever may mount acts as root on the exported files".to_owned());
    }
    let by_birth = exports.iter().filter(|export| mounts.root(export.id()).is_none());
    for export in by_birth.filter(|export| export.identity().birth == Birth::default()) {
        notices.push(format!(
            "the file system of /{} records no birth times: an old handle may come to name a later file with the same inode",
            export.name()
        ));
    }
    if base.torn_octets() > 0 {
        notices.push(format!("left out {} octets of torn index records", base.torn_octets()));
    }
    notices
}

fn check_openat2(export: &Export) -> Result<(), StartError> {
    match open_beneath(export.root(), c".", OFlags::PATH, Mode::empty()) {
        Ok(_) => Ok(()),
        Err(Errno::NOSYS) => {
            Err(StartError("this kernel has no openat2: Linux 5.6 or later is needed".to_owned()))
        }
        Err(error) => {
            Err(StartError(format!("cannot use openat2 on the export /{}: {error}", export.name())))
        }
    }
}

fn epoch() -> Result<Epoch, StartError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let boot_id = std::fs::read(path).map_err(cannot("read", path))?;
    let now = clock_gettime(ClockId::Realtime);
    let nanos = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
    Ok(Epoch::new(&boot_id, nanos.unsigned_abs()))
}

/// Files each shard may keep open. Raises the soft limit on descriptors to the hard one.
fn open_files(config: &Config) -> Result<usize, StartError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Refused: the limit stays what it is, and the budget below follows it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let shards = u64::try_from(config.shards.max(1)).unwrap_or(u64::MAX);
    let share = limit.saturating_sub(DESCRIPTORS_RESERVED) / shards / Cache::FDS_PER_FILE as u64;
    let share = usize::try_from(share).unwrap_or(usize::MAX).min(OPEN_FILES_MAX);
    let files = config.open_files.map_or(share, |wanted| wanted.min(share));
    if files < OPEN_FILES_MIN {
        return Err(StartError(format!(
            "{limit} descriptors (RLIMIT_NOFILE) give each of {shards} shards {files} open files: {OPEN_FILES_MIN} are needed"
        )));
    }
    Ok(files)
}

/// Opens `name` in `directory`: never a symbolic link's target, another mount, or anything above.
fn open_beneath<P: rustix::path::Arg>(
    directory: impl AsFd,
    name: P,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        // RFC 1813 §3.3.3 [1813-27]
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        // RFC 1813 §3.3.3 [1813-28]
        | ResolveFlags::NO_XDEV;
    openat2(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, resolve)
}

/// What a store counts beside the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How often the thread took another user's identity: calls of one user in a row take it once.
    pub switches: u64,
    /// Reads of the system that waited because not all was in memory.
    pub waits: u64,
    /// Entries of directories that READDIRPLUS looked at.
    pub looks: u64,
}

/// Whether an operation changes something; a read-only export refuses those before it touches anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Look,
    Change,
}

/// A READ while a ring has its buffer.
#[derive(Debug)]
pub struct Late {
    ticket: Ticket,
    /// Octets that are read.
    len: usize,
    /// The file before.
    before: Attributes,
}

/// The store of one shard. See the module.
#[derive(Debug)]
pub struct Files {
    shared: Arc<Shared>,
    serving: Serving,
    cache: Cache,
    rounds: Rounds,
    letters: Letters,
    index: Index,
    acting: Acting,
    /// What waits for the disk instead of this shard.
    ring: Option<Ring<Late>>,
    /// Who does so where there is no ring, or too much for it.
    helpers: Option<Helpers>,
    /// Reads that waited for it nevertheless.
    waits: Cell<u64>,
    looks: Cell<u64>,
    listing: Box<[MaybeUninit<u8>]>,
    /// Objects that could not be told from removed ones, held so that others are made; see [`create`].
    twins: Vec<OwnedFd>,
    /// How many objects just made are taken for twins.
    #[cfg(test)]
    pretended_twins: core::cell::Cell<u32>,
    /// Another user to be: the file system then seems to give what is made to somebody else, and refuses what only an owner may do.
    #[cfg(test)]
    pretended_uid: core::cell::Cell<Option<u32>>,
    /// How many of the next syncs fail: the only way to see a disk die in a test.
    #[cfg(test)]
    failing_syncs: core::cell::Cell<u32>,
}

impl Files {
    /// The store of shard number `shard`; to be opened once for each. All memory but the index's is taken here.
    ///
    /// # Errors
    /// A sentence when the shard's files cannot be opened.
    pub fn open(shared: &Arc<Shared>, shard: usize) -> Result<Self, StartError> {
        let serving = shared.roster.serving();
        let exports = Arc::clone(&serving.exports);
        let mut files = Self {
            cache: Cache::new(shared.open_files, exports.iter().count()),
            shared: Arc::clone(shared),
            serving,
            rounds: Rounds::default(),
            letters: shared.siblings.open(shard),
            index: Index::open(&shared.base, shard)?,
            acting: Acting::new(),
            ring: None,
            helpers: None,
            waits: Cell::new(0),
            looks: Cell::new(0),
            listing: Box::new_uninit_slice(LISTING_LEN),
            twins: Vec::with_capacity(create::TWINS_MAX),
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

    /// Lets helpers wait for the disk; without any, the shard does.
    #[must_use]
    pub fn with_helpers(mut self, helpers: Helpers) -> Self {
        self.helpers = Some(helpers);
        self
    }

    /// Lets the system read what is not in memory straight to the shard's buffers. The ring's bell has to wake the shard.
    #[must_use]
    pub fn with_ring(mut self, ring: Ring<Late>) -> Self {
        self.ring = Some(ring);
        self
    }

    /// The next READ that was put off, and whose octets were brought.
    fn next_fetched(&mut self) -> Option<Fetched> {
        if let Some(Done { buf: octets, outcome, kept: Late { ticket, len, before } }) =
            self.ring.as_mut().and_then(Ring::next_done)
        {
            // What fails here fails when it is read again, and is reported then.
            let brought = outcome.is_ok().then_some(Brought { octets, len, before });
            return Some(Fetched { ticket, brought });
        }
        let ticket = self.helpers.as_ref()?.next_fetched()?;
        Some(Fetched { ticket, brought: None })
    }

    /// What all shards have in common.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Makes the handles issued since the last call survive a restart: call it once per pass, before the replies leave. One
    /// system call, none when there is nothing to write.
    ///
    /// # Errors
    /// When the index cannot be written: those handles live as long as this process, or until a later call succeeds.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.index.flush()
    }

    /// Makes the calls that follow act as whom the caller says he is; nothing to do in unprivileged mode.
    ///
    /// The calling thread keeps that user's rights on files until the next call of this, whatever it does. When the kernel
    /// refuses, calls are answered with NFS3ERR_ACCES.
    pub fn act_as(&mut self, user: &User) {
        let Some(policy) = &self.shared.policy else { return };
        let user = match user {
            User::Unix { uid, gid, gids } => policy.user(*uid, *gid, gids.list()),
            User::Anyone => policy.anonymous(),
        };
        // The store then acts as nobody, and refuses.
        let _ = self.acting.become_user(&user);
    }

    /// What the store counted since it was opened.
    pub fn counts(&self) -> Counts {
        Counts { switches: self.acting.switches(), waits: self.waits.get(), looks: self.looks.get() }
    }

    /// In privileged mode a call is made for somebody, or not at all.
    fn must_act_as_someone(&self) -> Result<(), Status> {
        match (&self.shared.policy, self.acting.current()) {
            (None, _) | (_, Some(_)) => Ok(()),
            (Some(_), None) => Err(Status::Acces),
        }
    }

    /// The user that files are made as.
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

    fn export_of(&self, slot: SlotId) -> &Export {
        self.export(self.cache.get(slot).identity.file.export)
    }

    /// The file's attributes as the system gives them.
    fn stat(&self, slot: SlotId) -> Result<rustix::fs::Statx, Status> {
        let stat = crate::export::stat(self.cache.path(slot)).map_err(errno::status)?;
        // Its handle would not open it again.
        if stat.stx_nlink == 0 {
            self.cache.get(slot).is_removed.set(true);
            return Err(Status::Stale);
        }
        Ok(stat)
    }

    fn attributes(&self, slot: SlotId) -> Result<Attributes, Status> {
        self.stat(slot).map(|stat| attributes(&stat))
    }

    /// Refuses a directory that was removed: for names in it, the system would only say that they are not there.
    fn must_be_there(&self, slot: SlotId) -> Result<(), Status> {
        self.stat(slot).map(drop)
    }

    /// Gives the outcome of a change the attributes from after it; see [`Files::wcc`].
    fn changed<T>(&self, slot: SlotId, outcome: Result<T, Status>) -> Result<(T, WccData), Failed<WccData>> {
        // RFC 1813 §3.1 [1813-13]
        let wcc = self.wcc(slot);
        match outcome {
            Ok(value) => Ok((value, wcc)),
            Err(status) => Err(Failed { status, about: wcc }),
        }
    }

    /// An object's attributes after a change, and none from before it.
    ///
    /// The two mean "nobody but this call changed the object in between" to a client, which keeps what it has cached if those from
    /// before are those that it knows (RFC 1813 §2.6). Linux' server says so because it holds the inode's lock from the first look to
    /// the last, and leaves them out of WRITE and COMMIT, and wherever a file system cannot be locked like that. A process has no such lock: other
    /// shards, local programs and other servers may change the object between two of its system calls, and no attribute would show it,
    /// as what the call itself changes are the same times and the same size.
    fn wcc(&self, slot: SlotId) -> WccData {
        // RFC 1813 §2.6 [1813-12]
        WccData { before: None, after: self.attributes(slot).ok() }
    }

    /// The link in `/proc/self/fd` that leads to the inode: opens, changes and links what was opened by path only.
    fn magic(&self, slot: SlotId) -> (BorrowedFd<'_>, DecInt) {
        (self.shared.descriptors.as_fd(), DecInt::from_fd(self.cache.path(slot)))
    }

    /// Brings a file's data to stable storage. A failure is seen by everyone who relies on unstable data.
    fn sync(&self, fd: impl AsFd, extent: Extent) -> Result<(), Status> {
        let synced = match extent {
            Extent::Data => rustix::fs::fdatasync(fd),
            Extent::All => rustix::fs::fsync(fd),
        };
        self.judge_sync(synced)
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
            // The file system has nothing to sync for this kind of file.
            Err(Errno::INVAL) => Ok(()),
            Err(error) => {
                // RFC 1813 §3.3.7 [1813-47]
                self.shared.epoch.advance();
                Err(errno::status(error))
            }
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The index on disk is a hint, and the store goes away: nobody is left to hear of a failure.
        let _ = self.index.flush();
        self.shared.siblings.leave(&self.letters);
    }
}

#[cfg(test)]
mod tests;
