//! Calls in both directions at once, over iWARP through a relay that is cut again and again, and
//! over shared memory: every call comes back once, whatever its connection, and nothing is kept.
//!
//! A longer run: `STAG_CALLS=200000 cargo test --release -p stag-bench --test costs both_ways`.

use stag_echo::{Caller, Twin};
use stag_engine::{Config, PeerId, Shard, Token, clock::Clock};
use stag_iwarp::Iwarp;
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_shm::Shm;
use stag_verbs::{Limits, Provider};
use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const NAME: u32 = 1;
/// Calls between two cuts, in both directions together.
const CUT_EVERY: u64 = 400;
/// Calls of one end that are in flight or queued.
const DEPTH: usize = 12;

fn calls() -> u64 {
    std::env::var("STAG_CALLS").map_or(2_000, |calls| calls.parse().unwrap())
}

/// Versions that an end calls by, and the lengths of its calls.
type Speaks = (Versions, &'static [usize]);

/// Passes TCP connections on to a server until it is asked to cut them.
struct Relay {
    at: SocketAddr,
    passing: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self { at: listener.local_addr().unwrap(), passing: Arc::default() };
        let passing = Arc::clone(&relay.passing);
        // It waits in `accept` until the process ends.
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    from.set_nodelay(true).unwrap();
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                passing.lock().unwrap().extend([near, far]);
            }
        });
        relay
    }

    fn cut(&self) {
        for stream in self.passing.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

struct End<P: Provider> {
    shard: Shard<P, Twin>,
    windows: fn(&P) -> usize,
    sizes: &'static [usize],
    open: BTreeMap<u64, Vec<u8>>,
    called: u64,
}

impl<P: Provider> End<P> {
    fn new(
        app: Twin,
        (provider, windows): (P, fn(&P) -> usize),
        (versions, sizes): Speaks,
    ) -> Self {
        let config = Config {
            call_versions: versions,
            grant: 16,
            calls_max: 16,
            reverse_grant: 8,
            reverse_calls_max: 8,
            slots: [512, 32, 32],
            ..Config::small()
        };
        let shard = Shard::new(provider, app, config, Box::new(|_| true)).unwrap();
        Self { shard, windows, sizes, open: BTreeMap::new(), called: 0 }
    }

    /// Takes what came, and calls on. Returns how many calls came back.
    fn turn(&mut self, peer: Option<PeerId>) -> u64 {
        let mut done = 0;
        while let Some(outcome) = self.shard.with_app(|app, _| app.caller().take()) {
            let echo = outcome.echo.unwrap_or_else(|fault| panic!("{:?}: {fault}", outcome.token));
            if outcome.token != Twin::REGISTRATION {
                let octets = self.open.remove(&outcome.token.0).expect("no call ends twice");
                assert!(echo.unwrap()[..] == octets, "{:?} got another reply", outcome.token);
                done += 1;
            }
        }
        let windows = (self.windows)(self.shard.provider());
        assert!(windows <= 2 * self.open.len(), "{windows} keys outlive their calls");
        while let Some(peer) = peer.filter(|_| self.open.len() < DEPTH && self.called < calls()) {
            let len = self.sizes[self.called as usize % self.sizes.len()];
            let octets: Vec<u8> = (0..len).map(|i| (i / 5) as u8 ^ self.called as u8).collect();
            let token = Token(self.called);
            assert!(self.shard.with_app(|_, cx| Caller::call(cx, peer, token, Some(&octets))));
            self.open.insert(self.called, octets);
            self.called += 1;
        }
        done
    }
}

/// Both ends call until every call came back; `cut` breaks their connection. Returns how many
/// connections there were.
fn run<P: Provider>(
    (mut server, mut client): (End<P>, End<P>),
    up: PeerId,
    clock: &Clock,
    mut cut: impl FnMut(),
) -> u64 {
    let (mut done, mut cut_at, mut moved_at) = (0, CUT_EVERY, Instant::now());
    while done < 2 * calls() {
        let down = server.shard.app().client(NAME);
        let came = client.turn(Some(up)) + server.turn(down);
        if came > 0 {
            (done, moved_at) = (done + came, Instant::now());
        }
        assert!(moved_at.elapsed() < Duration::from_secs(60), "{done} calls, and no more");
        if done >= cut_at {
            cut_at = done + CUT_EVERY;
            cut();
        }
        if !(server.shard.pass(clock.now()) | client.shard.pass(clock.now())) {
            thread::yield_now();
        }
    }
    let down = server.shard.app().client(NAME).unwrap();
    client.shard.with_app(|_, cx| cx.disconnect(up));
    server.shard.with_app(|_, cx| cx.disconnect(down));
    while client.shard.receives_promised() + server.shard.receives_promised() > 0 {
        assert!(moved_at.elapsed() < Duration::from_secs(60), "connections end");
        server.shard.pass(clock.now());
        client.shard.pass(clock.now());
    }
    let lost: u64 = client.shard.snapshot().engine.disconnects.values().sum();
    for (name, end) in [("client", &client), ("server", &server)] {
        let shard = &end.shard;
        assert_eq!((shard.buffers_in_use(), shard.calls_in_progress()), (0, (0, 0)), "{name}");
        assert_eq!(((end.windows)(shard.provider()), shard.receives_promised()), (0, 0), "{name}");
        println!("{name}: {:?}", shard.snapshot().engine.requester);
    }
    println!("{done} calls, {lost} connections");
    lost
}

const FORWARD: &[usize] = &[0, 900, 3_000, 9_000, 200_000];
const CHUNKED: &[usize] = &[0, 900, 3_000, 9_000, 100_000];

fn over_iwarp(versions: Versions, reverse: &'static [usize]) {
    let clock = Clock::start();
    let provider =
        || Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now())).unwrap();
    let end = |app, sizes| End::new(app, (provider(), Iwarp::windows_bound), (versions, sizes));
    let (mut server, mut client) = (end(Twin::default(), reverse), end(Twin::named(NAME), FORWARD));
    let at = server.shard.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
    let relay = Relay::new(at.to_string().trim_start_matches("iwarp://").parse().unwrap());
    let up =
        client.shard.keep_connected(&format!("iwarp://{}", relay.at).parse().unwrap()).unwrap();
    let lost = run((server, client), up, &clock, || relay.cut());
    assert!(lost >= calls() / CUT_EVERY, "{lost} connections were lost");
}

#[test]
fn version_1_carries_calls_both_ways_over_connections_that_are_cut() {
    over_iwarp(Versions::One, &[0, 100, 900, 3_900]);
}

#[test]
fn version_2_carries_calls_with_chunks_both_ways_over_connections_that_are_cut() {
    over_iwarp(Versions::Two(Version2::Directed), CHUNKED);
}

#[test]
fn shared_memory_carries_calls_with_chunks_both_ways() {
    let clock = Clock::start();
    let home = tempfile::tempdir().unwrap();
    let at = stag_shm::ShmAddress::new(home.path().join("socket")).unwrap();
    let provider = || Shm::new(stag_shm::ShmConfig::new(LIMITS, [7; 32], clock.now())).unwrap();
    let versions = Versions::Both(Version2::Directed);
    let end = |app, sizes| End::new(app, (provider(), Shm::windows_bound), (versions, sizes));
    let (mut server, mut client) = (end(Twin::default(), CHUNKED), end(Twin::named(NAME), FORWARD));
    let at = server.shard.listen(&at).unwrap();
    let up = client.shard.keep_connected(&at).unwrap();
    assert_eq!(run((server, client), up, &clock, || {}), 1);
}
