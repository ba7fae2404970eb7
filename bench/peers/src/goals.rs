//! The table of goals, with the contenders that each compares. A new rival gets its row here.

use crate::{
    contender::{
        Contender,
        ReadingQuantity::{Bandwidth, Count, Rate, RoundTrip, Tail},
    },
    floor::{
        copy::CopyFloor,
        ring::{RingFloor, Sample},
        tcp::{TcpPing, TcpStreamFloor},
        wake::{PAUSE, SocketWakeFloor, WakeFloor},
    },
    goal::{
        GoalBound::{self, AtLeast, AtMost, AtMostBy},
        GoalRow, about,
    },
    minimal::Minimal,
    ours::{
        callers::{CallerKind, LibraryCaller},
        ends::Calls,
        headers::{HeaderTime, HeaderWork, Instructions},
        idle::IdleServer,
        many::{Among, IdleMemory, Pushed},
        shards::{Beside, CoreWork},
        sink::Ceiling,
        tail::HalfOfPeak,
    },
    rivals::rows,
    stag::{ServedProgram, Stag},
    way::{self, Way},
};

/// A goal: its name, what it is about, and what makes its rows.
pub type Goal = (&'static str, &'static str, fn() -> Vec<GoalRow>);

/// All of them, in the order of the table. A goal with several lines is measured by all of them.
pub const GOALS: [Goal; 29] = [
    ("G1", "NULL round trip on shared memory, against a two-thread ring", null_shm),
    ("G1", "the same, against UCX", rows::null_shm),
    (
        "G2",
        "NULL calls per second on shared memory, against active messages of UCX",
        rows::calls_shm,
    ),
    ("G3", "NULL round trip over iWARP, against a busy-polled TCP ping-pong", null_iwarp),
    ("G3", "the same, against UCX and libtirpc over TCP", rows::null_iwarp),
    (
        "G4",
        "NULL calls per second over iWARP, against a server made for nothing but speed",
        calls_iwarp,
    ),
    (
        "G4",
        "the same, against NFS-Ganesha and libtirpc's server with the same client",
        rows::calls_iwarp,
    ),
    (
        "G4t",
        "NULL and READ round trips over TCP, against a server made for nothing but speed",
        trips_tcp,
    ),
    ("G5", "READ bandwidth on shared memory, against memcpy", reads_shm),
    (
        "G6",
        "READ bandwidth over iWARP, against a busy-polled TCP stream; CRC on against off",
        reads_iwarp,
    ),
    (
        "G7",
        "READs of 4 KiB over iWARP and TCP, against a server made for nothing but speed",
        small_reads,
    ),
    ("G7", "the same, against NFS-Ganesha with the same client", rows::small_reads),
    ("G8", "transport headers written and read, against memcpy; instructions", headers),
    ("G9", "instructions of a NULL call, both sides", call),
    ("G9r", "instructions of READ and WRITE of 4 KiB, 32 outstanding", small_items),
    ("G9v", "instructions of a NULL call by version 2, against version 1", version_2),
    ("G10", "NULL round trip among 10,000 connections, against one connection", many),
    ("G11", "memory of a server for each idle connection", idle_memory),
    ("G12", "p99 / p50 at half of the peak rate on shared memory, against that of the ring", tail),
    (
        "G13",
        "the first call after the server fell asleep, against an eventfd; CPU while idle",
        asleep,
    ),
    ("Gs", "NULL calls per second of two shards on two cores, against one on one", two_shards),
    ("G14", "the generator's own ceiling, against the fastest server", ceiling),
    ("G15", "READ and WRITE over iWARP, against our own TCP", beside_tcp),
    ("G15s", "WRITE on shared memory, against READ of the same size", writes_shm),
    ("G16", "calls by version 4 of NFS, against version 3", version_4),
    ("G16", "the same, against NFS-Ganesha with the same client", rows::version_4),
    (
        "G17",
        "files on tmpfs and on a disk, against NFS-Ganesha with the same client",
        rows::on_files,
    ),
    ("G18", "clients of the library, against RawClient; CPU of one that waits", library_callers),
    ("Gc", "NFS on CephFS over TCP, against NFS-Ganesha and libcephfs alone", rows::on_ceph),
];

