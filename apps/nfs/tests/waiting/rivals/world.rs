//! A server of two shards that is killed and started again, and its clients, in virtual time.

use super::{
    disk::FIRST_UID,
    mail::{Carrier, Mail, SharedMail},
    scene::{Scene, Stage},
};
use crate::waiting::client4::CONFIG;
use fastrand::Rng;
use stag_engine::{Config, PeerId, Shard};
use stag_nfs::{
    Gateway, Nfs4Config, Nfs4Link, Nfs4Records,
    records::{RecordKeeper, RecordLog, Records as _},
};
use stag_nfs_store::Store;
use stag_nfs4_state::DelegationPolicy;
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{pin::Pin, rc::Rc, task::Waker, time::Duration};

const LIMITS: Limits =
    Limits { connections: 16, send_queue: 128, receives: 512, windows: 256, ..stag_sim::LIMITS };
const PORTS: [Port; 2] = [Port(2049), Port(2050)];

/// Time for which a client has what it does not renew.
pub const LEASE: Duration = Duration::from_secs(20);

/// Steps of the longest play.
const STEPS: u64 = 3_000_000;

fn sizes() -> Config {
    Config {
        grant: 32,
        grant_first: 16,
        calls_max: 64,
        receives: 512,
        peers: 16,
        inbound: 512,
        outbound: 128,
        slots: [512, 64, 32],
        reverse_calls_max: 4,
        reverse_grant: 4,
        ..Config::small()
    }
}

/// A process of a client, which is polled whenever there is something for it.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A client: its connections to both shards, and its tasks.
struct Client {
    shard: Shard<Sim, Carrier>,
    peers: [PeerId; 2],
    mail: SharedMail,
    tasks: Vec<Task>,
}

pub struct World<S: Store> {
    fabric: Fabric,
    stage: Stage<S>,
    records: crate::waiting::disk::Disk,
    /// The home, and the other shard.
    shards: Vec<Shard<Sim, Gateway<S>>>,
    clients: Vec<Client>,
    pub now: Time,
    steps: u64,
    /// Steps before which each shard makes no pass.
    stuck_until: [u64; 2],
}

