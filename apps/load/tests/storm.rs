//! Connections that last for one call, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_load::{Arrivals, LoadPlan, Pace, RunSpan, Schedule, SchedulePart, Workload};
use stag_sim::Faults;
use std::time::Duration;
use world::{MILLI, World, calls, sum};

mod world;

fn storm(connections: usize) -> LoadPlan {
    LoadPlan { connections, ..LoadPlan::new(Workload::ConnStorm, 0, 1) }
}

#[test]
fn each_call_has_a_connection_of_its_own_whose_time_is_a_part_of_the_calls() {
    let faults = Faults { delay: 20_000..60_000, ..Faults::DELAYS };
    for connections in [1, 4] {
        let mut world = World::new(&storm(connections), faults.clone());
        let before = world.server.snapshot().engine.connections.fabric;
        let measured = sum(&world.run(Pace::Closed, calls(world.now.0, 1_000)));
        let connected = measured.connected.as_ref().unwrap();
        assert_eq!((measured.calls, measured.failed, connected.len()), (1_000, 0, 1_000));
        // One round trip for the connection, and one for the call.
        assert!(connected.min() >= 40_000 && measured.service.min() >= 80_000);
        assert!(measured.service.mean() >= connected.mean() + 40_000.0);
        let end = world.now + Duration::from_secs(5);
        while world.now < end && world.server.snapshot().engine.connections.live > 0 {
            world.turn();
        }
        let engine = world.server.snapshot().engine;
        assert_eq!(engine.connections.fabric - before, 1_000);
        assert_eq!((engine.connections.live, world.server.receives_promised()), (0, 0));
        assert_eq!((world.load.shard().receives_promised(), world.load.version()), (0, Some(1)));
        world.assert_idle();
    }
}

#[test]
fn connections_of_an_open_loop_have_their_times() {
    let mut world = World::new(&storm(8), Faults::DELAYS);
    let start = world.now;
    let pace = Pace::Open(Schedule::new(start, 500.0, Arrivals::Uniform, 1, SchedulePart::ALL));
    let span = RunSpan { from: start, until: start + Duration::from_secs(2), calls: None };
    let measured = sum(&world.run(pace, span));
    assert_eq!(
        (measured.calls, measured.response.len(), world.load.generator().watch().unsent),
        (1_000, 1_000, 0)
    );
    assert!(measured.response.max() < 10 * MILLI);
    // One connection at a time cannot do this many: the waiting ones count.
    let mut world = World::new(&storm(1), Faults { delay: 2_000_000..3_000_000, ..Faults::DELAYS });
    let start = world.now;
    let pace = Pace::Open(Schedule::new(start, 500.0, Arrivals::Uniform, 1, SchedulePart::ALL));
    let span = RunSpan { from: start, until: start + Duration::from_secs(2), calls: None };
    let measured = sum(&world.run(pace, span));
    let unsent = world.load.generator().watch().unsent;
    assert_eq!(measured.calls + unsent, 1_000);
    assert!(unsent > 500 && measured.response.value_at_quantile(0.5) > 200 * MILLI, "{unsent}");
}

#[test]
fn connections_that_are_due_when_the_server_is_gone_are_counted() {
    for (rate, places) in [(500.0, 8), (5_000.0, 4)] {
        let mut world =
            World::new(&storm(places), Faults { delay: 200_000..300_000, ..Faults::DELAYS });
        let start = world.now;
        world.gone_at = Some(start + Duration::from_millis(700));
        let pace = Pace::Open(Schedule::new(start, rate, Arrivals::Uniform, 1, SchedulePart::ALL));
        let span = RunSpan { from: start, until: start + Duration::from_secs(2), calls: None };
        let measured = sum(&world.try_run(pace, span));
        let watch = world.load.generator().watch();
        assert_eq!(
            measured.calls + measured.failed + watch.unsent,
            (2.0 * rate) as u64,
            "{watch:?}"
        );
        assert!(
            measured.failed >= 1 && watch.unsent as f64 > rate && watch.gave_up.is_some(),
            "{watch:?}"
        );
    }
}
