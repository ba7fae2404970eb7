//! A server and a caller of the smallest app, in one thread.

use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Sampling, Shard, Token, clock::Clock};
use stag_iwarp::Iwarp;
use stag_shm::Shm;
use stag_verbs::{Limits, Provider};
use std::io;

/// What each end's fabric holds.
pub const LIMITS: Limits = Limits {
    connections: 16,
    send_queue: 128,
    receives: 256,
    receive_len: 4096,
    windows: 512,
    read_spans: 64,
    private_data_len: 196,
    remote_invalidation: true,
};

/// Calls that may be under way at a time.
pub const DEPTH_MAX: u64 = 32;

/// Both ends.
#[derive(Debug)]
pub struct Ends<P: Provider> {
    /// Answers.
    pub server: Shard<P, Echo>,
    /// Calls.
    pub client: Shard<P, Caller>,
    clock: Clock,
    /// Where a socket lies; gone with the value.
    _home: Option<tempfile::TempDir>,
}

fn config(sampling: Sampling) -> Config {
    Config { grant: 32, calls_max: 32, sampling, ..Config::small() }
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
    let provider = || Iwarp::new(stag_iwarp::Config::new(LIMITS, [7; 32], clock.now()));
    let at = "iwarp://127.0.0.1:0".parse().expect("an address");
    Ends::new((provider()?, provider()?), &at, (clock, every), None)
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
    let clock = Clock::start();
    let home = tempfile::tempdir()?;
    let at = stag_shm::Address::new(home.path().join("socket")).map_err(io::Error::other)?;
    let at = if trust { at.trusting() } else { at };
    let provider =
        || Shm::new(stag_shm::Config { trust, ..stag_shm::Config::new(LIMITS, [7; 32], clock.now()) });
    Ends::new((provider()?, provider()?), &at, (clock, every), Some(home))
}

impl<P: Provider> Ends<P> {
    fn new(
        (server, client): (P, P),
        at: &P::Address,
        (clock, every): (Clock, u32),
        home: Option<tempfile::TempDir>,
    ) -> io::Result<Self> {
        let admit = || Box::new(|_| true) as Box<_>;
        let watched = config(Sampling { every, clock: Some(clock), shard: 0 });
        let mut server = Shard::new(server, Echo::default(), watched, admit())?;
        let unwatched = config(Sampling::default());
        let mut client = Shard::new(client, Caller::with_capacity(64), unwatched, admit())?;
        let at = server.listen(at).map_err(io::Error::other)?;
        client.connect(&at).map_err(io::Error::other)?;
        Ok(Self { server, client, clock, _home: home })
    }

    /// One turn of both loops.
    pub fn turn(&mut self) -> bool {
        let now = self.clock.now();
        self.client.pass(now) | self.server.pass(now)
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

    /// `calls` NULL calls, or echoes of so many octets, `depth` of them at a time: the next ones go out when all of these
    /// are answered.
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
            self.client.with_app(|_, cx| {
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
