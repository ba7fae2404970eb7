//! Echo calls over the simulated fabric: every form, and 1,000 seeds of trouble.

use fastrand::Rng;
use stag_echo::{Caller, Echo};
use stag_engine::{CallFault, Config, Shard, Token};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Provider, Time};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

struct Pair {
    fabric: Fabric,
    server: Shard<Sim, Echo>,
    client: Shard<Sim, Caller>,
    port: Port,
    now: Time,
}

fn config() -> Config {
    Config { grant: 8, calls_max: 8, ..Config::small() }
}

impl Pair {
    fn new(seed: u64, faults: Faults) -> Self {
        let fabric = Fabric::new(seed, faults);
        let admit = || Box::new(|_| true) as Box<_>;
        let mut server =
            Shard::new(fabric.end("server", LIMITS), Echo::default(), config(), admit()).unwrap();
        let client =
            Shard::new(fabric.end("client", LIMITS), Caller::with_capacity(64), config(), admit())
                .unwrap();
        let port = server.listen(&Port(0)).unwrap();
        Self { fabric, server, client, port, now: Time(0) }
    }

    /// Runs both ends until nothing is left to do at this time; then time jumps to the next event.
    fn step(&mut self) -> bool {
        let worked = self.server.pass(self.now) | self.client.pass(self.now);
        if worked {
            return true;
        }
        let waits = self.client.calls_in_progress().1 > 0;
        let timer = if waits { self.client.wake_at() } else { None };
        match self.fabric.next_due().into_iter().chain(timer).min() {
            Some(due) if due > self.now => self.now = due,
            Some(_) => {}
            None => return false,
        }
        true
    }

    fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the fabric never comes to rest\n{}", self.fabric.trace());
    }

    fn echo(&mut self, octets: &[u8]) -> Result<Vec<u8>, CallFault> {
        let peer = self.client.app().peers()[0];
        let called = self.client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(octets)));
        assert!(called, "there is memory for one call");
        self.settle();
        let done = self.client.with_app(|app, _| app.take()).expect("every call has an outcome");
        done.echo.map(|echo| echo.unwrap().to_vec())
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn an_echo_of_every_size_comes_back() {
    let mut pair = Pair::new(1, Faults::DELAYS);
    pair.client.connect(&pair.port.clone()).unwrap();
    pair.settle();
    let near = |n: usize| n.saturating_sub(5)..n + 6;
    for len in
        near(0).chain(near(1024)).chain(near(4096)).chain(near(65536)).chain([600_001, 1 << 20])
    {
        assert_eq!(pair.echo(&pattern(len)).unwrap(), pattern(len), "{len} octets");
    }
    let (server, client) = (pair.server.snapshot().engine, pair.client.snapshot().engine);
    assert!(server.responder.calls.short > 0 && server.responder.calls.chunked > 0, "{server:?}");
    assert!(server.responder.replies.chunked > 0, "{server:?}");
    assert!(server.responder.remote_invalidations > 0, "{server:?}");
    assert_eq!(server.responder.remote_invalidations, client.requester.remote_invalidations);
    // A call with two keys loses one to the reply and invalidates the other itself.
    assert!(client.requester.local_invalidations > 0);
    assert_eq!((pair.server.buffers_in_use(), pair.client.buffers_in_use()), (0, 0));
}

#[test]
fn calls_beyond_the_credits_wait_and_all_come_back() {
    let mut pair = Pair::new(2, Faults::DELAYS);
    pair.client.connect(&pair.port.clone()).unwrap();
    pair.settle();
    let peer = pair.client.app().peers()[0];
    let octets = pattern(3000);
    for token in 0..50 {
        assert!(pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&octets))));
    }
    pair.settle();
    let mut tokens = Vec::new();
    while let Some(done) = pair.client.with_app(|app, _| app.take()) {
        assert_eq!(&done.echo.unwrap().unwrap()[..], octets);
        tokens.push(done.token.0);
    }
    tokens.sort_unstable();
    assert_eq!(tokens, (0..50).collect::<Vec<_>>());
    assert!(pair.client.snapshot().engine.requester.waited_for_credit > 0);
}

