//! The log of a server: its forms, its levels, and the reason why a peer was turned away.

use crate::support::{Home, Server, wait_for};
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    process::{Child, Stdio},
};

/// A call of an unknown program over TCP: a record with its mark (RFC 5531 §11).
fn call_nobody(server: &Server) -> TcpStream {
    let words: [u32; 11] = [0x8000_0028, 7, 0, 2, 400_000, 1, 0, 0, 0, 0, 0];
    let mut client = TcpStream::connect(server.line("TCP")).unwrap();
    client.write_all(&words.map(u32::to_be_bytes).concat()).unwrap();
    client.read_exact(&mut [0; 28]).unwrap();
    client
}

#[test]
fn each_level_says_more_than_the_one_before() {
    for (level, expected) in [
        ("warn", [false, false, false]),
        ("info", [true, false, false]),
        ("debug", [true, true, false]),
        ("trace", [true, true, true]),
    ] {
        let home = Home::new();
        let server = home.serve(&["data", "--log", level]);
        drop(call_nobody(&server));
        let parts = ["connected peer=127.0.0.1:", "a call was refused xid=7", "program=400000"];
        let last = parts.iter().zip(expected).rfind(|(_, is_said)| *is_said);
        if let Some((part, _)) = last {
            wait_for(part, || server.err().contains(part));
        }
        let found = parts.map(|part| server.err().contains(part));
        assert_eq!(found, expected, "{level}: {}", server.err());
    }
}

#[test]
fn lines_of_json_are_objects_with_the_facts_of_the_event() {
    let home = Home::new();
    let server = home.serve(&["data", "--log-format", "json"]);
    drop(call_nobody(&server));
    wait_for("the end of the connection", || server.err().contains("\"disconnected\""));
    let events: Vec<Value> =
        server.err().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |message: &str| events.iter().find(|event| event["message"] == message).unwrap();
    let (up, down) = (of("connected"), of("disconnected"));
    assert_eq!((&up["level"], &up["over"]), (&"INFO".into(), &"tcp".into()));
    assert_eq!(up["peer"], down["peer"]);
    assert_eq!(down["cause"], "closed by the peer");
    assert!(down["octets"].as_u64().unwrap() >= 44 + 28, "{down}");
    assert_eq!((&down["unanswered"], &down["seconds"]), (&0.into(), &0.into()));
}

/// A server whose standard error is named as the journal's.
fn beside_journal(home: &Home, name: &str) -> (Child, String) {
    let (out, err) = (home.path("out"), home.path("err"));
    let file = File::create(&err).unwrap();
    let journal = file.metadata().unwrap();
    let arguments = ["serve", "--memory", "8M", "--listen", "iwarp://127.0.0.1:0"];
    let mut command = home.stag(&arguments);
    let named = format!("{}:{}", journal.dev(), journal.ino());
    command.env("JOURNAL_STREAM", if name.is_empty() { &named } else { name });
    command.stdin(Stdio::null()).stdout(File::create(&out).unwrap()).stderr(file);
    let child = command.spawn().unwrap();
    wait_for("READY", || fs::read_to_string(&out).unwrap().ends_with("END\n"));
    let block = fs::read_to_string(&out).unwrap();
    let tcp = block.lines().find_map(|line| line.strip_prefix("TCP ")).unwrap();
    drop(TcpStream::connect(tcp).unwrap());
    wait_for("the connection", || fs::read_to_string(&err).unwrap().contains("disconnected"));
    (child, fs::read_to_string(&err).unwrap())
}

#[test]
fn lines_for_the_journal_have_priorities_and_no_time() {
    for (name, is_journal) in [("", true), ("1:2", false), ("nonsense", false)] {
        let home = Home::new();
        let (mut child, err) = beside_journal(&home, name);
        child.kill().unwrap();
        child.wait().unwrap();
        let line = err.lines().find(|line| line.contains(" connected peer=")).unwrap();
        assert_eq!(line.starts_with("<6> INFO connected peer="), is_journal, "{line}");
        assert_eq!(line.contains('Z'), !is_journal, "a time: {line}");
    }
}

#[test]
fn whom_a_limit_turns_away_is_told_with_the_limit() {
    let home = Home::new();
    let command = home.stag_behind(
        "ulimit -n 90",
        &[
            "serve",
            "--memory",
            "8M",
            "--listen",
            "iwarp://127.0.0.1:0",
            "--tcp",
            "127.0.0.1:0",
            "--connections-per-address",
            "0",
        ],
    );
    let server = Server::start(&home, command);
    let tcp = server.line("TCP");
    // A connection that has called makes no room for others, as a silent one does.
    let caller = || {
        let mut caller = TcpStream::connect(&tcp).unwrap();
        let null = [0x8000_0028_u32, 1, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
        // One that is refused may be closed already.
        let _ = caller.write_all(&null.map(u32::to_be_bytes).concat());
        caller
    };
    let _crowd: Vec<_> = (0..80).map(|_| caller()).collect();
    wait_for("a refusal", || server.err().contains("refused: all places for connections"));
    assert!(server.err().contains("over=\"tcp\""), "{}", server.err());
    wait_for("the crowd in one sentence", || {
        drop(caller());
        server.err().contains("too many to be logged left_out=")
    });
}
