//! Memory that an idle connection costs its server, beyond the pools: resident octets before and
//! after 4,000 connections, each of which made a call and then keeps silent. The callers are
//! another process, so that none of their memory is counted.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard, Token, clock::Clock};
use stag_iwarp::Iwarp;
use stag_shm::Shm;
use stag_verbs::{Limits, Provider};
use std::{
    fs,
    io::{BufRead, BufReader, Write, stdin, stdout},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// Connections that have touched what all share, before anything is counted.
const FIRST: usize = 64;
const COUNTED: usize = 4_000;
/// Connections that are set up at a time.
const WAVE: usize = 16;
/// Descriptors that a process has in addition to its connections.
const OTHERS: u64 = 200;
/// Only a hang takes that long, and ends by it.
const PATIENCE: Duration = Duration::from_secs(100);
/// Environment of the callers' process, with the address to call, and of the server's process,
/// with the fabric to serve on.
const CALLED: &str = "STAG_IDLE_CONNECTIONS_AT";
const SERVED: &str = "STAG_IDLE_CONNECTIONS_ON";
/// Words that the server prints after its figure.
const COST: &str = " octets for each idle connection";

const LIMITS: Limits = Limits {
    connections: FIRST + COUNTED,
    send_queue: 128,
    receives: 8_192,
    receives_each: None,
    receive_len: 4_096,
    windows: 512,
    read_spans: 64,
    private_data_len: 196,
    sends_invalidation: true,
    bears_invalidation: true,
};

fn config() -> Config {
    Config {
        grant: 1,
        grant_first: 1,
        calls_max: 1,
        reverse_grant: 0,
        receives: LIMITS.receives,
        inbound: LIMITS.receives,
        peers: FIRST + COUNTED,
        slots: [1_024, 16, 16],
        ..Config::small()
    }
}

/// Raises the limit of descriptors to its maximum; returns true if this process may have a
/// descriptor for each connection.
fn has_descriptors() -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let may = maximum.is_none_or(|most| most >= (FIRST + COUNTED) as u64 + OTHERS);
    if !may {
        println!("skipped: {maximum:?} descriptors are too few (ulimit -Hn)");
    }
    may
}

/// Octets of this process that are in memory.
fn resident() -> i64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() * 1024
}

/// The process of the callers, and the lines that it says.
struct Callers {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Callers {
    fn start(fabric: &str, at: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["the_callers", "--exact", "--ignored", "--nocapture"])
            .env(CALLED, format!("{fabric} {at}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let (out, lines) = (child.stdout.take().unwrap(), said.clone());
        thread::spawn(move || listen(out, &lines));
        Self { child, said }
    }

    fn has_said(&self, line: &str) -> bool {
        self.said.lock().unwrap().iter().any(|said| said.ends_with(line))
    }

    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

fn listen(out: ChildStdout, lines: &Mutex<Vec<String>>) {
    BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .for_each(|line| lines.lock().unwrap().push(line));
}

/// Octets that each of `COUNTED` connections adds to a server.
fn cost<P: Provider>(fabric: &str, provider: P, at: &P::Address) -> i64 {
    let clock = Clock::start();
    let mut server = Shard::new(provider, Echo::default(), config(), Box::new(|_| true)).unwrap();
    let at = server.listen(at).unwrap();
    let mut callers = Callers::start(fabric, &at.to_string());
    let mut serve_until = |callers: &Callers, line: &str| {
        let until = Instant::now() + PATIENCE;
        while !callers.has_said(line) {
            assert!(Instant::now() < until, "{line:?} is not said: {:?}", callers.said);
            if !server.pass(clock.now()) {
                thread::yield_now();
            }
        }
        resident()
    };
    let before = serve_until(&callers, "first");
    callers.go_on();
    let after = serve_until(&callers, "counted");
    callers.go_on();
    let per_connection = (after - before) / COUNTED as i64;
    serve_until(&callers, "the end");
    assert!(callers.child.wait().unwrap().success());
    assert_eq!(server.snapshot().app, (FIRST + COUNTED) as u64, "each has called");
    per_connection
}

/// Octets that an idle connection costs a server over `fabric`, in a process of its own: what one
/// test has had is no memory for the next.
fn cost_alone(fabric: &str) -> Option<i64> {
    if !has_descriptors() {
        return None;
    }
    let served = Command::new(std::env::current_exe().unwrap())
        .args(["the_server", "--exact", "--ignored", "--nocapture"])
        .env(SERVED, fabric)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&served.stdout).into_owned();
    println!("{out}");
    assert!(served.status.success(), "{out}{}", String::from_utf8_lossy(&served.stderr));
    let (cost, _) = out.split_once(COST).unwrap();
    Some(cost.split_whitespace().last().unwrap().parse().unwrap())
}

#[test]
fn an_idle_connection_over_iwarp_costs_four_kibibytes_at_most() {
    let cost = cost_alone("iwarp");
    assert!(cost.is_none_or(|cost| (1..=4 << 10).contains(&cost)), "{cost:?} octets");
}

#[test]
fn an_idle_connection_in_shared_memory_costs_sixteen_kibibytes_at_most() {
    let cost = cost_alone("shm");
    assert!(cost.is_none_or(|cost| (1..=16 << 10).contains(&cost)), "{cost:?} octets");
}

/// The process of a server.
#[test]
#[ignore = "the tests above start it"]
fn the_server() {
    let Ok(fabric) = std::env::var(SERVED) else { return };
    assert!(has_descriptors());
    let now = Clock::start().now();
    let home = tempfile::tempdir().unwrap();
    let cost = match fabric.as_str() {
        "iwarp" => {
            let provider = Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [1; 32], now)).unwrap();
            cost("iwarp", provider, &"iwarp://127.0.0.1:0".parse().unwrap())
        }
        _ => {
            let at = stag_shm::ShmAddress::new(home.path().join("socket")).unwrap();
            cost("shm", Shm::new(stag_shm::ShmConfig::new(LIMITS, [1; 32], now)).unwrap(), &at)
        }
    };
    println!("{fabric}: {cost}{COST}");
}

