//! Signals, too few descriptors and broken pipes: no process dies of them before it has finished
//! its work.

use crate::support::{Home, PATIENCE, Server, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_verbs::Cause;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Signals that mean nothing to a server.
const STRAYS: [Signal; 5] =
    [Signal::USR2, Signal::ALARM, Signal::VTALARM, Signal::PROF, Signal::IO];

#[test]
fn a_server_finishes_its_work_when_its_terminal_is_gone_and_outlives_stray_signals() {
    for end in [Signal::HUP, Signal::XCPU] {
        let home = Home::new();
        let mut server = home.serve(&["data", "--stats", "stats.json"]);
        for signal in STRAYS {
            server.signal(signal);
        }
        wait_for("a line for a stray signal", || {
            server.err().contains("a signal that means nothing here")
        });
        let output = home.run(&["call", &format!("{}/data", server.line("LISTEN")), "ls"]);
        assert_eq!(output.status.code(), Some(0), "it still serves: {}", server.err());
        server.signal(end);
        assert_eq!(server.wait(), Some(0), "{}", server.err());
        assert!(home.path("stats.json").exists(), "statistics are written at an end in order");
    }
}

#[test]
fn a_server_that_was_started_without_a_care_for_its_terminal_stays() {
    let home = Home::new();
    let arguments = ["serve", "data", "--listen", "iwarp://127.0.0.1:0", "--tcp", "none"];
    let mut server = Server::start(&home, home.stag_behind("trap '' HUP", &arguments));
    server.signal(Signal::HUP);
    thread::sleep(Duration::from_millis(300));
    let output = home.run(&["call", &format!("{}/data", server.line("LISTEN")), "ls"]);
    assert_eq!(output.status.code(), Some(0), "{}", server.err());
    server.signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn echo_ends_in_order_too() {
    let home = Home::new();
    let mut server = Server::start(&home, home.stag(&["echo", "--listen", "iwarp://127.0.0.1:0"]));
    for signal in STRAYS.into_iter().chain([Signal::USR1]) {
        server.signal(signal);
    }
    thread::sleep(Duration::from_millis(200));
    server.signal(Signal::HUP);
    assert_eq!(server.wait(), Some(0), "{}", server.err());
}

#[test]
fn a_server_outlives_whoever_read_what_it_says() {
    let home = Home::new();
    let mut command =
        home.stag(&["serve", "data", "--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"]);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut lines = BufReader::new(err).lines();
    let _ = lines.next();
    // From here on its standard error has no reader: the rest of its introduction and every log
    // line meet a broken pipe.
    drop(lines);
    let mut url = String::new();
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if let Some(at) = line.strip_prefix("LISTEN ") {
            url = format!("{at}/data");
        }
        if line == "END" {
            break;
        }
    }
    let output = home.run(&["call", &url, "ls"]);
    assert_eq!(output.status.code(), Some(0), "{url}: {}", String::from_utf8_lossy(&output.stderr));
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(end(&mut child), Some(0));
}

fn end(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_for("the end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

#[test]
fn a_functional_run_that_is_stopped_removes_its_directory() {
    let home = Home::new();
    let server = home.serve(&["data"]);
    let url = format!("{}/data", server.line("LISTEN"));
    for signal in [Signal::INT, Signal::HUP] {
        let mut command = home.stag(&["check", &url, "--entries", "99999"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = out.lines();
        lines
            .find(|line| line.as_ref().unwrap().starts_with("ok      workspace"))
            .unwrap()
            .unwrap();
        kill_process(Pid::from_child(&child), Signal::USR2).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let rest: Vec<_> = lines.map_while(Result::ok).collect();
        let code = end(&mut child);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(code, Some(130), "{err} {rest:?}");
        assert!(err.contains("stopped by a signal"), "{err}");
        assert_eq!(std::fs::read_dir(home.path("data")).unwrap().count(), 0, "{rest:?}");
    }
}

#[test]
fn a_filter_of_the_log_that_means_nothing_is_refused() {
    let home = Home::new();
    let sentence = "\"bogus\" is no level: write error, warn, info, debug, trace or off";
    for arguments in [&["serve", "data"][..], &["call", "iwarp://127.0.0.1:1/data", "ls"]] {
        let output = home.stag(arguments).env("STAG_LOG", "bogus").output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("stag: STAG_LOG: {sentence}")), "{err}");
    }
    let refused = home.refused(&["serve", "data", "--log", "bogus"]);
    assert!(refused.contains(&format!("--log: {sentence}")), "{refused}");
}

/// A client over iWARP that is connected and was answered.
fn client(server: &Server) -> Result<NfsClient<Iwarp>, Error> {
    let (clock, mut config) = (Clock::start(), ClientConfig::new(1));
    config.timeout = Duration::from_secs(20);
    let fabric = stag_iwarp::IwarpConfig::new(config.limits(), [1; 32], clock.now());
    let mut client =
        NfsClient::new(Iwarp::new(fabric).unwrap(), config, move || clock.now()).unwrap();
    client.connect(&server.line("LISTEN").parse().unwrap())?;
    Ok(client)
}

/// The time after which an idle connection may make room for a newcomer.
const IDLE_MIN: Duration = Duration::from_secs(10);

#[test]
fn a_server_with_few_descriptors_promises_few_connections_and_turns_the_others_away() {
    let few = "ulimit -n 64";
    for arguments in [&["echo"][..], &["serve", "--memory", "8M"]] {
        let home = Home::new();
        let ports = ["--listen", "iwarp://127.0.0.1:0", "--tcp", "127.0.0.1:0"];
        let server = Server::start(&home, home.stag_behind(few, &[arguments, &ports].concat()));
        let err = server.err();
        let notice = err
            .split("64 descriptors (ulimit -n) allow ")
            .nth(1)
            .unwrap_or_else(|| panic!("{err}"));
        let promised: usize = notice.split(' ').next().unwrap().parse().unwrap();
        assert!((4..64).contains(&promised), "{notice}");
        let (kept_from, mut kept) = (Instant::now(), Vec::new());
        for number in 0..promised {
            kept.push(
                client(&server).unwrap_or_else(|error| panic!("{number} of {promised}: {error}")),
            );
        }
        let (began, mut refused) = (Instant::now(), 0);
        for _ in 0..60 {
            match client(&server).map(drop) {
                // One that was kept has been idle for long, and has made room.
                Ok(()) => assert!(kept_from.elapsed() >= IDLE_MIN, "{}", server.err()),
                Err(error) => {
                    let rejected = Error::NotConnected(Some(Cause::Rejected));
                    assert_eq!(error, rejected, "{}", server.err());
                    refused += 1;
                }
            }
        }
        assert!(refused > 0, "no caller is turned away");
        assert!(began.elapsed() < PATIENCE, "nobody is left waiting");
        // Over TCP all are heard at once; those beyond the promise are closed.
        let at = server.line("TCP");
        let mut streams: Vec<_> = (0..60).map(|_| TcpStream::connect(&at).unwrap()).collect();
        let call =
            [0x8000_0028, 7, 0, 2, 0x2fff_fff0, 1, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        let answered = streams.iter_mut().filter_map(|stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&call).ok()?;
            stream.read_exact(&mut [0; 28]).ok()
        });
        let answered = answered.count();
        assert!(
            (4..60).contains(&answered),
            "{answered} are served, and the others know that they are not"
        );
        drop(kept);
    }
}

#[test]
fn more_connections_than_descriptors_are_refused_with_the_limit_and_the_way_out() {
    let home = Home::new();
    let arguments = ["bench", "iwarp://127.0.0.1:1", "--connections", "100"];
    let output = home.stag_behind("ulimit -n 64", &arguments).output().unwrap();
    let sentence = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{sentence}");
    assert!(
        sentence.contains("--connections 100 need ") && sentence.contains("may have 64"),
        "{sentence}"
    );
    assert!(
        sentence.contains("give --connections ") && sentence.contains(" at most"),
        "{sentence}"
    );
}
