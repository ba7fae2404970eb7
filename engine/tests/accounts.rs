//! Memory that TCP connections hold: the part charged to a peer, and that no peer waits for ever.

use crate::support::{LIMITS, rpc};
use stag_echo::NULL;
use stag_engine::{Answer, App, Call, ClientName, Config, Cx, PeerId, Shard, config::LARGE_LEN};
use stag_pools::Buf;
use stag_protocol::{rpc::Accepted, xdr::Writer};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::Time;
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Answers every call with `reply_len` octets, and records its peers in the order of their arrival.
struct Verbose {
    reply_len: usize,
    peers: Vec<PeerId>,
}

impl App for Verbose {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut message = cx.message(self.reply_len).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        message.extend(self.reply_len);
        cx.answer(call.id, Answer { message, item: None });
    }

    fn on_peer_up(&mut self, _: &mut Cx<'_>, peer: PeerId) {
        self.peers.push(peer);
    }
}

struct Server {
    shard: Shard<Sim, Verbose>,
    at: SocketAddr,
    now: Time,
}

impl Server {
    fn new(slots: [usize; 3], reply_len: usize) -> Self {
        let end = Fabric::new(7, Faults::NONE).end("server", LIMITS);
        let app = Verbose { reply_len, peers: Vec::new() };
        let config = Config { slots, ..crate::support::small() };
        let mut shard = Shard::new(end, app, config, Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, at, now: Time(0) }
    }

    fn connect(&mut self) -> TcpStream {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_nonblocking(true).unwrap();
        let before = self.shard.app().peers.len();
        while self.shard.app().peers.len() == before {
            self.run_for(Duration::from_millis(1));
        }
        socket
    }

    /// A pass for each millisecond.
    fn run_for(&mut self, time: Duration) {
        for _ in 0..time.as_millis() {
            self.now = self.now + Duration::from_millis(1);
            self.shard.pass(self.now);
        }
    }

    /// Sends all of `octets`, and returns how many octets of reply came in the next `time`, of the
    /// shard's.
    fn ask(&mut self, socket: &mut TcpStream, mut octets: &[u8], time: Duration) -> usize {
        let (until, mut received) = (self.now + time, 0);
        while self.now < until {
            match socket.write(octets) {
                Ok(sent) => octets = &octets[sent..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
            self.run_for(Duration::from_millis(1));
            match socket.read(&mut [0; 65_536]) {
                Ok(0) => panic!("the connection was ended"),
                Ok(len) => received += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("the connection was ended: {error}"),
            }
            std::thread::yield_now();
        }
        received
    }

    /// All large buffers.
    fn take_larges(&mut self) -> Vec<Buf> {
        self.shard.with_app(|_, cx| std::iter::from_fn(|| cx.take(LARGE_LEN)).collect())
    }
}

/// A record of `len` octets, with a call in it.
fn record(len: usize) -> Vec<u8> {
    let mut record = (1 << 31 | len as u32).to_be_bytes().to_vec();
    record.extend(rpc(1, NULL, &vec![0; len - 40]));
    record
}

#[test]
fn a_record_longer_than_its_peers_share_is_read_to_its_end() {
    let mut server = Server::new([64, 16, 1], 100);
    let mut socket = server.connect();
    let received = server.ask(&mut socket, &record(1 << 20), Duration::from_secs(2));
    assert_eq!(received, 104);
    assert_eq!(server.shard.snapshot().engine.limits.share, 0, "it took no reply's memory");
}

#[test]
fn a_record_longer_than_any_buffer_ends_its_connection_at_once() {
    let mut server = Server::new([64, 4, 0], 100);
    let mut socket = server.connect();
    let _ = socket.write(&record(1 << 20)).unwrap();
    server.run_for(Duration::from_millis(100));
    assert_eq!(server.shard.snapshot().engine.connections.live, 0);
}

#[test]
fn a_record_that_waits_for_memory_goes_on_after_its_connection_was_adopted() {
    let mut server = Server::new([64, 0, 4], 100);
    let (_earlier, mut later) = (server.connect(), server.connect());
    let name = ClientName(7);
    let adopt = |server: &mut Server, at: usize| {
        server.shard.with_app(|app, cx| {
            let peer = app.peers[at];
            cx.adopt(peer, name)
        })
    };
    let known = adopt(&mut server, 0);
    let larges = server.take_larges();
    assert_eq!(larges.len(), 4);
    assert_eq!(server.ask(&mut later, &record(20_000), Duration::from_millis(50)), 0, "it waits");
    assert_eq!(adopt(&mut server, 1), known);
    server.run_for(Duration::from_millis(50));
    drop(larges);
    assert_eq!(server.ask(&mut later, &[], Duration::from_millis(100)), 104);
}

#[test]
fn what_was_read_behind_replies_that_are_not_taken_is_held_by_their_peer() {
    let mut server = Server::new([64, 0, 1], 4_000);
    let mut clogged = server.connect();
    let calls = record(40).repeat(6_000);
    let mut rest = &calls[..];
    // It reads nothing; its calls are taken until the kernel has no room for their replies.
    for _ in 0..300 {
        if let Ok(sent) = clogged.write(rest) {
            rest = if sent == rest.len() { &calls } else { &rest[sent..] };
        }
        server.run_for(Duration::from_millis(1));
        std::thread::yield_now();
    }
    let engine = server.shard.snapshot().engine;
    assert_eq!((engine.connections.live, engine.limits.slow), (1, 0), "nobody needs its memory");
    assert!(server.shard.buffers_in_use() >= 2, "replies wait, and calls behind them");
    let mut other = server.connect();
    let received = server.ask(&mut other, &record(20_000), Duration::from_secs(1));
    assert_eq!((received, server.shard.snapshot().engine.limits.slow), (4_004, 1));
}
