//! Apps that answer in any order and at any time, with several calls open at once, and that make
//! calls from within handlers of calls and of replies, at both ends of connections that come and
//! go. Each call has one outcome, the right one, and inline calls of one connection arrive in the
//! order in which they were made.
//!
//! `SEEDS=20000 cargo test -p stag-engine --test all juggle` goes on for a minute; a failure names
//! its seed, and `FIRST=` begins there.

use fastrand::Rng;
use stag_engine::{
    Answer, App, Call, CallFault, CallId, Cause, ClientName, Config, Cx, Outcome, PeerId, Request,
    Shard, Token,
};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::{Version2, Versions, Xid},
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};
use std::{collections::BTreeMap, time::Duration};

/// Calls of each end.
const CALLS: u64 = 40;
/// Lengths of calls: some that a Send takes as a copy, some that it does not, and, in `ALL`, one
/// that does not fit inline.
const INLINE: &[usize] = &[12, 12, 40, 700, 1_200, 3_600];
const ALL: &[usize] = &[12, 12, 40, 700, 1_200, 3_600, 6_000];
/// Versions that both ends speak, and message sizes that the server may call with.
const MODES: [(Versions, &[usize]); 4] = [
    (Versions::One, INLINE),
    (Versions::Both(Version2::Undirected), INLINE),
    (Versions::Two(Version2::Undirected), INLINE),
    (Versions::Two(Version2::Directed), ALL),
];

/// A call that is not answered.
struct Kept {
    id: CallId,
    header: ReplyHeader<'static>,
    octets: Vec<u8>,
    /// Over which connection it came.
    connection: u64,
}

struct Juggler {
    random: Rng,
    sizes: &'static [usize],
    /// Peer that it calls.
    peer: Option<PeerId>,
    is_server: bool,
    connections: u64,
    is_ready: bool,
    kept: Vec<Kept>,
    open: BTreeMap<u64, Vec<u8>>,
    made: u64,
    most: u64,
    /// The number of the latest call that came over this connection, if their order is looked at.
    latest: Option<u64>,
    is_ordered: bool,
    cancelled: Vec<u64>,
}

impl Juggler {
    fn new(random: Rng, sizes: &'static [usize], is_server: bool, is_ordered: bool) -> Self {
        Self {
            random,
            sizes,
            peer: None,
            is_server,
            connections: 0,
            is_ready: false,
            kept: Vec::new(),
            open: BTreeMap::new(),
            made: 0,
            most: CALLS,
            latest: None,
            is_ordered,
            cancelled: Vec::new(),
        }
    }

    /// Does something, or nothing.
    fn act(&mut self, cx: &mut Cx<'_>) {
        for _ in 0..self.random.usize(..4) {
            match self.random.usize(..3) {
                0 => self.call(cx),
                _ => self.answer(cx),
            }
        }
    }

    fn answer(&mut self, cx: &mut Cx<'_>) {
        if self.kept.is_empty() {
            return;
        }
        let Kept { id, header, octets, connection } =
            self.kept.swap_remove(self.random.usize(..self.kept.len()));
        let message = written(cx, |writer| {
            header.emit(writer).unwrap();
            writer.opaque(&octets).unwrap();
        });
        cx.answer(id, Answer { message, item: None });
        if let Some(peer) = self.peer.filter(|_| connection == self.connections) {
            // The peer receives the answer first, and knows the version then.
            cx.ready(peer);
            self.is_ready = true;
        }
    }

    fn call(&mut self, cx: &mut Cx<'_>) {
        let is_known = !self.is_server || self.is_ready;
        let Some(peer) = self.peer.filter(|_| is_known && self.made < self.most) else { return };
        let len = self.sizes[self.random.usize(..self.sizes.len())];
        let mut octets: Vec<u8> = (0..len).map(|at| (at * 31) as u8 ^ self.made as u8).collect();
        octets[..8].copy_from_slice(&self.made.to_be_bytes());
        let header = CallHeader {
            xid: Xid(0),
            program: 7,
            version: 1,
            procedure: 1,
            credential: Credential::None,
            verifier: Auth::NONE,
        };
        let message = written(cx, |writer| {
            header.emit(writer).unwrap();
            writer.opaque(&octets).unwrap();
        });
        let reply_max = ReplyHeader::REFUSAL_LEN_MAX.max(ReplyHeader::LEN) + 4 + len;
        let (timeout, token) = (Duration::from_secs(100_000), Token(self.made));
        self.open.insert(self.made, octets);
        self.made += 1;
        cx.call(peer, Request { message, item: None, reply_max, result: None, timeout, token });
        if self.random.usize(..20) == 0 {
            self.cancelled.push(token.0);
            cx.cancel(peer, token);
        }
    }
}

fn written(cx: &mut Cx<'_>, write: impl FnOnce(&mut Writer<'_>)) -> Buf {
    let mut message = cx.message(8_000).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    write(&mut writer);
    let len = writer.len();
    message.extend(len);
    message
}

