//! A server whose core has virtual time, and its callers.

use super::{CLIENTS, PASS, PRICE, SLOTS, later::LaterStore};
use crate::gateway::{
    client as v3,
    client::Home,
    nfs4::client::{CONFIG, Reply4, encode, memory},
};
use stag_engine::{
    App, Call, Cause, Config, Cx, Meter, Outcome, PeerId, PeerSecurity, Request as CallRequest,
    Shard, Token,
};
use stag_nfs::{Gateway, GatewayReport, Nfs4Link};
use stag_nfs_store::{Store, files::Files, memory::Memory};
use stag_pools::Buf;
use stag_protocol::{nfs::v4::Request, rpc::NullHeader};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const LIMITS: Limits =
    Limits { connections: 32, send_queue: 128, receives: 512, windows: 256, ..stag_sim::LIMITS };
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The core's time. While the operation is carried out, each look at the clock finds that one
/// more was.
#[derive(Debug, Default)]
pub struct CoreTime {
    now: AtomicU64,
    price: AtomicU64,
    /// The next look begins a turn: nothing was carried out before it.
    begins: AtomicBool,
}

impl CoreTime {
    pub fn spend(&self, nanoseconds: u64) {
        self.now.fetch_add(nanoseconds, Relaxed);
    }

    pub fn at(&self) -> Time {
        Time(self.now.load(Relaxed))
    }
}

impl Meter for CoreTime {
    fn now(&self) -> Time {
        if !self.begins.swap(false, Relaxed) {
            self.spend(self.price.load(Relaxed));
        }
        self.at()
    }
}

/// A gateway whose operations have a price. The peer that came first makes the costly ones.
pub struct Priced<S> {
    pub gateway: Gateway<S>,
    time: Arc<CoreTime>,
    pub price: u64,
    first: Option<PeerId>,
    /// Passes in which a compound went on that was put aside.
    pub slices: u64,
}

impl<S: Store> App for Priced<S> {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.gateway.wants_idle_passes()
    }

    fn idle_pass_at(&self) -> Option<Time> {
        self.gateway.idle_pass_at()
    }

    fn on_null(&mut self, call: NullHeader) -> bool {
        self.gateway.on_null(call)
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.gateway.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let price = if self.first == Some(call.peer) { self.price } else { 0 };
        self.time.price.store(price, Relaxed);
        self.gateway.on_call(cx, call);
        self.time.price.store(0, Relaxed);
        self.time.spend(if price > 0 { price } else { PRICE });
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.gateway.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.first.get_or_insert(peer);
        self.gateway.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.gateway.on_peer_down(cx, peer, cause);
    }

    fn on_security(&mut self, cx: &mut Cx<'_>, peer: PeerId, security: &PeerSecurity) {
        self.gateway.on_security(cx, peer, security);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.time.price.store(self.price, Relaxed);
        self.time.begins.store(true, Relaxed);
        self.gateway.on_pass_end(cx);
        self.time.price.store(0, Relaxed);
        self.slices += u64::from(!self.time.begins.swap(false, Relaxed));
    }
}

/// Keeps replies.
#[derive(Default)]
pub struct Caller(VecDeque<(Token, Vec<u8>)>);

impl App for Caller {
    type Report = ();

    fn report(&self) {}

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.0.push_back((outcome.token, outcome.reply.unwrap().to_vec()));
    }
}

/// No peer.
const NOBODY: PeerId = PeerId::from_bits(u64::MAX);

pub struct World<S: Store> {
    pub fabric: Fabric,
    pub server: Shard<Sim, Priced<S>>,
    /// The shard that the one is connected to, if it is another one.
    pub arrival: Option<Shard<Sim, Priced<S>>>,
    pub time: Arc<CoreTime>,
    /// The one, and the other clients.
    pub callers: Vec<(Shard<Sim, Caller>, PeerId)>,
    /// The directory of its export; none for an export in memory.
    pub home: Option<Home>,
}

pub fn on_memory() -> World<Memory> {
    World::new(Gateway::new(memory()))
}

pub fn on_directory() -> World<Files> {
    let home = Home::new();
    World::new(home.gateway()).keeping(home)
}

pub fn with_helpers() -> World<LaterStore> {
    World::new(Gateway::new(LaterStore::new()))
}

/// The one is connected to another shard, which forwards its compounds.
pub fn with_another_shard() -> World<Memory> {
    World::forwarding(Gateway::new(memory()), Gateway::new(memory()))
}

