//! TCP connections on which no call arrives, and the places that they hold at a server.

use stag_echo::{Echo, NULL, PROGRAM, VERSION};
use stag_engine::{Config, Shard, Time};
use stag_protocol::{
    rpc::{Auth, CallHeader, Credential, record::Fragment},
    rpcrdma::Xid,
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Sim};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const WITHIN: Duration = Duration::from_secs(30);
const PLACES: usize = 4;

/// A server whose time passes only when a test says so.
struct Server {
    shard: Shard<Sim, Echo>,
    at: SocketAddr,
    now: Time,
}

impl Server {
    fn new() -> Self {
        let config =
            Config { streams: PLACES, first_call_within: Some(WITHIN), ..crate::support::small() };
        let end = Fabric::new(1, Faults::NONE).end("server", stag_sim::LIMITS);
        let mut shard = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, at, now: Time(0) }
    }

    /// Passes until `done` is true of what the server counts.
    fn until(&mut self, mut done: impl FnMut(&stag_engine::stats::Stats) -> bool) {
        let from = Instant::now();
        while !done(&self.shard.snapshot().engine) {
            assert!(from.elapsed() < Duration::from_secs(60), "it happens within a minute");
            // A little time, so that sockets are looked at.
            self.now = self.now + Duration::from_micros(1);
            self.shard.pass(self.now);
        }
    }

    /// A connection that the server has taken.
    fn connect(&mut self) -> TcpStream {
        let taken = self.shard.snapshot().engine.connections.tcp;
        let client = TcpStream::connect(self.at).unwrap();
        self.until(|stats| stats.connections.tcp == taken + 1);
        client
    }

    fn serve_call(&mut self, mut client: &TcpStream) {
        let calls = self.shard.snapshot().engine.stream.replies;
        client.write_all(&null()).unwrap();
        self.until(|stats| stats.stream.replies == calls + 1);
    }
}

/// A call of NULL as a record.
fn null() -> Vec<u8> {
    let (credential, verifier) = (Credential::None, Auth::NONE);
    let (program, version, procedure) = (PROGRAM, VERSION, NULL);
    let call = CallHeader { xid: Xid(7), program, version, procedure, credential, verifier };
    let mut octets = vec![0; 64];
    let mut writer = Writer::new(&mut octets);
    call.emit(&mut writer).unwrap();
    let len = writer.len();
    [&Fragment::new(len as u32, true).unwrap().emit(), &octets[..len]].concat()
}

/// Returns true if the server has ended a connection.
fn is_ended(mut client: &TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    match client.read(&mut [0; 256]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn a_connection_without_a_call_ends_when_its_time_is_over() {
    let mut server = Server::new();
    let (silent, mut slow, served) = (server.connect(), server.connect(), server.connect());
    // Part of a record's mark is no call.
    slow.write_all(&[0x80, 0]).unwrap();
    server.serve_call(&served);
    let at = server.now;
    server.now = Time(0) + WITHIN.mul_f32(0.99);
    server.shard.pass(server.now);
    assert_eq!(server.shard.snapshot().engine.stream.silent, 0);
    server.now = at + WITHIN;
    server.until(|stats| stats.stream.silent == 2);
    assert!(is_ended(&silent) && is_ended(&slow));
    server.serve_call(&served);
    let ends = server.shard.snapshot().engine.disconnects;
    assert_eq!(ends["closed by us: it made no progress"], 2);
}

#[test]
fn a_call_that_arrived_while_the_server_was_busy_is_in_time() {
    let mut server = Server::new();
    let client = server.connect();
    let mut begun = server.connect();
    (&client).write_all(&null()).unwrap();
    begun.write_all(&null()[..5]).unwrap();
    server.now = server.now + 2 * WITHIN;
    server.until(|stats| stats.stream.replies == 1);
    begun.write_all(&null()[5..]).unwrap();
    server.until(|stats| stats.stream.replies == 2);
    assert_eq!(server.shard.snapshot().engine.stream.silent, 0);
}

#[test]
fn silent_connections_lock_no_client_out() {
    let mut server = Server::new();
    let served = server.connect();
    server.serve_call(&served);
    let silent: Vec<_> = (0..5 * PLACES).map(|_| server.connect()).collect();
    let client = server.connect();
    server.serve_call(&client);
    server.serve_call(&served);
    let left = silent.iter().filter(|silent| !is_ended(silent)).count();
    assert_eq!(left, PLACES - 2, "all places are in use");
    assert_eq!(server.shard.snapshot().engine.limits.peers, 0, "no connection was refused");
}

#[test]
fn connections_that_call_keep_their_places() {
    let mut server = Server::new();
    let served: Vec<_> = (0..PLACES).map(|_| server.connect()).collect();
    for client in &served {
        server.serve_call(client);
    }
    let late = TcpStream::connect(server.at).unwrap();
    server.until(|stats| stats.limits.peers == 1);
    assert!(is_ended(&late) && !served.iter().any(is_ended));
}

#[test]
fn a_call_that_trickles_keeps_no_place() {
    const STALLED: &str = "closed by us: it made no progress";
    let mut server = Server::new();
    let mut slow = server.connect();
    for (count, octet) in null().into_iter().enumerate() {
        // One that is closed already may be seen to be.
        let _ = slow.write_all(&[octet]);
        let received = server.shard.snapshot().engine.stream.received;
        let is_over = |stats: &stag_engine::stats::Stats| stats.disconnects.contains_key(STALLED);
        server.until(|stats| stats.stream.received > received || is_over(stats));
        if is_over(&server.shard.snapshot().engine) {
            assert!(count <= 21, "twice the time of a first call");
            assert!(is_ended(&slow));
            return;
        }
        server.now = server.now + WITHIN / 10;
    }
    panic!("a peer that sends an octet now and then keeps its place");
}

#[test]
fn a_long_first_call_over_a_slow_link_is_awaited() {
    let mut server = Server::new();
    let slow = server.connect();
    // One record with as many octets of arguments as its parts bring, at the least speed that a
    // peer has to have which holds memory.
    let part = vec![0; 140 << 10];
    let call = null();
    let len = (call.len() - 4 + 4 * part.len()) as u32;
    (&slow).write_all(&Fragment::new(len, true).unwrap().emit()).unwrap();
    (&slow).write_all(&call[4..]).unwrap();
    for _ in 0..4 {
        server.now = server.now + WITHIN.mul_f32(0.9);
        let received = server.shard.snapshot().engine.stream.received;
        let mut writer = slow.try_clone().unwrap();
        let octets = part.clone();
        // It waits for room in the socket.
        let writing = std::thread::spawn(move || writer.write_all(&octets).unwrap());
        let whole = received + part.len() as u64;
        server.until(|stats| stats.stream.received >= whole);
        writing.join().unwrap();
    }
    server.until(|stats| stats.stream.replies == 1);
    assert_eq!(server.shard.snapshot().engine.stream.silent, 0);
}

#[test]
fn a_call_that_trickles_makes_room_for_a_newcomer() {
    let mut server = Server::new();
    let slow: Vec<_> = (0..PLACES).map(|_| server.connect()).collect();
    for mut client in &slow {
        client.write_all(&null()[..5]).unwrap();
    }
    let client = server.connect();
    server.serve_call(&client);
    assert_eq!(slow.iter().filter(|slow| is_ended(slow)).count(), 1);
}
