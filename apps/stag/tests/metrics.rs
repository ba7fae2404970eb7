//! `GET /metrics` of a running server: Prometheus reads figures of the work that was done.

use crate::support::{Home, Server, wait_for};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

/// The text of `GET /metrics`.
fn scrape(server: &Server) -> String {
    let url = server.line("METRICS");
    let (at, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut client = TcpStream::connect(at).unwrap();
    write!(client, "GET /{path} HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    body.to_owned()
}

/// Each series with its value.
fn series(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(s, v)| (s, v.parse().unwrap())).collect()
}

#[test]
fn a_server_tells_what_it_did_over_iwarp_and_tcp() {
    let home = Home::new();
    let server = home.serve(&["data", "--sample", "1"]);
    let port = |url: String| url.rsplit_once(':').unwrap().1.to_owned();
    let (rdma, tcp) = (server.line("LISTEN"), port(server.line("TCP")));
    for url in [format!("{rdma}/data"), format!("tcp://127.0.0.1:{tcp}/data")] {
        let output = home.run(&["check", &url, "--entries", "60"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let text = scrape(&server);
    let found = series(&text);
    for (name, least) in [
        ("stag_nfs3_calls_total{procedure=\"READ\"}", 2.0),
        ("stag_nfs3_errors_total{procedure=\"LOOKUP\",status=\"NFS3ERR_NOENT\"}", 2.0),
        ("stag_mount3_calls_total{procedure=\"MNT\"}", 2.0),
        ("stag_connections_accepted_total{over=\"fabric\"}", 1.0),
        ("stag_connections_accepted_total{over=\"tcp\"}", 1.0),
        ("stag_rdma_calls_total{role=\"responder\",form=\"short\"}", 10.0),
        ("stag_rdma_segments_total{role=\"responder\",chunk=\"write\"}", 1.0),
        ("stag_tcp_calls_total", 10.0),
        ("stag_iwarp_fpdus_total{direction=\"in\"}", 10.0),
        ("stag_disconnects_total{cause=\"closed by the peer\"}", 1.0),
        ("stag_call_seconds_count{program=\"nfs3\",procedure=\"READ\"}", 2.0),
        ("stag_call_stage_seconds_count{program=\"nfs3\",procedure=\"READ\",stage=\"app\"}", 2.0),
        ("stag_memory_bytes{part=\"buffers\"}", 1e6),
        ("process_resident_memory_bytes", 1e6),
        ("process_open_fds", 5.0),
    ] {
        let value = found.get(name).unwrap_or_else(|| panic!("{name} is in {text}"));
        assert!(*value >= least, "{name} {value}");
    }
    let text = &mut String::new();
    wait_for("the space of the export", || {
        *text = scrape(&server);
        series(text).get("stag_export_size_bytes{export=\"/data\"}").is_some_and(|size| *size > 1e6)
    });
    assert!(!text.contains("stag_undeclared"), "each number has a row: {text}");
    promtool(text);
}

#[test]
fn every_number_of_shared_memory_is_declared() {
    let home = Home::new();
    let socket = format!("shm://{}", home.text("shm.sock"));
    let mut command = home.stag(&["serve", "--memory", "16M", "--listen", &socket]);
    command.args(["--metrics", "127.0.0.1:0"]);
    let server = Server::start(&home, command);
    let output = home.run(&["check", &format!("{}:/memory", server.line("LISTEN"))]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
    let text = scrape(&server);
    assert!(series(&text)["stag_shm_links_total"] >= 1.0);
    assert!(!text.contains("stag_undeclared"), "each number has a row: {text}");
}

#[test]
fn metrics_are_off_when_that_is_asked_for_and_a_bad_address_is_refused() {
    let home = Home::new();
    let server = home.serve(&["data", "--metrics", "none"]);
    assert!(!server.out().contains("METRICS"), "{}", server.out());
    let home = Home::new();
    let refused = home.refused(&["serve", "data", "--metrics", "here"]);
    assert!(refused.contains("--metrics \"here\": write IP:PORT, or none"), "{refused}");
    let other = Home::new();
    let other = other.serve_as_given(&["--memory", "16M", "--name", "x"]);
    let taken = other.line("METRICS");
    let taken = taken.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let refused = home.refused(&["serve", "--memory", "16M", "--metrics", taken]);
    assert!(refused.contains("in use") && refused.contains("(--metrics)"), "{refused}");
}

/// Prometheus' own check, where it is installed.
fn promtool(text: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = command.stdout(Stdio::null()).spawn() else {
        return eprintln!("skipped: promtool is not installed (Debian: prometheus)");
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