/// Calls in flight at a time in a READ at full width.
const READ_DEPTH: usize = 8;

fn null_shm() -> Vec<GoalRow> {
    let row = |what, by, bound| {
        let ours = Stag::new(by, ServedProgram::Echo, "--workload null --depth 1");
        GoalRow::timed(about("G1", what, RoundTrip, bound), ours, RingFloor(Sample::Batches))
    };
    vec![
        row("NULL round trip, shm", way::SHM, AtMostBy { near: 3.2, far: 1.6 }),
        row("NULL round trip, shm trusted", way::SHM_TRUSTED, GoalBound::None),
    ]
}

fn null_iwarp() -> Vec<GoalRow> {
    let ours = Stag::new(way::IWARP, ServedProgram::Echo, "--workload null --depth 1");
    vec![GoalRow::timed(
        about("G3", "NULL round trip, iwarp", RoundTrip, AtMost(1.12)),
        ours,
        TcpPing,
    )]
}

fn calls_iwarp() -> Vec<GoalRow> {
    let row = |depth: usize| {
        let options = format!("--workload null --depth {depth}");
        let ours = Stag::new(way::IWARP, ServedProgram::Echo, &options);
        let what = format!("NULL calls/s, iwarp, depth {depth}");
        GoalRow::timed(about("G4", &what, Rate, AtLeast(0.75)), ours, Minimal::new(&options))
    };
    [32, 128].map(row).into()
}

fn reads_shm() -> Vec<GoalRow> {
    let row = |(by, name): (Way, &str), (len, size, bound): (usize, &str, GoalBound)| {
        let options =
            format!("--workload nfs3:read --size {size} --depth {READ_DEPTH} --no-verify");
        let ours = Stag::new(by, ServedProgram::Memory, &options);
        let what = format!("READ bandwidth, {name}, {size}iB, depth {READ_DEPTH}");
        GoalRow::timed(
            about("G5", &what, Bandwidth, bound),
            ours,
            CopyFloor { len, places: READ_DEPTH },
        )
    };
    let (trusted, isolated) = ((way::SHM_TRUSTED, "shm trusted"), (way::SHM, "shm isolated"));
    vec![
        row(trusted, (64 << 10, "64K", AtLeast(0.75))),
        row(trusted, (1 << 20, "1M", AtLeast(0.9))),
        row(isolated, (64 << 10, "64K", GoalBound::None)),
        row(isolated, (1 << 20, "1M", GoalBound::None)),
    ]
}

fn reads_iwarp() -> Vec<GoalRow> {
    let options = format!("--workload nfs3:read --size 1M --depth {READ_DEPTH} --no-verify");
    let ours = Stag::new(way::IWARP, ServedProgram::Memory, &options);
    let what = format!("READ bandwidth, iwarp with CRC, 1MiB, depth {READ_DEPTH}");
    let pushed = |by| Pushed::new(by, READ_DEPTH);
    let (on, off) = (pushed(way::IWARP), pushed(way::IWARP_WITHOUT_CRC));
    vec![
        GoalRow::timed(about("G6", &what, Bandwidth, AtLeast(0.9)), ours, TcpStreamFloor),
        GoalRow::timed(about("G6", "1 MiB pushed, CRC on ÷ off", Bandwidth, AtLeast(0.9)), on, off),
    ]
}

/// `stag bench` of NULL calls, one at a time.
const NULL_TRIP: &str = "--workload null --depth 1";
/// `stag bench` of READs of 4 KiB from a file that every server keeps whole, one at a time.
const READ_TRIP: &str = "--workload nfs3:read --size 4K --file-size 2M --depth 1 --no-verify";

