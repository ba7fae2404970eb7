//! Cost of a connection for a server that has had one NULL call over it and waits for the next.
//!
//! Three processes, because what is measured is all memory of one of them: this one raises the
//! limit of descriptors and starts the client, which starts the server. Each is this test again,
//! distinguished by [`ROLE`].
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard, Token, clock::Clock};
use stag_iwarp::{Iwarp, IwarpAddress};
use stag_verbs::Limits;
use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const ROLE: &str = "STAG_BENCH_IDLE_ROLE";
const TEST: &str = "an_idle_connection_costs_at_most_a_page_of_server_memory";
const CONNECTIONS: usize = 1_000;
/// Calls over one connection beforehand, so that code and pools are in memory.
const WARM: u64 = 2_000;
const OCTETS_MAX: usize = 4_096;
const PATIENCE: Duration = Duration::from_secs(30);

/// As many Reads and work requests as a server of files allows.
const LIMITS: Limits = Limits {
    connections: CONNECTIONS + 24,
    send_queue: 256,
    read_spans: 64,
    windows: 2_048,
    receives: 4_096,
    ..stag_sim::LIMITS
};

fn config() -> Config {
    Config {
        grant_first: 2,
        calls_max: 1,
        receives: 4_096,
        peers: CONNECTIONS + 24,
        inbound: 4_096,
        outbound: 1_024,
        slots: [1_024, 16, 16],
        ..Config::default()
    }
}

fn fabric(seed: u8, clock: Clock) -> Iwarp {
    Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [seed; 32], clock.now())).unwrap()
}

/// Serves until its standard input ends.
fn serve() {
    let clock = Clock::start();
    let mut shard =
        Shard::new(fabric(1, clock), Echo::default(), config(), Box::new(|_| true)).unwrap();
    println!("at {}", shard.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap());
    let (control, handle) = stag_engine::control::pair().unwrap();
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        handle.tell(stag_engine::control::Command::Stop);
    });
    shard.run(&control, move || clock.now()).unwrap();
}

struct Client {
    shard: Shard<Iwarp, Caller>,
    clock: Clock,
}

impl Client {
    fn pass_until(&mut self, mut done: impl FnMut(&Shard<Iwarp, Caller>) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(&self.shard) {
            if !self.shard.pass(self.clock.now()) {
                thread::yield_now();
            }
            assert!(Instant::now() < deadline, "{} peers are up", self.shard.app().peers().len());
        }
    }

    /// Connects once more and calls NULL over that connection `calls` times.
    fn connect_and_call(&mut self, at: IwarpAddress, calls: u64) {
        let known = self.shard.app().peers().len();
        let peer = self.shard.connect(&at).unwrap();
        self.pass_until(|shard| shard.app().peers().len() > known);
        for call in 0..calls {
            assert!(self.shard.with_app(|_, cx| Caller::call(cx, peer, Token(call), None)));
            self.pass_until(|shard| shard.calls_in_progress().1 == 0);
            let done = self.shard.with_app(|app, _| app.take()).unwrap();
            assert!(done.echo.is_ok(), "{done:?}");
        }
    }
}

/// Octets of memory that process `pid` has touched, pools included; and how much of it is
/// transparent huge pages.
fn memory_of(pid: u32) -> (usize, usize) {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let octets = |name: &str| {
        let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
    (octets("Rss:"), octets("AnonHugePages:"))
}

/// Octets of kernel memory in TCP's buffers, of all sockets of this host.
fn kernel_memory() -> usize {
    let sockstat = fs::read_to_string("/proc/net/sockstat").unwrap();
    let tcp = sockstat.lines().find(|line| line.starts_with("TCP:")).unwrap();
    tcp.split_whitespace().last().unwrap().parse::<usize>().unwrap() * 4_096
}

/// This test again, in `role`.
fn again(role: &str) -> Command {
    // The shell raises its own soft limit, and with it the test's.
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -n "$(ulimit -Hn)"; exec "$0" --exact "$1" --nocapture"#]);
    command.arg(env::current_exe().unwrap()).arg(TEST).env(ROLE, role);
    command
}

/// The server's process, ended with the client's.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn start_server() -> (Server, IwarpAddress) {
    let mut child = again("server").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let at =
        lines.find_map(|line| Some(line.unwrap().split_once("at iwarp")?.1.to_owned())).unwrap();
    // The final output of the test harness is drained.
    thread::spawn(move || lines.for_each(drop));
    (Server(child), format!("iwarp{at}").parse().unwrap())
}

fn measure() {
    let (server, at) = start_server();
    let clock = Clock::start();
    let caller = Caller::with_capacity(8);
    let shard = Shard::new(fabric(2, clock), caller, config(), Box::new(|_| true)).unwrap();
    let mut client = Client { shard, clock };
    client.connect_and_call(at, WARM);
    let (before, kernel_before) = (memory_of(server.0.id()), kernel_memory());
    for _ in 0..CONNECTIONS {
        client.connect_and_call(at, 1);
    }
    let (after, kernel_after) = (memory_of(server.0.id()), kernel_memory());
    let each = |before: usize, after: usize| after.saturating_sub(before) / CONNECTIONS;
    let own = each(before.0, after.0);
    println!(
        "an idle connection: {own} octets of the server's memory; kernel: {} in the buffers of \
         both ends",
        each(kernel_before, kernel_after),
    );
    println!("the server has {} KiB in all, {} KiB of them huge", after.0 / 1024, after.1 / 1024);
    // Where the kernel gives huge pages unasked, the last one may be mostly empty.
    let slack = if after.1 > before.1 { (2 << 20) / CONNECTIONS } else { 0 };
    assert!(own <= OCTETS_MAX + slack, "{own} octets");
    assert_eq!(client.shard.app().peers().len(), CONNECTIONS + 1, "they are all connected");
}

#[test]
fn an_idle_connection_costs_at_most_a_page_of_server_memory() {
    match env::var(ROLE).as_deref() {
        Ok("server") => serve(),
        Ok("client") => measure(),
        _ => assert!(again("client").status().unwrap().success(), "see the client's words above"),
    }
}
