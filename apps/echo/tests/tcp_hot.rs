//! A TCP connection that alone is busy: the system calls of its calls, and its limits in favour of
//! others. Time is a number that the test sets; figures are counts of system calls.

use stag_echo::{Caller, Echo, NULL, PROGRAM, VERSION};
use stag_engine::{Config, PeerId, Shard, Token, stats::StreamStats};
use stag_protocol::{
    rpc::{Auth, CallHeader, Credential, ReplyHeader, record::Fragment},
    rpcrdma::Xid,
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits { read_spans: 64, windows: 512, ..stag_sim::LIMITS };
/// Octets of a NULL reply in its fragment.
const REPLY: usize = Fragment::LEN + ReplyHeader::LEN;
/// Passes of which one looks at all connections.
const ROUND: u64 = 5;

struct Server {
    shard: Shard<Sim, Echo>,
    now: Time,
    /// Time from one pass to the next. Short where silence would end the tested connection: octets
    /// may need many passes to arrive.
    step: Duration,
    at: SocketAddr,
}

impl Server {
    fn new() -> Self {
        let end = Fabric::new(1, Faults::NONE).end("server", LIMITS);
        let mut shard =
            Shard::new(end, Echo::default(), Config::small(), Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, now: Time(0), step: Duration::from_micros(1), at }
    }

    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.at).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    fn pass(&mut self) {
        self.now = self.now + self.step;
        self.shard.pass(self.now);
    }

    /// Makes calls until epoll no longer watches the connection for octets.
    fn heat(&mut self, socket: &mut TcpStream) {
        let (before, until) = (self.stats().watches, Instant::now() + Duration::from_secs(60));
        self.step = Duration::from_micros(1);
        while self.stats().watches == before {
            assert!(Instant::now() < until, "a busy connection gets hot");
            self.call(socket);
        }
        assert_eq!(self.stats().watches, before + 1);
        self.step = Duration::from_nanos(1);
    }

    fn stats(&self) -> StreamStats {
        self.shard.snapshot().engine.stream
    }

    /// Sends a NULL call and makes passes until its reply arrives; returns their number.
    fn call(&mut self, socket: &mut TcpStream) -> u64 {
        socket.write_all(&null()).unwrap();
        let (mut passes, mut came) = (0, 0);
        let until = Instant::now() + Duration::from_secs(60);
        while came < REPLY {
            assert!(Instant::now() < until, "a reply comes");
            self.pass();
            passes += 1;
            came += take(socket);
        }
        assert_eq!(came, REPLY);
        passes
    }
}

