//! A peer that sends random messages, in both versions and both directions, with XIDs and keys that
//! it saw, over connections that come and go. Whatever it does, each call of ours has one outcome
//! and nothing is held when it is over.
//!
//! `SEEDS=20000 cargo test -p stag-engine --test all chaos` goes on for a minute; a failure names
//! its seed, and `FIRST=` begins there.

use crate::support::{self, AtClient, AtServer, Raw, echo_head, pattern, rpc, with_header};
use fastrand::Rng;
use stag_echo::{Caller, ECHO, NULL, REGISTER, Twin};
use stag_engine::{ClientName, Config, PeerId, Shard, Token};
use stag_pools::RemoteKey;
use stag_protocol::rpcrdma::{
    self, Body, ChunkLists, Credits, ErrorBody, ErrorReply, Header, Intent, MessageType, Position,
    Segment, Version2, Versions, Xid,
    option::{self, Exchange, Message, health},
    v1, v2,
};
use stag_sim::{Faults, Sim};
use stag_verbs::{Provider, Qp, Tag, Time};
use std::ops::Range;

/// Number of steps that one end takes in one run.
const STEPS: usize = 60;
/// The peer's keys may be dead already when it is our turn to invalidate them.
const FAULTS: Faults = Faults { lenient: true, ..Faults::DELAYS };

/// The versions and the grants of one run.
fn config(random: &mut Rng) -> Config {
    let both = Versions::Both(Version2::Directed);
    let plain = Versions::Both(Version2::Undirected);
    let versions = [both, both, plain, Versions::One, Versions::Two(Version2::Directed)];
    Config {
        serve_versions: random.choice(versions).unwrap(),
        call_versions: random.choice(versions).unwrap(),
        reverse_grant: random.u32(..4),
        reverse_calls_max: random.u32(1..=3),
        ..support::config()
    }
}

fn seeds() -> Range<u64> {
    let number =
        |name, other| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(other);
    let first = number("FIRST", 0);
    first..first + number("SEEDS", 150)
}

/// XIDs and segments that the peer has seen from this side.
struct Seen {
    xids: Vec<u32>,
    segments: Vec<Segment>,
}

impl Seen {
    fn new() -> Self {
        Self { xids: vec![1], segments: vec![Segment { handle: 5, length: 40, offset: 0 }] }
    }

    fn learn(&mut self, raw: &mut Raw) {
        for (message, _) in raw.received.drain(..) {
            self.xids.push(u32::from_be_bytes(message[..4].try_into().unwrap()));
            let mut lists = ChunkLists::new();
            let parsed = match message[7] {
                2 => v2::parse::<v2::Directed>(&message, &mut lists).is_ok(),
                _ => v1::parse(&message, &mut lists).is_ok(),
            };
            self.segments.extend(lists.segments().iter().filter(|_| parsed));
        }
    }

    fn lists(&self, random: &mut Rng) -> ChunkLists {
        let mut lists = ChunkLists::new();
        let segment =
            Segment { length: random.u32(..6_000), ..*random.choice(&self.segments).unwrap() };
        match random.usize(..12) {
            0 => lists.push_read(Position::new(44).unwrap(), segment).unwrap(),
            1 => lists.push_read(Position::ZERO, segment).unwrap(),
            2 => lists.begin_write().and_then(|()| lists.push_write(segment)).unwrap(),
            3 => {
                lists.begin_reply();
                lists.push_reply(segment).unwrap();
            }
            _ => {}
        }
        lists
    }

