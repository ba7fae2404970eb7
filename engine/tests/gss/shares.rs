//! The buffers of long protected calls count against the share of their peer, also while they are
//! opened and protected step by step.

use super::{
    ENCTYPE, ask,
    client::{Client, init},
    contexts,
    long::{LEN, READ, Store, long_call, read_arguments},
    opaque,
};
use crate::support::{AtServer, Raw, small};
use stag_echo::{PULL, part};
use stag_engine::{App, Config, Shard, config::LARGE_LEN, gss::ContextLimits};
use stag_protocol::rpc::{gss::GssService, record};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::Time;
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

const SERVICES: [GssService; 2] = [GssService::Integrity, GssService::Privacy];
/// Long buffers of the shard.
const LARGES: usize = 16;
/// The most of them that one peer has: a quarter of the memory, the one with which it exceeds that,
/// and one for octets that have arrived.
const OF_ONE: usize = 6;
/// Calls that a peer has outstanding.
const CALLS: u32 = 24;

fn config() -> Config {
    let gss = Some(contexts(ENCTYPE, ContextLimits::default()));
    let slots = [512, 16, LARGES];
    Config { grant: CALLS + 1, grant_first: CALLS + 1, slots, gss, ..small() }
}

/// Long buffers in use.
fn used<A: App>(shard: &mut Shard<Sim, A>) -> usize {
    let free: Vec<_> = shard.with_app(|_, cx| std::iter::from_fn(|| cx.take(LARGE_LEN)).collect());
    LARGES - free.len()
}

/// Arguments with much, or of a call whose results are much.
fn arguments(procedure: u32) -> Vec<u8> {
    match procedure {
        PULL => [&[0; 4], &opaque(part(0, LEN).unwrap())[..]].concat(),
        _ => read_arguments(LEN),
    }
}

#[test]
fn a_peer_with_all_the_long_calls_it_may_have_leaves_buffers_to_others() {
    for (service, procedure) in SERVICES.into_iter().flat_map(|it| [(it, PULL), (it, READ)]) {
        let mut at = AtServer::serving(Store::default(), config());
        let client = Client::of(ENCTYPE, &ask(&mut at, &init(1, b"alice@REALM")));
        let room = if procedure == PULL { 0 } else { LEN + 400 };
        let mut others: Vec<_> = (0..2)
            .map(|_| {
                at.raw = Raw::with_slots(&at.fabric, [256, 72]);
                at.connect();
                std::mem::replace(&mut at.raw, Raw::new(&at.fabric))
            })
            .collect();
        let send = |at: &mut AtServer<Store>, peer: &mut Raw, number| {
            std::mem::swap(&mut at.raw, peer);
            let call = client.call((number, number), service, procedure, &arguments(procedure));
            let call = long_call(at, &call, room);
            at.raw.send(&call.message, None);
            std::mem::swap(&mut at.raw, peer);
        };
        (1..=CALLS).for_each(|number| send(&mut at, &mut others[0], number));
        let (mut most, mut before) = (0, None);
        for pass in 0..100_000 {
            if pass == 40 {
                before = Some(others[0].received.len());
                send(&mut at, &mut others[1], CALLS + 1);
            }
            let worked = at.shard.pass(at.now);
            most = most.max(used(&mut at.shard));
            let worked = others.iter_mut().fold(worked, |worked, it| worked | it.poll(at.now));
            if others[1].received.len() == 1 || !worked && at.fabric.next_due().is_none() {
                break;
            }
            at.now = at.fabric.next_due().map_or(at.now, |due| due.max(at.now));
        }
        assert!(before < Some(CALLS as usize), "the other one calls in the middle");
        assert_eq!(others[1].received.len(), 1, "{service:?} {procedure}");
        assert!((2..=OF_ONE).contains(&most), "{most} buffers, {service:?} {procedure}");
        let limits = at.shard.snapshot().engine.limits;
        assert_eq!((limits.memory, limits.slow, limits.stalled), (0, 0, 0), "{limits:?}");
    }
}

/// A server over TCP and one client, which sends as fast as it can.
struct OverTcp {
    shard: Shard<Sim, Store>,
    socket: TcpStream,
    now: Time,
    unsent: Vec<u8>,
    received: Vec<u8>,
}

impl OverTcp {
    fn new() -> Self {
        let end = Fabric::new(1, Faults::NONE).end("server", stag_sim::LIMITS);
        let mut shard = Shard::new(end, Store::default(), config(), Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { shard, socket, now: Time(0), unsent: Vec::new(), received: Vec::new() }
    }

    fn send(&mut self, call: &[u8]) {
        let fragment = record::Fragment::new(call.len() as u32, true).unwrap();
        self.unsent.extend_from_slice(&fragment.emit());
        self.unsent.extend_from_slice(call);
    }

    /// A pass. Returns a reply that is there.
    fn pass(&mut self) -> Option<Vec<u8>> {
        if let Ok(sent) = self.socket.write(&self.unsent) {
            self.unsent.drain(..sent);
        }
        self.now = self.now + Duration::from_micros(10);
        self.shard.pass(self.now);
        let mut part = [0; 65_536];
        if let Ok(len) = self.socket.read(&mut part) {
            assert!(len > 0, "the connection stays");
            self.received.extend_from_slice(&part[..len]);
        }
        let (head, rest) = self.received.split_first_chunk::<4>()?;
        let len = (u32::from_be_bytes(*head) & 0x7fff_ffff) as usize;
        let reply = rest.get(..len)?.to_vec();
        self.received.drain(..4 + len);
        Some(reply)
    }

    fn receive(&mut self) -> Vec<u8> {
        let from = Instant::now();
        loop {
            assert!(from.elapsed() < Duration::from_secs(60), "a reply comes");
            if let Some(reply) = self.pass() {
                return reply;
            }
        }
    }
}

#[test]
fn a_peer_over_tcp_with_all_the_long_calls_it_may_have_leaves_buffers_to_others() {
    for (service, procedure) in SERVICES.into_iter().flat_map(|it| [(it, PULL), (it, READ)]) {
        let mut at = OverTcp::new();
        at.send(&init(1, b"alice@REALM"));
        let client = Client::of(ENCTYPE, &at.receive());
        for number in 1..=CALLS {
            at.send(&client.call((number, number), service, procedure, &arguments(procedure)));
        }
        let (mut most, mut answered, from) = (0, 0, Instant::now());
        while answered < CALLS {
            assert!(from.elapsed() < Duration::from_secs(60), "each call is answered");
            answered += u32::from(at.pass().is_some());
            most = most.max(used(&mut at.shard));
        }
        assert!((2..=OF_ONE).contains(&most), "{most} buffers, {service:?} {procedure}");
        let limits = at.shard.snapshot().engine.limits;
        assert_eq!((limits.slow, limits.stalled), (0, 0), "{limits:?}");
        assert_eq!(at.shard.calls_in_progress(), (0, 0));
    }
}
