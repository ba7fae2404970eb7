//! Thousands of connections of one call each leak nothing, at either side.
//! Descriptors and regions are those of the whole process, so this is a test by itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_echo::Driver;
use stag_engine::{Config, Shard, clock::Clock};
use stag_iwarp::Iwarp;
use stag_load::{Load, LoadPlan, Pace, To, Workload};
use stag_shm::Shm;
use stag_verbs::{Limits, Provider, Time};
use std::{
    fs, thread,
    time::{Duration, Instant},
};
use world::{LIMITS, calls};

mod world;

/// Connections at a time, and all of them.
const AT_A_TIME: usize = 16;
const ALL: u64 = 2_000;

/// Open descriptors and regions that are mapped from files, as shared memory is, of this process,
/// which has both ends.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    // The fifth word is the file's number (proc_pid_maps(5)). What the allocator maps has none.
    let is_of_file = |line: &&str| line.split_whitespace().nth(4).is_some_and(|inode| inode != "0");
    (descriptors, maps.lines().filter(is_of_file).count())
}

/// One storm after the other over the same two shards: the second leaves as much as the first,
/// which is nothing but what the two keep for each other.
fn real<P: Provider>(
    make: impl Fn(Limits) -> P,
    at: &P::Address,
    over_tcp: bool,
    counts: impl Fn(&P) -> (usize, usize),
) {
    let clock = Clock::start();
    let config =
        Config { peers: 64, receives: 1_024, inbound: 1_024, grant_first: 4, ..Config::small() };
    let limits = Limits { connections: 64, receives: 1_024, ..LIMITS };
    let mut server =
        Shard::new(make(limits), Driver::default(), config, Box::new(|_| true)).unwrap();
    let fabric_at = server.listen(at).unwrap();
    let to = match over_tcp {
        true => To::Tcp(server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()),
        false => To::Fabric(fabric_at),
    };
    let plan = LoadPlan { connections: AT_A_TIME, ..LoadPlan::new(Workload::ConnStorm, 0, 1) };
    let mut load = Load::new(make(plan.limits()), &plan).unwrap();
    load.connect(&to).unwrap();
    let mut once = |count: u64| {
        load.begin(clock.now(), Pace::Closed, calls(clock.now().0, count));
        let began = Instant::now();
        while !load.generator().is_over() {
            if !(load.step(clock.now()) | server.pass(clock.now())) {
                thread::yield_now();
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", load.generator());
        }
        assert_eq!(load.generator().failure(), None);
        let mut made = load.with_generator(|generator| generator.take_rest()).1.calls;
        while let Some((_, record)) = load.with_generator(|generator| generator.take_second()) {
            made += record.calls;
        }
        let is_over = |server: &Shard<P, Driver>| {
            server.snapshot().engine.connections.live == 0 && counts(server.provider()) == (0, 0)
        };
        while !is_over(&server) || counts(load.shard().provider()) != (0, 0) {
            server.pass(clock.now());
            load.step(clock.now());
            assert!(began.elapsed() < Duration::from_secs(60), "connections end at both sides");
        }
        let client = load.shard();
        assert_eq!(
            (server.buffers_in_use(), server.calls_in_progress(), server.receives_promised()),
            (0, (0, 0), 0)
        );
        assert_eq!(
            (client.buffers_in_use(), client.calls_in_progress(), client.receives_promised()),
            (0, (0, 0), 0)
        );
        (made, held())
    };
    // A generator counts on from one run to the next.
    let first = AT_A_TIME as u64 * 4;
    let (_, before) = once(first);
    let (made, after) = once(first + ALL);
    assert_eq!((made, after), (ALL, before), "connections; descriptors and regions");
}

#[test]
fn thousands_of_connections_over_each_fabric_leave_nothing_behind() {
    let make = |limits| Iwarp::new(stag_iwarp::IwarpConfig::new(limits, [7; 32], Time(0))).unwrap();
    let counts = |iwarp: &Iwarp| (iwarp.windows_bound(), iwarp.connections() + iwarp.half_open());
    for over_tcp in [false, true] {
        real(make, &"iwarp://127.0.0.1:0".parse().unwrap(), over_tcp, counts);
    }
    let home = tempfile::tempdir().unwrap();
    let at = stag_shm::ShmAddress::new(home.path().join("socket")).unwrap();
    let make = |limits| Shm::new(stag_shm::ShmConfig::new(limits, [7; 32], Time(0))).unwrap();
    real(make, &at, false, |shm: &Shm| (shm.windows_bound(), shm.connections()));
}