impl App for Juggler {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>) {
        let octets = call.arguments.opaque(1 << 16).unwrap().to_vec();
        let number = u64::from_be_bytes(octets[..8].try_into().unwrap());
        // A call that is pulled comes later.
        if self.is_ordered && octets.len() < 5_000 {
            assert!(
                self.latest.is_none_or(|latest| latest < number),
                "{number} behind {:?}",
                self.latest
            );
            self.latest = Some(number);
        }
        let header = call.header.reply(Accepted::Success);
        // One that this peer had before may still bring calls.
        let connection = if self.peer == Some(call.peer) { self.connections } else { 0 };
        self.kept.push(Kept { id: call.id, header, octets, connection });
        self.act(cx);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let number = outcome.token.0;
        let octets = self.open.remove(&number).expect("a call has one outcome");
        match outcome.reply {
            Ok(reply) => {
                let mut reader = Reader::new(reply);
                ReplyHeader::parse(&mut reader).unwrap();
                assert!(reader.opaque(1 << 16).unwrap() == octets, "the wrong reply");
            }
            Err(CallFault::Cancelled) => assert!(self.cancelled.contains(&number)),
            Err(fault) => panic!("{number}: {fault}"),
        }
        self.act(cx);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        (self.latest, self.connections, self.is_ready) = (None, self.connections + 1, false);
        self.peer = Some(if self.is_server { cx.adopt(peer, ClientName(1)) } else { peer });
        self.act(cx);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, _: PeerId, _: Cause) {
        self.act(cx);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        if self.random.usize(..3) == 0 {
            self.act(cx);
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut random = Rng::with_seed(seed);
    let lost = [0, 0, 5_000, 20_000][random.usize(..4)];
    let inline = [0, 300_000, 1_000_000][random.usize(..3)];
    let fabric = Fabric::new(seed, Faults { lost, inline, lenient: true, ..Faults::DELAYS });
    let (versions, sizes) = MODES[random.usize(..MODES.len())];
    let send_queue = [40, 128][random.usize(..2)];
    let limits = Limits { send_queue, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
    let config = Config {
        call_versions: versions,
        serve_versions: versions,
        grant: random.u32(1..=20),
        calls_max: random.u32(1..=24),
        reverse_grant: random.u32(1..=12),
        reverse_calls_max: random.u32(1..=12),
        outbound: 256,
        slots: [1_024, 512, 2],
        ..crate::support::small()
    };
    let mut shard = |name, is_server, sizes| {
        let app = Juggler::new(random.fork(), sizes, is_server, lost == 0);
        Shard::new(fabric.end(name, limits), app, config.clone(), Box::new(|_| true) as Box<_>)
            .unwrap()
    };
    let mut server = shard("server", true, sizes);
    let mut client = shard("client", false, ALL);
    let up = client.keep_connected(&server.listen(&Port(0)).unwrap()).unwrap();
    let mut now = Time(0);
    let mut step = |server: &mut Shard<Sim, Juggler>, client: &mut Shard<Sim, Juggler>| {
        if !(server.pass(now) | client.pass(now)) {
            let timers = [fabric.next_due(), client.wake_at(), server.wake_at()];
            now = timers.into_iter().flatten().min().map_or(now, |due| due.max(now));
        }
    };
    let is_done = |shard: &Shard<Sim, Juggler>| {
        let app = shard.app();
        app.made == app.most && app.open.is_empty()
    };
    let mut rounds = 0;
    while !(is_done(&server) && is_done(&client)) {
        if random.usize(..3) == 0 {
            client.with_app(Juggler::act);
        }
        if random.usize(..3) == 0 {
            server.with_app(Juggler::act);
        }
        if rounds % 100 == 99 && is_done(&client) {
            // The server may call again once it was called over the latest connection.
            client.with_app(|app, _| app.most += 1);
        }
        step(&mut server, &mut client);
        rounds += 1;
        if rounds == 3_000 {
            fabric.set_faults(Faults::DELAYS);
        }
        let open = |shard: &Shard<Sim, Juggler>| (shard.app().made, shard.app().open.len());
        assert!(
            rounds < 30_000,
            "seed {seed}: {:?} and {:?} are open",
            open(&server),
            open(&client)
        );
    }
    let named = server.app().peer.unwrap();
    client.with_app(|_, cx| cx.disconnect(up));
    server.with_app(|_, cx| cx.disconnect(named));
    for _ in 0..300 {
        step(&mut server, &mut client);
    }
    for shard in [&server, &client] {
        assert_eq!(shard.calls_in_progress(), (0, 0), "seed {seed}");
        assert_eq!((shard.buffers_in_use(), shard.receives_promised()), (0, 0), "seed {seed}");
        assert_eq!(shard.provider().receives_posted(), config.receives, "seed {seed}");
        assert_eq!(shard.provider().windows_bound(), 0, "seed {seed}");
    }
    server.app().cancelled.len() as u64
}

#[test]
fn every_call_has_one_outcome_whenever_and_in_whatever_order_apps_answer() {
    let number =
        |name, other| std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(other);
    let (first, seeds) = (number("FIRST", 0), number("SEEDS", 300));
    let cancelled: u64 = (first..first + seeds).map(run).sum();
    assert!(cancelled > seeds / 4, "{cancelled} calls were cancelled");
}
