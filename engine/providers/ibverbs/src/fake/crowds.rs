//! Crowds that connect and leave beside a client that calls.

use super::{
    ADAPTERS, CALL_TIME, address, clock, install,
    roles::{calling_end, end},
};
use crate::{Ibverbs, RdmaAddress, Through, chores::SETTLED};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_verbs::{Provider, Time};
use std::{net::SocketAddr, time::Duration};

/// Peers of the crowd.
const CROWD: usize = 24;

fn config() -> Config {
    Config { grant: 4, calls_max: 4, peers: 2 * CROWD, ..Config::small() }
}

struct Beside {
    server: Shard<Ibverbs, Echo>,
    client: Shard<Ibverbs, Caller>,
    peer: PeerId,
    now: Time,
    called: u64,
}

impl Beside {
    /// A server whose system calls take `each`, and a client that has been connected for `age`.
    fn new(each: Duration, age: Duration) -> (Self, RdmaAddress) {
        install(&[ADAPTERS[0]; 2]);
        let admit = || Box::new(|_| true) as Box<_>;
        let device = end(&config(), Through::Local(address(0))).unwrap();
        let mut server = Shard::new(device, Echo::default(), config(), admit()).unwrap();
        let at = server.listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
        let device = calling_end(Through::Toward(at.0), false);
        let small = Config { grant: 8, calls_max: 8, ..Config::small() };
        let mut client = Shard::new(device, Caller::with_capacity(8), small, admit()).unwrap();
        client.connect(&at).unwrap();
        let mut now = Time(1);
        for _ in 0..100 {
            now = Time(now.0 + 100_000);
            server.pass(now);
            client.pass(now);
        }
        let peer = client.app().peers()[0];
        now = now + age;
        server.pass(now);
        client.pass(now);
        CALL_TIME.set(each);
        (Self { server, client, peer, now, called: 0 }, at)
    }

    /// One turn of the server, which takes 10 µs beside its system calls, and one of the client,
    /// which calls when it has its answer. Returns the time of the server's system calls.
    fn turn(&mut self, calls: bool) -> Duration {
        let before = clock();
        self.server.pass(self.now);
        let spent = clock() - before;
        self.now = self.now + spent + Duration::from_micros(10);
        self.client.pass(self.now);
        if calls && self.client.calls_in_progress().1 == 0 {
            while self.client.with_app(|app, _| app.take()).is_some() {}
            let peer = self.peer;
            self.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), None));
            self.called += 1;
        }
        spent
    }

    fn live(&self) -> u64 {
        self.server.snapshot().engine.connections.live
    }
}

/// The part of the server's time that a crowd's coming took beside a client that has been connected
/// for so long, and whether all were let in.
fn crowd(calls: bool, age: Duration) -> (f64, bool) {
    let (mut beside, at) = Beside::new(Duration::from_micros(50), age);
    let mut ends: Vec<_> = (0..CROWD).map(|_| calling_end(Through::Toward(at.0), false)).collect();
    for end in &mut ends {
        end.poll(beside.now);
        end.connect(&at, &[]).unwrap();
        (0..4).for_each(|_| drop(end.poll(beside.now)));
    }
    let (began, mut spent) = (beside.now, Duration::ZERO);
    let mut turns = 0;
    while beside.live() < 1 + CROWD as u64 && turns < 200_000 {
        spent += beside.turn(calls);
        turns += 1;
        for end in &mut ends {
            drop(end.poll(beside.now));
        }
    }
    let took = Duration::from_nanos(beside.now.0 - began.0);
    let share = spent.as_secs_f64() / took.as_secs_f64();
    CALL_TIME.set(Duration::ZERO);
    (share, beside.live() == 1 + CROWD as u64)
}

#[test]
fn a_crowd_that_connects_takes_a_tenth_of_a_core_that_has_work_and_all_of_one_that_has_none() {
    let (share, all) = crowd(true, 2 * SETTLED);
    assert!(all && share < 0.125, "{share:.3} of the time beside calls");
    let (share, all) = crowd(false, 2 * SETTLED);
    assert!(all && share > 0.5, "{share:.3} of the time without other work");
    let (share, all) = crowd(true, Duration::ZERO);
    assert!(all && share > 0.5, "{share:.3} of the time beside calls of one that has just come");
}
