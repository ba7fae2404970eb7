//! Lifecycle of a mount: made in a separate thread, served from, and made again when its session is
//! lost. Calls never wait for it; meanwhile they get NFS3ERR_JUKEBOX.

use super::held::HeldTable;
use crate::{files::Epoch, start_error::StartError};
use stag_ceph::{
    CephInode, CephMount, Library, MountSettings, PreparedMount, Reclaimed, UserPerm, Vino,
    await_unmounts, live_mounts,
};
use stag_nfs_os::BatchThread;
use stag_protocol::nfs::v3::Status;
use std::{
    ffi::CString,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Lost mounts kept alive by blocked calls, at most: each has a dozen threads. Beyond that the
/// process exits, so that its supervisor restarts it.
const LEFT_BEHIND_MAX: usize = 64;
/// Reason to mount again.
pub(super) const EVICTED: &str = "the cluster ended our session";
/// Time between attempts to mount, doubling from the first to the last.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(8)];

/// The parameters of a mount.
#[derive(Clone, Debug)]
pub(super) struct MountRecipe {
    pub(super) library: &'static Library,
    pub(super) user: Option<String>,
    pub(super) configuration: Option<PathBuf>,
    pub(super) file_system: Option<String>,
    /// The directory to mount.
    pub(super) path: String,
    /// Name of this gateway's session, by which a stale one is ended after a crash.
    pub(super) name: String,
    /// Paths of the exports, relative to the mounted directory.
    pub(super) exports: Vec<Vec<CString>>,
    /// Inodes to hold.
    pub(super) inodes: usize,
}

impl MountRecipe {
    pub(super) fn prepare(&self) -> Result<PreparedMount, StartError> {
        let settings = MountSettings {
            user: self.user.as_deref(),
            configuration: self.configuration.as_deref(),
            file_system: self.file_system.as_deref(),
            options: &[],
        };
        // For the library's threads, which inherit it: each call passes through four of them.
        let _batch = BatchThread::begin();
        PreparedMount::new(self.library, &settings).map_err(|error| StartError(error.to_string()))
    }

    /// Ends the session left by this gateway's last run, then mounts.
    fn mount(&self, prepared: PreparedMount) -> Result<LiveMount, String> {
        if prepared.reclaim(&self.name).map_err(|error| error.to_string())? == Reclaimed::Ended {
            let name = &self.name;
            tracing::info!(target: "stag", name, "an earlier session was ended");
        }
        let mounted = prepared.mount(&self.path, Some(&self.name));
        let mount = mounted.map_err(|error| error.to_string())?;
        let mut roots = Vec::with_capacity(self.exports.len());
        for path in &self.exports {
            let found = walk(&mount, path).and_then(|inode| inode.vino());
            roots.push(found.map_err(|errno| {
                let path: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
                format!(
                    "cannot find the exported directory {}/{}: {errno}",
                    self.path,
                    path.join("/")
                )
            })?);
        }
        let snapshots = mount.option("client_snapdir").unwrap_or_else(|_| ".snap".to_owned());
        Ok(LiveMount { roots, snapshots, table: HeldTable::new(self.inodes), mount })
    }
}

fn walk(mount: &CephMount, path: &[CString]) -> Result<CephInode, rustix::io::Errno> {
    let root = UserPerm::root(mount.library());
    let mut inode = mount.root()?;
    for name in path {
        inode = inode.lookup(name, &root)?.0;
    }
    Ok(inode)
}

/// A mount in service.
#[derive(Debug)]
pub(super) struct LiveMount {
    pub(super) mount: CephMount,
    pub(super) table: HeldTable,
    /// Exported directories, in the order of the exports.
    pub(super) roots: Vec<Vino>,
    /// Name of every directory's snapshot directory.
    pub(super) snapshots: String,
}

enum LifeState {
    Mounting,
    Serving(Arc<LiveMount>),
    Closed,
}

/// The mount of this process, from start to end.
pub(super) struct MountLife {
    recipe: MountRecipe,
    state: Mutex<LifeState>,
    changed: Condvar,
    pub(super) epoch: Epoch,
}

impl MountLife {
    /// Starts mounting.
    pub(super) fn begin(
        recipe: MountRecipe,
        prepared: PreparedMount,
        epoch: Epoch,
    ) -> Result<Arc<Self>, StartError> {
        let state = Mutex::new(LifeState::Mounting);
        let life = Arc::new(Self { recipe, state, changed: Condvar::new(), epoch });
        life.mount_aside(Some(prepared))
            .map_err(|error| StartError(format!("cannot start a thread to mount: {error}")))?;
        Ok(life)
    }

    /// The library of the mount.
    pub(super) fn library(&self) -> &'static Library {
        self.recipe.library
    }

    fn state(&self) -> MutexGuard<'_, LifeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount, if it is ready.
    ///
    /// # Errors
    /// [`Status::Jukebox`] otherwise.
    pub(super) fn current(self: &Arc<Self>) -> Result<Arc<LiveMount>, Status> {
        let live = match &*self.state() {
            LifeState::Serving(live) => Arc::clone(live),
            LifeState::Mounting | LifeState::Closed => return Err(Status::Jukebox),
        };
        if live.mount.is_lost() {
            self.lose(&live, EVICTED);
            return Err(Status::Jukebox);
        }
        Ok(live)
    }

    /// Drops an unusable mount, once, and starts mounting again.
    pub(super) fn lose(self: &Arc<Self>, live: &Arc<LiveMount>, why: &str) {
        let mut state = self.state();
        if !matches!(&*state, LifeState::Serving(current) if Arc::ptr_eq(current, live)) {
            return;
        }
        *state = LifeState::Mounting;
        drop(state);
        // RFC 1813 §3.3.7 [1813-45]: the write verifier stays while no unstable data is lost
        self.epoch.advance();
        tracing::warn!(target: "stag", why, "the Ceph file system has to be mounted again");
        if live_mounts() > LEFT_BEHIND_MAX {
            tracing::error!(target: "stag", "too many mounts are kept by calls that wait: ending");
            std::process::abort();
        }
        if let Err(error) = self.mount_aside(None) {
            tracing::error!(target: "stag", %error, "cannot start a thread to mount");
            // The next call tries again.
            *self.state() = LifeState::Serving(Arc::clone(live));
        }
    }

    fn mount_aside(self: &Arc<Self>, prepared: Option<PreparedMount>) -> std::io::Result<()> {
        let life = Arc::clone(self);
        let work = move || life.mount_until_it_is_there(prepared);
        thread::Builder::new().name("ceph-mount".to_owned()).spawn(work).map(drop)
    }

    fn mount_until_it_is_there(&self, mut prepared: Option<PreparedMount>) {
        let _batch = BatchThread::begin();
        let [mut pause, longest] = RETRY;
        loop {
            let made = match prepared.take() {
                Some(prepared) => Ok(prepared),
                None => self.recipe.prepare().map_err(|error| error.to_string()),
            };
            let error = match made.and_then(|prepared| self.recipe.mount(prepared)) {
                Ok(live) => {
                    let mut state = self.state();
                    if matches!(*state, LifeState::Mounting) {
                        *state = LifeState::Serving(Arc::new(live));
                        tracing::info!(target: "stag", "the Ceph file system is mounted");
                    }
                    self.changed.notify_all();
                    return;
                }
                Err(error) => error,
            };
            tracing::warn!(target: "stag", error, "the Ceph file system is not mounted yet");
            let state = self.state();
            let waited = self
                .changed
                .wait_timeout_while(state, pause, |state| matches!(state, LifeState::Mounting));
            if matches!(*waited.unwrap_or_else(PoisonError::into_inner).0, LifeState::Closed) {
                return;
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// Waits until the mount is ready; false on timeout.
    pub(super) fn wait(&self, limit: Duration) -> bool {
        let state = self.state();
        let waited =
            self.changed.wait_timeout_while(state, limit, |it| matches!(it, LifeState::Mounting));
        matches!(*waited.unwrap_or_else(PoisonError::into_inner).0, LifeState::Serving(_))
    }

    /// Ends the session, so that no other client waits for it; false if that takes longer than
    /// `limit` because calls are blocked.
    pub(super) fn close(&self, limit: Duration) -> bool {
        let last = std::mem::replace(&mut *self.state(), LifeState::Closed);
        self.changed.notify_all();
        let closing = thread::Builder::new().name("ceph-close".to_owned());
        // Releasing open files may take long.
        if closing.spawn(move || drop(last)).is_err() {
            return false;
        }
        await_unmounts(limit)
    }
}
