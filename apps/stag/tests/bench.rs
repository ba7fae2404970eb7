//! `stag bench` against `stag echo` and `stag serve`. The tests check that every call is counted,
//! not the time that it took.

use crate::support::{self, Home, Server, json};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Child, Output, Stdio},
    time::{Duration, Instant},
};

/// Short, and the same whatever else the host does.
const SHORT: [&str; 4] = ["--warm-up", "0", "--calls", "200"];

fn echo(home: &Home) -> (Server, [String; 2]) {
    let listen = format!("shm://{}", home.text("echo.sock"));
    let server =
        Server::start(home, home.stag(&["echo", "--listen", &listen, "--tcp", "127.0.0.1:0"]));
    let tcp = server.line("TCP");
    (server, [listen, format!("tcp://{tcp}")])
}

fn measured(home: &Home, arguments: &[&str]) -> Value {
    let output = home.run(&[&["bench"], arguments, &["--json", "-"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_workload_is_measured_on_shared_memory_and_over_tcp() {
    let home = Home::new();
    let (_server, urls) = echo(&home);
    for url in &urls {
        for (workload, octets) in [("null", 0), ("echo", 2), ("pull", 1), ("push", 1)] {
            let more =
                ["--workload", workload, "--size", "5000", "--depth", "4", "--connections", "2"];
            let result = measured(&home, &[&[url.as_str()], &SHORT[..], &more].concat());
            assert_eq!(result["schema"], "stag-bench/1");
            assert_eq!(
                (result["calls"].as_u64(), result["failed"].as_u64()),
                (Some(200), Some(0)),
                "{result}"
            );
            assert_eq!(result["setup"]["workload"], workload);
            assert_eq!(result["setup"]["verified"], octets > 0);
            assert_eq!(result["response"]["samples"], 200);
            // 90 of 100 needs 100 samples, 99 of 100 a thousand.
            assert!(
                result["service"]["percentiles_us"][1].is_f64()
                    && result["service"]["percentiles_us"][2].is_null()
            );
            let seconds = result["seconds"].as_array().unwrap();
            let sum = |name: &str| {
                seconds.iter().map(|second| second[name].as_u64().unwrap()).sum::<u64>()
            };
            assert_eq!(
                (sum("calls"), sum("octets")),
                (200, 200 * octets * 5_000),
                "{url} {workload}"
            );
        }
    }
}

#[test]
fn an_open_loop_keeps_its_rate_and_a_ladder_has_a_row_for_each() {
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let open =
        ["--rate", "300,600", "--arrivals", "uniform", "--warm-up", "0.1", "--duration", "1"];
    let result = measured(&home, &[&[url.as_str()], &open[..]].concat());
    let runs = result.as_array().unwrap();
    for (run, rate) in runs.iter().zip([300, 600]) {
        let made = run["calls"].as_u64().unwrap() + run["unsent"].as_u64().unwrap();
        assert!((rate - 1..=rate + 1).contains(&made), "{run}");
        assert_eq!(run["client"]["lag"]["samples"], run["calls"]);
    }
    assert_eq!(runs.len(), 2);
    let table =
        home.run(&[&["bench", &url, "--workload", "push", "--size", "64,4K"], &SHORT[..]].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.contains("closed")).collect();
    assert!(rows.len() == 2 && rows[1].trim().starts_with("4096"), "{table}");
}

#[test]
fn nfs_workloads_are_measured_on_every_fabric_and_leave_nothing_behind() {
    let home = Home::new();
    let memory = ["--memory", "64M", "--name", "data", "--nfs", "3,4"];
    let server = home.serve(&memory);
    let listen = format!("shm://{}", home.text("nfs.sock"));
    let local = [&["serve"], &memory[..], &["--listen", &listen]].concat();
    let _local = Server::start(&home, home.stag(&local));
    let urls = [
        format!("{}/data", server.line("LISTEN")),
        format!("tcp://{}/data", server.line("TCP")),
        listen + ":/data",
    ];
    for url in &urls {
        for workload in [
            "null",
            "nfs3:getattr",
            "nfs3:lookup",
            "nfs3:read",
            "nfs3:write",
            "nfs3:mixed",
            "nfs3:meta",
            "nfs4:getattr",
            "nfs4:lookup",
            "nfs4:read",
            "nfs4:write",
            "nfs4:mixed",
            "nfs4:meta",
        ] {
            let places = ["--connections", "2", "--depth", "3"];
            let more = ["--workload", workload, "--size", "8K", "--file-size", "256K"];
            let more = [&more[..], &places].concat();
            let result = measured(&home, &[&[url.as_str()], &SHORT[..], &more].concat());
            let figures = ["calls", "failed", "unsent"].map(|name| result[name].as_u64().unwrap());
            assert_eq!(figures, [200, 0, 0], "{url} {workload}");
            let samples =
                ["service", "response"].map(|name| result[name]["samples"].as_u64().unwrap());
            assert_eq!(samples, [200; 2], "{url} {workload}");
            let has_payload =
                [":read", ":write", ":mixed"].iter().any(|end| workload.ends_with(end));
            assert_eq!(result["setup"]["verified"], has_payload, "{url} {workload}");
        }
        let left = home.run(&["call", url, "ls"]);
        assert_eq!(String::from_utf8(left.stdout).unwrap(), "", "{url}");
    }
}

#[test]
fn sessions_are_ended_and_a_server_that_gives_none_is_named() {
    let home = Home::new();
    let memory = ["--memory", "64M", "--name", "data"];
    let newer = [&memory[..], &["--nfs", "4", "--stats", "stats.json"]].concat();
    let mut newer = home.serve(&newer);
    let url = format!("{}/data", newer.line("LISTEN"));
    let load = ["--workload", "nfs4:read", "--file-size", "64K", "--connections", "3"];
    let result = measured(&home, &[&[url.as_str()], &SHORT[..], &load].concat());
    assert_eq!((&result["calls"], &result["failed"]), (&200.into(), &0.into()), "{result}");
    let deep = home.run(&["bench", &url, "--workload", "nfs4:getattr", "--depth", "1024"]);
    let error = String::from_utf8(deep.stderr).unwrap();
    assert!(deep.status.code() == Some(1) && error.contains("fewer slots than --depth"), "{error}");
    newer.signal(Signal::TERM);
    assert_eq!(newer.wait(), Some(0), "{}", newer.err());
    let told = &json(&home.path("stats.json"))["total"]["app"]["nfs4"];
    assert!(told["compounds"].as_u64().unwrap() > 200, "{told:#}");
    let left = ["clients", "sessions", "slots"].map(|name| told[name].as_u64().unwrap());
    assert_eq!(left, [0; 3], "{told:#}");
    let older = home.serve(&[&memory[..], &["--nfs", "3"]].concat());
    let url = format!("{}/data", older.line("LISTEN"));
    let none = home.run(&["bench", &url, "--workload", "nfs4:getattr"]);
    let error = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(1) && error.contains("session of NFS version 4"), "{error}");
}

/// Everything that docs/BENCH.md has people type, shorter.
#[test]
fn every_command_of_the_guide_works() {
    let home = Home::new();
    let (_echo, [echo, _]) = echo(&home);
    let server = home.serve(&["--memory", "256M", "--name", "data", "--nfs", "3,4"]);
    let guide = include_str!("../../../docs/BENCH.md");
    let blocks = guide.split("```sh\n").skip(1).filter_map(|block| block.split_once("```"));
    let lines =
        blocks.flat_map(|(block, _)| block.lines()).filter_map(|line| line.strip_prefix("stag "));
    let mut runs = 0;
    for line in lines.filter(|line| line.starts_with("bench ")) {
        let line = line.replace("shm:///tmp/echo.sock", &echo);
        let line = line.replace("iwarp://127.0.0.1:20049", &server.line("LISTEN"));
        let line = line.replace("127.0.0.1:2049", &server.line("TCP"));
        let mut words: Vec<_> = line.split(' ').collect();
        let is_run = words[1].contains("://");
        if is_run {
            words.extend(["--warm-up", "0", "--duration", "0.15"]);
        }
        let output = home.run(&words);
        // Runs that are this short cannot be compared.
        let expected = if words[1] == "compare" { 3 } else { 0 };
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        runs += usize::from(is_run);
    }
    assert!(runs >= 8, "{runs} lines were found");
}

#[test]
fn calls_of_the_server_are_measured_in_both_versions() {
    let home = Home::new();
    let (_server, [shm, tcp]) = echo(&home);
    let iwarp = Server::start(&home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]));
    let reverse = ["--workload", "reverse", "--connections", "2", "--depth", "8"];
    for url in [&shm, &iwarp.line("LISTEN")] {
        for (version, size) in [("1", "1000"), ("1", "3K"), ("2", "1000"), ("2", "70000")] {
            let more = ["--rdma-version", version, "--size", size];
            let result = measured(&home, &[&[url.as_str()], &reverse[..], &SHORT, &more].concat());
            assert_eq!(
                (&result["calls"], &result["failed"]),
                (&200.into(), &0.into()),
                "{url} {version} {size}"
            );
            assert_eq!(result["rdma_version"], version.parse::<u64>().unwrap());
            assert_eq!(
                (&result["service"]["samples"], &result["setup"]["verified"]),
                (&200.into(), &true.into())
            );
        }
    }
    let long = home.run(&[&["bench", &shm, "--size", "8K"], &reverse[..], &SHORT].concat());
    let error = String::from_utf8(long.stderr).unwrap();
    assert!(long.status.code() == Some(1) && error.contains("--rdma-version 2"), "{error}");
    let gateway = home.serve(&["--memory", "1M", "--name", "data"]);
    let other = home.run(&[&["bench", &gateway.line("LISTEN")], &reverse[..], &SHORT].concat());
    let error = String::from_utf8(other.stderr).unwrap();
    assert!(
        other.status.code() == Some(1) && error.contains("reverse needs one that calls"),
        "{error}"
    );
    for (more, part) in [
        (&[tcp.as_str()][..], "there are none over tcp://"),
        (&[&shm, "--rate", "100"], "leave --rate and --slo out"),
        (&[&shm, "--slo", "p50=100"], "leave --rate and --slo out"),
        (&[&shm, "--depth", "129"], "--depth is 128 at most"),
    ] {
        let sentence = home.refused(&[&["bench"], &reverse[..4], more].concat());
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn connections_are_measured_on_each_fabric() {
    let home = Home::new();
    let (_server, [shm, tcp]) = echo(&home);
    let nfs = home.serve(&["--memory", "1M", "--name", "data"]);
    let nfs = format!("{}/data", nfs.line("LISTEN"));
    let storm = ["--workload", "connstorm", "--connections", "4"];
    for url in [&shm, &tcp, &nfs] {
        let result = measured(&home, &[&[url.as_str()], &storm[..], &SHORT].concat());
        assert_eq!((&result["calls"], &result["failed"]), (&200.into(), &0.into()), "{url}");
        assert_eq!(
            (&result["connected"]["samples"], &result["service"]["samples"]),
            (&200.into(), &200.into())
        );
        let mean = |name: &str| result[name]["mean_us"].as_f64().unwrap();
        assert!(mean("connected") > 0.0 && mean("connected") < mean("service"), "{result}");
    }
    let open = ["--rate", "200", "--arrivals", "uniform", "--warm-up", "0", "--duration", "1"];
    let result =
        measured(&home, &[&[shm.as_str()], &storm[..], &open, &["--rdma-version", "2"]].concat());
    assert_eq!(result["calls"].as_u64().unwrap() + result["unsent"].as_u64().unwrap(), 200);
    assert_eq!(result["rdma_version"], 2);
    let table = home.run(&[&["bench", &tcp], &storm[..], &SHORT].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("\nus           connected      service     response\n"), "{table}");
    assert!(
        home.refused(&["bench", &shm, "--workload", "connstorm", "--depth", "2"])
            .contains("--connections")
    );
}

#[test]
fn version_2_carries_every_workload_and_the_result_says_which_was_spoken() {
    let home = Home::new();
    let (_echo, [shm, _]) = echo(&home);
    let iwarp = Server::start(&home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]));
    let nfs = home.serve(&["--memory", "64M", "--name", "data"]);
    let nfs = format!("{}/data", nfs.line("LISTEN"));
    let echoes = ["null", "echo", "pull", "push", "mixed"];
    let files = [
        "null",
        "nfs3:getattr",
        "nfs3:lookup",
        "nfs3:read",
        "nfs3:write",
        "nfs3:mixed",
        "nfs3:meta",
    ];
    let more = ["--rdma-version", "2", "--size", "5000", "--file-size", "100000", "--depth", "3"];
    for (url, workloads) in [(&shm, &echoes[..]), (&iwarp.line("LISTEN"), &echoes), (&nfs, &files)]
    {
        for workload in workloads {
            let result = measured(
                &home,
                &[&[url.as_str(), "--workload", workload], &SHORT[..], &more].concat(),
            );
            assert_eq!(
                (&result["calls"], &result["failed"]),
                (&200.into(), &0.into()),
                "{url} {workload}"
            );
            assert_eq!(
                (&result["rdma_version"], &result["setup"]["rdma_version"]),
                (&2.into(), &"2".into())
            );
        }
    }
}

#[test]
fn a_version_that_the_server_does_not_speak_is_an_error() {
    let home = Home::new();
    let (_server, [url, tcp]) = echo(&home);
    assert_eq!(measured(&home, &[&[url.as_str()], &SHORT[..]].concat())["rdma_version"], 1);
    assert_eq!(
        measured(&home, &[&[tcp.as_str()], &SHORT[..]].concat())["rdma_version"],
        Value::Null
    );
    let old = home.serve(&["data", "--rdma-version", "1"]);
    let url = format!("{}/data", old.line("LISTEN"));
    let both = measured(&home, &[&[url.as_str(), "--rdma-version", "1-2"], &SHORT[..]].concat());
    assert_eq!((&both["rdma_version"], &both["setup"]["rdma_version"]), (&1.into(), &"1-2".into()));
    for workload in ["null", "nfs3:read"] {
        let output = home.run(
            &[&["bench", &url, "--rdma-version", "2", "--workload", workload], &SHORT[..]].concat(),
        );
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("the peer speaks RPC-over-RDMA versions 1 to 1 only"), "{error}");
    }
    assert!(home.refused(&["bench", &tcp, "--rdma-version", "2"]).contains("--rdma-version"));
    assert!(home.refused(&["bench", &url, "--rdma-version", "3"]).contains("write 1, 2, 1-2"));
}

