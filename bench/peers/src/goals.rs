//! The table of goals: what is compared with what. A contender from elsewhere gets its row here.

use crate::{
    contender::Quantity::{Bandwidth, Rate, RoundTrip},
    floor::{
        copy::CopyFloor,
        ring::{RingFloor, Sample},
        tcp::{TcpPing, TcpStreamFloor},
    },
    goal::{
        Bound::{self, AtLeast, AtMost},
        Row,
    },
    minimal::Minimal,
    rivals::rows,
    stag::{Fabric, Served, Stag},
};

/// A goal: its name, what it is about, and what makes its rows.
pub type Goal = (&'static str, &'static str, fn() -> Vec<Row>);

/// All of them, in the order of the table. A goal with several lines is measured by all of them.
pub const GOALS: [Goal; 11] = [
    ("G1", "NULL round trip on shared memory, against a two-thread ring", null_shm),
    ("G1", "the same, against UCX", rows::null_shm),
    ("G2", "NULL calls per second on shared memory, against active messages of UCX", rows::calls_shm),
    ("G3", "NULL round trip over iWARP, against a busy-polled TCP ping-pong", null_iwarp),
    ("G3", "the same, against UCX and libtirpc over TCP", rows::null_iwarp),
    ("G4", "NULL calls per second over iWARP, against a server made for nothing but speed", calls_iwarp),
    ("G4", "the same, against NFS-Ganesha and libtirpc's server with the same client", rows::calls_iwarp),
    ("G5", "READ bandwidth on shared memory, against memcpy", reads_shm),
    ("G6", "READ bandwidth over iWARP, against a busy-polled TCP stream", reads_iwarp),
    ("G7", "READs per second of 4 KiB over iWARP, against a server made for nothing but speed", small_reads),
    ("G7", "the same, against NFS-Ganesha with the same client", rows::small_reads),
];

/// The calls under way at a time in a READ at full width.
const READ_DEPTH: usize = 8;

fn null_shm() -> Vec<Row> {
    let row = |what, fabric, bound| {
        let ours = Stag::new(fabric, Served::Echo, "--workload null --depth 1");
        Row::timed(("G1", what), (RoundTrip, bound), ours, RingFloor(Sample::Batches))
    };
    vec![
        row("NULL round trip, shm", Fabric::Shm, AtMost(2.0)),
        row("NULL round trip, shm trusted", Fabric::ShmTrusted, Bound::None),
    ]
}

fn null_iwarp() -> Vec<Row> {
    let ours = Stag::new(Fabric::Iwarp, Served::Echo, "--workload null --depth 1");
    vec![Row::timed(("G3", "NULL round trip, iwarp"), (RoundTrip, AtMost(1.1)), ours, TcpPing)]
}

fn calls_iwarp() -> Vec<Row> {
    let row = |depth: usize| {
        let options = format!("--workload null --depth {depth}");
        let ours = Stag::new(Fabric::Iwarp, Served::Echo, &options);
        let what = format!("NULL calls/s, iwarp, depth {depth}");
        Row::timed(("G4", &what), (Rate, AtLeast(0.5)), ours, Minimal::new(&options))
    };
    [32, 128].map(row).into()
}

fn reads_shm() -> Vec<Row> {
    let row = |(fabric, name): (Fabric, &str), (len, size, bound): (usize, &str, Bound)| {
        let options = format!("--workload nfs3:read --size {size} --depth {READ_DEPTH} --no-verify");
        let ours = Stag::new(fabric, Served::Memory, &options);
        let what = format!("READ bandwidth, {name}, {size}iB, depth {READ_DEPTH}");
        Row::timed(("G5", &what), (Bandwidth, bound), ours, CopyFloor { len, places: READ_DEPTH })
    };
    let (trusted, isolated) = ((Fabric::ShmTrusted, "shm trusted"), (Fabric::Shm, "shm isolated"));
    vec![
        row(trusted, (64 << 10, "64K", AtLeast(0.7))),
        row(trusted, (1 << 20, "1M", AtLeast(0.9))),
        row(isolated, (64 << 10, "64K", Bound::None)),
        row(isolated, (1 << 20, "1M", Bound::None)),
    ]
}

fn reads_iwarp() -> Vec<Row> {
    let options = format!("--workload nfs3:read --size 1M --depth {READ_DEPTH} --no-verify");
    let ours = Stag::new(Fabric::Iwarp, Served::Memory, &options);
    let what = format!("READ bandwidth, iwarp with CRC, 1MiB, depth {READ_DEPTH}");
    vec![Row::timed(("G6", &what), (Bandwidth, AtLeast(0.9)), ours, TcpStreamFloor)]
}

fn small_reads() -> Vec<Row> {
    let row = |(depth, bound): (usize, f64)| {
        let options = format!("--workload nfs3:read --size 4K --depth {depth} --no-verify");
        let ours = Stag::new(Fabric::Iwarp, Served::Memory, &options);
        let what = format!("4 KiB READs/s, iwarp, depth {depth}");
        Row::timed(("G7", &what), (Rate, AtLeast(bound)), ours, Minimal::new(&options))
    };
    [(32, 0.25), (128, 0.1)].map(row).into()
}
