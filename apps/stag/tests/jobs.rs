//! A server inside a job: it takes free ports, writes its addresses to a file, and ends with the
//! job.

use crate::support::{Home, Server, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// The arguments of a small server of its own directory.
const SMALL: [&str; 5] = ["serve", "--memory", "2M", "--listen", "iwarp://127.0.0.1:0"];

#[test]
fn servers_on_free_ports_do_not_meet_over_tcp() {
    let home = Home::new();
    let servers = [(); 2].map(|()| Server::start(&home, home.stag(&SMALL)));
    let [one, other] = servers.each_ref().map(|server| server.line("TCP"));
    assert_ne!(one, other);
    assert!(!one.ends_with(":0") && !one.ends_with(":2049"), "{one}");
    for at in [one, other] {
        let output = home.run(&["call", &format!("tcp://{at}/memory"), "ls"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn a_ready_file_is_the_block_and_lives_as_long_as_its_server() {
    let home = Home::new();
    let file = home.path("ready");
    fs::write(&file, "READY long ago\nEND\n").unwrap();
    let mut server =
        Server::start(&home, home.stag(&[&SMALL[..], &["--ready-file", "ready"]].concat()));
    assert_eq!(fs::read_to_string(&file).unwrap(), server.out());
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    assert!(!file.exists());
    let sentence = home.refused(&[&SMALL[..], &["--ready-file", "no/ready"]].concat());
    assert!(sentence.contains("no/ready") && sentence.contains("does not exist"), "{sentence}");
}

#[test]
fn a_server_ends_in_order_with_the_process_that_it_was_started_for() {
    let home = Home::new();
    let mut job = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
    let pid = job.id().to_string();
    let arguments = [&SMALL[..], &["--exit-with", &pid, "--stats", "stats.json"]].concat();
    let mut server = Server::start(&home, home.stag(&arguments));
    kill_process(Pid::from_child(&job), Signal::KILL).unwrap();
    job.wait().unwrap();
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    assert!(home.path("stats.json").exists());
    // Its pid is free now, and not reused so soon: the kernel assigns pids in order.
    let sentence = home.refused(&arguments);
    assert!(sentence.contains(&pid) && sentence.contains("no such process"), "{sentence}");
    for bad in ["0", "-1", "x"] {
        let output = home.run(&[&SMALL[..], &[&format!("--exit-with={bad}")]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
}

#[test]
fn a_start_is_put_off_by_chance_and_ended_by_a_signal_meanwhile() {
    let home = Home::new();
    let server = Server::start(&home, home.stag(&[&SMALL[..], &["--start-jitter", "0"]].concat()));
    let err = server.err();
    assert!(err.contains("waits 0.0 s before it starts (--start-jitter 0)"), "{err}");
    for bad in ["-1", "x", "3601", "1.5"] {
        let output = home.run(&[&SMALL[..], &[&format!("--start-jitter={bad}")]].concat());
        assert_eq!(output.status.code(), Some(2), "{bad}");
    }
    let mut waiting = home.stag(&[&SMALL[..], &["--start-jitter", "3600"]].concat());
    let mut waiting = waiting.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(waiting.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("waits "), "{line}");
    kill_process(Pid::from_child(&waiting), Signal::TERM).unwrap();
    assert!(!waiting.wait().unwrap().success());
}

#[test]
fn the_memory_that_a_server_needs_is_said_beside_what_it_can_have() {
    let home = Home::new();
    let server = Server::start(&home, home.stag(&SMALL));
    wait_for("a line about memory", || server.err().contains("\nmemory: "));
    let err = server.err();
    let line = err.lines().find(|line| line.starts_with("memory: ")).unwrap();
    assert!(line.contains(" for buffers and 2 MiB for files, of "), "{line}");
}
