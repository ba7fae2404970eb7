//! NULL calls of a load generator, against the smallest app in the same thread. Only the
//! generator's end is counted, passes that find nothing included.

use super::KEY;
use stag_bench::{
    ends,
    loaded::{CountedSide, LoadEnds},
};
use stag_echo::Echo;
use stag_engine::{Config, Shard, clock::Clock};
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_load::{Load, LoadPlan, Workload};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Limits, Provider};
use std::io;

/// Counts the generator's end over `load-iwarp` or `load-shm`, `depth` calls in flight at a time.
pub fn count(fabric: &str, depth: u64, calls: u64) -> io::Result<()> {
    let clock = Clock::start();
    let depth = usize::try_from(depth).map_err(io::Error::other)?;
    let plan = LoadPlan::new(Workload::Null, 0, depth);
    match fabric {
        "load-iwarp" => {
            let provider = |limits| Iwarp::new(IwarpConfig::new(limits, KEY, clock.now()));
            let at = "iwarp://127.0.0.1:0".parse().expect("an address");
            run(provider, &at, &plan, clock, calls)
        }
        "load-shm" => {
            let home = tempfile::tempdir()?;
            let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
            let provider = |limits| Shm::new(ShmConfig::new(limits, KEY, clock.now()));
            run(provider, &at, &plan, clock, calls)
        }
        _ => Err(io::Error::other(format!("{fabric:?} is no fabric"))),
    }
}

fn run<P: Provider>(
    provider: impl Fn(Limits) -> io::Result<P>,
    at: &P::Address,
    plan: &LoadPlan,
    clock: Clock,
    calls: u64,
) -> io::Result<()> {
    let config = Config { grant: 32, ..Config::small() };
    let server = provider(ends::LIMITS)?;
    let server = Shard::new(server, Echo::default(), config, Box::new(|_| true))?;
    let load = Load::new(provider(plan.limits())?, plan)?;
    LoadEnds::connect(server, at, load, clock)?.run(CountedSide::Client, calls)
}
