//! `stag accept`: both ends as processes, over software fabrics.

use crate::support::{Home, Server};
use serde_json::Value;
use std::fs;

/// The end that waits; its URL is in what it prints.
fn serve(home: &Home, url: &str) -> (Server, String) {
    let server = Server::start(home, home.stag(&["accept", "serve", url]));
    let out = server.out();
    let at = out.lines().find_map(|line| line.strip_prefix("LISTEN ")).unwrap().to_owned();
    (server, at)
}

/// The steps of a group, by the group's name.
fn steps<'a>(report: &'a Value, group: &str) -> &'a Vec<Value> {
    let groups = report["groups"].as_array().unwrap();
    let found = groups.iter().find(|it| it["name"] == group);
    found.unwrap_or_else(|| panic!("no {group} in {report:#}"))["steps"].as_array().unwrap()
}

/// All is tried and nothing fails; returns the report.
fn accepted(url: &str) -> Value {
    let home = Home::new();
    let (_server, at) = serve(&home, &url.replace("HOME", &home.text("")));
    let quick = ["--report", "r.json", "--connects", "40", "--seconds", "0.2"];
    let output = home.run(&[&["accept", &at], &quick[..]].concat());
    let (out, err) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    let out = String::from_utf8(out).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    let report: Value =
        serde_json::from_str(&fs::read_to_string(home.path("r.json")).unwrap()).unwrap();
    assert_eq!((&report["schema"], &report["passed"]), (&"stag-accept/1".into(), &true.into()));
    assert_eq!(fs::read_to_string(home.path("r.txt")).unwrap(), out);
    let again = home.refused(&["accept", &at, "--report", "r.json"]);
    assert!(again.contains("r.json is there") && again.contains("--force"), "{again}");
    report
}

/// Nothing failed, every part was tried, and rules have their verdicts.
fn check(report: &Value) {
    for end in ["caller", "server"] {
        let cases = steps(report, &format!("conformance, {end}"));
        assert!(cases.len() > 50, "{end}: {}", cases.len());
        assert!(cases.iter().all(|case| case["verdict"] == "passed"), "{cases:#?}");
        assert!(report[end]["limits"]["windows"].as_u64().unwrap() > 0);
        assert!(report[end]["kernel"].as_str().unwrap().len() > 2);
    }
    for version in [1, 2] {
        let forward = steps(report, &format!("forms, version {version}, forward"));
        assert!(forward.len() > 20 && forward.iter().all(|step| step["verdict"] == "passed"));
        let reverse = steps(report, &format!("forms, version {version}, reverse"));
        let passed = reverse.iter().filter(|step| step["verdict"] == "passed").count();
        // Version 1 has no chunks in that direction.
        assert_eq!(passed, if version == 1 { 5 } else { reverse.len() }, "{reverse:#?}");
    }
    let connects = steps(report, "connects");
    assert!(connects.iter().all(|step| step["verdict"] == "passed"), "{connects:#?}");
    assert!(connects[0]["figures"]["connected_max_us"].as_f64().unwrap() > 0.0);
    for (group, figure) in [("latency", "max_us"), ("bandwidth", "MiB_per_s")] {
        for step in steps(report, group) {
            assert_eq!(step["verdict"], "passed", "{step:#}");
            assert!(step["figures"][figure].as_f64().unwrap() > 0.0, "{step:#}");
        }
    }
    for step in steps(report, "perftest") {
        assert!(step["reason"].as_str().unwrap().contains("measures rdma://"), "{step:#}");
    }
    let port = &steps(report, "port down and up")[0];
    assert!(port["reason"].as_str().unwrap().contains("--port-test ask"), "{port:#}");
    let rows = report["rows"].as_array().unwrap();
    for id in ["5042-9", "5042-10", "5042-18", "8166-65"] {
        let row = rows.iter().find(|row| row["id"] == id).unwrap();
        assert_eq!(row["verdict"], "passed", "{row:#}");
    }
}

#[test]
fn everything_is_tried_over_iwarp_and_the_report_says_so() {
    check(&accepted("iwarp://127.0.0.1:0"));
}

#[test]
fn everything_is_tried_over_shared_memory_and_the_report_says_so() {
    check(&accepted("shm://HOME/accept.sock"));
}

#[test]
fn a_server_of_another_kind_and_no_server_at_all_end_it_with_a_sentence() {
    let home = Home::new();
    let echo = Server::start(&home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]));
    let out = echo.out();
    let at = out.lines().find_map(|line| line.strip_prefix("LISTEN ")).unwrap();
    let failed = |at: &str| {
        let output = home.run(&["accept", at, "--report", "r.json"]);
        assert_eq!(output.status.code(), Some(1), "{at}");
        assert!(!home.path("r.json").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let other = failed(at);
    assert!(other.contains("is not 'stag accept serve'"), "{other}");
    let nobody = failed("iwarp://127.0.0.1:9");
    assert!(nobody.contains("does 'stag accept serve' wait there?"), "{nobody}");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let home = Home::new();
    let refused = |arguments: &[&str], part: &str| {
        let sentence = home.refused(&[&["accept"], arguments].concat());
        assert!(sentence.contains(part), "{sentence}");
    };
    refused(&["10.0.0.1"], "write rdma://IP");
    refused(&["tcp://10.0.0.1"], "no scheme tcp://");
    refused(&["serve", "iwarp://192.0.2.1"], "--clients");
    refused(&["iwarp://127.0.0.1", "--port-test", "link"], "--interface");
    refused(&["iwarp://127.0.0.1", "--report", "r.txt"], "ends in .json");
    refused(&["iwarp://127.0.0.1", "--report", "no/r.json"], "does not exist");
}
