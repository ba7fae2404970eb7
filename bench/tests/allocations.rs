//! Heap allocations per call: none after start, on every fabric, in both roles.

use crate::counting::allocations;
use stag_bench::{compounds::StoredFile, secured::SecuredEnds};
use stag_echo::{Caller, Echo, Twin};
use stag_engine::{Config, Sampling, Shard, Token};
use stag_gss::Enctype;
use stag_load::{
    Arrivals, Load, LoadFiles, LoadPlan, Pace, RunSpan, Schedule, SchedulePart, To, Workload,
};
use stag_protocol::rpcrdma::{Version2, Versions};
use stag_verbs::{Limits, Provider, Time};
use std::cell::{Cell, RefCell};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const CALLS: u64 = 100_000;

fn config() -> Config {
    let sampling = Sampling { every: 3, ..Sampling::default() };
    Config { grant: 32, calls_max: 32, sampling, ..Config::small() }
}

/// Calls in batches of `depth`, sizes in turn, until `calls` came back.
fn run<P: Provider>(
    server: &mut Shard<P, Echo>,
    client: &mut Shard<P, Caller>,
    calls: u64,
    mut turn: impl FnMut(&mut Shard<P, Echo>, &mut Shard<P, Caller>),
) {
    let payload = [0x5a_u8; 9_000];
    let sizes = [None, Some(0), Some(100), Some(900), Some(3_000), Some(5_000), Some(9_000)];
    let peer = client.app().peers()[0];
    let (mut called, mut done) = (0, 0);
    while done < calls {
        while called < calls && called - done < 16 {
            let octets = sizes[called as usize % sizes.len()].map(|len| &payload[..len]);
            assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(called), octets)));
            called += 1;
        }
        turn(server, client);
        while let Some(outcome) = client.with_app(|app, _| app.take()) {
            let echo = outcome.echo.expect("no echo fails");
            let wanted = sizes[outcome.token.0 as usize % sizes.len()];
            assert_eq!(echo.map(|echo| echo.len()), wanted);
            done += 1;
        }
    }
}

fn count<P: Provider>(
    server: &mut Shard<P, Echo>,
    client: &mut Shard<P, Caller>,
    mut turn: impl FnMut(&mut Shard<P, Echo>, &mut Shard<P, Caller>),
) {
    while client.app().peers().is_empty() {
        turn(server, client);
    }
    run(server, client, 2_000, &mut turn);
    let before = allocations();
    run(server, client, CALLS, &mut turn);
    assert_eq!(allocations() - before, 0, "heap allocations in {CALLS} calls, both roles");
}

#[test]
fn an_echo_on_sim_allocates_nothing() {
    let fabric = stag_sim::Fabric::new(1, stag_sim::Faults::DELAYS);
    let admit = || Box::new(|_| true) as Box<_>;
    let mut server =
        Shard::new(fabric.end("server", LIMITS), Echo::default(), config(), admit()).unwrap();
    let mut client =
        Shard::new(fabric.end("client", LIMITS), Caller::with_capacity(64), config(), admit())
            .unwrap();
    let port = server.listen(&stag_sim::Port(0)).unwrap();
    client.connect(&port).unwrap();
    let mut now = Time(0);
    count(&mut server, &mut client, |server, client| {
        if !(server.pass(now) | client.pass(now)) {
            now = fabric.next_due().map_or(now, |due| due.max(now));
        }
    });
}

#[test]
fn an_echo_on_iwarp_allocates_nothing() {
    let clock = stag_engine::clock::Clock::start();
    let provider = || {
        stag_iwarp::Iwarp::new(stag_iwarp::IwarpConfig::new(LIMITS, [7; 32], clock.now())).unwrap()
    };
    let admit = || Box::new(|_| true) as Box<_>;
    let mut server = Shard::new(provider(), Echo::default(), config(), admit()).unwrap();
    let mut client = Shard::new(provider(), Caller::with_capacity(64), config(), admit()).unwrap();
    let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
    client.connect(&at).unwrap();
    count(&mut server, &mut client, |server, client| {
        if !(server.pass(clock.now()) | client.pass(clock.now())) {
            std::thread::yield_now();
        }
    });
}

fn on_shm(trust: bool) {
    let mut ends = stag_bench::ends::shm_watched(trust, 3).unwrap();
    ends.meet();
    let stag_bench::ends::Ends { server, client, .. } = &mut ends;
    let clock = stag_engine::clock::Clock::start();
    count(server, client, |server, client| {
        server.pass(clock.now());
        client.pass(clock.now());
    });
}