#[test]
fn a_server_that_is_not_there_is_a_peer_that_goes_down() {
    let mut pair = Pair::new(3, Faults::NONE);
    let peer = pair.client.connect(&Port(9)).unwrap();
    pair.client.with_app(|_, cx| assert!(Caller::call(cx, peer, Token(5), None)));
    pair.settle();
    let done = pair.client.with_app(|app, _| app.take()).unwrap();
    assert!(matches!(done.echo, Err(CallFault::Disconnected(_))), "{done:?}");
    assert_eq!(pair.client.buffers_in_use(), 0);
}

/// Counts of one seed.
#[derive(Debug, Default)]
struct Seen {
    echoed: u32,
    failed: u32,
}

fn run_seed(seed: u64) -> Seen {
    let mut random = Rng::with_seed(seed);
    let lost = [0, 0, 2_000, 20_000][random.usize(..4)];
    let lost_at = (random.usize(..3) == 0).then(|| random.u64(..400));
    let mut pair = Pair::new(seed, Faults { lost, lost_at, ..Faults::DELAYS });
    let mut seen = Seen::default();
    let mut outstanding = std::collections::BTreeMap::new();
    let sizes = [0, 1, 3, 100, 900, 1500, 3990, 4096, 9000, 70_000];
    let (mut token, mut connects) = (0, 0);
    for _ in 0..400 {
        if pair.client.app().peers().is_empty() && connects < 20 && random.usize(..4) == 0 {
            connects += 1;
            let _ = pair.client.connect(&pair.port.clone());
        }
        if let Some(peer) = pair.client.app().peers().first().copied()
            && token < 60
            && random.usize(..3) == 0
        {
            let octets = pattern(sizes[random.usize(..sizes.len())]);
            if pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&octets))) {
                outstanding.insert(token, octets);
            }
            token += 1;
        }
        if random.usize(..60) == 0
            && let Some(peer) = pair.client.app().peers().first().copied()
        {
            pair.client.with_app(|_, cx| cx.disconnect(peer));
        }
        pair.step();
        collect(&mut pair, &mut outstanding, &mut seen, seed);
    }
    pair.settle();
    collect(&mut pair, &mut outstanding, &mut seen, seed);
    // Calls still wait if their reply was lost with its connection: the deadline ends them.
    assert!(
        outstanding.is_empty(),
        "seed {seed}: {} calls have no outcome\n{}",
        outstanding.len(),
        pair.fabric.trace()
    );
    for peer in pair.client.app().peers().to_vec() {
        pair.client.with_app(|_, cx| cx.disconnect(peer));
    }
    pair.settle();
    assert_eq!(pair.server.buffers_in_use(), 0, "seed {seed}: the server's buffers");
    assert_eq!(pair.client.buffers_in_use(), 0, "seed {seed}: the client's buffers");
    assert_eq!(pair.server.calls_in_progress(), (0, 0), "seed {seed}");
    assert_eq!(pair.client.calls_in_progress(), (0, 0), "seed {seed}");
    assert_eq!(pair.client.provider().windows_bound(), 0, "seed {seed}: windows");
    assert_eq!(
        pair.server.receives_promised() + pair.client.receives_promised(),
        0,
        "seed {seed}: credits"
    );
    let receives = pair.server.provider().receives_posted();
    assert_eq!(receives, config().receives, "seed {seed}: receives");
    seen
}

