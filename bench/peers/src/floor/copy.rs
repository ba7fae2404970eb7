//! The floor of payload transfers: octets copied from a working set as large as a server's file to
//! one place for each call in flight.

use crate::{
    contender::{Contender, Reading},
    site::{self, MeasuringSite},
};
use stag_load::schedule::Random;
use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

/// Octets of the file that `stag bench` reads by default.
pub const FILE: usize = 16 << 20;

/// Copies of `len` octets per second, times `len`: from a random block of a file to each of
/// `places` in turn.
pub fn rate(len: usize, places: usize, time: Duration) -> f64 {
    let file = vec![0x5a_u8; FILE];
    let mut to = vec![1_u8; len * places];
    let (mut random, mut copied) = (Random::new(1), 0_u64);
    let blocks: Vec<&[u8]> = file.chunks_exact(len).collect();
    let began = Instant::now();
    while began.elapsed() < time {
        for place in to.chunks_exact_mut(len) {
            let block = random.below(blocks.len() as u64) as usize;
            place.copy_from_slice(blocks.get(block).expect("it is below their number"));
            black_box(place);
            copied += len as u64;
        }
    }
    copied as f64 / began.elapsed().as_secs_f64()
}

/// `memcpy` as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct CopyFloor {
    /// Octets of each copy.
    pub len: usize,
    /// Places that they go to.
    pub places: usize,
}

impl Contender for CopyFloor {
    fn name(&self) -> String {
        "memcpy".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        vec![format!(
            "a thread of stag-peers: copies of {} KiB from random blocks of {} MiB to {} places in \
             turn",
            self.len >> 10,
            FILE >> 20,
            self.places
        )]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let Self { len, places } = *self;
        let copying = || site::pin(site.client).map(|()| rate(len, places, site.turn / 2));
        let rate = thread::scope(|scope| scope.spawn(copying).join());
        let rate =
            rate.map_err(|_| "the copying thread panicked")?.map_err(|error| error.to_string())?;
        Ok(Reading { octets_per_s: Some(rate), ..Reading::default() })
    }
}
