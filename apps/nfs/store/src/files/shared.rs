//! State shared by the stores of all shards: the state directory, the exports, and the limits.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use stag_protocol::nfs::{
    v3::{FileHandle, Verifier},
    v4::state::LockRange,
};

use super::{
    DESCRIPTORS_RESERVED, OPEN_FILES_MAX, OPEN_FILES_MIN,
    blocking_exports::{HelpingStores, SlowExports, WaitingConfig},
    cache::FileCache,
    cross_shard_cache::Siblings,
    identity::{Callers, Policy},
    kernel_handles::ExportMounts,
    open_beneath,
    paths::PathLooks,
    pins::Pins,
    serving::Roster,
    sync::Epoch,
};
use crate::{
    LocalLock,
    exports::{
        blocking_probe::{START_LIMIT, within},
        cluster::Cluster,
        config::{Export, ExportConfig, Exports, HostInode},
        faults::StoreFaults,
        handle::{Birth, HandleKey},
        index::Base,
        state_dir::{StateDirectory, cannot},
    },
    start_error::StartError,
};

/// Configuration of a gateway's store.
#[derive(Clone, Debug)]
pub struct FilesConfig {
    /// Directory for key, export ids and index; made if it is missing.
    pub state_dir: PathBuf,
    /// The directories to serve.
    pub exports: Vec<ExportConfig>,
    /// Stores to open: one for each shard.
    pub shards: usize,
    /// True if a change of a directory, or a SETATTR, is on stable storage before its reply, as RFC
    /// 1813 §4.7 requires.
    pub sync_directories: bool,
    /// Users that callers act as.
    pub callers: Callers,
    /// Files each shard keeps open; `None`: as many as RLIMIT_NOFILE allows, up to
    /// [`OPEN_FILES_MAX`].
    pub open_files: Option<usize>,
    /// The cluster, if other gateways serve the same files: handles, ids and `fsid` are then its
    /// own.
    pub cluster: Option<Cluster>,
}

/// Files that a helper keeps open, at least and at most.
const HELPED_FILES_MIN: u64 = 4;
const HELPED_FILES_MAX: u64 = 1_024;

/// State that the stores of all shards have in common.
#[derive(Debug)]
pub struct SharedFiles {
    pub(super) roster: Roster,
    pub(super) looks: PathLooks,
    pub(super) siblings: Siblings,
    pub(super) pins: Pins,
    pub(super) handles: HandleKey,
    pub(super) cluster: Option<Cluster>,
    /// Mapping of callers to users, in privileged mode.
    pub(super) policy: Option<Policy>,
    pub(super) base: Base,
    pub(super) state_place: HostInode,
    pub(super) epoch: Epoch,
    pub(super) faults: StoreFaults,
    pub(super) sync_directories: bool,
    pub(super) open_files: usize,
    /// Maximum number of exports at a time, each of which keeps its root open.
    pub(super) exports_max: usize,
    /// The stores of helpers: their first number, their count, and the files of each.
    pub(super) helping: HelpingStores,
    /// `/proc/self/fd`: turns a descriptor opened by path only into one for content.
    pub(super) descriptors: OwnedFd,
    pub(super) notices: Vec<String>,
    /// Locked as long as this lives.
    pub(super) state: StateDirectory,
}

impl SharedFiles {
    /// Opens the state directory and the exports.
    ///
    /// # Errors
    /// A sentence for the administrator.
    pub fn open(config: &FilesConfig) -> Result<Arc<Self>, StartError> {
        Self::open_waiting(config, &WaitingConfig::default())
    }

    /// As [`open`](Self::open), with helpers that carry out the calls of exports that may block.
    ///
    /// # Errors
    /// A sentence for the administrator.
    pub fn open_waiting(
        config: &FilesConfig,
        waiting: &WaitingConfig,
    ) -> Result<Arc<Self>, StartError> {
        // Else a WRITE past the process' file size limit would kill it. NFS3ERR_FBIG is the answer.
        let ignored = stag_nfs_os::signal::ignore_file_size_limit();
        ignored.map_err(|error| StartError(format!("cannot ignore SIGXFSZ: {error}")))?;
        let (policy, mode) = config.callers.decide()?;
        let state = StateDirectory::open(&config.state_dir)?;
        let cluster = config.cluster.clone();
        let exports = Exports::open(&config.exports, &state, cluster.as_ref())?;
        for export in exports.shared() {
            let copy = Arc::clone(export);
            within(START_LIMIT, export.path(), move || check_openat2(&copy))??;
        }
        waiting.slow.check(&exports)?;
        // The file system of an absent export may be one that blocks.
        let may_wait = !waiting.slow.of(&exports).is_empty()
            || (waiting.slow != SlowExports::None
                && config.exports.iter().any(|it| it.is_mountpoint));
        let helpers = if may_wait { waiting.helpers } else { 0 };
        let stores = config.shards.saturating_add(helpers);
        let base = Base::open(&state, stores)?;
        let (mounts, indexed) = match policy {
            Some(_) => ExportMounts::open(&exports)?,
            None => Default::default(),
        };
        if let Some(cluster) = &cluster {
            check_cluster(cluster, &exports, &mounts)?;
        }
        let weak = notices(&exports, &mounts, &base, policy.is_none());
        let slow = if helpers > 0 { waiting.slow.clone() } else { SlowExports::None };
        let (open_files, helped) = open_files(config, helpers)?;
        // Every store keeps the roots open in addition to the files of its calls.
        let least = if helpers > 0 { helped.min(open_files) } else { open_files };
        let exports_max =
            exports.iter().count() + least.saturating_sub(HELPED_FILES_MIN as usize) / 2;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = Path::new("/proc/self/fd");
        let descriptors = openat(CWD, path, flags, Mode::empty()).map_err(cannot("open", path))?;
        Ok(Arc::new(Self {
            notices: [mode].into_iter().chain(indexed).chain(weak).collect(),
            policy,
            roster: Roster::new(exports, mounts, slow),
            looks: PathLooks::default(),
            siblings: Siblings::new(stores),
            pins: Pins::default(),
            handles: cluster.as_ref().map_or_else(|| state.handles(), Cluster::handles),
            cluster,
            base,
            state_place: state.place(),
            epoch: Epoch::of_now()?,
            faults: StoreFaults::default(),
            sync_directories: config.sync_directories,
            open_files,
            exports_max,
            helping: HelpingStores { first: config.shards, count: helpers, open_files: helped },
            descriptors,
            state,
        }))
    }