/// G4t: a NULL round trip over TCP, against a contender that is called by the same options.
pub fn null_tcp<C: Contender + 'static>(
    bound: GoalBound,
    theirs: impl FnOnce(&str) -> C,
) -> GoalRow {
    let ours = Stag::new(way::TCP, ServedProgram::Echo, NULL_TRIP);
    GoalRow::timed(about("G4t", "NULL round trip, tcp", RoundTrip, bound), ours, theirs(NULL_TRIP))
}

/// G4t: the round trip of a READ of 4 KiB over TCP, against a contender called by the same options.
pub fn read_tcp<C: Contender + 'static>(
    bound: GoalBound,
    theirs: impl FnOnce(&str) -> C,
) -> GoalRow {
    read_trip("G4t", way::TCP, bound, theirs)
}

/// The round trip of a READ of 4 KiB by `way`.
pub fn read_trip<C: Contender + 'static>(
    goal: &'static str,
    way: Way,
    bound: GoalBound,
    theirs: impl FnOnce(&str) -> C,
) -> GoalRow {
    let ours = Stag::new(way, ServedProgram::Memory, READ_TRIP);
    let what = format!("4 KiB READ round trip, {}", way.name());
    GoalRow::timed(about(goal, &what, RoundTrip, bound), ours, theirs(READ_TRIP))
}

fn trips_tcp() -> Vec<GoalRow> {
    let bound = AtMost(1.25);
    vec![null_tcp(bound, Minimal::new), read_tcp(bound, Minimal::new)]
}

fn small_reads() -> Vec<GoalRow> {
    let row = |by: Way, depth: usize, bound: GoalBound| {
        let options = format!("--workload nfs3:read --size 4K --depth {depth} --no-verify");
        let ours = Stag::new(by, ServedProgram::Memory, &options);
        let what = format!("4 KiB READs/s, {}, depth {depth}", by.name());
        GoalRow::timed(about("G7", &what, Rate, bound), ours, Minimal::new(&options))
    };
    vec![
        read_trip("G7", way::IWARP, GoalBound::None, Minimal::new),
        row(way::IWARP, 32, AtLeast(0.75)),
        row(way::IWARP, 128, AtLeast(0.75)),
        row(way::TCP, 32, GoalBound::None),
        row(way::TCP, 128, GoalBound::None),
    ]
}

fn headers() -> Vec<GoalRow> {
    let time = |form, work, bound| {
        let name = if work == HeaderWork::Emit { "emit" } else { "parse" };
        let what =
            format!("header, {name}, {}", if form == "null" { "NULL" } else { "one Write chunk" });
        let [ours, copy] = [work, HeaderWork::Copy].map(|work| HeaderTime { form, work });
        GoalRow::timed(about("G8", &what, RoundTrip, AtMost(bound)), ours, copy)
    };
    let instructions = |subject, what, bound| {
        let ours = Instructions::new(subject, 1_000);
        GoalRow::exact(about("G8", what, Count("instructions"), bound), ours)
    };
    vec![
        time("null", HeaderWork::Emit, 1.6),
        time("read", HeaderWork::Emit, 1.6),
        time("null", HeaderWork::Parse, 4.0),
        time("read", HeaderWork::Parse, 4.0),
        // A connection writes a NULL's header as the short one that it is; what can write every
        // header needs more.
        instructions("emit/short", "header, emit, NULL, instructions", AtMost(25.0)),
        instructions("emit/null", "the same by what writes every header", GoalBound::None),
        instructions("emit/read", "header, emit, one Write chunk, instructions", AtMost(48.0)),
        instructions("parse/short", "header, parse, NULL, instructions", GoalBound::None),
        instructions("parse/read", "header, parse, one Write chunk, instructions", AtMost(60.0)),
    ]
}

