//! Peers that trickle, alone, in pairs and in crowds: well-behaved clients next to them are served,
//! and all memory comes back.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_engine::{
    App, CallFault, Config, Cx, Outcome, PeerId, Request, Shard, Token, clock::Clock,
};
use stag_hostile::{
    HostileWorld, ServerUnderTest,
    judge::lists,
    ours::{EXPORT, OurServer},
    peer::{Heard, HostileFabric},
    wire::*,
};
use stag_iwarp::{Iwarp, IwarpAddress};
use std::{
    cell::RefCell,
    collections::VecDeque,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two octets of a trickle.
const BEAT: Duration = Duration::from_millis(10);
/// Octets of what the calls move: each takes a large buffer.
const LEN: usize = 256 << 10;

// Our calling side, with servers that trickle.

/// A server in a thread, which answers at once, or writes an octet of each result at each beat and
/// answers nothing.
struct Peer {
    at: IwarpAddress,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Peer {
    fn start(trickles: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = IwarpAddress(listener.local_addr().unwrap());
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut fabric = HostileFabric::over(stream, true);
            assert!(fabric.hear_request(PATIENCE).unwrap());
            let data = [&depths(0x8000 | 32, 0x8000 | 32)[..], &offer(1, 1, 3, 3)].concat();
            fabric.say(&frame(REPLY, C | S, 2, &data)).unwrap();
            let (mut open, mut octet) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                match fabric.hear(BEAT).unwrap() {
                    Heard::Message(message, _) if trickles => {
                        open.push(lists(&message).unwrap().writes[0][0]);
                    }
                    Heard::Message(message, _) => answer(&mut fabric, &message),
                    Heard::Closed | Heard::Terminate(..) => return,
                    _ => {}
                }
                for segment in &open {
                    let at: &RawSegment = segment;
                    fabric
                        .say_ulpdu(&RawTagged::write(at.handle, at.offset + octet).with(b"x"))
                        .unwrap();
                }
                octet += 1;
            }
        });
        Self { at, over, thread }
    }

    fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// A right reply: the result is written, the rest says how long it is.
fn answer(fabric: &mut HostileFabric, message: &[u8]) {
    let (xid, offered) = (word_at(message, 0), lists(message).unwrap().writes[0][0]);
    for (number, piece) in vec![7; LEN].chunks(16 << 10).enumerate() {
        let at = offered.offset + (number * (16 << 10)) as u64;
        fabric.say_ulpdu(&RawTagged::write(offered.handle, at).with(piece)).unwrap();
    }
    fabric.send(&RawHeader::msg(xid).write(&[offered]).with(&success(xid).0)).unwrap();
}

/// Keeps how its calls ended.
#[derive(Default)]
struct Caller {
    up: Vec<PeerId>,
    ended: VecDeque<(Token, Result<usize, CallFault>)>,
}

impl App for Caller {
    type Report = ();

    fn report(&self) {}

    fn on_peer_up(&mut self, _: &mut Cx<'_>, peer: PeerId) {
        self.up.push(peer);
    }

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        let len = outcome.result.as_ref().map_or(0, |result| result.len());
        self.ended.push_back((outcome.token, outcome.reply.map(|_| len)));
    }
}

/// A call with room for a result. False when there is no memory for it.
fn start(cx: &mut Cx<'_>, peer: PeerId, token: u64, timeout: Duration) -> bool {
    let (Some(mut message), Some(room)) = (cx.message(100), cx.room(LEN)) else { return false };
    message.append(&call(0, NFS, 3, 6).0).unwrap();
    let (item, result, token) = (None, Some(room), Token(token));
    cx.call(peer, Request { message, item, reply_max: 100, result, timeout, token });
    true
}