fn collect(
    pair: &mut Pair,
    outstanding: &mut std::collections::BTreeMap<u64, Vec<u8>>,
    seen: &mut Seen,
    seed: u64,
) {
    while let Some(done) = pair.client.with_app(|app, _| app.take()) {
        let octets = outstanding.remove(&done.token.0);
        let octets = octets.unwrap_or_else(|| panic!("seed {seed}: {:?} ended twice", done.token));
        match done.echo {
            Ok(echo) => {
                assert_eq!(&echo.unwrap()[..], octets, "seed {seed}");
                seen.echoed += 1;
            }
            Err(CallFault::Disconnected(_) | CallFault::TimedOut | CallFault::NoPeer) => {
                seen.failed += 1
            }
            Err(fault) => panic!("seed {seed}: {fault}"),
        }
    }
}

/// Calls to a server that is kept connected while its connection breaks again and again.
fn run_kept_seed(seed: u64) -> (u32, u64) {
    let mut random = Rng::with_seed(seed);
    let faults = Faults { lost: 8_000, refused: 200_000, ..Faults::DELAYS };
    let mut pair = Pair::new(seed, faults.clone());
    let peer = pair.client.keep_connected(&pair.port.clone()).unwrap();
    let sizes = [0, 1, 900, 1500, 3990, 9000, 70_000];
    let mut wanted = std::collections::BTreeMap::new();
    let mut token = 0;
    let mut echoed = 0;
    for round in 0..4_000 {
        if token < 40 && random.usize(..3) == 0 {
            let octets = pattern(sizes[random.usize(..sizes.len())]);
            if pair.client.with_app(|_, cx| Caller::call(cx, peer, Token(token), Some(&octets))) {
                wanted.insert(token, octets);
                token += 1;
            }
        }
        pair.step();
        while let Some(done) = pair.client.with_app(|app, _| app.take()) {
            let octets = wanted.remove(&done.token.0);
            let octets =
                octets.unwrap_or_else(|| panic!("seed {seed}: {:?} ended twice", done.token));
            let echo = done.echo.unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            assert_eq!(&echo.unwrap()[..], octets, "seed {seed}");
            echoed += 1;
        }
        if round == 3_000 {
            pair.fabric.set_faults(Faults::DELAYS);
        }
        if token == 40 && wanted.is_empty() {
            break;
        }
    }
    assert!(
        wanted.is_empty(),
        "seed {seed}: {} calls have no outcome\n{}",
        wanted.len(),
        pair.fabric.trace()
    );
    pair.client.with_app(|_, cx| cx.disconnect(peer));
    pair.settle();
    assert_eq!(
        (pair.server.buffers_in_use(), pair.client.buffers_in_use()),
        (0, 0),
        "seed {seed}: buffers"
    );
    assert_eq!(pair.client.provider().windows_bound(), 0, "seed {seed}: windows");
    assert_eq!(pair.client.calls_in_progress(), (0, 0), "seed {seed}");
    assert_eq!(
        pair.server.receives_promised() + pair.client.receives_promised(),
        0,
        "seed {seed}: credits"
    );
    let lost = pair.client.snapshot().engine.disconnects.values().sum();
    (echoed, lost)
}

#[test]
fn over_1000_seeds_a_server_that_is_kept_connected_answers_every_call() {
    let (mut echoed, mut lost) = (0, 0);
    for seed in 0..1_000 {
        let seen = run_kept_seed(seed);
        echoed += seen.0;
        lost += seen.1;
    }
    assert_eq!(echoed, 40_000);
    assert!(lost > 2_000, "{lost} connections were lost");
    println!("{echoed} echoes over {lost} lost connections");
}

