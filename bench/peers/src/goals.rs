//! The table of goals: what is compared with what. A contender from elsewhere gets its row here.

use crate::{
    contender::Quantity::{Bandwidth, Count, Rate, RoundTrip, Tail},
    floor::{
        copy::CopyFloor,
        ring::{RingFloor, Sample},
        tcp::{TcpPing, TcpStreamFloor},
        wake::{PAUSE, WakeFloor},
    },
    goal::{
        Bound::{self, AtLeast, AtMost},
        Row,
    },
    minimal::Minimal,
    ours::{
        ends::Calls,
        headers::{HeaderTime, Instructions, Work},
        idle::IdleServer,
        many::{Among, IdleMemory, Pushed},
        sink::{Ceiling, Fastest},
        tail::HalfOfPeak,
    },
    rivals::rows,
    stag::{Served, Stag},
    way::{self, Way},
};

/// A goal: its name, what it is about, and what makes its rows.
pub type Goal = (&'static str, &'static str, fn() -> Vec<Row>);

/// All of them, in the order of the table. A goal with several lines is measured by all of them.
pub const GOALS: [Goal; 18] = [
    ("G1", "NULL round trip on shared memory, against a two-thread ring", null_shm),
    ("G1", "the same, against UCX", rows::null_shm),
    ("G2", "NULL calls per second on shared memory, against active messages of UCX", rows::calls_shm),
    ("G3", "NULL round trip over iWARP, against a busy-polled TCP ping-pong", null_iwarp),
    ("G3", "the same, against UCX and libtirpc over TCP", rows::null_iwarp),
    ("G4", "NULL calls per second over iWARP, against a server made for nothing but speed", calls_iwarp),
    ("G4", "the same, against NFS-Ganesha and libtirpc's server with the same client", rows::calls_iwarp),
    ("G5", "READ bandwidth on shared memory, against memcpy", reads_shm),
    ("G6", "READ bandwidth over iWARP, against a busy-polled TCP stream; CRC on against off", reads_iwarp),
    ("G7", "READs per second of 4 KiB over iWARP, against a server made for nothing but speed", small_reads),
    ("G7", "the same, against NFS-Ganesha with the same client", rows::small_reads),
    ("G8", "transport headers written and read, against memcpy; instructions", headers),
    ("G9", "instructions of a NULL call on shared memory, both sides", call),
    ("G10", "NULL round trip among 10,000 connections, against one connection", many),
    ("G11", "memory of a server for each idle connection", idle_memory),
    ("G12", "p99 / p50 at half of the peak rate on shared memory, against that of the ring", tail),
    ("G13", "the first call after the server fell asleep, against an eventfd; CPU while idle", asleep),
    ("G14", "the generator's own ceiling, against the fastest server", ceiling),
];

/// The calls under way at a time in a READ at full width.
const READ_DEPTH: usize = 8;

fn null_shm() -> Vec<Row> {
    let row = |what, by, bound| {
        let ours = Stag::new(by, Served::Echo, "--workload null --depth 1");
        Row::timed(("G1", what), (RoundTrip, bound), ours, RingFloor(Sample::Batches))
    };
    vec![
        row("NULL round trip, shm", way::SHM, AtMost(2.0)),
        row("NULL round trip, shm trusted", way::SHM_TRUSTED, Bound::None),
    ]
}

fn null_iwarp() -> Vec<Row> {
    let ours = Stag::new(way::IWARP, Served::Echo, "--workload null --depth 1");
    vec![Row::timed(("G3", "NULL round trip, iwarp"), (RoundTrip, AtMost(1.1)), ours, TcpPing)]
}

fn calls_iwarp() -> Vec<Row> {
    let row = |depth: usize| {
        let options = format!("--workload null --depth {depth}");
        let ours = Stag::new(way::IWARP, Served::Echo, &options);
        let what = format!("NULL calls/s, iwarp, depth {depth}");
        Row::timed(("G4", &what), (Rate, AtLeast(0.5)), ours, Minimal::new(&options))
    };
    [32, 128].map(row).into()
}

fn reads_shm() -> Vec<Row> {
    let row = |(by, name): (Way, &str), (len, size, bound): (usize, &str, Bound)| {
        let options = format!("--workload nfs3:read --size {size} --depth {READ_DEPTH} --no-verify");
        let ours = Stag::new(by, Served::Memory, &options);
        let what = format!("READ bandwidth, {name}, {size}iB, depth {READ_DEPTH}");
        Row::timed(("G5", &what), (Bandwidth, bound), ours, CopyFloor { len, places: READ_DEPTH })
    };
    let (trusted, isolated) = ((way::SHM_TRUSTED, "shm trusted"), (way::SHM, "shm isolated"));
    vec![
        row(trusted, (64 << 10, "64K", AtLeast(0.7))),
        row(trusted, (1 << 20, "1M", AtLeast(0.9))),
        row(isolated, (64 << 10, "64K", Bound::None)),
        row(isolated, (1 << 20, "1M", Bound::None)),
    ]
}

fn reads_iwarp() -> Vec<Row> {
    let options = format!("--workload nfs3:read --size 1M --depth {READ_DEPTH} --no-verify");
    let ours = Stag::new(way::IWARP, Served::Memory, &options);
    let what = format!("READ bandwidth, iwarp with CRC, 1MiB, depth {READ_DEPTH}");
    let pushed = |by| Pushed::new(by, READ_DEPTH);
    let (on, off) = (pushed(way::IWARP), pushed(way::IWARP_WITHOUT_CRC));
    vec![
        Row::timed(("G6", &what), (Bandwidth, AtLeast(0.9)), ours, TcpStreamFloor),
        Row::timed(("G6", "1 MiB pushed, CRC on ÷ off"), (Bandwidth, AtLeast(0.95)), on, off),
    ]
}

