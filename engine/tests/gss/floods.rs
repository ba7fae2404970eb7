//! Requests for contexts of many clients: an acceptor that judges one request at each step, so that
//! the set-ups before a client's own are counted.

use super::client::{Client, NamedAcceptor, init};
use super::{ENCTYPE, config};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use stag_echo::Echo;
use stag_engine::{
    Config, PeerAddress, Shard, Time,
    gss::{AcceptedContext, ContextAcceptor, ContextLimits, GssContexts, RefusedContext},
};
use stag_protocol::rpc::record;
use stag_sim::{Fabric, Faults, Sim};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

/// Judges one request for each permit, and refuses when there are no more to come.
struct Stepping {
    permits: Receiver<()>,
    /// Requests that it has begun with.
    begun: Arc<AtomicU64>,
    names: NamedAcceptor,
}

impl ContextAcceptor for Stepping {
    fn accept(
        &mut self,
        token: &[u8],
        from: PeerAddress,
    ) -> Result<AcceptedContext, RefusedContext> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let token = if self.permits.recv().is_ok() { token } else { b"" };
        self.names.accept(token, from)
    }
}

struct SteppingServer {
    shard: Shard<Sim, Echo>,
    at: SocketAddr,
    contexts: Arc<GssContexts>,
    permits: Sender<()>,
    begun: Arc<AtomicU64>,
    now: Time,
}

impl SteppingServer {
    fn new(limits: ContextLimits) -> Self {
        let ((permits, steps), begun) = (channel(), Arc::default());
        let names = NamedAcceptor(ENCTYPE);
        let acceptor = Stepping { permits: steps, begun: Arc::clone(&begun), names };
        let contexts = GssContexts::start(Box::new(acceptor), limits).unwrap();
        let gss = Some(Arc::clone(&contexts));
        let config = Config { gss, streams: 64, peers: 64, inbound: 256, ..config() };
        let end = Fabric::new(1, Faults::NONE).end("server", stag_sim::LIMITS);
        let mut shard = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        Self { shard, at, contexts, permits, begun, now: Time(0) }
    }

    /// Passes until `done` returns something.
    fn pass_until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let from = Instant::now();
        loop {
            self.now = self.now + Duration::from_micros(10);
            self.shard.pass(self.now);
            if let Some(value) = done(self) {
                return value;
            }
            assert!(from.elapsed() < Duration::from_secs(60), "{:?}", self.contexts.counts());
        }
    }

    /// Lets the acceptor judge one request, and waits until it has begun with the next one.
    fn step(&mut self) {
        let before = self.begun.load(Ordering::SeqCst);
        self.permits.send(()).unwrap();
        self.await_begun(before + 1);
    }

    fn await_begun(&mut self, count: u64) {
        self.pass_until(|it| (it.begun.load(Ordering::SeqCst) >= count).then_some(()));
    }

    /// Waits until all requests that were sent wait, or were turned away.
    fn await_asked(&mut self, asked: u64) {
        self.pass_until(|server| {
            let counts = server.contexts.counts();
            let seen = counts.waiting + counts.crowded + counts.accepted + counts.refused;
            (seen >= asked).then_some(())
        });
    }
}

/// A connection from 127.0.0.`last`.
struct Asking(TcpStream, Vec<u8>);

impl Asking {
    fn from(last: u8, to: SocketAddr) -> Self {
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0));
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &to).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(true).unwrap();
        Self(socket, Vec::new())
    }

    fn ask(&mut self, token: &str) {
        let octets = init(1, token.as_bytes());
        let fragment = record::Fragment::new(octets.len() as u32, true).unwrap();
        self.0.write_all(&[&fragment.emit()[..], &octets].concat()).unwrap();
    }

    /// The reply, if it has come.
    fn reply(&mut self) -> Option<Vec<u8>> {
        let mut part = [0; 4_096];
        match self.0.read(&mut part) {
            Ok(0) => panic!("the connection of an innocent client ended"),
            Ok(len) => self.1.extend_from_slice(&part[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let (head, rest) = self.1.split_first_chunk::<4>()?;
        let len = (u32::from_be_bytes(*head) & 0x7fff_ffff) as usize;
        (rest.len() == len).then(|| rest.to_vec())
    }

    /// It has its reply, or its connection has ended.
    fn is_over(&mut self) -> bool {
        !matches!(self.0.read(&mut [0; 4_096]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn a_host_that_floods_delays_another_one_by_a_single_set_up() {
    let mut server = SteppingServer::new(ContextLimits::default());
    let at = server.at;
    let mut flood: Vec<_> = (0..20).map(|_| Asking::from(9, at)).collect();
    flood[0].ask("flood@REALM");
    server.await_begun(1);
    flood[1..].iter_mut().for_each(|asking| asking.ask("flood@REALM"));
    let mut asked = 20;
    server.await_asked(asked);
    let counts = server.contexts.counts();
    assert_eq!((counts.waiting, counts.crowded), (9, 11), "eight, and the one at hand");
    for round in 0..10 {
        let mut innocent = Asking::from(2, at);
        innocent.ask("alice@REALM");
        asked += 1;
        server.await_asked(asked);
        // Each of the flood that was judged is replaced at once.
        for _ in 0..3 {
            let mut more = Asking::from(9, at);
            more.ask("flood@REALM");
            asked += 1;
            server.await_asked(asked);
            flood.push(more);
        }
        flood.retain_mut(|asking| !asking.is_over());
        // The request at hand, one more of the flood, its own.
        (0..3).for_each(|_| server.step());
        let reply = server.pass_until(|_| innocent.reply());
        Client::of(ENCTYPE, &reply);
        assert_eq!(server.contexts.counts().accepted, 3 * (round + 1));
    }
}

#[test]
fn hosts_that_take_all_places_make_room_for_another_one() {
    let limits = ContextLimits { waiting: 12, waiting_each_address: 4, ..ContextLimits::default() };
    let mut server = SteppingServer::new(limits);
    let at = server.at;
    let mut floods: Vec<_> = (0..13).map(|number| Asking::from(9 + number % 3, at)).collect();
    for (asked, asking) in (1..).zip(&mut floods) {
        asking.ask("flood@REALM");
        server.await_asked(asked);
        server.await_begun(1);
    }
    assert_eq!(server.contexts.counts().crowded, 0, "twelve wait, and one is at hand");
    let mut innocent = Asking::from(2, at);
    innocent.ask("alice@REALM");
    server.await_asked(14);
    assert_eq!(server.contexts.counts().crowded, 1, "one of them made room");
    // The request at hand, one of each other host, its own.
    (0..5).for_each(|_| server.step());
    Client::of(ENCTYPE, &server.pass_until(|_| innocent.reply()));
    // Four others have their contexts; the one that lost its place waits at its shard, and has its
    // own in the end.
    let unanswered =
        |floods: &mut Vec<Asking>| floods.retain_mut(|asking| asking.reply().is_none());
    server.pass_until(|_| {
        unanswered(&mut floods);
        (floods.len() == 13 - 4).then_some(())
    });
    assert_eq!(server.shard.calls_in_progress().0, 9);
    (0..8).for_each(|_| server.step());
    server.permits.send(()).unwrap();
    server.pass_until(|_| {
        unanswered(&mut floods);
        floods.is_empty().then_some(())
    });
    assert_eq!(server.contexts.counts().accepted, 14);
}
