//! Peers that send messages made by hand, as fast as they are answered or faster: clients that keep
//! a server busy, and attackers alongside them.

use super::{LIMITS, Raw, echo_head, message, rpc};
use stag_echo::{ECHO, NULL};
use stag_engine::Config;
use stag_protocol::rpcrdma::{ChunkLists, Position, Segment, Versions};
use stag_verbs::{Limits, Provider, Tag, Time};

/// Number of clients next to an attacker.
pub const CLIENTS: usize = 15;
/// Calls that each client keeps outstanding: all that its grant permits.
pub const GRANT: usize = 16;
/// An attacker that gets no answer within this time sends again; a client waits.
pub const PATIENCE: u64 = 100_000;

/// A server for all of them on an end of [`server_limits`].
pub fn server_config() -> Config {
    let grant = GRANT as u32;
    Config {
        grant,
        grant_first: grant,
        receives: 512,
        inbound: 512,
        peers: 32,
        serve_versions: Versions::One,
        ..Config::small()
    }
}

pub fn server_limits() -> Limits {
    Limits { receives: 512, connections: 64, ..LIMITS }
}

/// Makes the message with this number.
pub type Make = fn(u32) -> Vec<u8>;
/// The messages of a sender, their number ahead of answers, and the longest wait for an answer.
pub type Sends = (Make, usize, u64);

pub fn null(xid: u32) -> Vec<u8> {
    message(xid, &ChunkLists::new(), &rpc(xid, NULL, &[]))
}

/// One connection, whose messages are made by hand.
pub struct Sender<P: Provider> {
    pub raw: Raw<P>,
    port: P::Address,
    make: Make,
    /// Messages it sends ahead of their answers.
    pub depth: usize,
    outstanding: usize,
    pub sent: u64,
    pub answered: u64,
    pub connections: u64,
    xid: u32,
    /// The latest answer, and the time without one after which it sends as much again.
    heard: Time,
    patience: u64,
}

impl<P: Provider> Sender<P> {
    pub fn new(raw: Raw<P>, port: P::Address, (make, depth, patience): Sends) -> Self {
        let heard = Time(0);
        let mut this = Self {
            raw,
            port,
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
        this.connect();
        this
    }

    fn connect(&mut self) {
        self.raw.ended = None;
        self.outstanding = 0;
        self.connections += 1;
        self.raw.qp = self.raw.end.connect(&self.port, &Raw::private_data()).ok();
    }

    /// Takes answers, and sends as many messages as came back. Connects again where it was cut off.
    pub fn turn(&mut self, now: Time) -> bool {
        let mut worked = self.raw.poll(now);
        if self.raw.ended.is_some() || self.raw.qp.is_none() {
            self.connect();
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
}

/// A good call with the word at `at` replaced.
fn with_word(xid: u32, at: usize, word: u32) -> Vec<u8> {
    let mut octets = null(xid);
    octets[at..at + 4].copy_from_slice(&word.to_be_bytes());
    octets
}

/// An ECHO whose item has a key that is not in use.
fn foreign_key(xid: u32) -> Vec<u8> {
    let mut lists = ChunkLists::new();
    let position = Position::new(rpc(xid, ECHO, &[0; 4]).len() as u32).unwrap();
    lists.push_read(position, Segment { handle: 0xBAD, length: 4_096, offset: 0 }).unwrap();
    message(xid, &lists, &rpc(xid, ECHO, &echo_head(4_096)))
}

pub const SERVED: &str = "calls up to its grant";
pub const ATTACKS: [(&str, Make, usize); 12] = [
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