#[test]
fn a_server_that_answers_is_called_on_beside_a_pair_that_trickles() {
    let clock = Clock::start();
    let peers = [true, true, false].map(Peer::start);
    let config = Config { calls_max: 8, ..Config::small() };
    let fabric =
        Iwarp::new(stag_iwarp::IwarpConfig::new(config.limits(256), [3; 32], clock.now())).unwrap();
    let mut shard = Shard::new(fabric, Caller::default(), config, Box::new(|_| true)).unwrap();
    let known = [&peers[0], &peers[1], &peers[2]].map(|peer| shard.connect(&peer.at).unwrap());
    let until = Instant::now() + PATIENCE;
    while shard.app().up.len() < 3 && Instant::now() < until {
        shard.pass(clock.now());
    }
    // The pair gets more calls than it may take, each with a large buffer of ours.
    for (token, peer) in known[..2].iter().cycle().take(12).enumerate() {
        assert!(shard.with_app(|_, cx| start(cx, *peer, token as u64, Duration::from_secs(2))));
    }
    let (mut good, mut bad, mut token) = (0, Vec::new(), 100);
    assert!(shard.with_app(|_, cx| start(cx, known[2], token, PATIENCE)));
    while (bad.len() < 12 || good < 20) && Instant::now() < until {
        shard.pass(clock.now());
        while let Some((of, outcome)) = shard.with_app(|app, _| app.ended.pop_front()) {
            if of.0 < 100 {
                bad.push(outcome);
                continue;
            }
            assert_eq!((of.0, outcome), (token, Ok(LEN)), "who answers is answered to");
            (good, token) = (good + 1, token + 1);
            assert!(shard.with_app(|_, cx| start(cx, known[2], token, PATIENCE)));
        }
    }
    assert!(good >= 20, "{good} calls were answered beside the pair");
    assert_eq!(bad.len(), 12, "every call of the pair is over at its deadline");
    assert!(
        bad.iter().all(|outcome| matches!(
            outcome,
            Err(CallFault::TimedOut | CallFault::Disconnected(_))
        ))
    );
    while !shard.app().ended.iter().any(|(of, _)| of.0 == token) && Instant::now() < until {
        shard.pass(clock.now());
    }
    assert_eq!((shard.buffers_in_use(), shard.calls_in_progress()), (0, (0, 0)));
    peers.into_iter().for_each(Peer::stop);
}

// Our server, with clients that trickle.

thread_local! {
    /// Reads that the server asks of the client of this thread.
    static ASKS: RefCell<Vec<ReadAsk>> = const { RefCell::new(Vec::new()) };
}

fn world(server: &OurServer) -> HostileWorld {
    let target = ServerUnderTest {
        rdma: server.rdma,
        tcp: server.tcp,
        mount: server.tcp,
        export: EXPORT.to_owned(),
        crc: true,
        is_siw: false,
        patience: PATIENCE,
        pause: Duration::from_millis(30),
        grace: Duration::ZERO,
    };
    HostileWorld::build(target).unwrap()
}

/// A WRITE whose octets are in a Read chunk of the client.
fn write(fabric: &mut HostileFabric, file: &[u8], xid: u32) {
    let count = LEN as u32;
    let head = call(xid, NFS, 3, 7).opaque(file).u64(0).words(&[count, 0, count]).0;
    let segment = fabric.memory.source(&vec![0x42; LEN]);
    fabric.send(&RawHeader::msg(xid).read(head.len() as u32, segment).with(&head)).unwrap();
}

/// A client that makes as many WRITEs as it is granted and gives an octet of the first of them at
/// each beat.
fn trickling(world: &HostileWorld, over: &AtomicBool) {
    let mut fabric = world.fabric().unwrap();
    fabric.responder = |ask, _| {
        ASKS.with_borrow_mut(|asks| asks.push(ask));
        Vec::new()
    };
    (0..8).for_each(|_| write(&mut fabric, &world.file, world.xid()));
    let mut octet = 0;
    while !over.load(Ordering::Relaxed) {
        if matches!(fabric.hear(BEAT), Ok(Heard::Closed | Heard::Terminate(..)) | Err(_)) {
            return;
        }
        if let Some(ask) = ASKS.with_borrow(|asks| asks.first().copied()) {
            let response = RawTagged::response(ask.sink.0, ask.sink.1 + octet).more().with(b"x");
            fabric.say_ulpdu(&response).unwrap();
            octet += 1;
        }
    }
}

/// WRITEs of another client while `clients` clients trickle.
fn beside(clients: usize) {
    let server = OurServer::start().unwrap();
    let (empty, _) = server.look().unwrap();
    let world = world(&server);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| trickling(&world, &over));
        }
        // They hold what they can get.
        thread::sleep(Duration::from_millis(500));
        let mut innocent = world.fabric().unwrap();
        let mut served = 0;
        for _ in 0..20 {
            let xid = world.xid();
            write(&mut innocent, &world.file, xid);
            match innocent.hear(Duration::from_secs(5)).unwrap() {
                Heard::Message(message, _) if word_at(&message, 0) == xid => served += 1,
                _ => break,
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(served, 20, "WRITEs beside {clients} clients that trickle");
    });
    assert_eq!(server.settle(empty, PATIENCE).unwrap(), empty);
    server.stop().unwrap();
}

#[test]
fn a_pair_of_clients_whose_writes_trickle_leaves_memory_to_others() {
    beside(2);
}

#[test]
fn a_crowd_of_clients_whose_writes_trickle_leaves_memory_to_others() {
    beside(8);
}
