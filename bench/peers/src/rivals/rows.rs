//! Lines of the table: ours beside what others would use instead. Where nothing has to be reached, the line shows where they are.

use super::{
    ganesha::Ganesha,
    tirpc::Tirpc,
    ucx::{Over, Test, Ucx},
    unpackaged::{CHIMERA, LIBFABRIC, MERCURY},
};
use crate::{
    contender::{
        Contender,
        Quantity::{Rate, RoundTrip},
    },
    goal::{
        Bound::{self, AtLeast},
        Row,
    },
    stag::{Served, Stag},
    way,
};

/// G1: a NULL round trip on shared memory.
pub fn null_shm() -> Vec<Row> {
    fn row(theirs: impl Contender + 'static) -> Row {
        let ours = Stag::new(way::SHM, Served::Echo, "--workload null --depth 1");
        Row::timed(("G1", "NULL round trip, shm"), (RoundTrip, Bound::None), ours, theirs)
    }
    vec![row(Ucx::new(Test::RoundTrip, Over::SharedMemory)), row(LIBFABRIC)]
}

/// G2: NULL calls on shared memory. A call is two messages.
pub fn calls_shm() -> Vec<Row> {
    fn row(bound: Bound, theirs: impl Contender + 'static) -> Row {
        let ours = Stag::new(way::SHM, Served::Echo, "--workload null --depth 32");
        Row::timed(("G2", "NULL calls/s, shm, depth 32"), (Rate, bound), ours, theirs)
    }
    vec![row(AtLeast(0.8), Ucx::new(Test::Rate, Over::SharedMemory)), row(Bound::None, MERCURY)]
}

/// G3: a NULL round trip between sockets.
pub fn null_iwarp() -> Vec<Row> {
    fn row(theirs: impl Contender + 'static) -> Row {
        let ours = Stag::new(way::IWARP, Served::Echo, "--workload null --depth 1");
        Row::timed(("G3", "NULL round trip, iwarp"), (RoundTrip, Bound::None), ours, theirs)
    }
    vec![row(Ucx::new(Test::RoundTrip, Over::Tcp)), row(Tirpc::new())]
}

/// G4: NULL calls between sockets, many at a time.
pub fn calls_iwarp() -> Vec<Row> {
    fn row(depth: usize, options: &str, theirs: impl Contender + 'static) -> Row {
        let ours = Stag::new(way::IWARP, Served::Echo, options);
        let what = format!("NULL calls/s, iwarp, depth {depth}");
        Row::timed(("G4", &what), (Rate, Bound::None), ours, theirs)
    }
    let rows = |depth| {
        let options = format!("--workload null --depth {depth}");
        let (tirpc, ganesha) = (Tirpc::with_stag_bench(&options), Ganesha::new(&options));
        [row(depth, &options, tirpc), row(depth, &options, ganesha)]
    };
    [32, 128].into_iter().flat_map(rows).collect()
}

/// G7: small READs of NFS version 3, of a file that both servers keep whole.
pub fn small_reads() -> Vec<Row> {
    fn row(depth: usize, bound: Bound, options: &str, theirs: impl Contender + 'static) -> Row {
        let ours = Stag::new(way::IWARP, Served::Memory, options);
        let what = format!("4 KiB READs/s, iwarp, depth {depth}");
        Row::timed(("G7", &what), (Rate, bound), ours, theirs)
    }
    let rows = |depth| {
        let options = format!("--workload nfs3:read --size 4K --file-size 2M --depth {depth} --no-verify");
        let ganesha = Ganesha::new(&options);
        [row(depth, AtLeast(15.0), &options, ganesha), row(depth, Bound::None, &options, CHIMERA)]
    };
    [32, 128].into_iter().flat_map(rows).collect()
}