/// Connects and calls until `until` connections have had their reply.
fn call_all<P: Provider>(
    client: &mut Shard<P, Caller>,
    at: &P::Address,
    clock: Clock,
    until: usize,
) {
    let deadline = Instant::now() + PATIENCE;
    let mut called = client.app().peers().len();
    while called < until {
        let wave = (called + WAVE).min(until);
        (called..wave).for_each(|_| assert!(client.connect(at).is_ok()));
        let (mut answered, first) = (called, called);
        while answered < wave {
            assert!(Instant::now() < deadline, "{answered} of {until} have a reply");
            if !client.pass(clock.now()) {
                thread::yield_now();
            }
            client.with_app(|app, cx| {
                while called < app.peers().len() {
                    assert!(Caller::call(cx, app.peers()[called], Token(called as u64), None));
                    called += 1;
                }
                while let Some(done) = app.take() {
                    done.echo.expect("a call of a connection that has just begun succeeds");
                    answered += 1;
                }
            });
        }
        assert_eq!(called - first, answered - first);
    }
}

fn run_callers<P: Provider>(provider: P, at: &P::Address) {
    let clock = Clock::start();
    let mut client =
        Shard::new(provider, Caller::with_capacity(64), config(), Box::new(|_| true)).unwrap();
    for (until, line) in [(FIRST, "first"), (FIRST + COUNTED, "counted")] {
        call_all(&mut client, at, clock, until);
        println!("{line}");
        stdout().flush().unwrap();
        stdin().lock().read_line(&mut String::new()).unwrap();
    }
    drop(client);
    println!("the end");
}

/// The process of the callers.
#[test]
#[ignore = "the server starts it"]
fn the_callers() {
    let Ok(called) = std::env::var(CALLED) else { return };
    let (fabric, at) = called.split_once(' ').unwrap();
    assert!(has_descriptors());
    let now = Clock::start().now();
    match fabric {
        "iwarp" => {
            let config = stag_iwarp::IwarpConfig::new(LIMITS, [2; 32], now);
            run_callers(Iwarp::new(config).unwrap(), &at.parse().unwrap());
        }
        _ => {
            let config = stag_shm::ShmConfig::new(LIMITS, [2; 32], now);
            run_callers(Shm::new(config).unwrap(), &at.parse().unwrap());
        }
    }
}
