//! Plays of many seeds, on two threads.

use std::{
    ops::AddAssign,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

/// Plays `usual` seeds in the gate, and a `part`-th of them elsewhere; or as many as `SEEDS` says,
/// from `SEED` on. Returns the number of plays, and the sum of their results.
pub fn play_all<T: Default + AddAssign + Send>(
    usual: u64,
    part: u64,
    play: impl Fn(u64) -> T + Sync,
) -> (u64, T) {
    let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let usual = if is_ci { usual } else { usual / part };
    let number = |name: &str, usual| {
        std::env::var(name).map_or(usual, |number| number.parse().expect("a number"))
    };
    let (count, first) = (number("SEEDS", usual), number("SEED", 0));
    let next = AtomicU64::new(first);
    let work = || {
        let mut sum = T::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                return sum;
            }
            sum += play(seed);
        }
    };
    let mut sum = T::default();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            sum += thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    (count, sum)
}
