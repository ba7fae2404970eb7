//! Directories of a Ceph file system, served alone or as a gateway of a cluster.

use super::{PlannedStore, ceph_url::CephPlan};
use crate::{
    Error,
    serve::plan::{
        Plan,
        checks::cluster_of,
        client_rules::{ANY_OTHER, Reach, callers},
        exports::Exported,
        options::ServeOptions,
    },
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stag_ceph::Library;
use stag_engine::launch::CoreId;
use stag_nfs::serve::StoreSource;
use stag_nfs_store::{
    ceph::{CephBackend, CephConfig},
    exports::cluster::Cluster,
    files::Callers,
};
use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Time that a start waits for the mount, which then goes on in the background.
const PATIENCE: Duration = Duration::from_secs(5);

/// Directories of a Ceph file system.
#[derive(Debug)]
pub struct PlannedCeph {
    mount: CephPlan,
    state_dir: PathBuf,
    callers: Callers,
    cluster: Option<Cluster>,
    helpers: usize,
}

impl PlannedCeph {
    /// The store of `exports`, for callers within `reach`.
    ///
    /// # Errors
    /// A sentence about the first thing that is wrong.
    pub fn checked(
        mount: &CephPlan,
        arguments: &ServeOptions,
        exports: &[Exported],
        reach: Reach,
        state_dir: PathBuf,
    ) -> Result<Self, Error> {
        let callers = callers(arguments, reach)?;
        let cluster = cluster_of(arguments.cluster.as_deref(), exports)?;
        let (mount, helpers) = (mount.clone(), usize::from(arguments.helpers));
        Ok(Self { mount, state_dir, callers, cluster, helpers })
    }
}

impl PlannedStore for PlannedCeph {
    fn headline(&self) -> String {
        format!("ceph, as the client {}", self.mount.node)
    }

    fn state_dir(&self) -> Option<&Path> {
        Some(&self.state_dir)
    }

    fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    fn claimable(&self, _: &Plan, _: bool) -> Result<Option<&'static str>, Error> {
        Ok(Some(ANY_OTHER))
    }

    fn helper_threads(&self) -> Option<usize> {
        Some(self.helpers)
    }

    fn not_watched(&self, _: Option<&Exported>) -> Option<&'static str> {
        Some(
            "files of CephFS cannot be watched: write none, or exclusive if this server alone \
             changes them",
        )
    }

    fn not_confined(&self) -> Option<&'static str> {
        Some("CephFS, whose library opens files that no setting names")
    }

    fn source(&self, export: &Exported) -> String {
        let found = self.mount.exports.iter().find(|it| it.name == export.name);
        found.map_or_else(String::new, |found| format!("ceph:{}", found.path))
    }

    fn fixed_settings(&self) -> Vec<(&'static str, String)> {
        let Self { state_dir, callers, helpers, .. } = self;
        vec![
            ("state-dir", format!("{state_dir:?}")),
            ("groups", format!("{:?}", callers.groups)),
            ("squash", format!("{callers:?}")),
            ("helpers", format!("{helpers:?}")),
        ]
    }

    /// Begins to mount, with the library's threads on the cores that the shards leave free.
    fn open(&self, plan: &Plan) -> Result<StoreSource, Error> {
        let library = Library::installed().map_err(|error| Error::usage(error.to_string()))?;
        let Self { mount, state_dir, callers, cluster, .. } = self;
        let config = CephConfig {
            library,
            user: mount.user.clone(),
            configuration: mount.configuration.clone(),
            file_system: mount.file_system.clone(),
            node: mount.node.clone(),
            exports: mount.exports.clone(),
            state_dir: state_dir.clone(),
            cluster: cluster.clone(),
            callers: callers.clone(),
            inodes: mount.inodes,
            snapshots: mount.snapshots,
        };
        let cores = free_cores(&stag_engine::launch::cores(), plan.shards());
        // The library's threads inherit the cores of the thread that makes them.
        let work = move || {
            if let Some(cores) = cores {
                let _ = sched_setaffinity(None, &cores);
            }
            CephBackend::open(&config)
        };
        let opening = thread::Builder::new().name("ceph-open".to_owned()).spawn(work);
        let opened =
            opening.map_err(|error| Error::failure(format!("cannot start a thread: {error}")));
        let opened = opened?.join().map_err(|_| Error::failure("the start of CephFS panicked"))?;
        let backend = opened.map_err(|error| Error::usage(error.to_string()))?;
        if !backend.wait(PATIENCE) {
            tracing::warn!(target: "stag", "CephFS is not mounted yet: calls get NFS3ERR_JUKEBOX");
        }
        Ok(StoreSource::Ceph(backend))
    }
}

/// The cores that no shard polls on; none where shards have them all.
fn free_cores(cores: &[CoreId], shards: usize) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    cores.iter().skip(shards).for_each(|core| set.set(core.id));
    let allowed = sched_getaffinity(None).ok()?;
    (set.count() > 0 && set != allowed).then_some(set)
}
