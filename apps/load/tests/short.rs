//! Calls without items over a fabric that takes copies: they leave without memory of their own.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_echo::Echo;
use stag_engine::{App, Config, Shard, clock::Clock};
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_load::{Load, LoadFiles, LoadPlan, Pace, RunSpan, To, Workload};
use stag_protocol::nfs::v3::FileHandle;
use stag_verbs::{Limits, Time};
use std::time::Duration;

const LIMITS: Limits = Limits { send_queue: 256, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A generator that has made the first of its calls, to a server that did not look yet.
fn begun(workload: Workload) -> Load<Iwarp> {
    let clock = Clock::start();
    let end = |limits| Iwarp::new(IwarpConfig::new(limits, [7; 32], clock.now())).unwrap();
    let handle = FileHandle::new(&[1; 32]).unwrap();
    let mut plan = LoadPlan::new(workload, 64, 8);
    plan.is_nfs = workload.is_nfs();
    plan.files = Some(LoadFiles { dir: handle, file: handle, blocks: 4, names: 0 });
    let admit = Box::new(|_| true);
    let mut server = Shard::new(end(LIMITS), Echo::default(), Config::small(), admit).unwrap();
    let at = server.listen(&"iwarp://127.0.0.1:0".parse().unwrap()).unwrap();
    let mut load = Load::new(end(plan.limits()), &plan).unwrap();
    load.connect(&To::Fabric(at)).unwrap();
    while !load.is_connected().unwrap() {
        let now = clock.now();
        assert!(now < Time(0) + Duration::from_secs(20), "there is no connection");
        load.step(now);
        server.pass(now);
    }
    let now = clock.now();
    let span = RunSpan { from: now, until: Time(u64::MAX), calls: Some(8) };
    load.begin(now, Pace::Closed, span);
    load.step(now);
    load
}

#[test]
fn calls_without_items_take_no_memory_of_the_shard() {
    for workload in [Workload::Null, Workload::GetAttr, Workload::Lookup, Workload::Meta] {
        let load = begun(workload);
        let shard = load.shard();
        assert_eq!((shard.buffers_in_use(), shard.calls_in_progress()), (0, (0, 8)), "{workload}");
        assert!(!load.generator().wants_idle_passes());
    }
    for workload in [Workload::Echo, Workload::Read, Workload::Write] {
        let load = begun(workload);
        assert!(load.shard().buffers_in_use() >= 8, "{workload}");
        assert_eq!(load.shard().calls_in_progress(), (0, 8), "{workload}");
    }
}