#[test]
fn what_does_not_answer_is_said_in_a_sentence() {
    let home = Home::new();
    let server = home.serve(&["--memory", "1M", "--name", "data"]);
    let output =
        home.run(&[&["bench", &server.line("LISTEN"), "--workload", "echo"], &SHORT[..]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("ECHO: the server does not have this program"), "{error}");
    for (arguments, part) in [
        (&["bench"][..], "say what to measure"),
        (&["bench", "tcp://127.0.0.1:1", "--workload", "nfs3:read"], "needs an export"),
        (&["bench", "tcp://127.0.0.1:1", "--workload", "x"], "no workload is called"),
        (&["bench", "tcp://127.0.0.1:1", "--cores", "1000"], "is more than the"),
        (&["bench", "tcp://127.0.0.1:1", "--size", "2M"], "between 1 and 1M"),
        (&["echo", "--listen", "iwarp://0.0.0.0:0"], "--clients"),
    ] {
        assert!(home.refused(arguments).contains(part), "{arguments:?}");
    }
    let output = home.run(&["bench", "tcp://127.0.0.1:1", "--calls", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("tcp://127.0.0.1:1: cannot connect")
    );
}

/// A run that goes on while a test looks at it.
struct Bench {
    child: Child,
    err: PathBuf,
}

impl Bench {
    /// Starts a run.
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let number = fs::read_dir(home.0.path()).unwrap().count();
        let err = home.path(&format!("bench-{number}"));
        let mut command = home.stag(&[&["bench"], arguments].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(fs::File::create(&err).unwrap());
        Self { child: command.spawn().unwrap(), err }
    }

    /// A run that does not end by itself, from when it has shown calls.
    fn endless(home: &Home, arguments: &[&str]) -> Self {
        let endless = ["--warm-up", "0", "--duration", "9999", "--json", "-"];
        let mut bench = Self::start(home, &[arguments, &endless].concat());
        bench.wait_for_calls();
        bench
    }

    /// Calls of each second that it has shown.
    fn seconds(&self) -> Vec<u64> {
        let text = fs::read_to_string(&self.err).unwrap();
        let calls = |line: &str| line.split_once(" calls/s")?.0.rsplit_once(' ')?.1.parse().ok();
        text.lines().filter_map(calls).collect()
    }

    /// Waits until it has shown a second with calls.
    fn wait_for_calls(&mut self) {
        support::wait_for("a second with calls", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "the run is over");
            self.seconds().iter().any(|calls| *calls > 0)
        });
    }

    /// Waits until two seconds that began after this moment had no calls: all replies are read, and
    /// calls that were made since have none.
    fn wait_for_silence(&self) {
        // One second may have begun before.
        let begun = self.seconds().len() + 1;
        support::wait_for("seconds without calls", || {
            let later = self.seconds().split_off(begun.min(self.seconds().len()));
            later.windows(2).any(|pair| pair == [0, 0])
        });
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process has taken `signal`.
    fn wait_until_taken(&self, signal: Signal) {
        support::wait_for("the signal to be taken", || {
            let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
            let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
            pending >> (signal.as_raw() - 1) & 1 == 0
        });
    }

    /// Waits for its end, as [`Home::run`] does.
    fn output(self) -> Output {
        let mut output = self.child.wait_with_output().unwrap();
        output.stderr = fs::read(&self.err).unwrap();
        output
    }
}

/// Returns true if SIGHUP does nothing to the process, as it was before it started.
fn ignores_hangup(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn a_run_that_is_stopped_says_what_was_measured_and_leaves_nothing_behind() {
    let home = Home::new();
    let server = home.serve(&["--memory", "64M", "--name", "data"]);
    let url = format!("{}/data", server.line("LISTEN"));
    let files = ["--workload", "nfs3:mixed", "--size", "8K", "--file-size", "64K", "--depth", "2"];
    for (more, signal) in
        [(&[][..], Signal::INT), (&["--rate", "500"], Signal::TERM), (&[], Signal::HUP)]
    {
        let bench = Bench::endless(&home, &[&[url.as_str()], &files[..], more].concat());
        if signal == Signal::HUP && ignores_hangup(&bench.child) {
            // As under nohup, which tests may run under, too.
            bench.signal(Signal::TERM);
        }
        for stray in [Signal::USR1, Signal::USR2, Signal::ALARM] {
            bench.signal(stray);
        }
        bench.signal(signal);
        let output = bench.output();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{error}");
        assert!(error.contains("stopped by a signal"), "{error}");
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&result["stopped"], &result["failed"]), (&true.into(), &0.into()), "{result}");
        assert!(
            result["calls"].as_u64().unwrap() > 0 && result["elapsed_s"].as_f64().unwrap() < 60.0
        );
        assert_eq!(home.run(&["call", &url, "ls"]).stdout, b"");
    }
}

