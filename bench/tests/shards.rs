//! Several shards share nothing: a call costs as many instructions with three other shards as
//! alone, and four shards answer four times as many calls in the same virtual time. All figures
//! are counts.

use stag_bench::{
    callgrind,
    shards::{DEPTH, SimShards},
};
use std::{path::Path, process::Command, time::Duration};

const SHARDS: [usize; 3] = [1, 2, 4];
/// Calls of all shards together.
const CALLS: u64 = 1_600;
/// Hundredths by which a call may cost more or less beside others. The thread goes round all
/// shards, and looks at a clock between them; what shards had in common would cost more.
const SLACK: f64 = 1.0;

/// Built as this test is: what is compared are counts of one program with each other.
const PROGRAM: &str = env!("CARGO_BIN_EXE_stag-counts-shards");

#[test]
fn a_call_costs_the_same_instructions_beside_other_shards() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed (apt-get install valgrind)");
        return;
    }
    let counts = SHARDS
        .map(|shards| callgrind::count(Path::new(PROGRAM), &shards.to_string(), CALLS).unwrap());
    let [alone, ..] = counts;
    println!("instructions per NULL call on sim, 1, 2, 4 shards: {counts:.1?}");
    for (shards, count) in SHARDS.iter().zip(counts) {
        let hundredths = (count / alone - 1.0).abs() * 100.0;
        assert!(hundredths <= SLACK, "{shards} shards: {count:.1} a call, {alone:.1} alone");
    }
}

#[test]
fn so_many_shards_answer_so_many_times_the_calls_in_the_same_virtual_time() {
    let span = Duration::from_millis(10);
    let answered = SHARDS.map(|shards| {
        let mut all = SimShards::together(shards).unwrap();
        all.calls(DEPTH).unwrap();
        all.answered_in(span).unwrap()
    });
    println!("calls answered in {span:?} of virtual time by 1, 2, 4 shards: {answered:?}");
    assert!(answered[0] > 0);
    for (shards, count) in SHARDS.iter().zip(answered) {
        assert_eq!(count, answered[0] * *shards as u64, "{shards} shards");
    }
}
