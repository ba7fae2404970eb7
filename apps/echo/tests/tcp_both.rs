//! Calls in both directions over one TCP connection.

use stag_echo::{Caller, Done, Twin};
use stag_engine::{CallFault, Config, PeerId, Shard, Token};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const NAME: u32 = 3;
const CALLS: u64 = 60;
const SIZES: [usize; 6] = [0, 3, 700, 5_000, 70_000, 400_001];

struct Pair {
    server: Shard<Sim, Twin>,
    client: Shard<Sim, Twin>,
    at: SocketAddr,
    clock: Instant,
}

impl Pair {
    fn new() -> Self {
        let fabric = Fabric::new(1, Faults::NONE);
        let shard = |name, app| {
            let config = Config { slots: [512, 64, 64], ..Config::small() };
            Shard::new(fabric.end(name, LIMITS), app, config, Box::new(|_| true) as Box<_>).unwrap()
        };
        let (mut server, client) =
            (shard("server", Twin::default()), shard("client", Twin::named(NAME)));
        let at = server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { server, client, at, clock: Instant::now() }
    }

    /// Passes of both until `done` says so.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let from = Instant::now();
        while !done(self) {
            assert!(from.elapsed() < Duration::from_secs(60), "it happens within a minute");
            let now = Time(self.clock.elapsed().as_nanos() as u64);
            if !(self.server.pass(now) | self.client.pass(now)) {
                std::thread::yield_now();
            }
        }
    }

    fn connect(&mut self) -> PeerId {
        let peer = self.client.connect_tcp(self.at).unwrap();
        self.until(|pair| outcome(&mut pair.client).is_some_and(|done| done.echo.is_ok()));
        peer
    }
}

fn outcome(shard: &mut Shard<Sim, Twin>) -> Option<Done> {
    shard.with_app(|app, _| app.caller().take())
}

fn pattern(token: u64) -> Vec<u8> {
    (0..SIZES[token as usize % SIZES.len()])
        .map(|i| (i * 7 + i / 253) as u8 ^ token as u8)
        .collect()
}

fn call(shard: &mut Shard<Sim, Twin>, peer: PeerId, token: u64) -> bool {
    shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&pattern(token))))
}

#[test]
fn both_ends_call_over_one_connection() {
    let mut pair = Pair::new();
    let up = pair.connect();
    let down = pair.server.app().client(NAME).unwrap();
    let (mut called, mut done) = ([0; 2], [0; 2]);
    pair.until(|pair| {
        for (place, (shard, peer)) in
            [(&mut pair.client, up), (&mut pair.server, down)].into_iter().enumerate()
        {
            if called[place] < CALLS
                && called[place] < done[place] + 20
                && call(shard, peer, called[place])
            {
                called[place] += 1;
            }
            while let Some(Done { token, echo }) = outcome(shard) {
                assert!(echo.unwrap().unwrap()[..] == pattern(token.0), "call {}", token.0);
                done[place] += 1;
            }
        }
        done == [CALLS; 2]
    });
    assert_eq!((pair.client.buffers_in_use(), pair.server.buffers_in_use()), (0, 0));
}

#[test]
fn calls_wait_until_the_client_comes_back() {
    let mut pair = Pair::new();
    let up = pair.connect();
    let down = pair.server.app().client(NAME).unwrap();
    pair.client.with_app(|_, cx| cx.disconnect(up));
    pair.until(|pair| pair.server.snapshot().engine.connections.live == 0);
    for token in 0..10 {
        assert!(call(&mut pair.server, down, token));
    }
    for _ in 0..3 {
        pair.connect();
        assert_eq!(pair.server.app().client(NAME), Some(down));
        // Its earlier connection, if there is one, makes room for this one.
        pair.until(|pair| pair.server.snapshot().engine.connections.live == 1);
    }
    let mut done = 0;
    pair.until(|pair| {
        while let Some(Done { token, echo }) = outcome(&mut pair.server) {
            match echo {
                Ok(echo) => assert!(echo.unwrap()[..] == pattern(token.0)),
                // It was outstanding on a connection that its client replaced: over TCP it does not
                // go out again.
                Err(fault) => assert!(matches!(fault, CallFault::Disconnected(_)), "{fault}"),
            }
            done += 1;
        }
        done == 10
    });
    assert_eq!((pair.client.buffers_in_use(), pair.server.buffers_in_use()), (0, 0));
    assert_eq!(
        (pair.client.calls_in_progress(), pair.server.calls_in_progress()),
        ((0, 0), (0, 0))
    );
}

#[test]
fn nobody_is_called_before_it_says_that_it_takes_calls() {
    let mut pair = Pair::new();
    let client = std::net::TcpStream::connect(pair.at).unwrap();
    client.set_nonblocking(true).unwrap();
    pair.until(|pair| pair.server.snapshot().engine.connections.live == 1);
    let down = pair.server.with_app(|app, _| app.caller().peers()[0]);
    assert!(call(&mut pair.server, down, 1));
    let from = Instant::now();
    pair.until(|_| from.elapsed() > Duration::from_millis(20));
    let read = std::io::Read::read(&mut &client, &mut [0; 64]);
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(client);
    pair.until(|pair| outcome(&mut pair.server).is_some());
}