fn small_reads() -> Vec<Row> {
    let row = |(depth, bound): (usize, f64)| {
        let options = format!("--workload nfs3:read --size 4K --depth {depth} --no-verify");
        let ours = Stag::new(way::IWARP, Served::Memory, &options);
        let what = format!("4 KiB READs/s, iwarp, depth {depth}");
        Row::timed(("G7", &what), (Rate, AtLeast(bound)), ours, Minimal::new(&options))
    };
    [(32, 0.25), (128, 0.1)].map(row).into()
}

fn headers() -> Vec<Row> {
    let time = |form, work, bound| {
        let name = if work == Work::Emit { "emit" } else { "parse" };
        let what = format!("header, {name}, {}", if form == "null" { "NULL" } else { "one Write chunk" });
        let [ours, copy] = [work, Work::Copy].map(|work| HeaderTime { form, work });
        Row::timed(("G8", &what), (RoundTrip, AtMost(bound)), ours, copy)
    };
    let instructions = |subject, what, bound| {
        let ours = Instructions::new(subject, 1_000);
        Row::exact(("G8", what), (Count("instructions"), bound), ours)
    };
    vec![
        time("null", Work::Emit, 1.6),
        time("read", Work::Emit, 1.6),
        time("null", Work::Parse, 4.0),
        time("read", Work::Parse, 4.0),
        // A connection writes a NULL's header as the plain one that it is; what can write every header needs more.
        instructions("emit/plain", "header, emit, NULL, instructions", AtMost(25.0)),
        instructions("emit/null", "the same by what writes every header", Bound::None),
        instructions("emit/read", "header, emit, one Write chunk, instructions", AtMost(100.0)),
        instructions("parse/plain", "header, parse, NULL, instructions", Bound::None),
        instructions("parse/read", "header, parse, one Write chunk, instructions", AtMost(180.0)),
    ]
}

fn call() -> Vec<Row> {
    let row = |subject, what, bound| {
        Row::exact(("G9", what), (Count("instructions"), bound), Instructions::new(subject, 500))
    };
    vec![
        row("shm", "NULL call, shm, both sides, instructions", AtMost(500.0)),
        row("iwarp", "NULL call, iwarp, both sides, instructions", Bound::None),
    ]
}

fn many() -> Vec<Row> {
    // What the crowd costs, and what it costs that nothing of a connection is in a cache when its call comes.
    let kinds = [(Calls::OverOne, "the others idle"), (Calls::OverAny, "each call over another one")];
    let rows = [way::SHM, way::IWARP].into_iter().flat_map(|by| {
        kinds.map(|(calls, how)| {
            let what = format!("NULL round trip, {}, 10,000 connections ÷ 1, {how}", by.name());
            let [ours, one] = [10_000, 1].map(|connections| Among::new(by, calls, connections));
            Row::timed(("G10", &what), (RoundTrip, AtMost(1.5)), ours, one)
        })
    });
    rows.collect()
}

fn idle_memory() -> Vec<Row> {
    let row = |by: Way, kib: f64| {
        let what = format!("memory per idle connection, {}, of 4,000", by.name());
        let ours = IdleMemory::new(by, 4_000);
        Row::exact(("G11", &what), (Count("octets"), AtMost(kib * 1_024.0)), ours)
    };
    vec![row(way::IWARP, 4.0), row(way::SHM, 16.0)]
}

fn tail() -> Vec<Row> {
    let (ours, ring) = (HalfOfPeak::new(way::SHM), RingFloor(Sample::Open));
    vec![Row::timed(
        ("G12", "p99/p50 of NULL, shm, open loop at half of the peak"),
        (Tail, AtMost(1.5)),
        ours,
        ring,
    )]
}

fn asleep() -> Vec<Row> {
    let rate = 1_000 / PAUSE.as_millis();
    let options = format!("--workload null --depth 1 --rate {rate} --arrivals uniform");
    let first = |by, what, bound| {
        let ours = Stag::new(by, Served::Echo, &options);
        Row::timed(("G13", what), (RoundTrip, bound), ours, WakeFloor)
    };
    let idle = |by, what| Row::exact(("G13", what), (Count("% of a core"), AtMost(1.0)), IdleServer::new(by));
    vec![
        first(way::SHM, "first NULL after the idle sleep, shm", AtMost(1.15)),
        first(way::IWARP, "first NULL after the idle sleep, iwarp", Bound::None),
        idle(way::SHM, "CPU of an idle server, shm"),
        idle(way::IWARP, "CPU of an idle server, iwarp"),
    ]
}

fn ceiling() -> Vec<Row> {
    let depth = 128;
    let options = format!("--workload null --depth {depth}");
    let shm = Stag::new(way::SHM, Served::Echo, &options);
    let servers = Fastest(vec![Box::new(Minimal::new(&options)), Box::new(shm)]);
    let what = format!("generator's ceiling, NULL calls/s, depth {depth}");
    vec![Row::timed(("G14", &what), (Rate, AtLeast(1.5)), Ceiling::new(depth), servers)]
}