#[test]
fn the_cores_that_a_server_keeps_busy_stand_beside_its_rate() {
    let home = Home::new();
    let (server, [url, _]) = echo(&home);
    let pid = server.pid().to_string();
    let output = home.run(&[&["bench", &url, "--server-pid", &pid, "--top"], &SHORT[..]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("\nserver: ") && table.contains(" cores busy, "), "{table}");
    // Without a terminal seconds scroll by.
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("    1 s "), "{error}");
    assert!(home.refused(&["bench", &url, "--server-pid", "4194304"]).contains("no such process"));
}

#[test]
fn an_outage_is_measured_when_the_run_is_to_go_on() {
    let home = Home::new();
    let listen = |at: &str| home.stag(&["echo", "--listen", at]);
    let mut server = Server::start(&home, listen("iwarp://127.0.0.1:0"));
    let url = server.line("LISTEN");
    let open = ["--rate", "200", "--arrivals", "uniform", "--warm-up", "0", "--duration", "4"];
    let more = ["--reconnect", "--json", "-"];
    let mut bench = Bench::start(&home, &[&[url.as_str()], &open[..], &more].concat());
    bench.wait_for_calls();
    server.signal(Signal::KILL);
    server.wait();
    server = Server::start(&home, listen(&url));
    let output = bench.output();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["calls", "unsent", "failed"].map(|name| result[name].as_u64().unwrap());
    assert_eq!((counts[0] + counts[1], counts[2]), (800, 0), "{result}");
    let outage = &result["outages"][0];
    assert!(outage["lasted_s"].as_f64().unwrap() > 0.0, "{result}");
    let gap = &result["gaps"][0];
    let calls: Vec<_> = gap["calls"].as_array().unwrap().iter().map(Value::as_u64).collect();
    let (first, last) = (outage["at_s"].as_f64().unwrap(), calls.len() as f64);
    let [from, step] = ["from_s", "step_s"].map(|name| gap[name].as_f64().unwrap());
    assert!(from < first && first < from + step * last, "the gap is not around {first}: {gap}");
    assert!(calls.iter().flatten().sum::<u64>() > 0 && calls.contains(&Some(0)), "{gap}");
    assert!(result["response"]["max_us"].as_f64().unwrap() > 0.0);
    drop(server);
    assert!(home.refused(&["bench", "tcp://127.0.0.1:1", "--reconnect"]).contains("over a fabric"));
}

