//! Calls in both directions at once over the simulated fabric, in every version, with lost
//! connections and cancelled calls: every call has one outcome, and nothing is kept.
//!
//! `CI=true cargo test --release -p stag-echo --test all both` runs 10,000 seeds;
//! else there are fewer.

use fastrand::Rng;
use stag_echo::{Caller, Twin};
use stag_engine::{CallFault, Config, PeerId, Shard, Stats, Token, stats::Requester};
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};
use std::collections::BTreeMap;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const NAME: u32 = 9;
/// Calls in each direction.
const CALLS: u64 = 24;

/// In the reverse direction of version 1, and where version 1 is possible, all calls fit inline.
const INLINE: &[usize] = &[0, 1, 3, 100, 900, 1_500, 3_900];
const ALL: &[usize] = &[0, 1, 3, 900, 1_500, 3_990, 9_000, 60_000];
const DIRECTED: Version2 = Version2::Directed;
/// Versions of the client, versions of the server, and the sizes of the server's calls.
const MODES: [(Versions, Versions, &[usize]); 5] = [
    (Versions::One, Versions::Both(DIRECTED), INLINE),
    (Versions::Two(DIRECTED), Versions::Both(DIRECTED), ALL),
    (Versions::Both(DIRECTED), Versions::Both(DIRECTED), INLINE),
    (Versions::Both(DIRECTED), Versions::One, INLINE),
    (Versions::Two(Version2::Undirected), Versions::Two(Version2::Undirected), INLINE),
];

fn config() -> Config {
    // As many buffers as all calls may need at once: an echo without memory is an error of the
    // app's.
    let slots = [512, 192, 2];
    Config {
        grant: 8,
        calls_max: 8,
        reverse_grant: 4,
        reverse_calls_max: 8,
        slots,
        ..Config::small()
    }
}

/// A call without an outcome.
struct Open {
    octets: Vec<u8>,
    cancelled: bool,
}

/// One end, and its calls.
struct End {
    shard: Shard<Sim, Twin>,
    sizes: &'static [usize],
    open: BTreeMap<u64, Open>,
    called: u64,
    seen: Seen,
    /// Questions how the peer is, without an answer.
    asked: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    echoed: u64,
    cancelled: u64,
    /// Peers that said how they are.
    healthy: u64,
}

impl End {
    fn new(shard: Shard<Sim, Twin>, sizes: &'static [usize]) -> Self {
        Self { shard, sizes, open: BTreeMap::new(), called: 0, seen: Seen::default(), asked: 0 }
    }

    fn ask(&mut self, peer: PeerId) {
        self.asked += 1;
        self.shard.with_app(|_, cx| cx.ask_health(peer));
    }

    fn call(&mut self, peer: PeerId, random: &mut Rng) {
        let len = self.sizes[random.usize(..self.sizes.len())];
        let octets: Vec<u8> =
            (0..len).map(|i| (i * 31 + i / 251) as u8 ^ self.called as u8).collect();
        let token = self.called;
        if self.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&octets))) {
            self.open.insert(token, Open { octets, cancelled: false });
            self.called += 1;
        }
    }

    fn cancel(&mut self, peer: PeerId, random: &mut Rng) {
        let place = random.usize(..self.open.len().max(1));
        if let Some((token, open)) = self.open.iter_mut().nth(place) {
            open.cancelled = true;
            self.shard.with_app(|_, cx| cx.cancel(peer, Token(*token)));
        }
    }

    fn collect(&mut self, seed: u64) {
        while let Some(done) = self.shard.with_app(|app, _| app.caller().take()) {
            if done.token == Twin::REGISTRATION {
                continue;
            }
            let open = self.open.remove(&done.token.0);
            let open = open.unwrap_or_else(|| panic!("seed {seed}: {:?} ended twice", done.token));
            match done.echo {
                Ok(echo) => {
                    assert_eq!(&echo.unwrap()[..], open.octets, "seed {seed}: the wrong reply");
                    self.seen.echoed += 1;
                }
                Err(CallFault::Cancelled) if open.cancelled => self.seen.cancelled += 1,
                Err(fault) => panic!("seed {seed}: {:?}: {fault}", done.token),
            }
        }
        while let Some(health) = self.shard.with_app(|app, _| app.take_health()) {
            self.asked =
                self.asked.checked_sub(1).unwrap_or_else(|| panic!("seed {seed}: answered twice"));
            self.seen.healthy += u64::from(health.is_ok());
        }
        // A window is the memory of an outstanding call: nothing outlives its call.
        let bound = self.shard.provider().windows_bound();
        assert!(
            bound <= 2 * self.open.len(),
            "seed {seed}: {bound} keys, {} calls",
            self.open.len()
        );
    }

    fn expect_nothing_held(&self, seed: u64) {
        let shard = &self.shard;
        assert_eq!(
            (shard.buffers_in_use(), shard.calls_in_progress()),
            (0, (0, 0)),
            "seed {seed}: held"
        );
        assert_eq!(
            (shard.provider().windows_bound(), shard.receives_promised()),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!(shard.provider().receives_posted(), config().receives, "seed {seed}: receives");
    }
}

struct Pair {
    fabric: Fabric,
    server: End,
    client: End,
    up: PeerId,
    now: Time,
}

