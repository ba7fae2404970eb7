//! Fifteen clients that keep a server busy, and one attacker alongside them. Each message and each
//! connection takes virtual time of the server's core: the work that the attacker causes is time in
//! which no client is served.

use crate::{
    gss::client::{NamedAcceptor, init},
    support::{
        Raw,
        attacks::{
            ATTACKS, CLIENTS, GRANT, Make, PATIENCE, SERVED, Sender, Sends, null, server_config,
            server_limits,
        },
        message,
    },
};
use stag_echo::Echo;
use stag_engine::{
    Config, PeerAddress, Shard,
    gss::{AcceptedContext, ContextAcceptor, ContextLimits, GssContexts, RefusedContext},
};
use stag_gss::Enctype;
use stag_protocol::{rpc::gss::MajorStatus, rpcrdma::ChunkLists};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::Time;
use std::sync::{
    Arc,
    mpsc::{Receiver, channel},
};

/// Nanoseconds of the server's core for a message that it takes or sends, and for a connection.
const MESSAGE: u64 = 1_000;
const CONNECTION: u64 = 20_000;
/// The same for a message that is dropped unread, as its connection is ending.
const DROPPED: u64 = 100;
/// Virtual time that is measured.
const MEASURED: u64 = 20_000_000;
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };

/// Time of the server's core that a sender has used. Messages in flight when its connection ends
/// take none.
fn cost_of(sender: &Sender<Sim>) -> u64 {
    // Calls of a flood are answered or dropped; other attackers' messages are all read.
    let unanswered = if sender.depth > GRANT { DROPPED } else { MESSAGE };
    sender.answered * 2 * MESSAGE
        + sender.raw.delivered.saturating_sub(sender.answered) * unanswered
        + sender.connections * CONNECTION
}

fn cost(senders: &[Sender<Sim>]) -> u64 {
    senders.iter().map(cost_of).sum()
}

/// Calls of the clients, which are all senders but the last.
fn answered(senders: &[Sender<Sim>]) -> u64 {
    senders[..CLIENTS].iter().map(|sender| sender.answered).sum()
}

/// A server, its clients, and the attacker as the last sender if there is one.
struct World {
    fabric: Fabric,
    server: Shard<Sim, Echo>,
    senders: Vec<Sender<Sim>>,
    now: Time,
    gss: Option<Gss>,
}

/// Contexts of a server, and the acceptor's way to judge.
struct Gss {
    contexts: Arc<GssContexts>,
    /// Each request is judged before the server's next pass; otherwise none is.
    is_prompt: bool,
}

impl World {
    fn new(attack: Option<Sends>, gss: Option<Gss>) -> Self {
        let fabric = Fabric::new(5, ONE_WAY);
        let end = fabric.end("server", server_limits());
        let contexts = gss.as_ref().map(|gss| Arc::clone(&gss.contexts));
        let (echo, config) = (Echo::default(), Config { gss: contexts, ..server_config() });
        let mut server = Shard::new(end, echo, config, Box::new(|_| true)).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let clients = [(null as Make, GRANT, u64::MAX); CLIENTS];
        let senders = clients.into_iter().chain(attack);
        let senders = senders.map(|sends| Sender::new(Raw::new(&fabric), port, sends)).collect();
        Self { fabric, server, senders, now: Time(0), gss }
    }

    fn run_for(&mut self, time: u64) {
        let until = self.now.0 + time;
        while self.now.0 < until {
            let before = cost(&self.senders);
            let mut worked = self.server.pass(self.now);
            if let Some(gss) = self.gss.as_ref().filter(|gss| gss.is_prompt) {
                while gss.contexts.counts().waiting > 0 {
                    std::thread::yield_now();
                }
            }
            for sender in &mut self.senders {
                worked |= sender.turn(self.now);
            }
            self.now = Time(self.now.0 + cost(&self.senders) - before);
            if !worked {
                let due = self.fabric.next_due().map_or(u64::MAX, |due| due.0);
                self.now = Time(due.clamp(self.now.0 + 1, self.now.0 + PATIENCE));
            }
        }
    }
}

/// Counts of the measured time.
#[derive(Debug)]
struct Seen {
    /// Calls of the clients.
    calls: u64,
    /// Messages and connections of the attacker, and answers to it.
    sent: u64,
    connections: u64,
    answers: u64,
    /// Counts of calls above a grant.
    exceeded: u64,
}

