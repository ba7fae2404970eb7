//! Latency floor: round-trip time of a word between two cores of this host while nothing else uses
//! them. Nothing that two cores do together is faster. On a shared host the floor changes within
//! seconds, and every round trip changes with it.

use crossbeam_utils::CachePadded;
use statrs::statistics::{Data, Median};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Round trips of one sample.
const TRIPS: u64 = 500;
/// Time spent on taking samples.
const TIME: Duration = Duration::from_millis(30);

/// Nanoseconds of one round trip of a word between two threads: the middle of many samples. None on
/// a host with one core, or if the other thread does not get to run.
pub fn measure() -> Option<f64> {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return None;
    }
    let word = || CachePadded::new(AtomicU64::new(0));
    let (there, back, stop) = (word(), word(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let word = there.load(Ordering::Acquire);
                if word != seen {
                    seen = word;
                    back.store(word, Ordering::Release);
                } else {
                    std::hint::spin_loop();
                }
            }
        });
        let samples = samples(&there, &back);
        stop.store(true, Ordering::Relaxed);
        middle(samples)
    })
}

fn samples(there: &AtomicU64, back: &AtomicU64) -> Vec<f64> {
    let (began, mut samples, mut word) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < TIME {
        let sample = Instant::now();
        for _ in 0..TRIPS {
            word += 1;
            there.store(word, Ordering::Release);
            let mut looks = 0_u32;
            while back.load(Ordering::Acquire) != word {
                std::hint::spin_loop();
                looks += 1;
                // The other thread may have no core; reading the clock is expensive.
                if looks.is_multiple_of(4_096) {
                    if began.elapsed() > TIME {
                        return samples;
                    }
                    thread::yield_now();
                }
            }
        }
        samples.push(sample.elapsed().as_nanos() as f64 / TRIPS as f64);
    }
    samples
}

/// The middle one.
pub(crate) fn middle(samples: Vec<f64>) -> Option<f64> {
    (!samples.is_empty()).then(|| Data::new(samples).median())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_samples_is_their_median() {
        assert_eq!(middle(vec![]), None);
        assert_eq!(middle(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(middle(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_floor_is_above_nothing() {
        assert!(measure().is_none_or(|nanos| nanos > 0.0));
    }
}