    fn message(&self, random: &mut Rng) -> Vec<u8> {
        let recent = &self.xids[self.xids.len().saturating_sub(4)..];
        let xid =
            if random.usize(..4) > 0 { *random.choice(recent).unwrap() } else { random.u32(..8) };
        let (two, credits) = (random.usize(..3) > 0, Credits(random.u32(..9)));
        match random.usize(..10) {
            0 | 1 => return error(random, Xid(xid), if two { 2 } else { 1 }),
            2 => return question(random, Xid(xid)),
            _ => {}
        }
        let mut lists = self.lists(random);
        let no_payload = !lists.is_empty() && random.usize(..4) == 0;
        let body = if no_payload { Body::NoMsg } else { Body::Msg };
        let answer = [&xid.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat();
        let (message_type, payload) = match random.usize(..6) {
            0 => (MessageType::Reply, [&answer[..], &echo_head(3), b"abc\0"].concat()),
            1 => (MessageType::Reply, answer),
            2 => (MessageType::Call, rpc(xid, NULL, &[])),
            3 => (MessageType::Call, rpc(xid, ECHO, &[&echo_head(8)[..], b"forward!"].concat())),
            4 => (MessageType::Call, rpc(xid, REGISTER, &random.u32(..3).to_be_bytes())),
            _ => (MessageType::Call, rpc(xid, ECHO, &echo_head(100))),
        };
        let payload = if no_payload { &[][..] } else { &payload };
        let header = Header { xid: Xid(xid), credits, body };
        if !two {
            return with_header(&header, &lists, payload);
        }
        lists.set_intent(Some(Intent {
            message_type,
            inv_handle: random.choice(&self.segments).unwrap().handle,
        }));
        let mut out = vec![0; v2::header_len(&lists)];
        v2::emit::<v2::Directed>(&header, &lists, &mut out).unwrap();
        [&out[..], payload].concat()
    }

    /// Sends one message, now and then a broken one, now and then with an invalidation.
    fn send(&self, random: &mut Rng, raw: &mut Raw) {
        let mut message = self.message(random);
        if random.usize(..12) == 0 {
            let at = random.usize(..message.len());
            message[at] ^= 1 << random.usize(..8);
        }
        if random.usize(..20) == 0 {
            message.truncate(1 + random.usize(..message.len()));
        }
        let key = (random.usize(..10) == 0)
            .then(|| RemoteKey(random.choice(&self.segments).unwrap().handle));
        let buf = raw.buf(&message);
        // Its connection may be over.
        let _ = raw.end.post_send(raw.qp.unwrap(), Tag(0), buf, key);
        raw.end.ring();
    }
}

fn error(random: &mut Rng, xid: Xid, version: u32) -> Vec<u8> {
    let versions = |high| ErrorBody::Version { low: 1, high };
    let error =
        random.choice([ErrorBody::Chunk, ErrorBody::Option, versions(1), versions(2)]).unwrap();
    let mut out = vec![0; v2::ERROR_LEN_MAX];
    let reply = ErrorReply { xid, version, credits: Credits(random.u32(..9)), error };
    let len = rpcrdma::emit_error(&reply, &mut out).unwrap();
    out.truncate(len);
    out
}

fn question(random: &mut Rng, xid: Xid) -> Vec<u8> {
    let answer = Exchange::Reply(health::Reply::default());
    let message =
        Message::Health(random.choice([Exchange::Request(health::Request), answer]).unwrap());
    let mut out = vec![0; 256];
    let len = option::emit(xid, Credits(3), &message, &mut out).unwrap();
    out.truncate(len);
    out
}

/// Our calls.
#[derive(Default)]
struct Calls {
    made: u64,
    over: u64,
    answered: u64,
}

impl Calls {
    fn call(&mut self, random: &mut Rng, shard: &mut Shard<Sim, Twin>, peer: PeerId) {
        let octets = random
            .choice([None, Some(8), Some(3_000), Some(9_000), Some(70_000)])
            .unwrap()
            .map(pattern);
        let token = Token(self.made);
        self.made +=
            u64::from(shard.with_app(|_, cx| Caller::call(cx, peer, token, octets.as_deref())));
    }

    fn collect(&mut self, shard: &mut Shard<Sim, Twin>) {
        while let Some(done) = shard.with_app(|app, _| app.caller().take()) {
            self.over += u64::from(done.token != Twin::REGISTRATION);
            self.answered += u64::from(done.echo.is_ok());
        }
        while shard.with_app(|app, _| app.take_health()).is_some() {}
    }

