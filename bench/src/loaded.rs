//! A server and a load generator in one thread, of which one is counted.

use crate::counted::measured;
use stag_engine::{App, Shard, clock::Clock};
use stag_load::{Load, Pace, RunSpan, To};
use stag_verbs::{Provider, Time};
use std::{cell::RefCell, fmt, io, str::FromStr};

/// Calls that are made before counting starts.
const WARM_UP: u64 = 512;

/// End of the connection whose work is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedSide {
    /// The loop that answers.
    Server,
    /// The loop that calls: the generator, and its shard.
    Client,
}

impl FromStr for CountedSide {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "server" => Ok(Self::Server),
            "client" => Ok(Self::Client),
            _ => Err("write server or client"),
        }
    }
}

/// Both ends, connected.
pub struct LoadEnds<P: Provider, S: App> {
    server: Shard<P, S>,
    load: Load<P>,
    clock: Clock,
}

impl<P: Provider, S: App> fmt::Debug for LoadEnds<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadEnds").field("load", &self.load).finish_non_exhaustive()
    }
}

impl<P: Provider, S: App> LoadEnds<P, S> {
    /// Connects the generator to the server, which listens at `at`.
    ///
    /// # Errors
    /// The connection, or the session of version 4, cannot be made.
    pub fn connect(
        mut server: Shard<P, S>,
        at: &P::Address,
        mut load: Load<P>,
        clock: Clock,
    ) -> io::Result<Self> {
        let at = server.listen(at).map_err(io::Error::other)?;
        load.connect(&To::Fabric(at)).map_err(io::Error::other)?;
        while !load.is_connected().map_err(io::Error::other)? {
            let now = clock.now();
            if !(load.step(now) | server.pass(now)) {
                std::thread::yield_now();
            }
        }
        // Sessions are made in a loop that reads the clock in every turn: the server, in the same
        // thread, runs there.
        let server = RefCell::new(server);
        let now = || {
            let now = clock.now();
            server.borrow_mut().pass(now);
            now
        };
        load.begin_sessions([1; 16], now, || false).map_err(io::Error::other)?;
        let server = server.into_inner();
        Ok(Self { server, load, clock })
    }

    /// Makes `calls`, of which callgrind counts the work of `side`, including passes that find
    /// nothing.
    ///
    /// # Errors
    /// A call failed.
    pub fn run(mut self, side: CountedSide, calls: u64) -> io::Result<()> {
        // Warms up all memory that a call touches.
        self.make(None, WARM_UP);
        self.make(Some(side), WARM_UP + calls);
        match self.load.generator().failure() {
            Some(failure) => Err(io::Error::other(format!("{failure:?}"))),
            None => Ok(()),
        }
    }

    /// Makes calls until the generator has made `calls` in all.
    fn make(&mut self, side: Option<CountedSide>, calls: u64) {
        let from = self.clock.now();
        let span = RunSpan { from, until: Time(u64::MAX), calls: Some(calls) };
        self.load.begin(from, Pace::Closed, span);
        while !self.load.generator().is_over() {
            let now = self.clock.now();
            let Self { server, load, .. } = self;
            let mut call = || {
                load.step(now);
            };
            let mut serve = || {
                server.pass(now);
            };
            match side {
                Some(CountedSide::Client) => measured(&mut call),
                _ => call(),
            }
            match side {
                Some(CountedSide::Server) => measured(&mut serve),
                _ => serve(),
            }
        }
    }
}
