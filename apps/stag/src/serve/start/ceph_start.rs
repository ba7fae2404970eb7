//! The start of a store on CephFS.

use crate::{
    Error,
    serve::plan::{Plan, ceph_url::CephPlan},
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use stag_ceph::Library;
use stag_engine::launch::CoreId;
use stag_nfs_store::{
    ceph::{CephBackend, CephConfig},
    exports::cluster::Cluster,
    files::Callers,
};
use std::{path::Path, thread, time::Duration};

/// Time that a start waits for the mount, which then goes on in the background.
const PATIENCE: Duration = Duration::from_secs(5);

/// Begins to mount, with the library's threads on the cores that the shards leave free.
pub fn open(
    plan: &Plan,
    ceph: &CephPlan,
    state_dir: &Path,
    callers: &Callers,
    cluster: Option<&Cluster>,
) -> Result<CephBackend, Error> {
    let library = Library::installed().map_err(|error| Error::usage(error.to_string()))?;
    let config = CephConfig {
        library,
        user: ceph.user.clone(),
        configuration: ceph.configuration.clone(),
        file_system: ceph.file_system.clone(),
        node: ceph.node.clone(),
        exports: ceph.exports.clone(),
        state_dir: state_dir.to_owned(),
        cluster: cluster.cloned(),
        callers: callers.clone(),
        inodes: ceph.inodes,
        snapshots: ceph.snapshots,
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
    let opened = opening.map_err(|error| Error::failure(format!("cannot start a thread: {error}")));
    let opened = opened?.join().map_err(|_| Error::failure("the start of CephFS panicked"))?;
    let backend = opened.map_err(|error| Error::usage(error.to_string()))?;
    if !backend.wait(PATIENCE) {
        tracing::warn!(target: "stag", "CephFS is not mounted yet: calls get NFS3ERR_JUKEBOX");
    }
    Ok(backend)
}

/// The cores that no shard polls on; none where shards have them all.
fn free_cores(cores: &[CoreId], shards: usize) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    cores.iter().skip(shards).for_each(|core| set.set(core.id));
    let allowed = sched_getaffinity(None).ok()?;
    (set.count() > 0 && set != allowed).then_some(set)
}
