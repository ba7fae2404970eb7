//! Crowds that connect and leave alongside a client that calls.

use super::{
    Adapter, CALL_TIME, ERRANDS, address, clock, install,
    roles::{calling_end, end_of, every_way, full},
};
use crate::{Ibverbs, RdmaAddress, Through};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_verbs::{Provider, Time};
use std::{net::SocketAddr, time::Duration};

/// Peers of the crowd.
const CROWD: usize = 24;

fn config() -> Config {
    Config { grant: 4, calls_max: 4, peers: 2 * CROWD, ..Config::small() }
}

struct BesideCrowd {
    server: Shard<Ibverbs, Echo>,
    client: Shard<Ibverbs, Caller>,
    peer: PeerId,
    now: Time,
    called: u64,
}

impl BesideCrowd {
    /// A server on an adapter, and a client that is connected. From then on each system call takes
    /// 50 µs.
    fn new(adapter: Adapter, is_apart: bool) -> (Self, RdmaAddress) {
        install(&[adapter, full(&adapter)]);
        let admit = || Box::new(|_| true) as Box<_>;
        let device = end_of(&config(), Through::Local(address(0)), is_apart).unwrap();
        let mut server = Shard::new(device, Echo::default(), config(), admit()).unwrap();
        let at = server.listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
        let device = calling_end(Through::Toward(at.0), is_apart);
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
        CALL_TIME.set(Duration::from_micros(50));
        (Self { server, client, peer, now, called: 0 }, at)
    }

    /// One turn of the server, in which two errands are done, and one of the client, which calls
    /// when it has its answer. Returns the time of the server's system calls.
    fn turn(&mut self) -> Duration {
        ERRANDS.set(2);
        let before = clock();
        self.server.pass(self.now);
        ERRANDS.set(usize::MAX);
        let spent = clock() - before;
        self.now = self.now + spent + Duration::from_micros(10);
        self.client.pass(self.now);
        if self.client.calls_in_progress().1 == 0 {
            while self.client.with_app(|app, _| app.take()).is_some() {}
            let peer = self.peer;
            self.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), None));
            self.called += 1;
        }
        spent
    }

    fn live(&self) -> usize {
        self.server.snapshot().engine.connections.live as usize
    }

    /// Turns until `live` connections are there. Returns the time of the server's system calls.
    fn until(&mut self, live: usize, ends: &mut [Ibverbs]) -> Duration {
        let (mut spent, mut turns) = (Duration::ZERO, 0);
        while self.live() != live {
            spent += self.turn();
            for end in &mut *ends {
                drop(end.poll(self.now));
            }
            turns += 1;
            assert!(turns < 200_000, "{} are connected", self.live());
        }
        spent
    }
}

#[test]
fn a_crowd_that_connects_and_leaves_costs_the_core_no_system_call_to_a_device() {
    // Software devices post by system calls, and adapters without windows register memory.
    let hard = |adapter: &Adapter| !["rxe", "siw"].contains(&adapter.name);
    for (adapter, way) in every_way().filter(|(adapter, _)| hard(adapter)) {
        let crowd = if adapter.shared_receives == 0 { 6 } else { CROWD };
        let (mut beside, at) = BesideCrowd::new(adapter, way.is_apart);
        let mut ends: Vec<_> =
            (0..crowd).map(|_| calling_end(Through::Toward(at.0), way.is_apart)).collect();
        for end in &mut ends {
            end.poll(beside.now);
            end.connect(&at, &[]).unwrap();
        }
        let coming = beside.until(1 + crowd, &mut ends);
        ends.clear();
        let going = beside.until(1, &mut []);
        assert_eq!((coming, going), Default::default(), "{} {way:?}", adapter.name);
        assert!(beside.called > 2, "the client was served meanwhile");
        CALL_TIME.set(Duration::ZERO);
    }
}
