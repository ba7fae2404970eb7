//! The cases on a Ceph cluster of this host, which the test starts and ends
//! (`tests/ceph/cluster`). Where there can be none, it says why and passes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cases;

use cases::Place;
use stag_ceph::{Library, live_mounts};
use std::{
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A cluster that ends when this is dropped, or when this process ends.
struct Cluster(TempDir);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/ceph/cluster")
}

impl Cluster {
    /// Starts one, or says why it cannot be.
    fn start() -> Result<Self, String> {
        let able = Command::new(script()).arg("able").output().unwrap();
        if !able.status.success() {
            return Err(String::from_utf8_lossy(&able.stderr).trim().to_owned());
        }
        let home = tempfile::tempdir().unwrap();
        let mut start = Command::new(script());
        start.arg("start").arg(home.path().join("c")).arg(process::id().to_string());
        let started = start.output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        Ok(Self(home))
    }

    fn configuration(&self) -> PathBuf {
        self.0.path().join("c/ceph.conf")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.0.path().join("c")).status();
    }
}

#[test]
fn every_case_passes_on_a_cluster() {
    let library = match Library::installed() {
        Ok(library) => library,
        Err(error) => return println!("skipped: {error}"),
    };
    let cluster = match Cluster::start() {
        Ok(cluster) => cluster,
        Err(why) => return println!("skipped: {why}"),
    };
    assert_eq!(library.absent(), [""; 0], "Ceph {:?}", library.version());
    let place = Place { library, configuration: cluster.configuration(), is_real: true };
    for (name, case) in cases::all() {
        let began = Instant::now();
        case(&place);
        println!("{name}: {} ms", began.elapsed().as_millis());
    }
    let end = Instant::now() + Duration::from_secs(60);
    while live_mounts() > 0 {
        assert!(Instant::now() < end, "{} mounts do not end", live_mounts());
        thread::sleep(Duration::from_millis(10));
    }
}