impl<S: Store> World<S> {
    fn new(gateway: Gateway<S>) -> Self {
        Self::build(gateway.with_nfs4(CONFIG), None)
    }

    fn keeping(self, home: Home) -> Self {
        Self { home: Some(home), ..self }
    }

    /// Connects the one to another shard.
    fn forwarding(gateway: Gateway<S>, forwards: Gateway<S>) -> Self {
        let mut links = Nfs4Link::all(2).into_iter();
        let home = gateway.with_nfs4(CONFIG).with_link(links.next().unwrap());
        let arrival = forwards.with_link(links.next().unwrap());
        Self::build(home, Some(arrival))
    }

    fn build(gateway: Gateway<S>, forwards: Option<Gateway<S>>) -> Self {
        let (fabric, time) = (Fabric::new(5, ONE_WAY), Arc::new(CoreTime::default()));
        let admit = || Box::new(|_| true) as Box<_>;
        let config = Config {
            meter: Some(Arc::clone(&time) as Arc<dyn Meter>),
            grant: SLOTS as u32,
            grant_first: SLOTS as u32,
            receives: 512,
            inbound: 512,
            peers: 32,
            ..Config::small()
        };
        let clock = Arc::clone(&time);
        let first = forwards.as_ref().map(|_| NOBODY);
        let app = Priced { gateway, time: clock, price: 0, first, slices: 0 };
        let end = fabric.end("server", LIMITS);
        let mut server = Shard::new(end, app, config.clone(), admit()).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let mut arrival = forwards.map(|gateway| {
            let (time, first) = (Arc::clone(&time), Some(NOBODY));
            let app = Priced { gateway, time, price: 0, first, slices: 0 };
            Shard::new(fabric.end("arrival", LIMITS), app, config, admit()).unwrap()
        });
        let arrives_at = arrival.as_mut().map(|shard| shard.listen(&Port(0)).unwrap());
        let sizes = Config { calls_max: 16, slots: [64, 8, 4], receives: 64, ..Config::small() };
        let callers = Vec::new();
        let mut world = Self { fabric, server, arrival, time, callers, home: None };
        for caller in 0..=CLIENTS {
            let to = arrives_at.as_ref().filter(|_| caller == 0).unwrap_or(&port);
            let end = world.fabric.end("client", LIMITS);
            let mut caller = Shard::new(end, Caller::default(), sizes.clone(), admit()).unwrap();
            let peer = caller.connect(to).unwrap();
            world.callers.push((caller, peer));
            world.run_for(100_000);
        }
        world
    }

    pub fn send(&mut self, caller: usize, token: u64, octets: &[u8]) {
        let (now, (shard, peer)) = (self.time.at(), &mut self.callers[caller]);
        shard.with_app_at(now, |_, cx| {
            let mut message = cx.message(octets.len()).unwrap();
            message.append(octets).unwrap();
            let (token, timeout) = (Token(token), PATIENCE);
            let (item, result, reply_max) = (None, None, 12_000);
            cx.call(*peer, CallRequest { message, item, reply_max, result, timeout, token });
        });
    }

    pub fn take(&mut self, caller: usize) -> Option<(Token, Vec<u8>)> {
        let now = self.time.at();
        self.callers[caller].0.with_app_at(now, |app, _| app.0.pop_front())
    }

    pub fn step(&mut self) {
        let mut worked = self.server.pass(self.time.at());
        if let Some(arrival) = &mut self.arrival {
            worked |= arrival.pass(self.time.at());
        }
        for (caller, _) in &mut self.callers {
            worked |= caller.pass(self.time.at());
        }
        match self.fabric.next_due() {
            Some(due) if !worked => {
                self.time.spend(due.0.saturating_sub(self.time.at().0).clamp(1, 20_000));
            }
            _ => self.time.spend(PASS),
        }
    }

    fn run_for(&mut self, time: u64) {
        let until = self.time.at().0 + time;
        while self.time.at().0 < until {
            self.step();
        }
    }

    /// A compound of the one, and its reply.
    pub fn exchange(&mut self, requests: &[Request<'_>]) -> Reply4 {
        self.send(0, 0, &encode(v3::user(), 2, requests));
        loop {
            if let Some((_, reply)) = self.take(0) {
                return Reply4(reply[stag_protocol::rpc::ReplyHeader::LEN..].to_vec());
            }
            self.step();
        }
    }
}