#[test]
fn an_echo_on_isolated_shared_memory_allocates_nothing() {
    on_shm(false);
}

#[test]
fn an_echo_on_trusting_shared_memory_allocates_nothing() {
    on_shm(true);
}

/// The next calls of one of two ends, and what came of earlier ones.
fn both<P: Provider>(
    shard: &mut Shard<P, Twin>,
    peer: stag_engine::PeerId,
    calls: &mut [u64; 2],
    sizes: &[usize],
) {
    let payload = [0x5a_u8; 9_000];
    while calls[0] - calls[1] < 4 {
        let octets = &payload[..sizes[calls[0] as usize % sizes.len()]];
        assert!(shard.with_app(|_, cx| Caller::call(cx, peer, Token(calls[0]), Some(octets))));
        calls[0] += 1;
    }
    while let Some(outcome) = shard.with_app(|app, _| app.caller().take()) {
        if outcome.token != Twin::REGISTRATION {
            let len = outcome.echo.expect("no echo fails").map(|echo| echo.len());
            assert_eq!(len, Some(sizes[outcome.token.0 as usize % sizes.len()]));
            calls[1] += 1;
        }
    }
}

/// Both ends call and answer until each made a quarter of [`CALLS`]; the client tries these
/// versions.
fn count_both(versions: Versions, sizes: &[usize]) {
    let fabric = stag_sim::Fabric::new(1, stag_sim::Faults::DELAYS);
    let config = || Config { call_versions: versions, ..config() };
    let shard = |name, app| {
        Shard::new(fabric.end(name, LIMITS), app, config(), Box::new(|_| true) as Box<_>).unwrap()
    };
    let (mut server, mut client) =
        (shard("server", Twin::default()), shard("client", Twin::named(1)));
    let up = client.connect(&server.listen(&stag_sim::Port(0)).unwrap()).unwrap();
    let (mut now, mut forward, mut reverse, mut before) = (Time(0), [0; 2], [0; 2], None);
    while reverse[1] < CALLS / 4 || forward[1] < CALLS / 4 {
        both(&mut client, up, &mut forward, &[0, 100, 3_000, 5_000, 9_000]);
        if let Some(down) = server.app().client(1) {
            both(&mut server, down, &mut reverse, sizes);
        }
        if !(server.pass(now) | client.pass(now)) {
            now = fabric.next_due().map_or(now, |due| due.max(now));
        }
        if before.is_none() && reverse[1] > 2_000 {
            before = Some(allocations());
        }
    }
    assert_eq!(Some(allocations()), before, "heap allocations in both directions");
}

#[test]
fn calls_in_both_directions_allocate_nothing() {
    count_both(Versions::One, &[0, 100, 900, 3_000]);
}

#[test]
fn calls_of_version_2_in_both_directions_allocate_nothing() {
    count_both(Versions::Both(Version2::Directed), &[0, 100, 3_000, 5_000, 9_000]);
}

/// The load generator, half of whose calls move payload that it compares.
fn generate(pace: impl FnOnce(Time) -> Pace) {
    let fabric = stag_sim::Fabric::new(1, stag_sim::Faults::DELAYS);
    let plan = LoadPlan {
        connections: 2,
        sampling: Sampling { every: 3, ..Sampling::default() },
        ..LoadPlan::new(Workload::Mixed, 9_000, 8)
    };
    let admit = Box::new(|_| true) as Box<_>;
    let mut server =
        Shard::new(fabric.end("server", LIMITS), Echo::default(), config(), admit).unwrap();
    let limits = Limits { private_data_len: LIMITS.private_data_len, ..plan.limits() };
    let mut load = Load::new(fabric.end("client", limits), &plan).unwrap();
    load.connect(&To::Fabric(server.listen(&stag_sim::Port(0)).unwrap())).unwrap();
    let (mut now, mut begun, mut before) = (Time(0), None, None);
    let mut pace = Some(pace);
    while !load.generator().is_over() {
        if begun.is_none() && load.is_connected().unwrap() {
            let pace = pace.take().unwrap()(now);
            load.begin(now, pace, RunSpan { from: now, until: Time(u64::MAX), calls: Some(CALLS) });
            begun = Some(now);
        }
        if !(load.step(now) | server.pass(now)) {
            let due = fabric.next_due().into_iter().chain(load.generator().wake_at()).min();
            now = due.map_or(now, |due| due.max(now));
        }
        load.with_generator(|generator| {
            while let Some((_, mut record)) = generator.take_second() {
                record.clear();
                generator.give(record);
            }
        });
        // What happens once has happened by then.
        if before.is_none() && begun.is_some_and(|begun| now.0 > begun.0 + 50_000_000) {
            before = Some(allocations());
        }
    }
    assert_eq!(load.generator().failure(), None);
    assert_eq!(Some(allocations()), before, "heap allocations while calls are generated");
}

