//! Versions of RPC-over-RDMA between the commands: the version that each combination settles on,
//! and the statistics.

use crate::support::{Home, json};
use rustix::process::Signal;
use serde_json::Value;

/// Runs `stag call`; gives its JSON.
fn call(home: &Home, arguments: &[&str]) -> Value {
    let output = home.run(arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_pair_speaks_the_highest_version_that_both_have() {
    for (serves, pairs) in [
        ("1-2", [("1", Some(1)), ("2", Some(2)), ("1-2", Some(2))]),
        ("1", [("1", Some(1)), ("2", None), ("1-2", Some(1))]),
        ("2", [("1", None), ("2", Some(2)), ("1-2", Some(2))]),
    ] {
        let home = Home::new();
        let server = home.serve(&["data", "--rdma-version", serves]);
        let url = format!("{}/data", server.line("LISTEN"));
        for (calls, spoken) in pairs {
            let arguments = ["call", &url, "--rdma-version", calls, "null", "--json"];
            match spoken {
                Some(version) => assert_eq!(call(&home, &arguments)["rpcrdma_version"], version),
                None => {
                    let output = home.run(&arguments);
                    let err = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert_eq!(output.status.code(), Some(1), "{serves} and {calls}");
                    assert!(err.contains("speaks RPC-over-RDMA versions"), "{err}");
                }
            }
        }
    }
}

#[test]
fn the_functional_run_passes_in_version_2_and_statistics_tell_them_apart() {
    let home = Home::new();
    let mut server = home.serve(&["data", "--stats", "stats.json"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let report = call(
        &home,
        &["check", &url, "--rdma-version", "2", "--json", "--seed", "7", "--entries", "300"],
    );
    assert_eq!(report["failed"], 0, "{report:#}");
    call(&home, &["call", &url, "null", "--json"]);
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    let stats = json(&home.path("stats.json"));
    let responder = &stats["total"]["engine"]["responder"];
    assert_eq!(responder["versions"]["v1"]["forward"], 1);
    assert!(responder["versions"]["v2"]["forward"].as_u64().unwrap() > 100, "{responder:#}");
    assert!(responder["remote_invalidations"].as_u64().unwrap() > 0, "{responder:#}");
    assert_eq!((&responder["version_errors"], &responder["errors"]), (&0.into(), &0.into()));
}

#[test]
fn a_server_says_how_it_is() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let url = server.line("LISTEN");
    let health = call(&home, &["call", &url, "--rdma-version", "1-2", "health", "--json"]);
    assert_eq!(health["credits_in_use"], 0);
    assert!(health["credits_granted"].as_u64().unwrap() > 0, "{health}");
    assert_eq!(
        health.as_object().unwrap().len(),
        3,
        "nothing of others, nor of the host: {health}"
    );
    let output = home.run(&["call", &url, "health"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--rdma-version 1-2"));
}
