//! A Ceph cluster of this host, on which servers are compared (`tests/ceph/cluster`).

use crate::{contender::Absence, site::MeasuringSite};
use rustix::process::{getpid, set_child_subreaper};
use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    process::{self, Command, Stdio},
    rc::Rc,
};
use tempfile::TempDir;

/// A cluster that all sides of a comparison share: started when the first one needs it, ended with
/// the last one. Its daemons run on the caller's core, and the server has its own to itself.
#[derive(Clone, Debug, Default)]
pub struct SharedCluster(Rc<OnceCell<Result<RunningCluster, Absence>>>);

/// Ended when it is dropped, or when this process ends.
#[derive(Debug)]
struct RunningCluster(TempDir);

impl SharedCluster {
    /// The configuration by which clients find the cluster.
    ///
    /// # Errors
    /// Why there can be none here.
    pub fn configuration(&self, site: &MeasuringSite) -> Result<PathBuf, Absence> {
        let running = self.0.get_or_init(|| RunningCluster::start(site));
        running.as_ref().map(RunningCluster::configuration).map_err(Clone::clone)
    }
}

impl RunningCluster {
    fn script() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ceph/cluster")
    }

    fn start(site: &MeasuringSite) -> Result<Self, Absence> {
        let able = Command::new(Self::script()).arg("able").output().map_err(Absence::failed)?;
        if !able.status.success() {
            return Err(Absence::failed(String::from_utf8_lossy(&able.stderr).trim()));
        }
        // The daemons' time is ours, and no stranger's.
        set_child_subreaper(Some(getpid())).map_err(Absence::failed)?;
        // Not in the site's directory: the process that ends the cluster has to find it.
        let cluster = Self(TempDir::with_prefix("stag-peers-ceph-").map_err(Absence::failed)?);
        let mut start = site.on_core(site.client, Self::script());
        start.arg("start").arg(cluster.directory()).arg(process::id().to_string());
        site.run(start).map_err(Absence::failed)?;
        Ok(cluster)
    }

    fn directory(&self) -> PathBuf {
        self.0.path().join("c")
    }

    fn configuration(&self) -> PathBuf {
        self.directory().join("ceph.conf")
    }
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        let mut stop = Command::new(Self::script());
        stop.arg("stop").arg(self.directory()).stdout(Stdio::null()).stderr(Stdio::null());
        let _ = stop.status();
    }
}
