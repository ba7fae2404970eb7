//! Fifteen clients that keep a server busy, and one attacker beside them. Each message and each
//! connection takes virtual time of the server's core: the work that the attacker makes is time in
//! which no client is served.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_echo::{ECHO, Echo, NULL};
use stag_engine::{Config, Shard};
use stag_protocol::rpcrdma::{ChunkLists, Position, Segment, Versions};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Tag, Time};
use support::{LIMITS, Raw, echo_head, message, rpc};

const CLIENTS: usize = 15;
/// Calls that each client keeps outstanding: all that its grant permits.
const GRANT: usize = 16;
/// Nanoseconds of the server's core for a message that it takes or sends, and for a connection.
const MESSAGE: u64 = 1_000;
const CONNECTION: u64 = 20_000;
/// The same for a message that is dropped unread, as its connection is ending.
const DROPPED: u64 = 100;
/// Virtual time that is measured.
const MEASURED: u64 = 20_000_000;
/// An attacker that gets no answer within this time sends again; a client waits.
const PATIENCE: u64 = 100_000;
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };

/// Makes the message with this number.
type Make = fn(u32) -> Vec<u8>;
/// The messages of a sender, their number ahead of answers, and the longest wait for an answer.
type Sends = (Make, usize, u64);

fn null(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &rpc(xid, NULL, &[]))
}

/// One connection, whose messages are made by hand.
struct Sender {
    raw: Raw,
    make: Make,
    /// Messages it sends ahead of their answers.
    depth: usize,
    outstanding: usize,
    sent: u64,
    answered: u64,
    connections: u64,
    xid: u32,
    /// The latest answer, and the time without one after which it sends as much again.
    heard: Time,
    patience: u64,
}

impl Sender {
    fn new(fabric: &Fabric, port: Port, (make, depth, patience): Sends) -> Self {
        let raw = Raw::new(fabric);
        let heard = Time(0);
        let mut this = Self {
            raw,
            patience,
            make,
            depth,
            outstanding: 0,
            sent: 0,
            answered: 0,
            connections: 0,
            xid: 0,
            heard,
        };
        this.connect(port);
        this
    }

    fn connect(&mut self, port: Port) {
        self.raw.ended = None;
        self.outstanding = 0;
        self.connections += 1;
        self.raw.qp = self.raw.end.connect(&port, &Raw::private_data()).ok();
    }

    /// Takes answers, and sends as many messages as came back. Connects again where it was cut off.
    fn turn(&mut self, port: Port, now: Time) -> bool {
        let mut worked = self.raw.poll(now);
        if self.raw.ended.is_some() || self.raw.qp.is_none() {
            self.connect(port);
            self.heard = now;
            return true;
        }
        let answers = self.raw.received.len();
        self.raw.received.clear();
        self.answered += answers as u64;
        self.outstanding = self.outstanding.saturating_sub(answers);
        if answers > 0 {
            self.heard = now;
        } else if now.0 - self.heard.0 > self.patience {
            (self.outstanding, self.heard) = (0, now);
        }
        while self.outstanding < self.depth && self.send() {
            self.outstanding += 1;
            worked = true;
        }
        worked
    }

    /// False where the connection takes no more.
    fn send(&mut self) -> bool {
        self.xid += 1;
        let octets = (self.make)(self.xid);
        let Some(mut buf) = self.raw.pool.take(octets.len()) else { return false };
        buf.append(&octets).unwrap();
        let sent = self.raw.end.post_send(self.raw.qp.unwrap(), Tag(0), buf, None);
        self.raw.end.ring();
        self.sent += u64::from(sent.is_ok());
        sent.is_ok()
    }

    /// Time of the server's core that it has used. What is on its way when its connection ends
    /// takes none.
    const fn cost(&self) -> u64 {
        // Calls of a flood are answered or dropped; other attackers' messages are all read.
        let unanswered = if self.depth > GRANT { DROPPED } else { MESSAGE };
        self.answered * 2 * MESSAGE
            + self.raw.delivered.saturating_sub(self.answered) * unanswered
            + self.connections * CONNECTION
    }
}

fn cost(senders: &[Sender]) -> u64 {
    senders.iter().map(Sender::cost).sum()
}

/// Calls of the clients, which are all senders but the last.
fn answered(senders: &[Sender]) -> u64 {
    senders[..CLIENTS].iter().map(|sender| sender.answered).sum()
}

/// A server, its clients, and the attacker as the last sender if there is one.
struct World {
    fabric: Fabric,
    server: Shard<Sim, Echo>,
    port: Port,
    senders: Vec<Sender>,
    now: Time,
}

