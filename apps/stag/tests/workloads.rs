//! Workloads of `stag bench` against both stores: listings, and writes that are committed later.

use crate::support::{Home, Server};
use serde_json::Value;
use std::fs;

/// Calls of a run.
const CALLS: u64 = 300;

fn measured(home: &Home, url: &str, arguments: &[&str]) -> Value {
    let calls = CALLS.to_string();
    let short = ["--warm-up", "0", "--calls", &calls, "--depth", "3", "--connections", "2"];
    let output = home.run(&[&["bench", url], arguments, &short, &["--json", "-"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{url} {arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// URLs of an export of `store` by iWARP, TCP and shared memory, and its two servers.
fn served(home: &Home, store: &[&str]) -> ([String; 3], [Server; 2]) {
    let store = [store, &["--name", "data"]].concat();
    let server = home.serve_as_given(&store);
    let listen = format!("shm://{}", home.text("nfs.sock"));
    let state = home.text("local-state");
    let own = ["--listen", &listen, "--tcp", "none", "--state-dir", &state];
    let local = [&["serve"], &store[..], &own].concat();
    let local = Server::start(home, home.stag(&local));
    let urls = [
        format!("{}/data", server.line("LISTEN")),
        format!("tcp://{}/data", server.line("TCP")),
        listen + ":/data",
    ];
    (urls, [server, local])
}

fn check_workloads(home: &Home, store: &[&str]) {
    let (urls, _servers) = served(home, store);
    for url in &urls {
        let listed = ["--workload", "nfs3:readdirplus", "--names", "500"];
        for size in ["2K", "32K", "1M"] {
            let result = measured(home, url, &[&listed[..], &["--size", size]].concat());
            let figures = ["calls", "failed"].map(|name| result[name].as_u64().unwrap());
            assert_eq!(figures, [CALLS, 0], "{url} {size}");
            assert_eq!(result["setup"]["names"], 500);
            assert_eq!(result["setup"]["verified"], false);
            // At least the name, its number and its cookie for each entry of a page.
            let octets =
                result["octets_per_s"].as_f64().unwrap() * result["elapsed_s"].as_f64().unwrap();
            let least = CALLS as f64 * if size == "2K" { 1_000.0 } else { 10_000.0 };
            assert!(octets > least, "{url} {size}: {octets}");
        }
        let committed = ["--workload", "nfs3:commit", "--size", "8K", "--file-size", "256K"];
        let result = measured(home, url, &committed);
        let figures = ["calls", "failed"].map(|name| result[name].as_u64().unwrap());
        assert_eq!(figures, [CALLS, 0], "{url}");
        assert_eq!(result["setup"]["verified"], true);
        assert!(result["setup"]["names"].is_null());
        let left = home.run(&["call", url, "ls"]);
        assert_eq!(String::from_utf8(left.stdout).unwrap(), "", "{url}");
    }
}

#[test]
fn a_store_in_memory_is_listed_and_has_writes_committed() {
    check_workloads(&Home::new(), &["--memory", "64M"]);
}

#[test]
fn a_directory_is_listed_and_has_writes_committed() {
    let home = Home::new();
    fs::create_dir(home.path("files")).unwrap();
    let files = home.text("files");
    check_workloads(&home, &[&files, "--mode", "unprivileged", "--insecure"]);
}

#[test]
fn a_number_of_names_is_refused_where_no_directory_is_listed() {
    let home = Home::new();
    for workload in ["nfs3:lookup", "nfs3:read", "nfs4:meta", "null"] {
        let words = ["bench", "tcp://127.0.0.1:1/data", "--workload", workload, "--names", "5"];
        let refused = home.refused(&words);
        assert!(refused.contains("--names has no effect with"), "{refused}");
        assert!(refused.contains(workload), "{refused}");
    }
    let words = ["bench", "tcp://127.0.0.1:1/data", "--workload", "nfs3:readdirplus"];
    for (more, reason) in [
        (&["--names", "0"][..], "--names"),
        (&["--no-verify"], "the names of each listing are counted"),
    ] {
        let refused = home.refused(&[&words[..], more].concat());
        assert!(refused.contains(reason), "{refused}");
    }
    let words = ["bench", "iwarp://127.0.0.1:1/data", "--workload", "nfs3:commit", "--reconnect"];
    let refused = home.refused(&words);
    assert!(refused.contains("changes the write verifier"), "{refused}");
}
