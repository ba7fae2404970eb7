//! Many contexts: time, descriptors, memory, threads.

use super::{Place, SERVER, cases, set_up};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

cases! { USUAL:
    a_thousand_accepts_leave_no_descriptor_and_no_memory,
    threads_share_an_acceptor_and_an_initiator,
}

/// Accepts that are timed.
const ACCEPTS: u32 = 1_000;
/// Growth that is no leak: pages that the allocator keeps.
const GROWTH_MAX: u64 = 512 * 1024;

/// Open descriptors, and resident memory in bytes.
fn held() -> (usize, u64) {
    let memory = fs::read_to_string("/proc/self/status").unwrap();
    let line = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    (fs::read_dir("/proc/self/fd").unwrap().count(), kib * 1024)
}

fn a_thousand_accepts_leave_no_descriptor_and_no_memory(place: &Place) {
    let (client, server) = (place.client("alice.cache", SERVER).unwrap(), place.server());
    let run = |count: u32| {
        let (mut began, mut accepted) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..count {
            let start = Instant::now();
            let (token, pending) = client.begin().unwrap();
            began += start.elapsed();
            let start = Instant::now();
            let context = server.accept(&token).unwrap();
            accepted += start.elapsed();
            pending.finish(&context.token).unwrap();
            // Failures must not keep anything either.
            assert!(server.accept(&token[..token.len() - 1]).is_err());
        }
        (began / count, accepted / count)
    };
    run(ACCEPTS / 4);
    let before = held();
    let (began, accepted) = run(ACCEPTS);
    let after = held();
    println!(
        "  begin {} µs, accept {} µs; descriptors {} and {}, memory {} and {} KiB",
        began.as_micros(),
        accepted.as_micros(),
        before.0,
        after.0,
        before.1 / 1024,
        after.1 / 1024
    );
    assert_eq!(before.0, after.0, "descriptors");
    assert!(after.1 < before.1 + GROWTH_MAX, "memory grew from {} to {}", before.1, after.1);
}

fn threads_share_an_acceptor_and_an_initiator(place: &Place) {
    let (client, server) = (place.client("alice.cache", SERVER).unwrap(), place.server());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    set_up(&client, &server);
                }
            });
        }
    });
}
