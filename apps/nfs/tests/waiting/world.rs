//! A gateway to a slow store, and two clients of it, on one simulated fabric.

use crate::gateway::flavors::WithTickets;
use crate::waiting::{
    requester::{Requester, request},
    store::{Shared, SlowStore},
};
use stag_engine::{Config, Cx, PeerId, Request, Shard, Token};
use stag_nfs::{Gateway, GatewayReport, Nfs4Config, Nfs4Link};
use stag_nfs_store::Procedures as _;
use stag_protocol::nfs::v3::{Call, CreateHow, FileHandle, SetAttributes};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, rc::Rc, time::Duration};

const LIMITS: Limits =
    Limits { connections: 8, send_queue: 128, receives: 512, windows: 256, ..stag_sim::LIMITS };
const PORT: Port = Port(2049);
const ARRIVAL_PORT: Port = Port(2050);
/// Connections of a client.
pub const CONNECTIONS: usize = 2;

fn sizes() -> Config {
    Config {
        grant: 64,
        grant_first: 48,
        calls_max: 64,
        receives: 512,
        peers: 8,
        inbound: 512,
        outbound: 128,
        slots: [512, 64, 32],
        ..Config::small()
    }
}

pub struct World {
    pub fabric: Fabric,
    server: Shard<Sim, WithTickets<SlowStore>>,
    /// A shard that forwards version 4 to it, with a store of its own.
    arrival: Option<Shard<Sim, WithTickets<SlowStore>>>,
    clients: [Shard<Sim, Requester>; 2],
    peers: [Vec<PeerId>; 2],
    pub now: Time,
    pub shared: Rc<RefCell<Shared>>,
    pub slow: FileHandle,
    pub file: FileHandle,
    pub fast: FileHandle,
    steps: u64,
    /// The shard that forwards makes no pass before this step.
    pub stuck_until: u64,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, |gateway| gateway)
    }

    /// As [`new`](Self::new), with another gateway made of that.
    pub fn with(seed: u64, make: impl FnOnce(Gateway<SlowStore>) -> Gateway<SlowStore>) -> Self {
        Self::build(seed, make, None)
    }

    /// As [`with`](Self::with), with a second shard, which every other connection of a client comes
    /// to, and which forwards version 4.
    pub fn on_two(seed: u64, make: impl FnOnce(Gateway<SlowStore>) -> Gateway<SlowStore>) -> Self {
        let mut links = Nfs4Link::all(2);
        let (arrival, home) = (links.pop(), links.pop().unwrap());
        Self::build(seed, |gateway| make(gateway).with_link(home), arrival)
    }

    /// As [`on_two`](Self::on_two), but both shards serve the same objects, and the second one has
    /// sessions lent that are made over it.
    pub fn lending(seed: u64, config: Nfs4Config) -> Self {
        let mut links = Nfs4Link::all(2);
        let (arrival, home) = (links.pop().unwrap(), links.pop().unwrap());
        let ([store, other], shared) = SlowStore::pair(seed);
        let home = |gateway: Gateway<SlowStore>| gateway.with_nfs4(config).with_link(home);
        let arrival = Gateway::new(other).with_nfs4(config).with_link(arrival);
        Self::of(seed, (store, shared), home, Some(arrival))
    }

    fn build(
        seed: u64,
        make: impl FnOnce(Gateway<SlowStore>) -> Gateway<SlowStore>,
        link: Option<Nfs4Link>,
    ) -> Self {
        let arrival = link.map(|link| Gateway::new(SlowStore::new(seed).0).with_link(link));
        Self::of(seed, SlowStore::new(seed), make, arrival)
    }

    fn of(
        seed: u64,
        (mut store, shared): (SlowStore, Rc<RefCell<Shared>>),
        make: impl FnOnce(Gateway<SlowStore>) -> Gateway<SlowStore>,
        arrival: Option<Gateway<SlowStore>>,
    ) -> Self {
        let fast = store.memory().mount(b"/fast").unwrap();
        let how = CreateHow::Guarded(SetAttributes::default());
        let (slow, file) = store.prepare(|memory| {
            let slow = memory.mount(b"/slow").unwrap();
            let file = memory.create(&slow, b"file", &(&how).into()).unwrap().handle;
            (slow, file)
        });
        let pool = stag_nfs_store::Store::pool(&store).cloned();
        let fabric = Fabric::new(seed, Faults::DELAYS);
        let config = sizes();
        let gateway = WithTickets(make(Gateway::new(store)).with_slots(config.slots));
        let end = fabric.end("server", LIMITS);
        let mut server = Shard::new(end, gateway, config, Box::new(|_| true)).unwrap();
        if let Some(pool) = &pool {
            server.register(pool).unwrap();
        }
        server.listen(&PORT).unwrap();
        let arrival = arrival.map(|gateway| {
            let end = fabric.end("arrival", LIMITS);
            let config = sizes();
            let gateway = WithTickets(gateway.with_slots(config.slots));
            let mut shard = Shard::new(end, gateway, config, Box::new(|_| true)).unwrap();
            shard.listen(&ARRIVAL_PORT).unwrap();
            shard
        });
        let client = |name| {
            let end = fabric.end(name, LIMITS);
            Shard::new(end, Requester::default(), sizes(), Box::new(|_| false)).unwrap()
        };
        let mut clients = [client("one"), client("other")];
        let peers = clients.each_mut().map(|client| {
            let port = |number| match &arrival {
                Some(_) if number % 2 == 1 => ARRIVAL_PORT,
                _ => PORT,
            };
            (0..CONNECTIONS).map(|number| client.keep_connected(&port(number)).unwrap()).collect()
        });
        let now = Time(0);
        Self {
            fabric,
            server,
            arrival,
            clients,
            peers,
            now,
            shared,
            slow,
            file,
            fast,
            steps: 0,
            stuck_until: 0,
        }
    }

    pub fn call(&mut self, client: usize, token: u64, call: &Call<'_>) {
        let peer = self.peers[client][token as usize % CONNECTIONS];
        self.clients[client].with_app(|_, cx| {
            let request = request(cx, Token(token), call);
            cx.call(peer, request);
        });
    }

    /// Makes a call that `make` writes.
    pub fn send(
        &mut self,
        client: usize,
        token: u64,
        make: impl FnOnce(&Cx<'_>, Token) -> Request,
    ) {
        let peer = self.peers[client][token as usize % CONNECTIONS];
        self.clients[client].with_app(|_, cx| {
            let request = make(cx, Token(token));
            cx.call(peer, request);
        });
    }

    pub fn take(&mut self, client: usize) -> Option<(u64, Vec<u8>)> {
        let (token, reply) = self.clients[client].with_app(|app, _| app.take())?;
        Some((token.0, reply.expect("a call is kept until it is answered")))
    }

    pub fn losses(&self) -> u64 {
        self.clients.iter().map(|client| client.app().losses()).sum()
    }

    /// Compounds that the second shard has forwarded.
    pub fn forwarded(&self) -> u64 {
        self.arrival.as_ref().map_or(0, |arrival| arrival.snapshot().app.nfs4.forwarded)
    }

    /// A client takes no callbacks: it refuses them.
    pub fn refuse_callbacks(&mut self, client: usize) {
        self.clients[client].with_app(|app, _| app.refuse_calls());
    }

    /// Compounds that the second shard has carried out itself.
    pub fn lent(&self) -> u64 {
        self.arrival.as_ref().map_or(0, |arrival| arrival.snapshot().app.nfs4.compounds)
    }

    /// Slots of the second shard that are busy.
    pub fn lent_busy(&self) -> u64 {
        self.arrival.as_ref().map_or(0, |arrival| arrival.snapshot().app.nfs4.busy_slots)
    }

    /// Steps made so far.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    pub fn report(&self) -> GatewayReport {
        self.server.snapshot().app
    }

    /// One pass of each; without work, time advances to the next event, or to a moment at which
    /// the store may have something.
    pub fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < 2_000_000, "it never ends\n{}", self.fabric.trace());
        let mut any = self.server.pass(self.now);
        // Messages stay in their boxes while the other shard makes no pass.
        if let Some(arrival) = self.arrival.as_mut().filter(|_| self.steps >= self.stuck_until) {
            any |= arrival.pass(self.now);
        }
        for client in &mut self.clients {
            any |= client.pass(self.now);
        }
        if any {
            return;
        }
        let shards = self.clients.iter().map(Shard::wake_at).chain([self.server.wake_at()]);
        let shards = shards.chain(self.arrival.iter().map(Shard::wake_at));
        let due = shards.chain([self.fabric.next_due()]).flatten().min();
        let soon = self.now + Duration::from_millis(1);
        let next = self.now + Duration::from_nanos(100);
        self.now = due.map_or(soon, |due| due.min(soon)).max(next);
    }

    /// Lets `time` pass.
    pub fn pass_time(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// A client leaves, with what it waits for.
    pub fn leave(&mut self, client: usize) {
        let peers = std::mem::take(&mut self.peers[client]);
        self.clients[client].with_app(|_, cx| peers.iter().for_each(|peer| cx.disconnect(*peer)));
    }

    /// The clients leave; then nothing is held at the server.
    pub fn end(&mut self) {
        let began = self.now;
        let under_way =
            |arrival: &Shard<_, WithTickets<_>>| arrival.snapshot().app.waiting.under_way;
        while self.report().waiting.under_way > 0
            || self.arrival.as_ref().is_some_and(|arrival| under_way(arrival) > 0)
        {
            self.step();
            assert!(self.now.since(began) < Duration::from_secs(60), "calls come back");
        }
        for (client, peers) in self.clients.iter_mut().zip(std::mem::take(&mut self.peers)) {
            client.with_app(|_, cx| peers.iter().for_each(|peer| cx.disconnect(*peer)));
        }
        while self.server.provider().connections() > 0 {
            self.step();
        }
        self.stuck_until = 0;
        self.pass_time(Duration::from_millis(20));
        let held = (self.server.buffers_in_use(), self.server.calls_in_progress().0);
        assert_eq!(held, (0, 0), "buffers and calls");
        if let Some(arrival) = &self.arrival {
            let held = (arrival.buffers_in_use(), arrival.calls_in_progress().0);
            assert_eq!(held, (0, 0), "buffers and calls of the shard that forwards");
        }
    }
}