impl Pair {
    fn new(seed: u64, faults: Faults) -> Self {
        let fabric = Fabric::new(seed, faults);
        let (calls, serves, sizes) = MODES[seed as usize % MODES.len()];
        let shard = |name, app| {
            let config = Config { call_versions: calls, serve_versions: serves, ..config() };
            Shard::new(fabric.end(name, LIMITS), app, config, Box::new(|_| true) as Box<_>).unwrap()
        };
        let mut server = shard("server", Twin::default());
        let mut client = shard("client", Twin::named(NAME));
        let port = server.listen(&Port(0)).unwrap();
        let up = client.keep_connected(&port).unwrap();
        let (server, client) = (End::new(server, sizes), End::new(client, ALL));
        Self { fabric, server, client, up, now: Time(0) }
    }

    fn step(&mut self) {
        if self.server.shard.pass(self.now) | self.client.shard.pass(self.now) {
            return;
        }
        let waits = |end: &End| if end.open.is_empty() { None } else { end.shard.wake_at() };
        let timers = [self.fabric.next_due(), self.client.shard.wake_at(), waits(&self.server)];
        if let Some(due) = timers.into_iter().flatten().min() {
            self.now = due.max(self.now);
        }
    }

    fn down(&mut self) -> Option<PeerId> {
        self.server.shard.app().client(NAME)
    }
}

/// Runs one seed. Returns the counts of the client's calls, those of the server's calls, and the
/// counters of both ends.
fn run(seed: u64) -> ([Seen; 2], [Stats; 2]) {
    let mut random = Rng::with_seed(seed);
    let lost = [0, 2_000, 8_000, 20_000][random.usize(..4)];
    let mut pair = Pair::new(seed, Faults { lost, refused: 100_000, ..Faults::DELAYS });
    for round in 0..20_000 {
        if pair.client.called < CALLS && random.usize(..3) == 0 {
            pair.client.call(pair.up, &mut random);
        }
        if let Some(down) = pair.down() {
            if pair.server.called < CALLS && random.usize(..3) == 0 {
                pair.server.call(down, &mut random);
            }
            if random.usize(..40) == 0 {
                pair.server.cancel(down, &mut random);
            }
            if random.usize(..60) == 0 {
                pair.server.ask(down);
            }
        }
        if random.usize(..60) == 0 {
            pair.client.ask(pair.up);
        }
        if random.usize(..40) == 0 {
            pair.client.cancel(pair.up, &mut random);
        }
        pair.step();
        pair.client.collect(seed);
        pair.server.collect(seed);
        if round == 2_000 {
            pair.fabric.set_faults(Faults::DELAYS);
        }
        let done = |end: &End| end.called == CALLS && end.open.is_empty();
        if done(&pair.client) && done(&pair.server) {
            break;
        }
    }
    let open = (pair.client.open.len(), pair.server.open.len());
    assert_eq!(open, (0, 0), "seed {seed}: calls without an outcome\n{}", pair.fabric.trace());
    assert_eq!((pair.client.called, pair.server.called), (CALLS, CALLS), "seed {seed}");
    let (up, down) = (pair.up, pair.down().unwrap());
    pair.client.shard.with_app(|_, cx| cx.disconnect(up));
    pair.server.shard.with_app(|_, cx| cx.disconnect(down));
    for _ in 0..200 {
        pair.step();
    }
    pair.client.collect(seed);
    pair.server.collect(seed);
    assert_eq!(
        (pair.client.asked, pair.server.asked),
        (0, 0),
        "seed {seed}: questions without an answer"
    );
    pair.client.expect_nothing_held(seed);
    pair.server.expect_nothing_held(seed);
    let ends = [pair.client, pair.server];
    let stats = [0, 1].map(|end: usize| ends[end].shard.snapshot().engine);
    (ends.map(|end| end.seen), stats)
}

/// Totals over all seeds; they reveal a run without events.
#[derive(Debug, Default)]
struct Total {
    seen: Seen,
    v1: u64,
    v2: u64,
    in_chunks: u64,
    invalidated: u64,
    local_invalidations: u64,
    version_errors: u64,
    lost: u64,
}

impl Total {
    fn add(&mut self, seen: Seen, stats: &Stats) {
        self.seen.echoed += seen.echoed;
        self.seen.cancelled += seen.cancelled;
        self.seen.healthy += seen.healthy;
        let Requester { versions, calls, remote_invalidations, local_invalidations, .. } =
            stats.requester;
        self.v1 += versions.v1.forward + versions.v1.reverse;
        self.v2 += versions.v2.forward + versions.v2.reverse;
        self.in_chunks += calls.chunked + calls.long;
        self.invalidated += remote_invalidations;
        self.local_invalidations += local_invalidations;
        self.version_errors += stats.requester.version_errors;
        self.lost += stats.disconnects.values().sum::<u64>();
    }
}

#[test]
fn over_many_seeds_calls_in_both_directions_have_one_outcome_each() {
    let seeds = if std::env::var_os("CI").is_some() { 10_000 } else { 400 };
    let mut totals = [Total::default(), Total::default()];
    for seed in 0..seeds {
        let (seen, stats) = run(seed);
        (0..2).for_each(|end| totals[end].add(seen[end], &stats[end]));
    }
    let [forward, reverse] = &totals;
    println!("{seeds} seeds\nforward {forward:?}\nreverse {reverse:?}");
    for Total { seen, v1, v2, in_chunks, invalidated, local_invalidations, lost, .. } in &totals {
        assert_eq!(seen.echoed + seen.cancelled, seeds * CALLS);
        for happened in
            [seen.cancelled, *v1, *v2, *in_chunks, *invalidated, *local_invalidations, *lost]
        {
            assert!(2 * happened > seeds, "{totals:?}");
        }
        assert!(seen.healthy > seeds / 20, "{totals:?}");
    }
    assert!(forward.version_errors > seeds / 5, "every fifth server speaks version 1 only");
}