fn call() -> Vec<GoalRow> {
    let row = |subject, what, bound| {
        GoalRow::exact(
            about("G9", what, Count("instructions"), bound),
            Instructions::new(subject, 500),
        )
    };
    vec![
        row("shm/16", "NULL call, shm, 16 under way, both sides", AtMost(1_200.0)),
        row("shm", "NULL call, shm, alone, both sides", AtMost(1_800.0)),
        row("iwarp/16", "NULL call, iwarp, 16 under way, both sides", AtMost(1_900.0)),
        row("iwarp", "NULL call, iwarp, alone, both sides", AtMost(2_900.0)),
    ]
}

fn small_items() -> Vec<GoalRow> {
    let row = |subject: &str, what: &str, bound| {
        let ours = Instructions::by("stag-counts-nfs", subject, 1_000);
        GoalRow::exact(about("G9r", what, Count("instructions"), bound), ours)
    };
    // Payload inline, as between two ends of ours; or in chunks, as Linux has it.
    let all = [("iwarp", 3_500.0, 3_300.0), ("shm-trusted", 2_400.0, 2_300.0)];
    let rows = all.into_iter().flat_map(|(fabric, server, client)| {
        let sides = [("server", server), ("client", client)];
        let calls = [("read", "READ"), ("write", "WRITE")];
        // Linux has its payload in chunks; the bounds are for two ends of ours.
        let kinds = [("", "inline"), ("-chunk", "in a chunk")];
        let of_side = move |(side, most)| {
            calls.into_iter().flat_map(move |(call, name)| {
                kinds.map(move |(suffix, how)| {
                    let what = format!("{name} of 4 KiB {how}, {fabric}, {side}");
                    let bound = if suffix.is_empty() { AtMost(most) } else { GoalBound::None };
                    row(&format!("{fabric}/{call}-4k{suffix}/{side}"), &what, bound)
                })
            })
        };
        sides.into_iter().flat_map(of_side)
    });
    rows.collect()
}

fn version_2() -> Vec<GoalRow> {
    let [ours, theirs] = ["shm-v2", "shm"].map(|subject| Instructions::new(subject, 500));
    let about =
        about("G9v", "NULL call by version 2, shm, alone", Count("instructions"), AtMost(1.1));
    vec![GoalRow { theirs: Some(Box::new(theirs)), ..GoalRow::exact(about, ours) }]
}

fn many() -> Vec<GoalRow> {
    // What the crowd costs, and what it costs that nothing of a connection is in a cache when its
    // call comes.
    let kinds =
        [(Calls::OverOne, "the others idle"), (Calls::OverAny, "each call over another one")];
    let rows = [(way::SHM, 1.5), (way::IWARP, 1.75)].into_iter().flat_map(|(by, most)| {
        kinds.map(|(calls, how)| {
            let what = format!("NULL round trip, {}, 10,000 connections ÷ 1, {how}", by.name());
            let [ours, one] = [10_000, 1].map(|connections| Among::new(by, calls, connections));
            GoalRow::timed(about("G10", &what, RoundTrip, AtMost(most)), ours, one)
        })
    });
    rows.collect()
}

fn idle_memory() -> Vec<GoalRow> {
    let row = |by: Way, kib: f64| {
        let what = format!("memory per idle connection, {}, of 4,000", by.name());
        let ours = IdleMemory::new(by, 4_000);
        GoalRow::exact(about("G11", &what, Count("octets"), AtMost(kib * 1_024.0)), ours)
    };
    vec![row(way::IWARP, 4.0), row(way::SHM, 16.0)]
}

fn tail() -> Vec<GoalRow> {
    let (ours, ring) = (HalfOfPeak::new(way::SHM), RingFloor(Sample::Open));
    vec![GoalRow::timed(
        about("G12", "p99/p50 of NULL, shm, open loop at half of the peak", Tail, AtMost(1.5)),
        ours,
        ring,
    )]
}

