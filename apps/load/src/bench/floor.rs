//! What this host takes for a word to go from one core to another and back, when nothing else does: the floor of everything
//! that two cores do together. On a shared host it changes within seconds, and with it every round trip.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Round trips of one sample.
const TRIPS: u64 = 500;
/// How long samples are taken.
const TIME: Duration = Duration::from_millis(30);

/// On a cache line of its own.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// Nanoseconds of one round trip of a word between two threads: the middle of many samples. None on a host with one core, or when
/// the other thread does not get to run.
pub fn measure() -> Option<f64> {
    if thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return None;
    }
    let (there, back, stop) = (Line::default(), Line::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let word = there.0.load(Ordering::Acquire);
                if word != seen {
                    seen = word;
                    back.0.store(word, Ordering::Release);
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

fn samples(there: &Line, back: &Line) -> Vec<f64> {
    let (began, mut samples, mut word) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < TIME {
        let sample = Instant::now();
        for _ in 0..TRIPS {
            word += 1;
            there.0.store(word, Ordering::Release);
            let mut looks = 0_u32;
            while back.0.load(Ordering::Acquire) != word {
                std::hint::spin_loop();
                looks += 1;
                // The other thread may have no core: looking at the clock is dear.
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
pub(super) fn middle(mut samples: Vec<f64>) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let (low, high) = (samples.len().checked_sub(1)? / 2, samples.len() / 2);
    Some((samples.get(low)? + samples.get(high)?) / 2.0)
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
