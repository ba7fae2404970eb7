//! Lines of the table: ours next to the alternatives. A line without a bound only shows where they
//! are.

use super::{
    ganesha::{Ganesha, ObjectCache},
    tirpc::Tirpc,
    ucx::{Test, Ucx, UcxTransport},
    unpackaged::{CHIMERA, LIBFABRIC, MERCURY},
};
use crate::{
    ceph::SharedCluster,
    contender::{
        Contender,
        ReadingQuantity::{Count, Rate, RoundTrip},
    },
    floor::libcephfs::{CephFloor, CephWork},
    goal::{
        GoalBound::{self, AtLeast, AtMost},
        GoalRow, about,
    },
    goals::read_trip,
    ours::ceph::StagOnCeph,
    stag::{ServedProgram, Stag, StagBench},
    way,
};

/// Calls in flight at a time on CephFS.
const CEPH_DEPTH: usize = 16;

/// G1: a NULL round trip on shared memory.
pub fn null_shm() -> Vec<GoalRow> {
    fn row(theirs: impl Contender + 'static) -> GoalRow {
        let ours = Stag::new(way::SHM, ServedProgram::Echo, "--workload null --depth 1");
        GoalRow::timed(
            about("G1", "NULL round trip, shm", RoundTrip, GoalBound::None),
            ours,
            theirs,
        )
    }
    vec![row(Ucx::new(Test::RoundTrip, UcxTransport::SharedMemory)), row(LIBFABRIC)]
}

/// G2: NULL calls on shared memory. A call is two messages.
pub fn calls_shm() -> Vec<GoalRow> {
    fn row(bound: GoalBound, theirs: impl Contender + 'static) -> GoalRow {
        let ours = Stag::new(way::SHM, ServedProgram::Echo, "--workload null --depth 32");
        GoalRow::timed(about("G2", "NULL calls/s, shm, depth 32", Rate, bound), ours, theirs)
    }
    vec![
        row(AtLeast(0.8), Ucx::new(Test::Rate, UcxTransport::SharedMemory)),
        row(GoalBound::None, MERCURY),
    ]
}

/// G3: a NULL round trip between sockets.
pub fn null_iwarp() -> Vec<GoalRow> {
    fn row(theirs: impl Contender + 'static) -> GoalRow {
        let ours = Stag::new(way::IWARP, ServedProgram::Echo, "--workload null --depth 1");
        GoalRow::timed(
            about("G3", "NULL round trip, iwarp", RoundTrip, GoalBound::None),
            ours,
            theirs,
        )
    }
    vec![row(Ucx::new(Test::RoundTrip, UcxTransport::Tcp)), row(Tirpc::new())]
}

/// G4: NULL calls between sockets, many at a time.
pub fn calls_iwarp() -> Vec<GoalRow> {
    fn row(depth: usize, options: &str, theirs: impl Contender + 'static) -> GoalRow {
        let ours = Stag::new(way::IWARP, ServedProgram::Echo, options);
        let what = format!("NULL calls/s, iwarp, depth {depth}");
        GoalRow::timed(about("G4", &what, Rate, GoalBound::None), ours, theirs)
    }
    let rows = |depth| {
        let options = format!("--workload null --depth {depth}");
        let (tirpc, ganesha) = (Tirpc::with_stag_bench(&options), Ganesha::new(&options));
        [row(depth, &options, tirpc), row(depth, &options, ganesha)]
    };
    [32, 128].into_iter().flat_map(rows).collect()
}

/// G7: small READs of NFS version 3, of a file that both servers keep whole.
pub fn small_reads() -> Vec<GoalRow> {
    let mut rows = small_read_at_a_time(Ganesha::new);
    for depth in [32, 128] {
        rows.extend(small_reads_at_a_time(depth, AtLeast(11.0), Ganesha::new));
        let [over_iwarp, _] = small_reads_at_a_time(depth, GoalBound::None, |_| CHIMERA);
        rows.push(over_iwarp);
    }
    rows
}

/// READs, `depth` at a time, over iWARP, which keep `bound`, and over TCP.
pub fn small_reads_at_a_time<C: Contender + 'static>(
    depth: usize,
    bound: GoalBound,
    theirs: impl Fn(&str) -> C,
) -> [GoalRow; 2] {
    let options =
        format!("--workload nfs3:read --size 4K --file-size 2M --depth {depth} --no-verify");
    [(way::IWARP, bound), (way::TCP, GoalBound::None)].map(|(by, bound)| {
        let ours = Stag::new(by, ServedProgram::Memory, &options);
        let what = format!("4 KiB READs/s, {}, depth {depth}", by.name());
        GoalRow::timed(about("G7", &what, Rate, bound), ours, theirs(&options))
    })
}

/// One READ at a time, over iWARP and over TCP.
pub fn small_read_at_a_time<C: Contender + 'static>(theirs: impl Fn(&str) -> C) -> Vec<GoalRow> {
    [way::IWARP, way::TCP].map(|by| read_trip("G7", by, GoalBound::None, &theirs)).into()
}

/// Gc: NFS on CephFS, both servers on one cluster, in turns on the same core; and the time that a
/// server's threads have a core for each call, beside that of NFS-Ganesha and of libcephfs alone.
pub fn on_ceph() -> Vec<GoalRow> {
    let cluster = SharedCluster::default();
    let file = "--size 4K --file-size 2M --no-verify";
    let calls = [
        ("GETATTR", "nfs3:getattr".to_owned()),
        ("LOOKUP", "nfs3:lookup".to_owned()),
        ("READ of 4 KiB", format!("nfs3:read {file}")),
        ("stable WRITE of 4 KiB", format!("nfs3:write {file}")),
    ];
    let bench = |calls: &str| StagBench::new(&format!("--workload {calls} --depth {CEPH_DEPTH}"));
    let rates = calls.iter().flat_map(|(name, calls)| {
        let is_read = name.starts_with("READ");
        let what = format!("calls/s on CephFS over TCP, {name}");
        let row = |cache| {
            let ours = StagOnCeph::new(&cluster, bench(calls));
            let theirs = Ganesha::on_ceph(&cluster, cache, bench(calls));
            GoalRow::timed(about("Gc", &what, Rate, AtLeast(1.0)), ours, theirs)
        };
        let as_it_comes = row(ObjectCache::AsItComes);
        [Some(as_it_comes), is_read.then(|| row(ObjectCache::Off))].into_iter().flatten()
    });
    let named = |name: &str| format!("server's time on a core, {name}");
    let ours = |calls: &str| StagOnCeph::new(&cluster, bench(calls).by_processor());
    let times = || calls.iter().skip(2).zip([CephWork::Read, CephWork::Write]);
    // First, because the session of an NFS-Ganesha that ended keeps its capabilities for minutes
    // unless another NFS-Ganesha takes its place.
    let beside_floor = times().map(|((name, calls), work)| {
        let theirs = CephFloor::new(&cluster, work, CEPH_DEPTH);
        GoalRow::timed(about("Gc", &named(name), Count("µs"), AtMost(1.1)), ours(calls), theirs)
    });
    let beside_ganesha = times().map(|((name, calls), _)| {
        let bench = bench(calls).by_processor();
        let theirs = Ganesha::on_ceph(&cluster, ObjectCache::Off, bench);
        GoalRow::timed(about("Gc", &named(name), Count("µs"), GoalBound::None), ours(calls), theirs)
    });
    beside_floor.chain(rates).chain(beside_ganesha).collect()
}