#[test]
fn a_server_that_dies_is_named_with_its_second_and_every_call_that_was_due_is_counted() {
    let home = Home::new();
    for which in 0..2 {
        let (mut server, urls) = echo(&home);
        let open = [
            "--rate",
            "400",
            "--arrivals",
            "uniform",
            "--warm-up",
            "0",
            "--duration",
            "600",
            "--json",
            "-",
        ];
        let mut bench = Bench::start(&home, &[&[urls[which].as_str()], &open[..]].concat());
        bench.wait_for_calls();
        server.signal(Signal::KILL);
        server.wait();
        let output = bench.output();
        assert_eq!(output.status.code(), Some(1));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let [made, failed, unsent] =
            ["calls", "failed", "unsent"].map(|name| result[name].as_u64().unwrap());
        assert_eq!(made + failed + unsent, 240_000, "{result}");
        let died = result["gave_up_s"].as_f64().unwrap();
        assert!(made > 0 && (0.0..600.0).contains(&died), "{result}");
        // Calls that were late when it died were not made either.
        let due = (600.0 - died) * 400.0;
        assert!(unsent as f64 > due - 10.0, "{unsent} and {due}");
        assert_eq!(result["response"]["samples"], made + unsent);
        assert!(result["failure"].as_str().unwrap().contains("not connected"), "{result}");
    }
}