fn asleep() -> Vec<GoalRow> {
    let rate = 1_000 / PAUSE.as_millis();
    let options = format!("--workload null --depth 1 --rate {rate} --arrivals uniform");
    let ours = |by| Stag::new(by, ServedProgram::Echo, &options);
    let first =
        |by, what, bound| GoalRow::timed(about("G13", what, RoundTrip, bound), ours(by), WakeFloor);
    let by_socket = GoalRow::timed(
        about("G13", "the same, beside a socket's wake-up", RoundTrip, GoalBound::None),
        ours(way::IWARP),
        SocketWakeFloor,
    );
    let idle = |by, what| {
        GoalRow::exact(about("G13", what, Count("% of a core"), AtMost(1.0)), IdleServer::new(by))
    };
    vec![
        first(way::SHM, "first NULL after the idle sleep, shm", AtMost(1.25)),
        first(way::IWARP, "first NULL after the idle sleep, iwarp", AtMost(1.5)),
        by_socket,
        idle(way::SHM, "CPU of an idle server, shm"),
        idle(way::IWARP, "CPU of an idle server, iwarp"),
    ]
}

fn two_shards() -> Vec<GoalRow> {
    let row = |work, what| {
        let what = format!("{what}, two cores ÷ one");
        let [two, one] = [2, 1].map(|cores| Beside::new(work, cores));
        GoalRow::timed(about("Gs", &what, Rate, GoalBound::None), two, one)
    };
    vec![
        row(CoreWork::Shm, "NULL calls/s, shm, 32 callers beside each shard"),
        row(CoreWork::Iwarp, "NULL calls/s, iwarp, 32 callers beside each shard"),
        row(CoreWork::Loop, "turns/s of a loop without memory"),
    ]
}

fn ceiling() -> Vec<GoalRow> {
    let depth = 128;
    let options = format!("--workload null --depth {depth}");
    let shm = Stag::new(way::SHM, ServedProgram::Echo, &options);
    let what = format!("generator's ceiling, NULL calls/s, depth {depth}");
    let about = |bound| about("G14", &what, Rate, bound);
    vec![
        GoalRow::timed(about(AtLeast(2.0)), Ceiling::new(depth), Minimal::new(&options)),
        GoalRow::timed(about(AtLeast(1.2)), Ceiling::new(depth), shm),
    ]
}

/// Calls of one kind to the memory store.
#[derive(Clone, Copy, Debug)]
struct NfsCalls {
    /// Their name in tables.
    name: &'static str,
    /// The workload, after its version, and its options.
    options: &'static str,
}

const WRITE_512: NfsCalls = NfsCalls { name: "512 B WRITEs", options: "write --size 512" };
const WRITE_4K: NfsCalls = NfsCalls { name: "4 KiB WRITEs", options: "write --size 4K" };
const WRITE_64K: NfsCalls = NfsCalls { name: "64 KiB WRITEs", options: "write --size 64K" };
const WRITE_1M: NfsCalls = NfsCalls { name: "1 MiB WRITEs", options: "write --size 1M" };
const READ_512: NfsCalls = NfsCalls { name: "512 B READs", options: "read --size 512" };
const READ_4K: NfsCalls = NfsCalls { name: "4 KiB READs", options: "read --size 4K" };
const READ_64K: NfsCalls = NfsCalls { name: "64 KiB READs", options: "read --size 64K" };
const READ_1M: NfsCalls = NfsCalls { name: "1 MiB READs", options: "read --size 1M" };
const GETATTR: NfsCalls = NfsCalls { name: "GETATTRs", options: "getattr" };
const LOOKUP: NfsCalls = NfsCalls { name: "LOOKUPs", options: "lookup" };
const META: NfsCalls = NfsCalls { name: "calls about names", options: "meta" };

impl NfsCalls {
    /// `stag bench` of these calls, `depth` at a time, by a version of NFS.
    fn by(self, way: Way, version: u8, depth: usize) -> Stag {
        let options =
            format!("--workload nfs{version}:{} --depth {depth} --no-verify", self.options);
        Stag::new(way, ServedProgram::Memory, &options)
    }
}