/// Octets that have arrived.
fn take(socket: &mut TcpStream) -> usize {
    match socket.read(&mut [0; 1 << 16]) {
        Ok(len) => len,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

fn null() -> Vec<u8> {
    let header = CallHeader {
        xid: Xid(7),
        program: PROGRAM,
        version: VERSION,
        procedure: NULL,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut out = vec![0; 64];
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    out.truncate(len);
    let mut marked = Fragment::new(len as u32, true).unwrap().emit().to_vec();
    marked.extend(out);
    marked
}

/// A server, and a connection to it that is hot.
fn hot() -> (Server, TcpStream) {
    let mut server = Server::new();
    let mut socket = server.connect();
    server.heat(&mut socket);
    (server, socket)
}

#[test]
fn a_call_of_a_busy_caller_costs_a_receive_and_a_send() {
    let (mut server, mut socket) = hot();
    let before = server.stats();
    let passes: u64 = (0..500).map(|_| server.call(&mut socket)).sum();
    let after = server.stats();
    let (looks, receives) = (after.looks - before.looks, after.receives - before.receives);
    assert_eq!(after.sends - before.sends, 500, "a reply leaves in one piece, at once");
    // A pass asks the connection or looks at all of them, and never both.
    assert_eq!(looks + receives, passes);
    assert!(looks <= passes / ROUND + 1, "{looks} looks in {passes} passes");
    assert_eq!(after.watches, before.watches, "nothing changes what epoll watches");
}

#[test]
fn a_caller_that_waits_for_a_server_asks_its_connection_alone() {
    let end = Fabric::new(2, Faults::NONE).end("client", LIMITS);
    let mut client =
        Shard::new(end, Caller::default(), Config::small(), Box::new(|_| true)).unwrap();
    let mut server = Server::new();
    let peer = client.connect_tcp(server.at).unwrap();
    let call = |client: &mut Shard<Sim, Caller>, server: &mut Server, peer: PeerId| {
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), None)));
        let until = Instant::now() + Duration::from_secs(60);
        for passes in 1_u64.. {
            server.pass();
            client.pass(server.now);
            if let Some(done) = client.with_app(|app, _| app.take()) {
                done.echo.unwrap();
                return passes;
            }
            assert!(Instant::now() < until, "a reply comes");
        }
        0
    };
    let until = Instant::now() + Duration::from_secs(60);
    while client.snapshot().engine.stream.watches < 2 {
        assert!(Instant::now() < until, "a busy connection gets hot");
        call(&mut client, &mut server, peer);
    }
    server.step = Duration::from_nanos(1);
    let before = client.snapshot().engine.stream;
    let passes: u64 = (0..500).map(|_| call(&mut client, &mut server, peer)).sum();
    let after = client.snapshot().engine.stream;
    let (looks, receives) = (after.looks - before.looks, after.receives - before.receives);
    assert_eq!(after.sends - before.sends, 500);
    assert_eq!(looks + receives, passes);
    assert!(looks <= passes / ROUND + 1, "{looks} looks in {passes} passes");
}

#[test]
fn a_hot_caller_starves_nobody() {
    let (mut server, mut hot) = hot();
    let mut other = server.connect();
    // The hot one has calls waiting whenever a pass looks.
    let flood: Vec<u8> = (0..64).flat_map(|_| null()).collect();
    let feed = |server: &mut Server, hot: &mut TcpStream| {
        let _ = hot.write(&flood).unwrap_or(0);
        server.pass();
        take(hot);
    };
    let until = Instant::now() + Duration::from_secs(60);
    while server.shard.snapshot().engine.connections.live < 2 {
        assert!(Instant::now() < until, "whoever connects is taken");
        feed(&mut server, &mut hot);
    }
    // Every fifth pass polls all, even if the hot one keeps sending.
    for _ in 0..20 {
        let before = server.stats().looks;
        (0..ROUND).for_each(|_| feed(&mut server, &mut hot));
        assert!(server.stats().looks > before, "five passes look at all connections once");
    }
    other.write_all(&null()).unwrap();
    let watches = server.stats().watches;
    while take(&mut other) == 0 {
        assert!(Instant::now() < until, "the other one is answered");
        feed(&mut server, &mut hot);
    }
    assert!(server.stats().watches > watches, "the hot one is watched again like anybody");
}

#[test]
fn a_hot_caller_that_falls_silent_is_let_go_and_costs_nothing() {
    let (mut server, mut socket) = hot();
    server.now = server.now + Duration::from_millis(1);
    // After this long without octets a connection is no longer hot.
    server.step = Duration::ZERO;
    (0..=ROUND).for_each(|_| server.pass());
    let before = server.stats();
    assert_eq!(before.watches, 2, "epoll watches it again");
    (0..100).for_each(|_| server.pass());
    assert_eq!(server.stats(), before, "passes at one time look once");
    // It gets hot again as it did before.
    server.heat(&mut socket);
}

#[test]
fn a_hot_caller_that_leaves_is_noticed() {
    for sends_half in [false, true] {
        let (mut server, mut socket) = hot();
        if sends_half {
            socket.write_all(&null()[..9]).unwrap();
        }
        drop(socket);
        let until = Instant::now() + Duration::from_secs(60);
        while server.shard.snapshot().engine.connections.live > 0 {
            assert!(Instant::now() < until, "its end is seen");
            server.pass();
        }
        assert_eq!(server.shard.buffers_in_use(), 0);
        // Another connection reuses its place, and its name among the hot.
        let mut next = server.connect();
        server.call(&mut next);
    }
}
