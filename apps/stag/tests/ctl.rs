//! `stag ctl` and the control socket of a running server.

use crate::support::{self, Home, Server, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    process::{Child, Stdio},
};

/// The value that `stag ctl … --json` prints.
fn ctl(home: &Home, arguments: &[&str]) -> Value {
    let output = home.run(&[&["ctl", "--json"], arguments].concat());
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The text that `stag ctl` prints for people: no line has more than 80 columns.
fn shown(home: &Home, arguments: &[&str]) -> String {
    let output = home.run(&[&["ctl"], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let long = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(long, None, "{arguments:?}");
    text
}

/// A load of small READs that ends with its test.
struct Load(Child);

impl Load {
    fn start(home: &Home, url: &str) -> Self {
        Self::of(home, url, &["nfs3:read"])
    }

    /// The same with another workload, followed by more arguments.
    fn of(home: &Home, url: &str, workload: &[&str]) -> Self {
        let arguments = ["bench", url, "--size", "16K", "--duration", "60", "--workload"];
        let mut command = home.stag(&[&arguments, workload].concat());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn clients(home: &Home) -> Vec<Value> {
    ctl(home, &["clients"])["clients"].as_array().unwrap().clone()
}

#[test]
fn a_server_under_load_is_watched_by_several_controllers_at_once() {
    let home = Home::new();
    let server = home.serve(&["data", "--sample", "1"]);
    let socket = server.line("CONTROL");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let _load = Load::start(&home, &format!("{}/data", server.line("LISTEN")));
    // Controllers that send nothing or half a request, or do not take replies, delay no other one.
    let silent = UnixStream::connect(&socket).unwrap();
    let mut half = UnixStream::connect(&socket).unwrap();
    half.write_all(b"{\"comm").unwrap();
    let mut greedy = UnixStream::connect(&socket).unwrap();
    greedy.write_all(&b"{\"command\":\"stats\"}\n".repeat(100)).unwrap();
    let read = |_: &()| {
        let traced = ctl(&home, &["trace", "-n", "200"]);
        let calls = traced["calls"].as_array().unwrap().iter();
        calls.filter(|call| call["procedure"] == "READ").count()
    };
    wait_for("READs", || read(&()) > 100);
    let all = clients(&home);
    assert!(!all.is_empty());
    let client = &all[0];
    assert_eq!((&client["via"], &client["rdma"]["version"]), (&json!("iwarp"), &json!(1)));
    assert_eq!(client["rdma"]["invalidation"], "any");
    assert_eq!(client["rdma"]["inline"], json!({"send": 8192, "receive": 8192}));
    let granted = client["rdma"]["credits"]["granted"].as_u64().unwrap();
    assert!(granted >= 1);
    wait_for("octets", || clients(&home).iter().any(|it| it["octets"].as_u64() > Some(400_000)));

    let status = ctl(&home, &["status"]);
    assert_eq!((&status["state"], &status["exports"]), (&json!("serving"), &json!(1)));
    let listen = json!([server.line("LISTEN")]);
    assert_eq!((&status["listen"], &status["shards"][0]["listen"]), (&listen, &listen));
    assert_eq!(status["shards"][0]["device"], Value::Null, "iWARP over TCP has no device");
    let place = format!(": {}\n", server.line("LISTEN"));
    assert!(server.err().contains("\nshard 0, ") && server.err().contains(&place));
    let exports = ctl(&home, &["exports"]);
    assert_eq!(exports["exports"][0]["name"], "/data");
    let about = rustix::fs::statvfs(home.path("data")).unwrap();
    let size = Some(about.f_blocks * about.f_frsize);
    let found = || ctl(&home, &["exports"])["exports"][0]["space"]["size_bytes"].as_u64();
    wait_for("the space of the export", || found() == size);
    let hist = ctl(&home, &["hist"]);
    let reads = hist["procedures"].as_array().unwrap().iter().find(|it| it["procedure"] == "READ");
    let stages: Vec<_> =
        reads.unwrap()["stages"].as_array().unwrap().iter().map(|it| &it["stage"]).collect();
    assert_eq!(stages, ["recv", "parse", "app", "emit", "push", "send", "total"]);
    let stats = ctl(&home, &["stats"]);
    assert!(stats["total"]["app"]["nfs3"]["READ"]["calls"].as_u64().unwrap() > 100);
    let memory = ctl(&home, &["memory"]);
    assert!(memory["shards"][0]["buffers"].as_u64().unwrap() > 1 << 20);

    for (words, part) in [
        (&["status"][..], "serving"),
        (&["exports"], "/data"),
        (&["clients"], "iwarp"),
        (&["hist"], "READ"),
        (&["trace"], "READ"),
        (&["memory"], "buffers"),
        (&["stats"], "app.nfs3.READ.calls"),
        (&["log"], "log info"),
        (&["top", "--once"], "nfs3     READ"),
    ] {
        let text = shown(&home, words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
    let refused = home.run(&["ctl", "contexts"]);
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && err.contains("needs a keytab"), "{err}");
    drop((silent, half, greedy));
}

#[test]
fn version_4_is_timed_by_the_operation_of_its_compounds() {
    let home = Home::new();
    let server = home.serve(&["data", "--nfs", "4", "--sample", "1"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let _load = Load::of(&home, &url, &["nfs4:mixed"]);
    let found = |list: &str, name: &str, word: &str| {
        let hist = ctl(&home, &["hist"]);
        let rows = hist[list].as_array().unwrap().clone();
        rows.into_iter().find(|it| it["program"] == "nfs4" && it[name] == word)
    };
    wait_for("READs and WRITEs", || {
        ["Read", "Write"].iter().all(|it| found("operations", "operation", it).is_some())
    });
    let read = found("operations", "operation", "Read").unwrap();
    assert!(found("procedures", "procedure", "COMPOUND").is_some());
    let stages: Vec<_> = read["stages"].as_array().unwrap().iter().map(|it| &it["stage"]).collect();
    assert_eq!(stages, ["recv", "parse", "app", "emit", "push", "send", "total"]);
    for (words, part) in [(&["hist"][..], "nfs4     Write"), (&["trace"], " Read")] {
        let text = shown(&home, words);
        assert!(text.contains(part), "{words:?}: {text}");
    }
}

#[test]
fn sessions_are_shown_at_their_connections_on_whatever_core_these_are() {
    let home = Home::new();
    let server = home.serve(&["data", "--cores", "2", "--nfs", "4"]);
    let url = format!("{}/data", server.line("LISTEN"));
    // The kernel chooses the core of a connection: with 16, each core has some.
    let load = Load::of(&home, &url, &["nfs4:read", "--connections", "16", "--depth", "4"]);
    // The client that makes the file is none of the load.
    let sessions = |client: &Value| {
        let all = client["sessions"].as_array().unwrap().iter();
        all.filter(|session| session["slots"]["total"] == 4).cloned().collect::<Vec<_>>()
    };
    let has_session = |client: &Value| sessions(client).len() == 1;
    let mut all = Vec::new();
    wait_for("a session at each connection", || {
        all = clients(&home);
        all.len() >= 16 && all.iter().filter(|client| has_session(client)).count() >= 16
    });
    let is_of = |shard: &'static str| {
        move |client: &&Value| client["id"].as_str().unwrap().starts_with(shard)
    };
    for shard in ["0.", "1."] {
        assert!(all.iter().filter(is_of(shard)).any(has_session), "{all:#?}");
    }
    let mut ids = std::collections::HashSet::new();
    for session in all.iter().flat_map(sessions) {
        let id = session["id"].as_str().unwrap().to_owned();
        assert!(id.len() == 32 && session["slots"]["used"].as_u64() <= Some(4), "{session}");
        // The load names itself by a random number and that of the connection, in binary.
        let owner = session["owner"].as_str().unwrap();
        assert!(owner.contains(r"\x00\x00") && !owner.contains(char::is_control), "{session}");
        assert!(ids.insert(id), "each connection made its own");
    }
    // The table is cut at 80 columns, somewhere in the owner.
    let row = |line: &str| line.contains("/4  ");
    let text = shown(&home, &["clients"]);
    let (_, table) = text.split_once("\n\nid ").unwrap();
    assert!(table.lines().filter(|line| row(line)).count() >= 16, "{text}");
    drop(load);
    wait_for("the end of the connections", || clients(&home).is_empty());
    assert_eq!(shown(&home, &["clients"]), "no connections\n");
}

#[test]
fn top_shows_version_4_on_a_terminal_of_80_columns_and_gives_it_back() {
    use rustix::termios::tcgetattr;
    let [entered, left] = ["\x1b[?1049h", "\x1b[?1049l"];
    let home = Home::new();
    let server = home.serve(&["data", "--nfs", "4"]);
    let url = format!("{}/data", server.line("LISTEN"));
    assert_eq!(home.run(&["call", &url, "ls"]).status.code(), Some(0));
    let (mut ours, theirs) = support::terminal();
    let before = tcgetattr(&theirs).unwrap().local_modes;
    let [input, out, err] = [(); 3].map(|()| Stdio::from(theirs.try_clone().unwrap()));
    let mut top = home.stag(&["ctl", "top"]).stdin(input).stdout(out).stderr(err).spawn().unwrap();
    let mut seen = Vec::new();
    // The first screen is drawn from left to right, with blanks where it was empty.
    let expected = ["serving", "calls/s", "octets/s", "program", "nfs4", "COMPOUND", "q ends"];
    wait_for("the first screen", || {
        let _ = ours.read_to_end(&mut seen);
        let text = String::from_utf8_lossy(&seen);
        let ended = top.try_wait().unwrap();
        assert_eq!(ended, None, "{text}");
        text.contains(entered) && expected.iter().all(|word| text.contains(word))
    });
    ours.write_all(b"q").unwrap();
    let mut status = None;
    wait_for("the end", || {
        let _ = ours.read_to_end(&mut seen);
        status = top.try_wait().unwrap();
        status.is_some()
    });
    let _ = ours.read_to_end(&mut seen);
    let text = String::from_utf8_lossy(&seen);
    assert_eq!(status.unwrap().code(), Some(0), "{text}");
    assert_eq!(tcgetattr(&theirs).unwrap().local_modes, before, "raw mode stays");
    assert_eq!([entered, left].map(|word| text.matches(word).count()), [1, 1], "{text}");
}

#[test]
fn a_client_that_is_dropped_is_gone_and_comes_back() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let tcp = server.line("TCP");
    let mut connected = TcpStream::connect(&tcp).unwrap();
    wait_for("the connection", || clients(&home).len() == 1);
    let id = clients(&home)[0]["id"].as_str().unwrap().to_owned();
    let own = connected.local_addr().unwrap().to_string();
    assert_eq!(clients(&home)[0]["peer"], own);
    assert_eq!(ctl(&home, &["drop", &own]), json!({"dropped": [id]}));
    assert_eq!(connected.read(&mut [0]).unwrap_or(0), 0, "its connection ends");
    wait_for("the end", || clients(&home).is_empty());
    let output = home.run(&["ctl", "drop", &id]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("no connection is") && err.contains("stag ctl clients"), "{err}");
    let _both = [TcpStream::connect(&tcp).unwrap(), TcpStream::connect(&tcp).unwrap()];
    wait_for("two connections", || clients(&home).len() == 2);
    let dropped = ctl(&home, &["drop", "127.0.0.1"]);
    assert_eq!(dropped["dropped"].as_array().unwrap().len(), 2);
    server.wait_for_err("dropped peer=127.0.0.1:");
}

#[test]
fn a_server_that_drains_ends_all_connections_and_serves_again_when_told() {
    let home = Home::new();
    let mut server = home.serve(&["data"]);
    let url = format!("{}/data", server.line("LISTEN"));
    fs::write(home.path("data/file"), "content").unwrap();
    let get = |home: &Home| home.run(&["call", &url, "ls", "--timeout", "2"]).status.code();
    let _load = Load::start(&home, &url);
    wait_for("load", || !clients(&home).is_empty());
    assert_eq!(ctl(&home, &["drain"])["state"], "draining");
    wait_for("the end of all connections", || clients(&home).is_empty());
    assert_eq!(ctl(&home, &["status"])["state"], "draining");
    assert_ne!(get(&home), Some(0), "nobody may connect");
    assert!(clients(&home).is_empty());
    assert_eq!(ctl(&home, &["resume"])["state"], "serving");
    assert_eq!(get(&home), Some(0));
    ctl(&home, &["drain"]);
    server.signal(Signal::TERM);
    assert_eq!(
        server.wait(),
        Some(0),
        "a server that drained stops as any other: {}",
        server.err()
    );
    assert!(!fs::exists(server.line("CONTROL")).unwrap(), "its socket is gone");
}

#[test]
fn no_write_is_lost_while_a_server_drains_under_64_calls() {
    let home = Home::new();
    // A busy host may need longer for 64 MiB than a drain takes at most by default.
    let server = home.serve(&["data", "--drain", "60"]);
    let url = format!("{}/data", server.line("LISTEN"));
    // Larger than the data in flight at any moment, so that the server drains in the middle of it.
    let octets: Vec<u8> = (0..96 << 18_u32).flat_map(|word: u32| word.to_le_bytes()).collect();
    fs::write(home.path("file"), &octets).unwrap();
    let written = || home.octets_written();
    // A host that is busy elsewhere may let one be over before the server drains.
    let is_amid = (0..10).any(|_| {
        let before = written();
        let mut put = home.stag(&["call", &url, "put", "--depth", "64", "file"]);
        put.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let put = put.spawn().unwrap();
        wait_for("WRITEs", || written() > before);
        ctl(&home, &["drain"]);
        wait_for("the end of all connections", || clients(&home).is_empty());
        // Asked again, the server says how it went: by itself, and not because its time was over.
        let mut drained = json!(null);
        wait_for("the end of the drain", || {
            drained = ctl(&home, &["drain"])["drained"].clone();
            !drained.is_null()
        });
        assert_eq!((&drained["unanswered"], &drained["cut"]), (&json!(0), &json!(false)));
        println!("drained in {} s", drained["seconds"]);
        let is_amid = written() - before < octets.len() as u64;
        ctl(&home, &["resume"]);
        let output = put.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(home.path("data/file")).unwrap() == octets, "every octet is there");
        is_amid
    });
    assert!(is_amid, "the server drained while a file was written");
    server.wait_for_err("unanswered=0 cut=false");
}

#[test]
fn the_log_says_more_when_told_and_a_bad_filter_changes_nothing() {
    let home = Home::new();
    let server = home.serve(&["data", "--log", "warn"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let list = |home: &Home| assert_eq!(home.run(&["call", &url, "ls"]).status.code(), Some(0));
    list(&home);
    assert!(!server.err().contains("connected"), "{}", server.err());
    assert_eq!(ctl(&home, &["log", "trace"]), json!({"filter": "trace"}));
    list(&home);
    wait_for("calls in the log", || server.err().contains("procedure=READDIR"));
    assert!(server.err().contains("connected peer=127.0.0.1:"), "{}", server.err());
    let output = home.run(&["ctl", "log", "loud"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err.contains("\"loud\" is no level: write error, warn, info"), "{err}");
    assert_eq!(ctl(&home, &["log"]), json!({"filter": "trace"}));
}

#[test]
fn what_is_no_request_is_refused_and_controllers_are_limited() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let socket = server.line("CONTROL");
    let ask = |line: &[u8]| {
        let mut controller = UnixStream::connect(&socket).unwrap();
        controller.write_all(line).unwrap();
        let mut reply = String::new();
        BufReader::new(controller).read_line(&mut reply).unwrap();
        reply
    };
    for line in [&b"hello\n"[..], b"{}\n", b"[1]\n", b"{\"command\":\"halt\"}\n", b"\xff\n"] {
        let reply = ask(line);
        assert!(reply.starts_with("{\"error\":\"no request: "), "{reply}");
    }
    let reply = ask(&b"x".repeat(4_096));
    assert!(reply.contains("a request ends with a newline, within 4096 octets"), "{reply}");
    let reply = ask(b"{\"command\":\"reload\"}\n");
    assert!(reply.contains("without a configuration file"), "{reply}");
    let held: Vec<_> = (0..8).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut told = String::new();
    wait_for("a refusal", || {
        told.clear();
        let ninth = UnixStream::connect(&socket).unwrap();
        BufReader::new(ninth).read_line(&mut told).is_ok() && told.contains("controllers are")
    });
    drop(held);
}

#[test]
fn a_socket_that_is_missing_is_named_with_the_way_to_another() {
    let home = Home::new();
    let refused = home.refused(&["ctl", "status"]);
    assert!(refused.contains("state/control.sock: no server made it"), "{refused}");
    assert!(refused.contains("--socket PATH"), "{refused}");
    let refused = home.refused(&["serve", "data", "--control-group", "no-such-group"]);
    assert!(refused.contains("/etc/group has no such group"), "{refused}");
    let refused = home.refused(&["serve", "--memory", "8M", "--control-group", "0"]);
    assert!(refused.contains("give --control PATH, too"), "{refused}");
    let path = home.text("gw.sock");
    let server = Server::start(
        &home,
        home.stag(&[
            "serve",
            "--memory",
            "8M",
            "--control",
            &path,
            "--listen",
            "iwarp://127.0.0.1:0",
        ]),
    );
    assert_eq!(server.line("CONTROL"), path);
    let output = home.stag(&["ctl", "status"]).env("STAG_CONTROL", &path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let socket = ["--socket", &path];
    assert_eq!(ctl(&home, &[&["status"], &socket[..]].concat())["exports"], 1);
}