fn beside_tcp() -> Vec<GoalRow> {
    let row = |by: Way, calls: NfsCalls, depth, least| {
        let what = format!("{}/s, {}, depth {depth}", calls.name, by.name());
        let [ours, tcp] = [by, way::TCP].map(|by| calls.by(by, 3, depth));
        GoalRow::timed(about("G15", &what, Rate, AtLeast(least)), ours, tcp)
    };
    vec![
        row(way::IWARP, WRITE_4K, 1, 1.0),
        row(way::IWARP_PULLED, WRITE_4K, 1, 0.7),
        row(way::IWARP, WRITE_4K, 32, 0.9),
        row(way::IWARP, WRITE_4K, 128, 0.9),
        row(way::IWARP, WRITE_64K, 8, 0.95),
        row(way::IWARP, WRITE_64K, 32, 0.95),
        row(way::IWARP, WRITE_1M, 8, 1.0),
        row(way::IWARP, READ_64K, 32, 1.0),
        row(way::IWARP, READ_512, 32, 0.9),
        row(way::IWARP, WRITE_512, 32, 0.9),
    ]
}

fn writes_shm() -> Vec<GoalRow> {
    let row = |by: Way, [writes, reads]: [NfsCalls; 2]| {
        let what = format!("{}/s ÷ READs/s, {}, depth {READ_DEPTH}", writes.name, by.name());
        let [ours, theirs] = [writes, reads].map(|calls| calls.by(by, 3, READ_DEPTH));
        GoalRow::timed(about("G15s", &what, Rate, AtLeast(0.8)), ours, theirs)
    };
    let sizes = [[WRITE_4K, READ_4K], [WRITE_1M, READ_1M]];
    let ways = [way::SHM, way::SHM_TRUSTED].into_iter();
    ways.flat_map(|by| sizes.map(|calls| row(by, calls))).collect()
}

fn version_4() -> Vec<GoalRow> {
    let row = |by: Way, calls: NfsCalls, depth| {
        let what = format!("{}/s by version 4 ÷ 3, {}, depth {depth}", calls.name, by.name());
        let [four, three] = [4, 3].map(|version| calls.by(by, version, depth));
        GoalRow::timed(about("G16", &what, Rate, AtLeast(0.85)), four, three)
    };
    let kinds = || [GETATTR, LOOKUP, READ_4K, WRITE_4K, META].into_iter();
    let rows = |by| kinds().flat_map(move |calls| [1, 32].map(|depth| row(by, calls, depth)));
    let rates = [way::IWARP, way::TCP].into_iter().flat_map(rows);
    rates.chain(version_4_instructions()).collect()
}

/// Instructions per call by version 4, against version 3, each side alone.
fn version_4_instructions() -> impl Iterator<Item = GoalRow> {
    let row = |(name, three, four): (&str, &str, &str), side: &str| {
        let what = format!("{name} by version 4 ÷ 3, shm trusted, {side}, instructions");
        let about = about("G16", &what, Count("instructions"), AtMost(1.35));
        let [ours, theirs] = [four, three].map(|subject| {
            let subject = format!("shm-trusted/{subject}/{side}");
            Instructions::by("stag-counts-nfs", &subject, 1_000)
        });
        GoalRow { theirs: Some(Box::new(theirs)), ..GoalRow::exact(about, ours) }
    };
    let all = [
        ("GETATTR", "getattr", "getattr4"),
        ("LOOKUP", "lookup", "lookup4"),
        ("READ of 4 KiB", "read-4k", "read4-4k"),
        ("WRITE of 4 KiB", "write-4k", "write4-4k"),
        ("calls about names", "names", "names4"),
    ];
    all.into_iter().flat_map(move |calls| ["server", "client"].map(|side| row(calls, side)))
}

/// Futures of an asynchronous client.
const FUTURES: usize = 64;

