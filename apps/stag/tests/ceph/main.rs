//! Gateways on CephFS: over the fake library everywhere, and over a cluster of this host where
//! there can be one (`tests/ceph/cluster`), with the failures that a cluster has.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod cluster;
mod failures;
mod random;
#[path = "../support/mod.rs"]
mod support;

use cluster::fake_gateway;
use rustix::process::{Signal, geteuid};
// Only so that Cargo builds it along with this program.
use stag_ceph_fake as _;
use support::Home;

#[test]
fn the_functional_run_passes_on_the_fake_library() {
    if !geteuid().is_root() {
        return println!("skipped: the root of the file system is root's");
    }
    let home = Home::new();
    let mut server = fake_gateway(&home, "fake");
    assert!(server.err().contains("store ceph, as the client fake-"), "{}", server.err());
    assert!(server.err().contains("export /data = ceph:/ (rw)"), "{}", server.err());
    let listed = home.run(&["ctl", "exports", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["exports"][0]["source"], "ceph:/", "{listed}");
    let url = format!("{}/data", server.line("LISTEN"));
    let output = home.run(&["check", &url, "--json", "--seed", "7"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn what_cannot_be_served_together_is_refused() {
    let home = Home::new();
    for (arguments, part) in [
        (&["ceph:/a?node=x", "--memory", "8M"][..], "where libcephfs ends it"),
        (&["ceph:/a?node=x", "data"], "start a server for each"),
        (&["ceph:/a?node=x", "--mode", "privileged"], "--mode means nothing"),
        (&["ceph:/a?node=x", "--slow", "all"], "--slow means nothing"),
        (&["ceph:a"], "from the root"),
    ] {
        let sentence = home.refused(&[&["serve"], arguments].concat());
        assert!(sentence.contains(part), "{arguments:?}: {sentence}");
    }
    let name = home.refused(&["cluster", "takeover", "a b"]);
    assert!(name.contains("cannot name a gateway"), "{name}");
}
