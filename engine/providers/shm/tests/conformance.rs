//! The generic suite of the contract between ends in one thread: isolated, and with pools that the
//! other end fetches from.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_conformance::Fixture;
use stag_pools::{Class, Pool};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Limits, Provider, Time};
use support::Place;

struct ShmShared<const TRUST: bool> {
    place: Place,
    run: u64,
}

impl<const TRUST: bool> Fixture for ShmShared<TRUST> {
    type P = Shm;

    fn new(run: u64) -> Self {
        Self { place: Place::new(), run }
    }

    fn pool(&self, classes: &[Class]) -> Pool {
        if TRUST { Pool::shared(classes).unwrap() } else { Pool::new(classes).unwrap() }
    }

    fn end(&mut self, limits: Limits, pool: &Pool) -> Shm {
        let seed = [self.run as u8 + 1; 32];
        let config = ShmConfig {
            trust: TRUST,
            ring_len: 256 << 10,
            ..ShmConfig::new(limits, seed, support::now())
        };
        let mut end = Shm::new(config).unwrap();
        assert_eq!(end.wants_shared_pools(), TRUST);
        end.register(pool).unwrap();
        end
    }

    fn listen_address(&mut self) -> ShmAddress {
        let address = self.place.address();
        if TRUST { address.trusting() } else { address }
    }

    fn nowhere(&mut self) -> ShmAddress {
        self.place.address()
    }

    fn step(&mut self) -> Time {
        std::thread::yield_now();
        support::now()
    }

    fn windows_bound(&self, end: &Shm) -> usize {
        end.windows_bound()
    }
}

mod isolated {
    stag_conformance::conformance_tests!(super::ShmShared<false>);
}

mod trusting {
    stag_conformance::conformance_tests!(super::ShmShared<true>);
}