#[test]
fn a_cancelled_call_keeps_its_memory_until_the_peer_cannot_reach_it() {
    let mut pair = Pair::new(4, Faults::DELAYS);
    pair.client.connect(&pair.port.clone()).unwrap();
    pair.settle();
    let peer = pair.client.app().peers()[0];
    for token in 0..3 {
        assert!(pair.client.with_app(|_, cx| Caller::call(
            cx,
            peer,
            Token(token),
            Some(&pattern(9_000))
        )));
    }
    pair.client.pass(pair.now);
    // The first is outstanding, for there is one credit; the others are not.
    for token in 0..3 {
        pair.client.with_app(|_, cx| cx.cancel(peer, Token(token)));
    }
    let ended = |pair: &mut Pair| {
        let done = pair.client.with_app(|app, _| app.take())?;
        assert!(matches!(done.echo, Err(CallFault::Cancelled)), "{done:?}");
        Some(done.token.0)
    };
    assert_eq!([ended(&mut pair), ended(&mut pair), ended(&mut pair)], [Some(1), Some(2), None]);
    assert_eq!(pair.client.provider().windows_bound(), 2);
    pair.settle();
    assert_eq!(ended(&mut pair), Some(0));
    assert_eq!((pair.client.provider().windows_bound(), pair.client.buffers_in_use()), (0, 0));
    assert_eq!(pair.echo(&pattern(100)).unwrap(), pattern(100), "the connection lives");
}

#[test]
fn over_1000_seeds_every_call_ends_once_and_everything_comes_back() {
    let mut total = Seen::default();
    for seed in 0..1_000 {
        let seen = run_seed(seed);
        total.echoed += seen.echoed;
        total.failed += seen.failed;
    }
    // A fabric on which nothing fails, or nothing works, would prove nothing.
    assert!(total.echoed > 5_000 && total.failed > 500, "{total:?}");
    println!("{total:?}");
}

#[test]
fn a_burst_of_replies_whose_keys_we_invalidate_ourselves_keeps_its_connection() {
    for together in [16, 24, 32, 48, 64, 80, 120] {
        let faults = Faults {
            delay: 1_000..1_001,
            completion_delay: 1_000..1_001,
            reads: 256,
            ..Faults::NONE
        };
        let fabric = Fabric::new(1, faults);
        let admit = || Box::new(|_| true) as Box<_>;
        let config = || Config {
            grant: 64,
            grant_first: 64,
            calls_max: 64,
            receives: 600,
            slots: [2048, 600, 16],
            outbound: 256,
            inbound: 600,
            ..Config::small()
        };
        // This server invalidates nothing, and has more room than its client: a quarter of its
        // large slots lets it pull 48 items.
        let limits = Limits {
            sends_invalidation: false,
            bears_invalidation: false,
            send_queue: 256,
            receives: 600,
            ..LIMITS
        };
        let roomy = Config { slots: [2048, 600, 192], ..config() };
        let mut server =
            Shard::new(fabric.end("server", limits), Echo::default(), roomy, admit()).unwrap();
        let limits = Limits { send_queue: 64, receives: 600, ..LIMITS };
        let mut client =
            Shard::new(fabric.end("client", limits), Caller::default(), config(), admit()).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let peer = client.connect(&port).unwrap();
        let mut now = Time(0);
        // The client's core is slow: everything that the server does comes at once.
        let mut settle = |client: &mut Shard<Sim, Caller>| {
            for _ in 0..100_000 {
                let mut worked = server.pass(now);
                while server.pass(now) {}
                worked |= client.pass(now);
                match fabric.next_due() {
                    _ if worked => {}
                    Some(due) => now = due.max(now),
                    None => return,
                }
            }
            panic!("the fabric never comes to rest\n{}", fabric.trace());
        };
        client.with_app(|_, cx| Caller::call(cx, peer, Token(0), None));
        settle(&mut client);
        assert!(client.with_app(|app, _| app.take()).unwrap().echo.is_ok());
        for token in 0..together {
            assert!(client.with_app(|_, cx| Caller::call(
                cx,
                peer,
                Token(token),
                Some(&[7; 5_000])
            )));
        }
        settle(&mut client);
        for _ in 0..together {
            let done = client.with_app(|app, _| app.take()).expect("every call has an outcome");
            assert_eq!(done.echo.unwrap().unwrap()[..], [7; 5_000], "{together} together");
        }
        let stats = client.snapshot().engine.requester;
        assert_eq!((stats.remote_invalidations, stats.local_invalidations), (0, 2 * together));
        assert_eq!((client.buffers_in_use(), client.provider().windows_bound()), (0, 0));
    }
}
