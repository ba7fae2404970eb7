//! The cases on a Ceph cluster of this host, which the test starts and ends
//! (`tests/ceph/cluster`): with the host's library, and with a newer one
//! (`tests/ceph/newer`). Where there can be none, it says why and passes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod cases;

use cases::Place;
use stag_ceph::{Library, live_mounts};
use std::{
    env,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// A cluster that ends when this is dropped, or when this process ends.
struct Cluster(TempDir);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn script() -> PathBuf {
    root().join("tests/ceph/cluster")
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
    println!("Ceph {:?}", library.version());
    assert_eq!(library.absent(), [""; 0], "functions that this version does not have");
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

#[test]
fn every_case_passes_with_the_library_of_ceph_18_2() {
    let newer = root().join("target/ceph-18.2");
    if !newer.exists() {
        return println!(
            "skipped: Ceph 18.2 is not here; fix: tests/ceph/newer install target/ceph-18.2"
        );
    }
    let mut run = Command::new(root().join("tests/ceph/newer"));
    run.arg("run").arg(newer).arg(env::current_exe().unwrap());
    let output = run.args(["every_case_passes_on_a_cluster", "--exact", "--nocapture"]).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    if said.contains("skipped: ") {
        return println!("{said}");
    }
    assert!(said.contains("Ceph [18, 2, "), "{said}");
    println!("{said}");
}
