//! Measures the throughput of copies, of CRC32c, and of both, in two passes and in one.
//!
//! `cargo run --release -p stag-iwarp --example checksums [STEP]`: the variants take turns, so that
//! other load of the host affects all of them, and each shows the median of its rounds. The target
//! of a copy follows a header of 20 octets, as payload does in an FPDU. STEP (default 0) is the
//! distance from the source to the target in octets, modulo 4,096.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use stag_pools::{RunningCrc, crc32c, crc32c_copied};
use std::{hint::black_box, time::Instant};

/// Measured lengths of payload.
const LENGTHS: [usize; 8] = [64, 128, 256, 512, 1024, 4096, 8192, 65_536];
/// Rounds of each variant.
const ROUNDS: usize = 61;
/// Octets of one round.
const TURN: usize = 4 << 20;
/// Page of memory: copies whose distance is nearly a multiple of it may be slow.
const PAGE: usize = 4096;
/// Piece size of a copy in pieces, for distances at which a whole copy is slow.
const PIECE: usize = 1024;

/// One variant: a copy, a check, or both.
struct Way {
    name: &'static str,
    act: fn(&[u8], &mut [u8]) -> u32,
}

const WAYS: [Way; 8] = [
    Way { name: "copy", act: copy },
    Way { name: "copy by pieces", act: copy_by_pieces },
    Way { name: "check, crc-fast", act: |from, _| crc_fast::crc32_iscsi(from) },
    Way { name: "check, own", act: |from, _| crc32c(from).unwrap() },
    Way {
        name: "copy, then crc-fast",
        act: |from, to| {
            copy(from, to);
            crc_fast::crc32_iscsi(to)
        },
    },
    Way {
        name: "copy, then own",
        act: |from, to| {
            copy(from, to);
            crc32c(to).unwrap()
        },
    },
    Way {
        name: "crc-fast, then copy",
        act: |from, to| {
            let crc = crc_fast::crc32_iscsi(from);
            copy(from, to);
            crc
        },
    },
    Way { name: "both at once, own", act: fused },
];

fn copy(from: &[u8], to: &mut [u8]) -> u32 {
    to.copy_from_slice(from);
    0
}

fn copy_by_pieces(from: &[u8], to: &mut [u8]) -> u32 {
    for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
        to.copy_from_slice(from);
    }
    0
}

fn fused(from: &[u8], to: &mut [u8]) -> u32 {
    crc32c_copied(&[], from, to, &[]).unwrap()
}

/// The index in `octets` whose address is `step` modulo a page.
fn aligned(octets: &[u8], step: usize) -> usize {
    let at = octets.as_ptr().addr();
    (step + 2 * PAGE - at % PAGE) % PAGE
}

fn main() {
    if RunningCrc::start().is_none() {
        return println!("this processor has no CRC instruction");
    }
    let target = crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let step = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    println!("crc-fast chose {target}; copies begin {step} octets behind their source; GB/s");
    print!("{:>20}", "");
    LENGTHS.iter().for_each(|len| print!("{len:>8}"));
    println!();
    let longest = LENGTHS[LENGTHS.len() - 1];
    let source: Vec<u8> = (0..longest + 2 * PAGE).map(|at| (at * 31 + at / 253) as u8).collect();
    let mut sink = vec![0_u8; longest + 3 * PAGE];
    let mut seconds = vec![Vec::with_capacity(ROUNDS); WAYS.len() * LENGTHS.len()];
    for _ in 0..ROUNDS {
        for (place, taken) in seconds.iter_mut().enumerate() {
            let (way, len) = (&WAYS[place / LENGTHS.len()], LENGTHS[place % LENGTHS.len()]);
            let (from, to) = (aligned(&source, 0), aligned(&sink, step % PAGE));
            let (from, to) = (&source[from..from + len], &mut sink[to..to + len]);
            let began = Instant::now();
            for _ in 0..TURN / len {
                black_box((way.act)(black_box(from), black_box(&mut *to)));
            }
            taken.push(began.elapsed().as_secs_f64());
        }
    }
    for (way, seconds) in WAYS.iter().zip(seconds.chunks_mut(LENGTHS.len())) {
        print!("{:>20}", way.name);
        for (taken, len) in seconds.iter_mut().zip(LENGTHS) {
            taken.sort_by(f64::total_cmp);
            let octets = (TURN / len * len) as f64;
            print!("{:>8.1}", octets / taken[ROUNDS / 2] / 1e9);
        }
        println!();
    }
}