impl World {
    fn new(attack: Option<Sends>) -> Self {
        let fabric = Fabric::new(5, ONE_WAY);
        let grant = GRANT as u32;
        let config = Config {
            grant,
            grant_first: grant,
            receives: 512,
            inbound: 512,
            peers: 32,
            serve_versions: Versions::One,
            ..Config::small()
        };
        let limits = Limits { receives: 512, connections: 64, ..LIMITS };
        let end = fabric.end("server", limits);
        let mut server = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let clients = [(null as Make, GRANT, u64::MAX); CLIENTS];
        let senders = clients.into_iter().chain(attack);
        let senders = senders.map(|sends| Sender::new(&fabric, port, sends)).collect();
        Self { fabric, server, port, senders, now: Time(0) }
    }

    fn run_for(&mut self, time: u64) {
        let until = self.now.0 + time;
        while self.now.0 < until {
            let before = cost(&self.senders);
            let mut worked = self.server.pass(self.now);
            for sender in &mut self.senders {
                worked |= sender.turn(self.port, self.now);
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
}

fn measure(attack: Option<Sends>) -> Seen {
    let mut world = World::new(attack);
    // Everybody is connected and busy before anything is measured.
    world.run_for(MEASURED / 4);
    let before = answered(&world.senders);
    world.run_for(MEASURED);
    let calls = answered(&world.senders) - before;
    for client in &world.senders[..CLIENTS] {
        assert_eq!(client.connections, 1, "no client loses its connection");
    }
    let attacker = world.senders.get(CLIENTS);
    let of = |count: fn(&Sender) -> u64| attacker.map_or(0, count);
    Seen {
        calls,
        sent: of(|attacker| attacker.sent),
        connections: of(|attacker| attacker.connections),
        answers: of(|attacker| attacker.answered),
    }
}

/// A good call with the word at `at` replaced.
fn with_word(xid: u32, at: usize, word: u32) -> Vec<u8> {
    let mut octets = null(xid);
    octets[at..at + 4].copy_from_slice(&word.to_be_bytes());
    octets
}

/// An ECHO whose item lies behind a key that nobody has.
fn foreign_key(xid: u32) -> Vec<u8> {
    let mut lists = ChunkLists::new();
    let position = Position::new(rpc(xid, ECHO, &[0; 4]).len() as u32).unwrap();
    lists.push_read(position, Segment { handle: 0xBAD, length: 4_096, offset: 0 }).unwrap();
    message(xid, &lists, &rpc(xid, ECHO, &echo_head(4_096)))
}

const SERVED: &str = "calls up to its grant";
const ATTACKS: [(&str, Make, usize); 12] = [
    (SERVED, null, GRANT),
    ("twice the calls of its grant", null, 2 * GRANT),
    ("three times the calls of its grant", null, 3 * GRANT),
    ("messages of 8 octets", |xid| null(xid)[..8].to_vec(), GRANT),
    ("messages cut in the lists", |xid| null(xid)[..20].to_vec(), GRANT),
    ("another version", |xid| with_word(xid, 4, 7), GRANT),
    ("no credits", |xid| with_word(xid, 8, 0), GRANT),
    ("another type of message", |xid| with_word(xid, 12, 9), GRANT),
    ("a list that is no list", |xid| with_word(xid, 16, 2), GRANT),
    ("long calls without a chunk", |xid| with_word(xid, 12, 1), GRANT),
    ("an unknown procedure", |xid| message(xid, &ChunkLists::new(), &rpc(xid, 999, &[])), GRANT),
    ("foreign keys", foreign_key, GRANT),
];

#[test]
fn an_attacker_costs_fifteen_busy_clients_at_most_a_tenth_of_their_calls() {
    let alone = measure(None);
    // One way and back, all calls would take 20 µs; their server needs 24 times that for them.
    let saturated = MEASURED / (2 * MESSAGE);
    assert!(alone.calls >= saturated * 9 / 10, "the server is busy: {alone:?}");
    let mut costly = Vec::new();
    for (name, make, depth) in ATTACKS {
        let patience = if name == SERVED { u64::MAX } else { PATIENCE };
        let seen = measure(Some((make, depth, patience)));
        let share = seen.calls as f64 / alone.calls as f64;
        println!("{name}: clients keep {share:.3} of their calls; {seen:?}");
        assert!(seen.sent > 100 || seen.connections > 10, "{name}: an attack: {seen:?}");
        if name == SERVED {
            // One of sixteen: it is served as they are, and that is what it costs them.
            assert!(seen.answers * 20 >= alone.calls, "{seen:?} {alone:?}");
        }
        if seen.calls * 10 < alone.calls * 9 {
            costly.push(name);
        }
    }
    assert_eq!(costly, [""; 0], "attacks that cost clients more than a tenth of their calls");
}
