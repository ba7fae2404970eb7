//! The demo: it shows every store and fabric, cleans up, and says which step failed.

use crate::support::{Home, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    process::{Child, Stdio},
};

/// `stag demo --quick`, whose temporary files go to the home.
fn demo(home: &Home, arguments: &[&str]) -> Child {
    fs::create_dir_all(home.path("tmp")).unwrap();
    let mut command = home.stag(&[&["demo", "--quick"], arguments].concat());
    command.env("TMPDIR", home.path("tmp")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn left_behind(home: &Home) -> usize {
    fs::read_dir(home.path("tmp")).unwrap().count()
}

/// The processes whose arguments name the home: servers of a demo.
fn servers(home: &Home) -> Vec<i32> {
    let tmp = home.text("tmp");
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    let serves = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains(&tmp) && line.contains("--while-stdin")
    };
    fs::read_dir("/proc").unwrap().flatten().filter_map(number).filter(serves).collect()
}

#[test]
fn every_store_passes_on_every_fabric_and_nothing_is_left_behind() {
    let home = Home::new();
    let output = demo(&home, &["--json"]).wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert_eq!((left_behind(&home), servers(&home)), (0, Vec::new()));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["passed"], &report["failure"]), (&true.into(), &serde_json::Value::Null));
    let stores = report["stores"].as_array().unwrap();
    assert_eq!(
        stores
            .iter()
            .map(|store| (store["store"].as_str().unwrap(), store["fabric"].as_str().unwrap()))
            .collect::<Vec<_>>(),
        [("files", "iwarp"), ("memory", "iwarp"), ("memory", "shm")]
    );
    for store in stores {
        assert_eq!(store["sizes"].as_array().unwrap().len(), 18);
        assert!(store["requester"]["remote_invalidations"].as_u64().unwrap() > 0, "{store:#}");
        assert!(
            store["pulled"].as_u64().unwrap() > 0 && store["pushed"].as_u64().unwrap() > 0,
            "{store:#}"
        );
        let forms: Vec<_> = store["sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|size| size["write"].as_str().unwrap())
            .collect();
        assert_eq!((forms[0], forms[17]), ("short", "chunked"));
        let rate = &store["rates"]["null"];
        assert!(rate["calls_per_s"].as_f64().unwrap() > 0.0);
        let samples = rate["round_trips"]["samples"].as_u64().unwrap();
        assert_eq!(rate["round_trips"]["p999_us"].is_null(), samples < 10_000, "{samples}");
        assert_eq!(
            store["lost"].is_null(),
            store["fabric"] == "shm",
            "a network can be cut, and no memory"
        );
        for pointer in ["/killed/without_service_ms", "/killed/ready_to_answer_ms"] {
            assert!(
                store.pointer(pointer).unwrap().as_f64().unwrap() >= 0.0,
                "{pointer} in {store:#}"
            );
        }
        assert!(store["checked_again"].as_u64().unwrap() > 0);
    }
    assert!(
        stores[0]["killed"]["replayed"].as_u64().unwrap() > 0,
        "unstable writes are replayed: {:#}",
        stores[0]
    );
    // Not on a terminal each step leaves a plain line.
    assert!(err.lines().all(|line| line.starts_with("ok  ")) && err.lines().count() == 26, "{err}");
}

#[test]
fn the_table_names_what_was_seen_and_what_to_try_next() {
    let home = Home::new();
    let output = demo(&home, &[]).wait_with_output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}");
    for part in [
        "18 of 0 to 3,000,001",
        "keys invalidated",
        "payload copies",
        "round trip us: p50 p90 p99 p99.9 max",
        "connection lost, to first retried call",
        "server killed: without service",
        "mount -t nfs 127.0.0.1:/NAME /mnt ",
        "stag call iwarp://",
    ] {
        assert!(out.contains(part), "{part} is in {out}");
    }
}

#[test]
fn an_interrupted_demo_takes_its_server_and_its_directory_away() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let home = Home::new();
        let child = demo(&home, &[]);
        wait_for("the server of the demo", || !servers(&home).is_empty());
        for stray in [Signal::USR1, Signal::USR2, Signal::ALARM] {
            kill_process(Pid::from_child(&child), stray).unwrap();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{err}");
        assert!(err.contains("stag: interrupted"), "{err}");
        assert_eq!((left_behind(&home), servers(&home)), (0, Vec::new()));
    }
}

#[test]
fn a_server_does_not_outlive_a_demo_that_is_killed() {
    let home = Home::new();
    let mut child = demo(&home, &[]);
    wait_for("the server of the demo", || !servers(&home).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the end of the server", || servers(&home).is_empty());
}

#[test]
fn a_server_that_others_kill_ends_the_demo_with_a_sentence() {
    let home = Home::new();
    let child = demo(&home, &[]);
    let mut server = None;
    wait_for("the server of the demo", || {
        server = servers(&home).first().copied().and_then(Pid::from_raw);
        server.is_some()
    });
    kill_process(server.unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.lines().last().unwrap().starts_with("stag: the demo failed at files over "),
        "{err}"
    );
    assert_eq!((left_behind(&home), servers(&home)), (0, Vec::new()));
}
