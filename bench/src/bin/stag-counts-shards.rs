//! NULL calls of several shards with a caller each, all in one thread on simulated fabrics, for
//! `valgrind --tool=callgrind --toggle-collect=*measured*`.
//!
//! Usage: `stag-counts-shards SHARDS CALLS`: CALLS calls, as many for each of SHARDS shards.

use stag_bench::{counted::measured, shards::SimShards};
use std::{io, process::ExitCode};

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>().ok());
    let (Some(Some(shards)), Some(Some(calls))) = (numbers.next(), numbers.next()) else {
        eprintln!("stag-counts-shards: say how many shards, and how many calls");
        return ExitCode::from(2);
    };
    match run(shards.max(1), calls) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stag-counts-shards: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(shards: u64, calls: u64) -> io::Result<()> {
    let mut all = SimShards::apart(usize::try_from(shards).map_err(io::Error::other)?)?;
    // Warms up all memory that a call touches.
    all.calls(64)?;
    let mut done = Ok(());
    measured(&mut || done = all.calls(calls / shards));
    done
}
