//! The program and the processes that it starts itself as: each does what its other side expects.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stag-peers");

/// Ended with the value.
struct Part(Child, BufReader<ChildStdout>);

impl Part {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self(child, from)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended");
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.line()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().unwrap()
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).unwrap()
}

/// Both ends over a fabric: connections in several batches, a call over each, calls that are
/// measured.
fn ends(at: &str) {
    let mut server = Part::start(&["answer", at, "--connections", "100"]);
    let at = server.line().strip_prefix("LISTEN ").unwrap().to_owned();
    let mut client = Part::start(&["call", &at, "--connections", "100"]);
    assert_eq!(client.ask("connect 1"), "1");
    assert_eq!(client.ask("connect 70"), "71");
    for calls in ["one 0.05", "any 0.05"] {
        let said = client.ask(calls);
        let numbers: Vec<f64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
        assert!(numbers.len() == 2 && numbers[0] > 0.0 && numbers[1] >= numbers[0], "{said}");
    }
}

#[test]
fn both_ends_meet_over_shared_memory() {
    let home = tempfile::tempdir().unwrap();
    ends(&format!("shm://{}", home.path().join("socket").display()));
}

#[test]
fn both_ends_meet_over_iwarp() {
    ends("iwarp://127.0.0.1:0");
}

#[test]
fn a_mebibyte_is_pushed_with_and_without_crcs() {
    for options in [["--connections", "8"].as_slice(), &["--connections", "8", "--no-crc"]] {
        let mut server = Part::start(&[&["answer", "iwarp://127.0.0.1:0"], options].concat());
        let at = server.line().strip_prefix("LISTEN ").unwrap().to_owned();
        let rate = |seconds: &&str| -> f64 {
            let end = ["pull", &at, "--depth", "2", "--seconds", seconds];
            let done = run(&[&end, options].concat());
            text(&done.stdout).trim().parse().unwrap()
        };
        // On a busy host some time passes before the first one is there.
        let rate = ["0.2", "2", "20"].iter().map(rate).find(|rate| *rate > 0.0).unwrap_or(0.0);
        assert!(rate > 0.0, "{options:?}");
    }
}

#[test]
fn shards_beside_their_callers_make_calls_on_one_core_and_on_two() {
    let cores: Vec<_> =
        stag_peers::site::cores().iter().take(2).map(|core| core.to_string()).collect();
    for work in ["shm", "iwarp", "loop"] {
        for count in 1..=cores.len() {
            let done = run(&["shards", work, &cores[..count].join(","), "--seconds", "0.02"]);
            let rate: f64 = text(&done.stdout).trim().parse().unwrap();
            assert!(rate > 0.0, "{work}, {count} cores");
        }
    }
    let refused = run(&["shards", "shm", "100000"]);
    assert!(!refused.status.success(), "{refused:?}");
}

#[test]
fn a_signal_ends_a_run_with_its_directory() {
    if stag_peers::site::cores().len() < 2 {
        return println!("skipped: this process may use one core");
    }
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)] {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--goals", "G8", "--no-build", "--json", "none"]).env("TMPDIR", home.path());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        // It measures from here on.
        let mut line = String::new();
        while !line.contains("against") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(128 + number));
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_seated_program_has_its_core_and_no_other() {
    let core = stag_peers::site::cores()[0].to_string();
    let done = run(&["seat", &core, "--", "grep", "Cpus_allowed_list", "/proc/self/status"]);
    assert_eq!(text(&done.stdout).split_whitespace().last(), Some(core.as_str()));
    let none = run(&["seat", &core, "--", "/there/is/no/such/program"]);
    assert_eq!((none.status.code(), text(&none.stdout).as_str()), (Some(1), ""));
}

#[test]
fn goals_are_listed_and_others_are_refused_in_one_sentence() {
    let listed = text(&run(&["--list"]).stdout);
    for goal in ["G1 ", "G4 ", "G14 "] {
        assert!(listed.lines().any(|line| line.starts_with(goal)), "{listed}");
    }
    let odd = run(&["--goals", "G99"]);
    let said = text(&odd.stderr);
    assert_eq!((odd.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("G99") && said.contains("G14"), "{said}");
}