#[test]
fn what_stays_at_a_server_that_died_is_named_without_waiting_for_it() {
    let home = Home::new();
    for fabric in ["LISTEN", "TCP"] {
        let mut server = home.serve(&["--memory", "64M", "--name", "data"]);
        let scheme = if fabric == "TCP" { "tcp://" } else { "" };
        let url = format!("{scheme}{}/data", server.line(fabric));
        let files = ["--workload", "nfs3:read", "--size", "8K", "--file-size", "64K"];
        let bench = Bench::endless(&home, &[&[url.as_str()], &files[..]].concat());
        server.signal(Signal::KILL);
        server.wait();
        let killed = Instant::now();
        let output = bench.output();
        assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
        assert_eq!(output.status.code(), Some(1));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let left = result["left_behind"].as_str().unwrap();
        assert!(left.contains("stag-bench-") && left.contains("could not be removed"), "{left}");
        assert!(result["calls"].as_u64().unwrap() > 0 && result["gave_up_s"].is_f64());
    }
}

#[test]
fn a_file_that_cannot_be_written_ends_a_run_before_it_begins() {
    let home = Home::new();
    for command in [
        &["bench", "tcp://127.0.0.1:1"][..],
        &["bench", "versus", "tcp://127.0.0.1:1", "tcp://127.0.0.1:1"],
    ] {
        let sentence = home.refused(&[command, &["--json", "absent/result.json"]].concat());
        assert!(sentence.contains("absent/result.json"), "{sentence}");
        // A run that comes to nothing leaves the file as it was.
        std::fs::write(home.path("old.json"), "old").unwrap();
        for name in ["old.json", "new.json"] {
            let output = home.run(&[command, &["--json", name]].concat());
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(1) && error.contains("cannot connect"), "{error}");
        }
        assert_eq!(std::fs::read(home.path("old.json")).unwrap(), b"old");
        assert!(!home.path("new.json").exists());
    }
}

#[test]
fn why_a_run_failed_is_said_though_its_result_cannot_be_written() {
    let home = Home::new();
    let server = home.serve(&["--memory", "1M", "--name", "data"]);
    let output = home.run(
        &[
            &["bench", &server.line("LISTEN"), "--workload", "echo", "--json", "/dev/full"],
            &SHORT[..],
        ]
        .concat(),
    );
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("does not have this program") && error.contains("/dev/full"), "{error}");
}

