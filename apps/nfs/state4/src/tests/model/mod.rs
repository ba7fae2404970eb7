//! Three clients, two files, and operations chosen by a seed: the tables against a sequential
//! model, with expiries, late callbacks and restarts. A failing seed is the bug report.

mod oracle;
mod world;

use world::World;

/// Seeds of a run of the tests; `STAG_STATE_SEEDS` asks for others, as `FIRST..LAST`.
const SEEDS: std::ops::Range<u64> = 0..200;
const STEPS: usize = 250;

#[test]
fn any_order_of_operations_expiries_and_restarts_ends_as_the_model_says() {
    let asked = std::env::var("STAG_STATE_SEEDS").ok();
    let seeds = asked.map_or(SEEDS, |range| {
        let (first, last) = range.split_once("..").expect("FIRST..LAST");
        first.parse().expect("a number")..last.parse().expect("a number")
    });
    let mut seen = world::Seen::default();
    for seed in seeds {
        let mut world = World::new(seed);
        for step in 0..STEPS {
            world.step(&format!("seed {seed}, step {step}"));
        }
        seen.add(&world.seen);
    }
    seen.assert_all();
}