    /// Removes one pin of a file.
    pub(super) fn unpin(&self, file: &FileHandle) {
        if let Ok(named) = self.handles.open(file) {
            self.pins.unpin(named.file());
        }
    }

    /// `Store::show_lock`.
    pub(super) fn show_lock(
        &self,
        file: &FileHandle,
        range: LockRange,
        lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        let Ok(named) = self.handles.open(file) else { return Ok(()) };
        self.pins.show_lock(self.descriptors.as_fd(), named.file(), range, lock)
    }

    /// `Store::find_local_lock`.
    pub(super) fn find_local_lock(
        &self,
        file: &FileHandle,
        range: LockRange,
        exclusive: bool,
    ) -> Option<LocalLock> {
        let named = self.handles.open(file).ok()?;
        self.pins.find_lock(self.descriptors.as_fd(), named.file(), range, exclusive)
    }

    /// The current exports.
    pub fn exports(&self) -> Arc<Exports> {
        self.roster.serving().exports
    }

    /// Registers `wake` to wake this shard when another one meets a full file system, or a local
    /// program conflicts with a delegation. Until then that waits for up to a second. Only the
    /// first registration counts.
    pub fn attach_wakeup(&self, shard: usize, wake: impl Fn() + Send + Sync + 'static) {
        self.siblings.attach(shard, wake);
    }

    /// Returns true if each caller acts as the user it names.
    pub fn is_privileged(&self) -> bool {
        self.policy.is_some()
    }

    /// Sentences to print at the start: the mode, and any weaknesses.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Files each shard keeps open at most.
    pub fn open_files(&self) -> usize {
        self.open_files
    }

    /// Sixteen bytes that identify this server among all others, including its cluster's; stable
    /// across restarts.
    pub fn identity(&self) -> [u8; 16] {
        self.state.identity()
    }

    /// The current write verifier (RFC 1813 §3.3.7).
    pub fn verifier(&self) -> Verifier {
        self.epoch.verifier()
    }
}

fn notices(
    exports: &Exports,
    mounts: &ExportMounts,
    base: &Base,
    is_unprivileged: bool,
) -> Vec<String> {
    let mut notices = Vec::new();
    if is_unprivileged && rustix::process::geteuid().is_root() {
        notices.push(
            "the server runs as root: whoever may mount acts as root on the exported files"
                .to_owned(),
        );
    }
    let by_birth = exports.iter().filter(|export| mounts.root(export.id()).is_none());
    for export in by_birth.filter(|export| export.identity().birth == Birth::default()) {
        notices.push(format!(
            "the file system of /{} records no birth times: an old handle may come to name a later \
             file with the same inode",
            export.name()
        ));
    }
    for config in exports.absent() {
        notices.push(format!(
            "nothing is mounted at {path}: /{name} is refused until something is",
            path = config.path.display(),
            name = config.name
        ));
    }
    if base.torn_octets() > 0 {
        notices.push(format!("left out {} octets of torn index records", base.torn_octets()));
    }
    notices
}

/// Refuses exports that only one gateway could serve: files found by an index of their names, which
/// is private to each gateway.
pub(super) fn check_cluster(
    cluster: &Cluster,
    exports: &Exports,
    mounts: &ExportMounts,
) -> Result<(), StartError> {
    match exports.iter().find(|export| mounts.root(export.id()).is_none()) {
        None => Ok(()),
        Some(export) => Err(StartError(format!(
            "/{} cannot be served by several gateways of the cluster {}: its files are found by \
             an index that each gateway has for itself, as its file system has no handles or the \
             server is not privileged; run it as root, or without --cluster",
            export.name(),
            cluster.name()
        ))),
    }
}

pub(super) fn check_openat2(export: &Export) -> Result<(), StartError> {
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

/// Files each shard, and each of `helpers` helpers, may keep open; helpers share a quarter. Raises
/// the soft limit on descriptors to the hard one.
fn open_files(config: &FilesConfig, helpers: usize) -> Result<(usize, usize), StartError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If refused, the limit stays, and the budget below follows it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let (shards, helpers) = (config.shards.max(1) as u64, helpers as u64);
    let all = limit.saturating_sub(DESCRIPTORS_RESERVED) / FileCache::FDS_PER_FILE as u64;
    let helped = (all / 4).checked_div(helpers).unwrap_or(0);
    let helped = helped.clamp(HELPED_FILES_MIN, HELPED_FILES_MAX);
    let share = all.saturating_sub(helped * helpers) / shards;
    let share = usize::try_from(share).unwrap_or(usize::MAX).min(OPEN_FILES_MAX);
    let files = config.open_files.map_or(share, |wanted| wanted.min(share));
    if files < OPEN_FILES_MIN {
        return Err(StartError(format!(
            "{limit} descriptors (RLIMIT_NOFILE) give each of {shards} shards {files} open files: \
             {OPEN_FILES_MIN} are needed"
        )));
    }
    Ok((files, helped as usize))
}