#[test]
fn the_second_signal_leaves_at_once() {
    let home = Home::new();
    let (server, [url, _]) = echo(&home);
    let bench = Bench::endless(&home, &[&url]);
    // A stopped server sends no replies: calls to it wait for long.
    server.signal(Signal::STOP);
    bench.wait_for_silence();
    bench.signal(Signal::INT);
    bench.wait_until_taken(Signal::INT);
    bench.signal(Signal::INT);
    let output = bench.output();
    server.signal(Signal::CONT);
    assert_eq!(output.status.code(), Some(130));
    // A run that ends in order writes its result.
    assert!(output.stdout.is_empty(), "the first signal ended the run");
}

#[test]
fn results_are_compared_by_exit_code() {
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let mut one = measured(&home, &[url.as_str(), "--warm-up", "0", "--duration", "0.3"]);
    // Seconds as a longer run has them, the second run's a fifth slower.
    let seconds = |p50: f64| {
        let second = |number: u64| {
            serde_json::json!({
                "second": number, "calls": 1_000 + number, "octets": 0, "failed": 0,
                "response_max_us": 99.0, "lag_max_us": 0.0,
                "response_p50_us": p50 + number as f64 / 10.0,
            })
        };
        (0..8).map(second).collect::<Vec<_>>()
    };
    one["elapsed_s"] = 8.0.into();
    one["host"]["floors_ns"] = serde_json::json!([100.0, 110.0]);
    let write = |name: &str, mut value: Value, p50: f64, floor: f64| {
        value["seconds"] = seconds(p50).into();
        value["host"]["floors_ns"][1] = floor.into();
        std::fs::write(home.path(name), value.to_string()).unwrap();
    };
    write("before", one.clone(), 10.0, 110.0);
    write("slower", one.clone(), 12.0, 110.0);
    write("elsewhere", one, 12.0, 400.0);
    let code = |arguments: &[&str]| {
        let output = home.run(&[&["bench", "compare"], arguments].concat());
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(code(&["before", "before"]).0, Some(0));
    assert_eq!(code(&["slower", "before"]).0, Some(0));
    let (worse, table, sentence) = code(&["before", "slower"]);
    assert!(worse == Some(1) && sentence.contains("slower is slower"), "{sentence}");
    let row = table.lines().find(|line| line.starts_with("response p50")).unwrap();
    assert!(row.ends_with("worse") && row.contains("+19."), "{table}");
    assert_eq!(code(&["before", "slower", "--noise", "30"]).0, Some(0));
    let (refused, _, sentence) = code(&["before", "elsewhere"]);
    assert!(refused == Some(3) && sentence.contains("--interleaved"), "{sentence}");
    assert_eq!(code(&["before", "elsewhere", "--interleaved"]).0, Some(1));
    assert!(home.refused(&["bench", "compare", "before", "absent"]).contains("absent"));
}

#[test]
fn two_servers_are_measured_in_turns() {
    let home = Home::new();
    let (_server, [shm, tcp]) = echo(&home);
    let nfs = home.serve(&["--memory", "1M", "--name", "data"]);
    let gateway = nfs.line("LISTEN");
    // No change is above this noise, so that the host decides nothing but whether rounds count.
    let short = [
        "--rounds",
        "3",
        "--alpha",
        "0.3",
        "--noise",
        "1000000",
        "--warm-up",
        "0",
        "--duration",
        "0.05",
    ];
    let more = ["--workload", "echo", "--size", "100", "--json", "versus.json"];
    let output = home.run(&[&["bench", "versus", &shm, &tcp], &short[..], &more].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    let value = support::json(&home.path("versus.json"));
    match output.status.code() {
        Some(0) => {
            let rate = value["ratios"].as_array().unwrap().last().unwrap();
            assert_eq!((&value["worse"], &rate["rounds"]), (&false.into(), &3.into()));
        }
        code => assert!(code == Some(3) && error.contains("rounds can be used"), "{error}"),
    }
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains(&format!("A {shm}")) && table.contains(&format!("B {tcp}")), "{table}");
    assert_eq!(value["rounds"].as_array().unwrap().len(), 3);
    let [one, other] = [&value["results"][0], &value["results"][1]];
    assert_eq!((&one["setup"]["workload"], &one["turns"]), (&"echo".into(), &other["turns"]));
    assert!(one["calls"].as_u64().unwrap() > 0 && one["turns"].is_string());
    // Of the same turns, so the floors are no reason; but there is no whole second.
    let output = home.run(&["bench", "compare", "versus.json"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && error.contains("0 whole seconds"), "{error}");
    assert!(home.run(&["bench", "report", "versus.json", "--html", "page.html"]).status.success());

    let output = home.run(&[&["bench", "versus", &shm, &gateway], &short[..], &more[..4]].concat());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(3) && error.contains("calls of the second server failed"),
        "{error}"
    );
    for (arguments, part) in [
        (&[shm.as_str()][..], "URL_A URL_B"),
        (&[&shm, &tcp, "--size", "1K,2K", "--workload", "echo"], "give one --size"),
        (&[&shm, &tcp, "--slo", "p50=1"], "no --slo"),
        (&[&shm, &tcp, "--rounds", "7"], "give at least 8"),
        (&[&shm, &tcp, "--alpha", "2"], "no probability"),
        (&[&shm, &tcp, "--workload", "nfs3:read"], "needs an export"),
    ] {
        let sentence = home.refused(&[&["bench", "versus"], arguments].concat());
        assert!(sentence.contains(part), "{sentence}");
    }
    std::fs::write(home.path("versus.toml"), "workload = 'pull'\nrounds = 3\n").unwrap();
    let sentence = home.refused(&["bench", "versus", &shm, &tcp, "--job", "versus.toml"]);
    assert!(sentence.contains("nothing is called \"rounds\" here"), "{sentence}");
    std::fs::write(home.path("versus.toml"), "workload = 'pull'\nsize = 10\n").unwrap();
    let more = ["--job", "versus.toml", "--json", "-"];
    let output = home.run(&[&["bench", "versus", &shm, &tcp], &short[..], &more].concat());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let setup = &value["results"][0]["setup"];
    assert_eq!((&setup["workload"], &setup["size"]), (&"pull".into(), &10.into()));
}

#[test]
fn a_line_is_printed_as_perftest_does() {
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let output = home.run(&[&["bench", &url, "--perftest-compat"], &SHORT[..]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(
        table.contains("HALF of the full round trips") && table.contains(" #bytes #iterations "),
        "{table}"
    );
}

#[test]
fn a_job_file_is_overridden_by_the_command_line() {
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let job = format!(
        "url = '{url}'\nworkload = 'push'\nsize = 100\ncalls = 50\nwarm-up = 0\ndepth = 2\n"
    );
    std::fs::write(home.path("job.toml"), job).unwrap();
    let result = measured(&home, &["--job", "job.toml", "--size", "300"]);
    let setup = &result["setup"];
    assert_eq!(
        (&setup["workload"], setup["size"].as_u64(), setup["depth"].as_u64()),
        (&"push".into(), Some(300), Some(2))
    );
    assert_eq!(result["calls"], 50);
    std::fs::write(home.path("odd.toml"), "depht = 2").unwrap();
    let sentence = home.refused(&["bench", "--job", "odd.toml"]);
    assert!(
        sentence.contains("odd.toml: nothing is called \"depht\" here, only url, workload"),
        "{sentence}"
    );
    std::fs::write(home.path("odd.toml"), "depth = 'x'").unwrap();
    assert!(home.refused(&["bench", "--job", "odd.toml"]).contains("--depth"));
}

#[test]
fn the_highest_rate_is_looked_for_and_all_runs_are_reported() {
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let slo = [
        "--slo",
        "p50=1",
        "--rate",
        "200",
        "--warm-up",
        "0",
        "--duration",
        "0.2",
        "--json",
        "runs.json",
    ];
    let output = home.run(&[&["bench", &url], &slo[..]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && table.contains("p50"), "{table}");
    let forms = ["--html", "page.html", "--format", "fio"];
    let output = home.run(&[&["bench", "report", "runs.json"], &forms[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fio: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!fio["jobs"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(home.path("page.html")).unwrap().ends_with("</html>\n"));
    assert!(home.refused(&["bench", "report", "runs.json"]).contains("--html"));
}

/// The samples of each stage, by its name.
fn samples(stages: &Value) -> Vec<(&str, u64)> {
    let stages = stages.as_array().unwrap().iter();
    stages
        .map(|stage| (stage["stage"].as_str().unwrap(), stage["samples"].as_u64().unwrap()))
        .collect()
}

#[test]
fn the_time_of_calls_is_shown_by_stage_here_and_at_the_server() {
    let home = Home::new();
    let (mut server, urls) = echo(&home);
    let iwarp = Server::start(&home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]));
    // Over TCP nothing is pulled or pushed: a record is whole when its call begins.
    for (url, chunks) in [(&urls[0], 1), (&urls[1], 0), (&iwarp.line("LISTEN"), 1)] {
        let more = [
            "--workload",
            "echo",
            "--size",
            "9000",
            "--warm-up",
            "0",
            "--calls",
            "640",
            "--connections",
            "2",
        ];
        let result = measured(&home, &[&[url.as_str(), "--stages"], &more[..]].concat());
        let stages = &result["stages"];
        assert_eq!((&stages["every"], &stages["unasked"]), (&64.into(), &Value::Null), "{url}");
        let client = ["queue", "emit", "send", "reply", "verify"].map(|stage| (stage, 10));
        assert_eq!(samples(&stages["client"]), client);
        // Those of the warm-up, too.
        let server = samples(&stages["server"]["stages"]);
        let (first, all) = server[0];
        assert!(first == "recv" && all >= 10, "{url}: {server:?}");
        let calls = |stage| if matches!(stage, "pull" | "push") { all * chunks } else { all };
        let expected = ["recv", "parse", "pull", "app", "emit", "push", "send"];
        assert_eq!(server, expected.map(|stage| (stage, calls(stage))), "{url}");
        assert_eq!(
            (&stages["server"]["every"], &stages["server"]["shards"]),
            (&64.into(), &1.into())
        );
    }
    let table = home.run(&[&["bench", &urls[0], "--stages"], &SHORT[..]].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    let tables = table.lines().skip(1).filter(|line| !line.starts_with("note: "));
    for line in tables.filter(|line| !line.contains("shm://") && !line.starts_with("host: ")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let row = |name: &str| table.lines().position(|line| line.starts_with(name)).unwrap();
    assert!(
        row("queue") < row("verify") && row("verify") < row("recv") && row("recv") < row("app"),
        "{table}"
    );
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let said = server.err();
    assert!(said.contains("stages, 1 call in 64\n") && said.contains("\nparse "), "{said}");
}

#[test]
fn a_gateway_tells_its_stages_when_it_may_and_counts_them_in_any_case() {
    let home = Home::new();
    let url = |server: &Server| format!("{}/data", server.line("LISTEN"));
    let run = |url: &str| {
        let more =
            ["--workload", "nfs3:read", "--file-size", "64K", "--warm-up", "0", "--calls", "256"];
        measured(&home, &[&[url, "--stages"], &more[..]].concat())["stages"].clone()
    };
    let mut server = home.serve(&[
        "--memory",
        "64M",
        "--name",
        "data",
        "--stats",
        "silent.json",
        "--sample",
        "16",
    ]);
    let stages = run(&url(&server));
    assert_eq!(stages["server"], Value::Null);
    assert!(stages["unasked"].as_str().unwrap().contains("does not have this program"), "{stages}");
    assert_eq!(samples(&stages["client"])[3], ("reply", 4));
    server.signal(Signal::TERM);
    server.wait();
    let total = &support::json(&home.path("silent.json"))["total"]["stages"];
    assert!(total["every"] == 16 && total["calls"].as_u64().unwrap() >= 16, "{total}");
    assert!(
        samples(&total["stages"])
            .contains(&("push", total["stages"][5]["samples"].as_u64().unwrap()))
    );
    let open = home.serve(&["--memory", "64M", "--name", "data", "--stages", "--sample", "8"]);
    let server = &run(&url(&open))["server"];
    let (name, watched) = samples(&server["stages"])[3];
    assert!(server["every"] == 8 && name == "app" && watched >= 32, "{server}");
    let off = home.serve(&["--memory", "64M", "--name", "data", "--stages", "--sample", "0"]);
    assert!(run(&url(&off))["unasked"].as_str().unwrap().contains("watches no calls"));
}

#[test]
fn a_live_view_gives_the_terminal_back_however_it_ends() {
    use rustix::termios::{LocalModes, tcgetattr};
    use std::io::{Read, Write};
    let [entered, left] = ["\x1b[?1049h", "\x1b[?1049l"];
    let home = Home::new();
    let (_server, [url, _]) = echo(&home);
    let run = |seconds| ["bench", &url, "--top", "--warm-up", "0", "--duration", seconds];
    for (seconds, end, code) in
        [("1.5", None, 0), ("60", Some("q"), 130), ("60", Some("TERM"), 130)]
    {
        let (mut ours, theirs) = support::terminal();
        let before = tcgetattr(&theirs).unwrap().local_modes;
        let mut command = home.stag(&run(seconds));
        let [input, out, err] = [(); 3].map(|()| Stdio::from(theirs.try_clone().unwrap()));
        let mut child = command.stdin(input).stdout(out).stderr(err).spawn().unwrap();
        let mut seen = Vec::new();
        let mut shows = |words: &str| {
            let _ = ours.read_to_end(&mut seen);
            String::from_utf8_lossy(&seen).contains(words)
        };
        support::wait_for("the view", || shows(entered) && shows("q or Ctrl-C ends the run"));
        let raw = tcgetattr(&theirs).unwrap().local_modes;
        support::wait_for("a second", || shows("measured 1 s") || shows(left));
        let keys = before & (LocalModes::ICANON | LocalModes::ECHO);
        assert!(!raw.intersects(keys) || shows(left), "the terminal is not the view's");
        match end {
            Some("q") => ours.write_all(b"q").unwrap(),
            Some(_) => kill_process(Pid::from_child(&child), Signal::TERM).unwrap(),
            None => {}
        }
        let mut status = None;
        support::wait_for("the end", || {
            let _ = ours.read_to_end(&mut seen);
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let _ = ours.read_to_end(&mut seen);
        let text = String::from_utf8_lossy(&seen);
        assert_eq!(status.unwrap().code(), Some(code), "{text}");
        assert_eq!(tcgetattr(&theirs).unwrap().local_modes, before, "raw mode stays");
        assert_eq!([entered, left].map(|word| text.matches(word).count()), [1, 1], "{text}");
        let (_, behind) = text.split_once(left).unwrap();
        assert!(behind.contains("p99.99") && behind.contains("null to "), "{behind}");
    }
}