    fn expect_over(&mut self, shard: &mut Shard<Sim, Twin>, receives: usize, seed: u64) {
        self.collect(shard);
        assert_eq!(self.over, self.made, "seed {seed}: one outcome for each call");
        assert_eq!(shard.calls_in_progress(), (0, 0), "seed {seed}");
        assert_eq!((shard.buffers_in_use(), shard.receives_promised()), (0, 0), "seed {seed}");
        assert_eq!(shard.provider().receives_posted(), receives, "seed {seed}");
        assert_eq!(shard.provider().windows_bound(), 0, "seed {seed}");
    }
}

#[test]
fn a_server_survives_whatever_its_clients_send() {
    let mut answered = 0;
    for seed in seeds() {
        let mut random = Rng::with_seed(2 * seed);
        let config = config(&mut random);
        let receives = config.receives;
        let mut at = AtServer::serving(Twin::default(), config);
        at.fabric.set_faults(FAULTS);
        let (mut seen, mut calls) = (Seen::new(), Calls::default());
        let directed = Raw::offer_of(Versions::Both(Version2::Directed));
        let mut qps: Vec<Qp> = vec![at.raw.qp.unwrap()];
        for _ in 0..STEPS {
            let peers = at.shard.app().client(random.u32(..3)).into_iter();
            let peers = peers.chain(at.shard.with_app(|app, _| app.caller().peers().to_vec()));
            let peer = random
                .choice([&[None][..], &peers.map(Some).collect::<Vec<_>>()].concat())
                .unwrap();
            match (random.usize(..12), peer) {
                (0..=5, _) => seen.send(&mut random, &mut at.raw),
                (6 | 7, Some(peer)) => calls.call(&mut random, &mut at.shard, peer),
                (8, Some(peer)) => at.shard.with_app(|_, cx| match random.usize(..4) {
                    0 => cx.ready(peer),
                    1 => cx.ask_health(peer),
                    2 => cx.cancel(peer, Token(calls.made.saturating_sub(1))),
                    _ => {
                        let known = cx.adopt(peer, ClientName(random.u64(..3)));
                        cx.ready(known);
                    }
                }),
                (9, _) => {
                    qps.extend(at.raw.end.connect(&at.port, &directed).ok());
                    at.raw.qp = Some(*random.choice(&qps).unwrap());
                }
                (10, _) if random.usize(..3) == 0 => {
                    at.raw.end.disconnect(*random.choice(&qps).unwrap())
                }
                (11, _) if random.usize(..3) == 0 => {
                    at.now = Time(at.now.0 + random.u64(..12) * 1_000_000_000);
                }
                _ => {}
            }
            if random.usize(..3) > 0 {
                at.settle();
            } else {
                let _ = at.shard.pass(at.now) | at.raw.poll(at.now);
            }
            seen.learn(&mut at.raw);
            calls.collect(&mut at.shard);
        }
        qps.iter().for_each(|qp| at.raw.end.disconnect(*qp));
        for _ in 0..2 {
            at.settle();
            at.now = Time(at.now.0 + 30_000_000_000);
        }
        at.settle();
        calls.expect_over(&mut at.shard, receives, seed);
        answered += calls.answered;
    }
    assert!(answered > 0, "some of its replies are right");
}

#[test]
fn a_client_survives_whatever_its_server_sends() {
    let mut answered = 0;
    for seed in seeds() {
        let mut random = Rng::with_seed(2 * seed + 1);
        let config = config(&mut random);
        let receives = config.receives;
        let mut at = AtClient::new(Twin::default(), config);
        let kept = at.shard.keep_connected(&at.port).unwrap();
        at.settle();
        at.fabric.set_faults(FAULTS);
        let (mut seen, mut calls) = (Seen::new(), Calls::default());
        for _ in 0..STEPS {
            let peer = random.choice([at.peer, kept, kept]).unwrap();
            match random.usize(..12) {
                0..=5 => seen.send(&mut random, &mut at.raw),
                6 | 7 => calls.call(&mut random, &mut at.shard, peer),
                8 => at.shard.with_app(|_, cx| cx.ask_health(peer)),
                9 => {
                    let token = Token(calls.made.saturating_sub(random.u64(1..=3)));
                    at.shard.with_app(|_, cx| cx.cancel(peer, token));
                }
                10 if random.usize(..3) == 0 => at.raw.end.disconnect(at.raw.qp.unwrap()),
                11 if random.usize(..3) == 0 => at.wait(random.u64(..12)),
                _ => {}
            }
            if random.usize(..3) > 0 {
                at.settle();
            } else {
                at.step();
            }
            seen.learn(&mut at.raw);
            calls.collect(&mut at.shard);
        }
        let first = at.peer;
        at.shard.with_app(|_, cx| [first, kept].into_iter().for_each(|peer| cx.disconnect(peer)));
        at.settle();
        at.wait(30);
        calls.expect_over(&mut at.shard, receives, seed);
        answered += calls.answered;
    }
    assert!(answered > 0, "some of its replies are right");
}