/// The load generator by NFS, and the gateway that it calls.
fn generate_nfs(workload: Workload) {
    let fabric = stag_sim::Fabric::new(1, stag_sim::Faults::DELAYS);
    let (gateway, stored) = stag_bench::compounds::gateway().unwrap();
    let StoredFile { dir, file } = stored;
    let files = Some(LoadFiles { dir, file, blocks: 8, names: 1 });
    let plan =
        LoadPlan { connections: 2, files, verify: false, ..LoadPlan::new(workload, 8_192, 8) };
    let admit = Box::new(|_| true) as Box<_>;
    let mut server = Shard::new(fabric.end("server", LIMITS), gateway, config(), admit).unwrap();
    let limits = Limits { private_data_len: LIMITS.private_data_len, ..plan.limits() };
    let mut load = Load::new(fabric.end("client", limits), &plan).unwrap();
    load.connect(&To::Fabric(server.listen(&stag_sim::Port(0)).unwrap())).unwrap();
    let time = Cell::new(Time(0));
    let advance = |wake_at: Option<Time>| {
        let due = fabric.next_due().into_iter().chain(wake_at).min();
        time.set(due.map_or(time.get(), |due| due.max(time.get())));
    };
    while !load.is_connected().unwrap() {
        if !(load.step(time.get()) | server.pass(time.get())) {
            advance(None);
        }
    }
    let serving = RefCell::new(&mut server);
    let serve = || {
        if !serving.borrow_mut().pass(time.get()) {
            advance(None);
        }
        time.get()
    };
    if workload.is_nfs4() {
        load.begin_sessions([1; 16], serve, || false).unwrap();
    }
    let make = |load: &mut Load<_>, calls| {
        let from = time.get();
        let span = RunSpan { from, until: Time(u64::MAX), calls: Some(calls) };
        load.begin(from, Pace::Closed, span);
        while !load.generator().is_over() {
            if !(load.step(time.get()) | serving.borrow_mut().pass(time.get())) {
                advance(load.generator().wake_at());
            }
            load.with_generator(|generator| {
                while let Some((_, mut record)) = generator.take_second() {
                    record.clear();
                    generator.give(record);
                }
            });
        }
        assert_eq!(load.generator().failure(), None);
    };
    make(&mut load, 2_000);
    let before = allocations();
    // The calls of both together.
    make(&mut load, 22_000);
    assert_eq!(allocations() - before, 0, "heap allocations of {workload}");
    if workload.is_nfs4() {
        load.end_sessions(serve, || false).unwrap();
    }
}

#[test]
fn compounds_of_the_load_generator_allocate_nothing() {
    for workload in [Workload::GetAttr4, Workload::Read4, Workload::ReadWrite4] {
        generate_nfs(workload);
    }
}

#[test]
fn commits_and_listings_of_the_load_generator_allocate_nothing() {
    for workload in [Workload::Commit, Workload::ReadDirPlus] {
        generate_nfs(workload);
    }
}

#[test]
fn a_closed_loop_of_the_load_generator_allocates_nothing() {
    generate(|_| Pace::Closed);
}

#[test]
fn an_open_loop_of_the_load_generator_allocates_nothing() {
    generate(|now| {
        Pace::Open(Schedule::new(now, 50_000.0, Arrivals::Poisson, 1, SchedulePart::ALL))
    });
}

/// At the server, whose passes alone are counted.
#[test]
fn protected_calls_allocate_nothing() {
    let mut ends = SecuredEnds::connect(Enctype::Aes256Sha384).unwrap();
    let procedures = ["null", "getattr", "read-64k", "write-64k", "read-1m", "write-1m"];
    for procedure in procedures {
        for flavor in ["sys", "krb5", "krb5i", "krb5p"] {
            let call = format!("{procedure}/{flavor}").parse().unwrap();
            ends.ask(call, 64, &mut |serve| serve());
            let mut allocated = 0;
            ends.ask(call, 64, &mut |serve| {
                let before = allocations();
                serve();
                allocated += allocations() - before;
            });
            assert_eq!(allocated, 0, "{procedure} under {flavor}");
        }
    }
}
