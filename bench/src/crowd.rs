//! A server and a caller of the smallest app with many connections between them, in one thread:
//! each call takes another connection, so that nothing of it is in a cache.

use stag_echo::{Caller, Echo};
use stag_engine::{Config, Shard, Token, clock::Clock};
use stag_verbs::{Limits, Provider};
use std::io;

/// Connections that are being made at a time: listeners have a queue.
const AT_ONCE: usize = 32;
/// Distance between the connections of two calls: far enough that none brings the next one's
/// memory, and it has no divisor in common with the usual numbers of connections.
const STRIDE: usize = 1_237;

/// Both ends.
#[derive(Debug)]
pub struct Crowd<P: Provider> {
    server: Shard<P, Echo>,
    client: Shard<P, Caller>,
    clock: Clock,
    /// The connection of the next call.
    place: usize,
}

/// Settings of both ends: a receive for each connection, and a few beside.
fn config(connections: usize) -> Config {
    let receives = 256 + connections * 2;
    Config {
        grant_first: 1,
        calls_max: 1,
        reverse_grant: 0,
        reverse_calls_max: 0,
        peers: connections,
        receives,
        inbound: receives,
        ..Config::small()
    }
}

impl<P: Provider> Crowd<P> {
    /// Makes `connections` connections between two ends whose fabrics `provider` makes. Each has
    /// had a call.
    ///
    /// # Errors
    /// As sockets and `mmap(2)` fail.
    pub fn connect(
        provider: impl Fn(Limits) -> io::Result<P>,
        at: &P::Address,
        connections: usize,
        clock: Clock,
    ) -> io::Result<Self> {
        let limits = config(connections).limits(64);
        let config = || config(connections);
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server = Shard::new(provider(limits)?, Echo::default(), config(), admit())?;
        let client = Shard::new(provider(limits)?, Caller::with_capacity(64), config(), admit())?;
        let at = server.listen(at).map_err(io::Error::other)?;
        let mut crowd = Self { server, client, clock, place: 0 };
        while crowd.len() < connections {
            let wanted = connections.min(crowd.len() + AT_ONCE);
            for _ in crowd.len()..wanted {
                crowd.client.connect(&at).map_err(io::Error::other)?;
            }
            while crowd.len() < wanted {
                crowd.turn();
            }
        }
        crowd.calls(connections as u64);
        Ok(crowd)
    }

    fn len(&self) -> usize {
        self.client.app().peers().len()
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.client.pass(now);
        self.server.pass(now);
    }

    /// `calls` NULL calls, one at a time, each over another connection.
    ///
    /// # Panics
    /// When a call fails.
    pub fn calls(&mut self, calls: u64) {
        for call in 0..calls {
            self.place = (self.place + STRIDE) % self.len();
            let peer = self.client.app().peers().get(self.place).copied();
            let peer = peer.expect("no connection ends");
            let called = self.client.with_app(|_, cx| Caller::call(cx, peer, Token(call), None));
            assert!(called, "there is memory for one call");
            loop {
                self.turn();
                if let Some(outcome) = self.client.with_app(|app, _| app.take()) {
                    assert!(outcome.echo.is_ok(), "no call fails");
                    break;
                }
            }
        }
    }
}
