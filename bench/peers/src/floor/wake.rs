//! The floor of a call that finds its server asleep: a thread that sleeps until an eventfd is
//! written, and says by a word in memory that it is awake, to one that looks at the word without
//! pause.

use crate::{
    contender::{Contender, Reading},
    floor,
    site::{MeasuringSite, Seats},
};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Time that the other thread sleeps before it is woken: as long as the time between two calls of
/// the other side.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Times from the write to the word, in nanoseconds.
///
/// # Errors
/// As `eventfd(2)`, and when a core cannot be taken.
pub fn trips(seats: Seats, samples: usize) -> Result<Vec<f64>, String> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("no eventfd: {error}"))?;
    let awake = AtomicU64::new(0);
    let sleep = || {
        for number in 1..=samples as u64 {
            let mut count = [0; 8];
            // An eventfd gives all eight octets, or is not written.
            let read = rustix::io::read(&bell, &mut count);
            awake.store(if read.is_ok() { number } else { u64::MAX }, Ordering::Release);
        }
    };
    let wake = || {
        let mut trips = Vec::with_capacity(samples);
        for number in 1..=samples as u64 {
            let until = Instant::now() + PAUSE;
            // As a caller does that is due soon: the core stays awake.
            while Instant::now() < until {
                spin_loop();
            }
            let began = Instant::now();
            if rustix::io::write(&bell, &1_u64.to_ne_bytes()).is_err() {
                break;
            }
            let mut looks = 0_u32;
            while awake.load(Ordering::Acquire) < number {
                spin_loop();
                looks += 1;
                if looks.is_multiple_of(1 << 20) {
                    thread::yield_now();
                }
            }
            trips.push(began.elapsed().as_nanos() as f64);
        }
        trips
    };
    floor::pair(seats, sleep, wake)
}

/// The wake-up as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct WakeFloor;

impl Contender for WakeFloor {
    fn name(&self) -> String {
        "eventfd wake-up".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "two threads of stag-peers: one sleeps in read(2) of an eventfd for {} ms, the other \
             one writes it and looks at a word",
            PAUSE.as_millis()
        )]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let samples = (site.turn.as_nanos() / PAUSE.as_nanos()).max(20) as usize;
        Ok(Reading::of_trips(&mut trips(site.seats(), samples)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wake_up_is_seen() {
        let cores = site::cores();
        let (Some(first), Some(last)) = (cores.first(), cores.last()) else { return };
        let trips = trips(Seats { server: *first, client: *last }, 3).unwrap();
        assert!(trips.len() == 3 && trips.iter().all(|nanos| *nanos > 0.0), "{trips:?}");
    }

    use crate::site;
}
