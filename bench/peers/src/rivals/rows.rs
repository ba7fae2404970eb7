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
        ReadingQuantity::{Bandwidth, Count, Rate, RoundTrip},
    },
    files_place::FilesPlace,
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

/// Calls in flight at a time by version 4, and on a directory of files.
const FILES_DEPTH: usize = 32;
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

/// G16: calls by version 4, of a file that both servers keep whole.
pub fn version_4() -> Vec<GoalRow> {
    let row = |name: &str, calls: &str, least: f64| {
        let options = format!("--workload nfs4:{calls} --depth {FILES_DEPTH} --no-verify");
        let ours = Stag::new(way::TCP, ServedProgram::Memory, &options);
        let what = format!("{name}/s by version 4, tcp, depth {FILES_DEPTH}");
        let about = about("G16", &what, Rate, AtLeast(least));
        GoalRow::timed(about, ours, Ganesha::new(&options))
    };
    vec![
        row("GETATTRs", "getattr", 15.0),
        row("4 KiB READs", "read --size 4K --file-size 2M", 10.0),
        row("4 KiB WRITEs", "write --size 4K --file-size 2M", 10.0),
        row("calls about names", "meta", 20.0),
    ]
}

/// G17: a directory of files on tmpfs, and on a disk's file system.
pub fn on_files() -> Vec<GoalRow> {
    let row = |place: FilesPlace, (name, calls): (&str, &str), bound: GoalBound| {
        // A server decides how much it puts into a page of a listing, so pages are not compared.
        let (quantity, unit, verify) = match calls.contains("readdirplus") {
            true => (Bandwidth, ", octets", ""),
            false => (Rate, "", " --no-verify"),
        };
        let options = format!("--workload {calls} --depth {FILES_DEPTH}{verify}");
        let ours = Stag::new(way::TCP, ServedProgram::Files(place), &options);
        let place_name = place.name();
        let what = format!("{name}{unit}/s, files on {place_name}, tcp, depth {FILES_DEPTH}");
        let theirs = Ganesha::on_files(place, &options);
        GoalRow::timed(about("G17", &what, quantity, bound), ours, theirs)
    };
    let reads = ("4 KiB READs", "nfs3:read --size 4K");
    let stable = ("4 KiB stable WRITEs", "nfs3:write --size 4K");
    let committed = ("UNSTABLE 4 KiB WRITEs and a COMMIT for 15 of them", "nfs3:commit --size 4K");
    let (tmpfs, disk) = (FilesPlace::Tmpfs, FilesPlace::Disk);
    vec![
        row(tmpfs, reads, AtLeast(5.0)),
        row(tmpfs, ("64 KiB READs", "nfs3:read --size 64K"), GoalBound::None),
        row(tmpfs, stable, GoalBound::None),
        row(tmpfs, committed, AtLeast(5.0)),
        row(tmpfs, ("READDIRPLUS of 10,000 names", "nfs3:readdirplus"), AtLeast(5.0)),
        row(tmpfs, ("calls about names", "nfs3:meta"), AtLeast(5.0)),
        row(tmpfs, ("OPEN and CLOSE, LOOKUP, REMOVE", "nfs4:meta"), GoalBound::None),
        row(disk, reads, GoalBound::None),
        row(disk, stable, GoalBound::None),
        row(disk, committed, GoalBound::None),
    ]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row by its words, with its bound.
    fn bounds(rows: &[GoalRow]) -> Vec<(&str, GoalBound)> {
        rows.iter().map(|row| (row.what.as_str(), row.bound)).collect()
    }

    #[test]
    fn version_4_has_its_bounds_against_ganesha_with_files_in_memory() {
        let rows = version_4();
        assert!(rows.iter().all(|row| row.goal == "G16" && row.against().contains("MEM")));
        let expected = [
            ("GETATTRs/s by version 4, tcp, depth 32", AtLeast(15.0)),
            ("4 KiB READs/s by version 4, tcp, depth 32", AtLeast(10.0)),
            ("4 KiB WRITEs/s by version 4, tcp, depth 32", AtLeast(10.0)),
            ("calls about names/s by version 4, tcp, depth 32", AtLeast(20.0)),
        ];
        assert_eq!(bounds(&rows), expected);
    }

    #[test]
    fn a_directory_of_files_is_compared_on_tmpfs_and_on_a_disk() {
        let rows = on_files();
        for row in &rows {
            let place = if row.what.contains("tmpfs") { "tmpfs" } else { "a disk" };
            assert!(row.against().contains(&format!("VFS on {place}")), "{}", row.what);
            assert_eq!(row.ours.name(), format!("Stag, tcp, files on {place}"));
        }
        let bounds = bounds(&rows);
        let bounded = bounds.iter().filter(|(_, bound)| *bound == AtLeast(5.0));
        let bounded: Vec<_> = bounded.map(|(what, _)| *what).collect();
        let on_tmpfs = "/s, files on tmpfs, tcp, depth 32";
        let expected = [
            "4 KiB READs",
            "UNSTABLE 4 KiB WRITEs and a COMMIT for 15 of them",
            "READDIRPLUS of 10,000 names, octets",
            "calls about names",
        ];
        assert_eq!(bounded, expected.map(|name| format!("{name}{on_tmpfs}")));
        assert_eq!(bounds.iter().filter(|(what, _)| what.contains("a disk")).count(), 3);
        assert!(
            bounds
                .iter()
                .filter(|(what, _)| what.contains("a disk"))
                .all(|(_, bound)| { *bound == GoalBound::None })
        );
        assert_eq!(rows.len(), 10);
    }
}
