//! Stage times of calls, at the generator and at the server, in virtual time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_engine::{Sampling, Stages};
use stag_load::{
    LoadPlan, Pace, Workload,
    stages::{StageTimes, between},
};
use stag_sim::Faults;
use world::{World, calls, sum};

mod world;

/// Asks the server for its stage times.
fn ask(world: &mut World) -> Stages {
    world.load.ask_one(0).unwrap();
    loop {
        if let Some(told) = world.load.told() {
            return told.unwrap();
        }
        world.turn();
    }
}

#[test]
fn the_stages_here_and_there_are_those_of_one_call_in_so_many() {
    let way = 30_000;
    let faults = Faults { delay: way..way + 1, ..Faults::NONE };
    let sampling = Sampling { every: 4, ..Sampling::default() };
    let mut world =
        World::new(&LoadPlan { sampling, ..LoadPlan::new(Workload::Echo, 9_000, 2) }, faults);
    let before = ask(&mut world);
    let start = world.now.0;
    let measured = sum(&world.run(Pace::Closed, calls(start, 400)));
    assert_eq!(measured.calls, 400);
    let (every, client) = world.load.generator().stages().unwrap();
    let client = client.times();
    assert_eq!(every, 4);
    assert!(client.iter().all(|stage| stage.times.samples == 100), "{client:?}");
    let longest: Vec<_> =
        client.iter().map(|stage| (stage.stage.as_str(), stage.times.max_us)).collect();
    // A call and a reply travel once, and a pull between them there and back; everything else is
    // instantaneous.
    let reply = client[3].times.histogram().unwrap();
    assert_eq!(reply.count_at(4 * way), 100, "{longest:?}");
    assert!(
        longest.iter().all(|(stage, micros)| *micros == 0.0 || *stage == "reply"),
        "{longest:?}"
    );
    let server = between(&[before], &[ask(&mut world)]).unwrap();
    assert_eq!((server.every, server.shards), (4, 1));
    for StageTimes { stage, times } in &server.stages {
        let expected = if stage == "pull" { 2 * way } else { 0 };
        assert_eq!(times.histogram().unwrap().count_at(expected), 100, "{stage}");
    }
}