fn library_callers() -> Vec<GoalRow> {
    let row = |by: Way, kind: CallerKind, depth: usize, bound| {
        let what = format!("NULL calls/s, {kind}, {}, depth {depth}", by.name());
        let [ours, raw] = [kind, CallerKind::Raw].map(|kind| LibraryCaller::rate(by, kind, depth));
        GoalRow::timed(about("G18", &what, Rate, bound), ours, raw)
    };
    let idle = |by: Way| {
        let what = format!("CPU of a Client that waits, {}", by.name());
        let about = about("G18", &what, Count("% of a core"), AtMost(1.0));
        GoalRow::exact(about, LibraryCaller::idle(by))
    };
    let by_way = [way::SHM, way::IWARP, way::TCP].into_iter().flat_map(|by| {
        [
            row(by, CallerKind::Local, FUTURES, AtLeast(0.5)),
            // Its thread and that of the futures share the core of the caller.
            row(by, CallerKind::Async, FUTURES, GoalBound::None),
            row(by, CallerKind::Local, 1, GoalBound::None),
            row(by, CallerKind::Blocking, 1, AtLeast(0.8)),
            idle(by),
        ]
    });
    by_way.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Reading;

    #[test]
    fn a_write_of_4_kib_is_compared_both_inline_and_pulled() {
        let rows = beside_tcp();
        let bound = |what: &str| rows.iter().find(|row| row.what == what).map(|row| row.bound);
        assert_eq!(bound("4 KiB WRITEs/s, iwarp, pulled, depth 1"), Some(AtLeast(0.7)));
        assert_eq!(bound("4 KiB WRITEs/s, iwarp, depth 1"), Some(AtLeast(1.0)));
        assert_eq!(bound("512 B READs/s, iwarp, depth 32"), Some(AtLeast(0.9)));
        assert!(rows.iter().all(|row| row.against() == "Stag, tcp"));
        assert_eq!((rows.len(), writes_shm().len(), version_4().len()), (10, 4, 30));
    }

    #[test]
    fn round_trips_over_tcp_have_their_bound_beside_the_minimal_server() {
        let rows = trips_tcp();
        assert_eq!(rows.len(), 2);
        for (row, what) in rows.iter().zip(["NULL round trip, tcp", "4 KiB READ round trip, tcp"]) {
            assert_eq!((row.goal, row.what.as_str(), row.bound), ("G4t", what, AtMost(1.25)));
            assert_eq!(row.against(), "minimal RPC server over TCP");
            let trip = |ns| Reading { p50_ns: Some(ns), ..Reading::default() };
            let ratio = |ours, theirs| row.ratio(&trip(ours), Some(&trip(theirs)));
            assert_eq!(ratio(15_000.0, 12_000.0), Some(1.25));
            assert_eq!(ratio(15_000.0, 12_000.0).and_then(|it| row.bound.is_kept(it)), Some(true));
            assert_eq!(ratio(65_000.0, 12_500.0).and_then(|it| row.bound.is_kept(it)), Some(false));
        }
    }

    #[test]
    fn small_reads_are_compared_at_three_depths_over_both_ways() {
        let rows: Vec<_> = trips_tcp().into_iter().chain(small_reads()).collect();
        let bound = |what: &str| rows.iter().find(|row| row.what == what).map(|row| row.bound);
        for (what, wanted) in [
            ("4 KiB READ round trip, iwarp", GoalBound::None),
            ("4 KiB READ round trip, tcp", AtMost(1.25)),
            ("4 KiB READs/s, iwarp, depth 32", AtLeast(0.75)),
            ("4 KiB READs/s, iwarp, depth 128", AtLeast(0.75)),
            ("4 KiB READs/s, tcp, depth 32", GoalBound::None),
            ("4 KiB READs/s, tcp, depth 128", GoalBound::None),
        ] {
            assert_eq!(bound(what), Some(wanted), "{what}");
        }
    }
}
