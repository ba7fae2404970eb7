//! A server and a caller of the smallest app, in one thread.

use stag_echo::{Caller, Echo};
use stag_engine::{App, Config, PeerId, Sampling, Shard, Token, clock::Clock};
use stag_iwarp::Iwarp;
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_shm::Shm;
use stag_verbs::{Limits, Provider, Time};
use std::{io, time::Duration};

/// Limits of each end's fabric.
pub const LIMITS: Limits = Limits {
    connections: 16,
    send_queue: 128,
    receives: 256,
    receives_each: None,
    receive_len: 4096,
    windows: 512,
    read_spans: 64,
    private_data_len: 196,
    sends_invalidation: true,
    bears_invalidation: true,
};

/// Calls that may be in flight at a time.
pub const DEPTH_MAX: u64 = 32;

/// Both ends.
#[derive(Debug)]
pub struct Ends<P: Provider, S: App = Echo> {
    /// Answers.
    pub server: Shard<P, S>,
    /// Calls.
    pub client: Shard<P, Caller>,
    clock: Clock,
    /// Time of the latest turn.
    turned: Time,
    /// Directory of the socket; removed with the value.
    _home: Option<tempfile::TempDir>,
}

/// Settings of both ends.
#[derive(Debug)]
struct EndsSetup {
    clock: Clock,
    /// The server samples one call in this many; 0 for none.
    every: u32,
    /// The versions of RPC-over-RDMA that both ends speak.
    versions: Versions,
    home: Option<tempfile::TempDir>,
}

impl EndsSetup {
    fn new(clock: Clock) -> Self {
        Self { clock, every: 0, versions: Versions::One, home: None }
    }

    fn config(&self, sampling: Sampling) -> Config {
        Config {
            grant: 32,
            calls_max: 32,
            sampling,
            serve_versions: self.versions,
            call_versions: self.versions,
            ..Config::small()
        }
    }
}

/// Two ends on the software RNIC over loopback.
///
/// # Errors
/// As sockets and `mmap(2)` fail.
pub fn iwarp() -> io::Result<Ends<Iwarp>> {
    iwarp_watched(0)
}

/// The same, where the server watches one call in `every` from stage to stage.
///
/// # Errors
/// As [`iwarp`].
pub fn iwarp_watched(every: u32) -> io::Result<Ends<Iwarp>> {
    let clock = Clock::start();
    let provider = || Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now()));
    let at = "iwarp://127.0.0.1:0".parse().expect("an address");
    let setup = EndsSetup { every, ..EndsSetup::new(clock) };
    Ends::new(provider()?, provider()?, &at, Echo::default(), setup)
}

/// Two ends that share memory, isolated or trusting each other.
///
/// # Errors
/// As sockets and `mmap(2)` fail.
pub fn shm(trust: bool) -> io::Result<Ends<Shm>> {
    shm_watched(trust, 0)
}

/// The same, where the server watches one call in `every` from stage to stage.
///
/// # Errors
/// As [`shm`].
pub fn shm_watched(trust: bool, every: u32) -> io::Result<Ends<Shm>> {
    shm_as(trust, |setup| setup.every = every)
}

/// Two ends that share memory and speak version 2, in this dialect.
///
/// # Errors
/// As [`shm`].
pub fn shm_two(two: Version2) -> io::Result<Ends<Shm>> {
    shm_as(false, |setup| setup.versions = Versions::Two(two))
}

/// Two ends that share memory, isolated, with this app as server.
///
/// # Errors
/// As [`shm`].
pub fn shm_serving<S: App>(app: S) -> io::Result<Ends<Shm, S>> {
    shm_of(false, app, |_| ())
}

/// Interval at which the sockets are polled. With the usual millisecond a call costs several
/// hundredths more where the host is slow or busy, as it is under callgrind. Longer than most
/// counted parts take; connecting waits for it.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

fn shm_as(trust: bool, change: impl FnOnce(&mut EndsSetup)) -> io::Result<Ends<Shm>> {
    shm_of(trust, Echo::default(), change)
}

fn shm_of<S: App>(
    trust: bool,
    app: S,
    change: impl FnOnce(&mut EndsSetup),
) -> io::Result<Ends<Shm, S>> {
    let clock = Clock::start();
    let home = tempfile::tempdir()?;
    let at = stag_shm::ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
    let at = if trust { at.trusting() } else { at };
    let provider = || {
        Shm::new(stag_shm::ShmConfig {
            trust,
            look_interval: LOOK_INTERVAL,
            ..stag_shm::ShmConfig::new(LIMITS, [7; 32], clock.now())
        })
    };
    let mut setup = EndsSetup { home: Some(home), ..EndsSetup::new(clock) };
    change(&mut setup);
    Ends::new(provider()?, provider()?, &at, app, setup)
}

impl<P: Provider, S: App> Ends<P, S> {
    fn new(server: P, client: P, at: &P::Address, app: S, setup: EndsSetup) -> io::Result<Self> {
        let admit = || Box::new(|_| true) as Box<_>;
        let (clock, every) = (setup.clock, setup.every);
        let watched = setup.config(Sampling { every, clock: Some(clock), ..Sampling::default() });
        let mut server = Shard::new(server, app, watched, admit())?;
        let unwatched = setup.config(Sampling::default());
        let mut client = Shard::new(client, Caller::with_capacity(64), unwatched, admit())?;
        let at = server.listen(at).map_err(io::Error::other)?;
        client.connect(&at).map_err(io::Error::other)?;
        let turned = clock.now();
        Ok(Self { server, client, clock, turned, _home: setup.home })
    }

    /// One turn of both loops.
    pub fn turn(&mut self) -> bool {
        self.turned = self.clock.now();
        self.client.pass(self.turned) | self.server.pass(self.turned)
    }

    /// Waits for the connection. The peer that the client calls.
    pub fn meet(&mut self) -> PeerId {
        loop {
            if let Some(peer) = self.client.app().peers().first() {
                return *peer;
            }
            if !self.turn() {
                std::thread::yield_now();
            }
        }
    }

    /// Makes `calls` NULL calls, or echoes of `octets` octets, `depth` of them at a time: the next
    /// ones go out when all of these are answered.
    ///
    /// # Panics
    /// When a call fails or an echo is not as long as what was sent.
    pub fn calls(&mut self, calls: u64, octets: Option<usize>, depth: u64) {
        let peer = self.meet();
        let payload = vec![0x5a; octets.unwrap_or(0)];
        let payload = octets.map(|_| payload.as_slice());
        let mut called = 0;
        while called < calls {
            let until = calls.min(called + depth);
            let mut waiting = until - called;
            self.client.with_app_at(self.turned, |_, cx| {
                while called < until {
                    assert!(Caller::call(cx, peer, Token(called), payload), "no memory");
                    called += 1;
                }
            });
            while waiting > 0 {
                self.turn();
                while let Some(outcome) = self.client.with_app(|app, _| app.take()) {
                    let echo = outcome.echo.expect("no call fails");
                    assert_eq!(echo.map(|echo| echo.len()), octets);
                    waiting -= 1;
                }
            }
        }
    }
}
