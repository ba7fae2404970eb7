//! Calls that hang, over iWARP: passes and system calls of the server for each call of
//! other callers. Counts, because times over a socket depend on the host.

use crate::waiting::{
    requester::{Requester, request},
    store::{Pace, SlowStore},
};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_iwarp::{Iwarp, IwarpConfig, IwarpStats};
use stag_nfs::Gateway;
use stag_nfs_store::{CreateMode, NewAttributes, Procedures as _};
use stag_protocol::nfs::v3::{Call, FileHandle, GetAttrArgs, ReadArgs};
use stag_verbs::Time;
use std::time::Duration;

/// Calls that are counted.
const CALLS: u64 = 400;

/// A gateway and two clients of it in one thread; time is that of a pass, a microsecond.
struct SocketWorld {
    server: Shard<Iwarp, Gateway<SlowStore>>,
    clients: [Shard<Iwarp, Requester>; 2],
    peers: [PeerId; 2],
    file: FileHandle,
    fast: FileHandle,
    now: Time,
    passes: u64,
}

fn sizes() -> Config {
    Config { grant: 64, grant_first: 48, calls_max: 64, slots: [512, 64, 32], ..Config::small() }
}

impl SocketWorld {
    fn new() -> Self {
        let (mut store, shared) = SlowStore::new(7);
        let slow = store.memory().mount(b"/slow").unwrap();
        let fast = store.memory().mount(b"/fast").unwrap();
        let how = CreateMode::Guarded(NewAttributes::default());
        let file = store.memory().create(&slow, b"file", &how).unwrap().handle;
        shared.borrow_mut().pace = Pace::Never;
        let pool = stag_nfs_store::Store::pool(&store).cloned();
        let now = Time(0);
        let end = |key| Iwarp::new(IwarpConfig::new(sizes().limits(128), [key; 32], now)).unwrap();
        let gateway = Gateway::new(store).with_slots(sizes().slots);
        let mut server = Shard::new(end(1), gateway, sizes(), Box::new(|_| true)).unwrap();
        if let Some(pool) = &pool {
            server.register(pool).unwrap();
        }
        let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
        let client =
            |key| Shard::new(end(key), Requester::default(), sizes(), Box::new(|_| false)).unwrap();
        let mut clients = [client(2), client(3)];
        let peers = clients.each_mut().map(|client| client.keep_connected(&at).unwrap());
        let mut world = Self { server, clients, peers, file, fast, now, passes: 0 };
        // A connection has one credit before its first reply.
        for client in 0..2 {
            world.call(client, 0, &Call::Null);
            world.await_reply(client);
        }
        world
    }

    fn call(&mut self, client: usize, token: u64, call: &Call<'_>) {
        let peer = self.peers[client];
        self.clients[client].with_app(|_, cx| {
            let request = request(cx, Token(token), call);
            cx.call(peer, request);
        });
    }

    fn step(&mut self) {
        self.now = self.now + Duration::from_micros(1);
        self.passes += 1;
        self.server.pass(self.now);
        for client in &mut self.clients {
            client.pass(self.now);
        }
    }

    fn await_reply(&mut self, client: usize) -> Vec<u8> {
        for _ in 0..10_000_000 {
            self.step();
            if let Some((_, reply)) = self.clients[client].with_app(|app, _| app.take()) {
                return reply.expect("a call is kept until it is answered");
            }
        }
        panic!("no reply");
    }
}

/// System calls of the server's iWARP.
fn system_calls(stats: &IwarpStats) -> u64 {
    stats.sendmsg + stats.recv + stats.epoll_wait + stats.epoll_ctl
}

/// Passes, and system calls of the server, for each call about what does not wait.
fn counts(hung: u64) -> [f64; 2] {
    let mut world = SocketWorld::new();
    let (file, fast) = (world.file, world.fast);
    for number in 0..hung {
        world.call(0, number, &Call::Read(ReadArgs { file, offset: number, count: 4_000 }));
    }
    for _ in 0..10_000 {
        world.step();
    }
    let under_way = world.server.snapshot().app.waiting.under_way;
    // A few are refused at once, as this store does it.
    assert!(under_way * 4 >= hung * 3, "{under_way} of {hung} hang");
    let calls = |world: &mut SocketWorld| {
        for number in 0..CALLS {
            let call = [Call::Null, Call::GetAttr(GetAttrArgs { object: fast })];
            world.call(1, number, &call[number as usize % 2]);
            world.await_reply(1);
        }
    };
    calls(&mut world);
    let before = [world.passes, system_calls(world.server.provider().stats())];
    calls(&mut world);
    let after = [world.passes, system_calls(world.server.provider().stats())];
    assert_eq!(world.server.snapshot().app.waiting.under_way, under_way, "they hang all the time");
    [0, 1].map(|which| (after[which] - before[which]) as f64 / CALLS as f64)
}

#[test]
fn others_cost_as_many_passes_and_system_calls_while_thirty_two_calls_hang() {
    let (without, with) = (counts(0), counts(32));
    println!("passes and system calls a call: {without:?}, with 32 calls that hang {with:?}");
    for (without, with) in without.into_iter().zip(with) {
        assert!(with <= without * 1.1, "{with} instead of {without}");
    }
}