impl<S: Store + 'static> World<S> {
    pub fn new(seed: u64, stage: Stage<S>) -> Self {
        let (fabric, records) =
            (Fabric::new(seed, Faults::DELAYS), crate::waiting::disk::Disk::default());
        let (shards, clients) = (vec![], vec![]);
        let (now, steps, stuck_until) = (Time(0), 0, [0; 2]);
        let mut world = Self { fabric, stage, records, shards, clients, now, steps, stuck_until };
        world.start();
        world
    }

    pub fn scene(&self) -> Rc<Scene> {
        Rc::clone(&self.stage.scene)
    }

    fn start(&mut self) {
        let mut records = RecordLog::new(self.records.clone());
        let boot = records.begin().unwrap();
        let delegations = DelegationPolicy::ReadWrite;
        let config = Nfs4Config { epoch: boot.epoch, delegations, lease: LEASE, ..CONFIG };
        let keeper = RecordKeeper::without_thread(Box::new(records));
        let mut records = Some(Nfs4Records { boot, keeper, grace: LEASE });
        let links = Nfs4Link::all(2).into_iter().zip(PORTS);
        for (gateway, (link, port)) in (self.stage.build)().into_iter().zip(links) {
            let mut gateway = gateway.with_nfs4(config);
            if let Some(records) = records.take() {
                gateway = gateway.with_records(records);
            }
            let gateway = gateway.with_link(link).with_slots(sizes().slots);
            let end = self.fabric.end("server", LIMITS);
            let mut shard = Shard::new(end, gateway, sizes(), Box::new(|_| true)).unwrap();
            shard.listen(&port).unwrap();
            shard.pass(self.now);
            self.shards.push(shard);
        }
    }

    /// Kills the server, whose last record may be there in part, and starts another one after a
    /// while.
    pub fn kill(&mut self, dice: &mut Rng) {
        self.count();
        self.shards.clear();
        self.stage.scene.ledger.borrow_mut().kill();
        let log = self.records.log();
        let torn = [&log[..], &[0x5a; 7][..dice.usize(..8)]].concat();
        self.records.set_log(&torn);
        let until = self.now + Duration::from_millis([0, 10, 1_000, 3_000][dice.usize(..4)]);
        while self.now < until {
            self.step();
        }
        self.start();
    }

    /// Adds to the counts what the shards have done.
    fn count(&mut self) {
        let counts = &mut self.stage.scene.ledger.borrow_mut().counts;
        for shard in &self.shards {
            let report = shard.snapshot().app.nfs4;
            counts.forwarded += report.forwarded;
        }
        if let Some(other) = self.shards.get(1) {
            counts.lent += other.snapshot().app.nfs4.compounds;
        }
    }

    /// A client that is connected to both shards.
    pub fn client(&mut self) -> (usize, u32, SharedMail) {
        let number = self.clients.len();
        let mail = SharedMail::new(Mail::default().into());
        let end = self.fabric.end("client", LIMITS);
        let carrier = Carrier(Rc::clone(&mail));
        let mut shard = Shard::new(end, carrier, sizes(), Box::new(|_| false)).unwrap();
        let peers = PORTS.map(|port| shard.keep_connected(&port).unwrap());
        self.clients.push(Client { shard, peers, mail: Rc::clone(&mail), tasks: vec![] });
        (number, FIRST_UID + number as u32, mail)
    }

    /// Gives a client one more task.
    pub fn spawn(&mut self, client: usize, task: impl Future<Output = ()> + 'static) {
        self.clients[client].tasks.push(Box::pin(task));
    }

    /// Returns true while some task of a client goes on.
    pub fn is_busy(&self) -> bool {
        self.clients.iter().any(|client| !client.tasks.is_empty())
    }

    pub fn lose(&self, chance: u32) {
        self.fabric.set_faults(Faults { lost: chance, ..Faults::DELAYS });
    }

    /// Keeps a shard from making passes for `steps` steps.
    pub fn stick(&mut self, shard: usize, steps: u64) {
        self.stuck_until[shard] = self.steps + steps;
    }

    fn story(&self) -> String {
        self.stage.scene.ledger.borrow().story()
    }

    /// One pass of each; without work, time advances to the next event.
    pub fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS, "it never ends\n{}", self.story());
        let scene = Rc::clone(&self.stage.scene);
        scene.ledger.borrow_mut().now = self.now;
        let mut any = false;
        for (shard, until) in self.shards.iter_mut().zip(self.stuck_until) {
            any |= self.steps >= until && shard.pass(self.now);
        }
        let mut cx = std::task::Context::from_waker(Waker::noop());
        let mut wake = None;
        for client in &mut self.clients {
            any |= client.shard.pass(self.now);
            {
                let mail = &mut *client.mail.borrow_mut();
                (mail.now, mail.wake) = (self.now, None);
            }
            client.tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            let peers = &client.peers;
            client.shard.with_app(|app, cx| app.pump(cx, peers));
            wake = [wake, client.mail.borrow().wake].into_iter().flatten().min();
        }
        if any {
            if scene.is_at_once {
                scene.ledger.borrow_mut().look(&scene.look);
            }
            return;
        }
        let shards = self.shards.iter().map(Shard::wake_at);
        let clients = self.clients.iter().map(|client| client.shard.wake_at());
        let others = [self.fabric.next_due(), (self.stage.next_due)(), wake];
        let due = shards.chain(clients).chain(others).flatten().min();
        let later = self.now + Duration::from_millis(20);
        let next = self.now + Duration::from_nanos(100);
        self.now = due.map_or(later, |due| due.min(later)).max(next);
    }

    /// The clients leave; then nothing is held at the server.
    pub fn end(&mut self) {
        self.stuck_until = [0; 2];
        self.lose(0);
        let until = self.now + Duration::from_secs(120);
        let is_idle = |shard: &Shard<_, Gateway<_>>| shard.snapshot().app.waiting.under_way == 0;
        while !self.shards.iter().all(is_idle) {
            self.step();
            assert!(self.now < until, "calls come back\n{}", self.story());
        }
        for shard in &self.shards {
            let report = shard.snapshot().app.nfs4;
            let held = (report.suspended, report.busy_slots);
            assert_eq!(held, (0, 0), "compounds, slots\n{}", self.story());
        }
        for client in &mut self.clients {
            let peers = client.peers;
            client.shard.with_app(|_, cx| peers.iter().for_each(|peer| cx.disconnect(*peer)));
        }
        let until = self.now + Duration::from_secs(5);
        while self.now < until {
            self.step();
        }
        for shard in &self.shards {
            let held = (shard.buffers_in_use(), shard.calls_in_progress().0);
            assert_eq!(held, (0, 0), "buffers, calls\n{}", self.story());
        }
        self.count();
        let losses = self.clients.iter().map(|client| client.mail.borrow().losses).sum();
        self.stage.scene.ledger.borrow_mut().counts.losses = losses;
    }
}