fn measure(attack: Option<Sends>, gss: Option<Gss>) -> Seen {
    let mut world = World::new(attack, gss);
    // All clients are connected and busy before anything is measured.
    world.run_for(MEASURED / 4);
    let before = answered(&world.senders);
    world.run_for(MEASURED);
    let calls = answered(&world.senders) - before;
    for client in &world.senders[..CLIENTS] {
        assert_eq!(client.connections, 1, "no client loses its connection");
    }
    let faults = world.server.snapshot().engine.peer_faults;
    let attacker = world.senders.get(CLIENTS);
    let of = |count: fn(&Sender<Sim>) -> u64| attacker.map_or(0, count);
    Seen {
        calls,
        sent: of(|attacker| attacker.sent),
        connections: of(|attacker| attacker.connections),
        answers: of(|attacker| attacker.answered),
        exceeded: faults.get("CreditsExceeded").copied().unwrap_or(0),
    }
}

#[test]
fn an_attacker_costs_fifteen_busy_clients_at_most_a_tenth_of_their_calls() {
    let alone = measure(None, None);
    // One way and back, all calls would take 20 µs; their server needs 24 times that for them.
    let saturated = MEASURED / (2 * MESSAGE);
    assert!(alone.calls >= saturated * 9 / 10, "the server is busy: {alone:?}");
    let mut costly = Vec::new();
    for (name, make, depth) in ATTACKS {
        let patience = if name == SERVED { u64::MAX } else { PATIENCE };
        let seen = measure(Some((make, depth, patience)), None);
        let share = seen.calls as f64 / alone.calls as f64;
        println!("{name}: clients keep {share:.3} of their calls; {seen:?}");
        assert!(seen.sent > 100 || seen.connections > 10, "{name}: an attack: {seen:?}");
        if name == SERVED {
            // One of sixteen: it is served as they are, and that is what it costs them.
            assert!(seen.answers * 20 >= alone.calls, "{seen:?} {alone:?}");
        }
        if depth > GRANT {
            assert!(seen.exceeded >= seen.connections - 1, "{name}: each end is counted: {seen:?}");
        }
        if seen.calls * 10 < alone.calls * 9 {
            costly.push(name);
        }
    }
    assert_eq!(costly, [""; 0], "attacks that cost clients more than a tenth of their calls");
}

/// Judges nothing until the sender is gone, and refuses then.
struct Stuck(Receiver<()>);

impl ContextAcceptor for Stuck {
    fn accept(&mut self, _: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        self.0.recv().expect_err("nothing is sent");
        Err(RefusedContext { major: MajorStatus::FAILURE, minor: 0, token: Vec::new() })
    }
}

fn request(xid: u32, token: &[u8]) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &init(xid, token))
}

/// Requests for contexts: granted and never used, refused, and cut.
const REQUESTS: [(&str, Make); 3] = [
    ("contexts made and dropped", |xid| request(xid, b"flood@REALM")),
    ("tokens that are refused", |xid| request(xid, b"")),
    ("tokens that are cut", |xid| {
        let octets = request(xid, b"flood@REALM");
        octets[..octets.len() - 8].to_vec()
    }),
];

#[test]
fn a_flood_of_requests_for_contexts_costs_clients_at_most_a_tenth_of_their_calls() {
    let alone = measure(None, None);
    let mut costly = Vec::new();
    for ((name, make), depth) in REQUESTS.iter().flat_map(|it| [(it, GRANT), (it, 3 * GRANT)]) {
        for is_prompt in [true, false] {
            let (until_the_end, waits) = channel::<()>();
            let acceptor: Box<dyn ContextAcceptor> = match is_prompt {
                true => Box::new(NamedAcceptor(Enctype::Aes128Sha1)),
                false => Box::new(Stuck(waits)),
            };
            let contexts = GssContexts::start(acceptor, ContextLimits::default()).unwrap();
            let gss = Gss { contexts: Arc::clone(&contexts), is_prompt };
            let seen = measure(Some((*make, depth, PATIENCE)), Some(gss));
            let counts = contexts.counts();
            drop(until_the_end);
            let share = seen.calls as f64 / alone.calls as f64;
            let name = format!("{name}, {depth} at once, prompt: {is_prompt}");
            println!("{name}: clients keep {share:.3} of their calls; {seen:?}; {counts:?}");
            assert!(seen.sent > 100 || seen.connections > 10, "{name}: an attack: {seen:?}");
            if share < 0.9 {
                costly.push(name);
            }
        }
    }
    assert_eq!(costly, [""; 0], "floods that cost clients more than a tenth of their calls");
}
