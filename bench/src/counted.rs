//! The part of a counting program that is measured.

use crate::ends::Ends;
use stag_engine::App;
use stag_verbs::Provider;
use std::{hint::black_box, time::Instant};

/// Makes `calls` NULL calls, or echoes of `octets` octets, `depth` at a time, and prints the time
/// that they took.
pub fn run<P: Provider, S: App>(
    mut ends: Ends<P, S>,
    calls: u64,
    octets: Option<usize>,
    depth: u64,
) {
    // Warms up all memory that a call touches.
    ends.calls(depth * 4, octets, depth);
    let began = Instant::now();
    measured(&mut || ends.calls(calls, octets, depth));
    println!("{calls} calls in {:.3} s", began.elapsed().as_secs_f64());
}

/// Callgrind counts what happens in here.
#[inline(never)]
pub fn measured(what: &mut dyn FnMut()) {
    what();
    black_box(());
}
