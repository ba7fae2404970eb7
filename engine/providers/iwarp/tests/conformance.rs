//! The generic conformance suite of the contract over loopback: every end in one thread.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_conformance::Fixture;
use stag_iwarp::{Iwarp, IwarpAddress, IwarpConfig};
use stag_pools::Pool;
use stag_verbs::{Limits, Time};
use std::net::TcpListener;

struct Loopback {
    run: u64,
}

impl Fixture for Loopback {
    type P = Iwarp;

    fn new(run: u64) -> Self {
        Self { run }
    }

    fn end(&mut self, limits: Limits, _: &Pool) -> Iwarp {
        let seed = [self.run as u8 + 1; 32];
        // The suite's engine makes no room for newcomers: peers beyond the limit are not reported.
        Iwarp::new(IwarpConfig { spare: 0, ..IwarpConfig::new(limits, seed, support::now()) })
            .unwrap()
    }

    fn listen_address(&mut self) -> IwarpAddress {
        support::localhost()
    }

    fn nowhere(&mut self) -> IwarpAddress {
        // A port that was free a moment ago.
        IwarpAddress(TcpListener::bind(support::localhost().0).unwrap().local_addr().unwrap())
    }

    fn step(&mut self) -> Time {
        std::thread::yield_now();
        support::now()
    }

    fn windows_bound(&self, end: &Iwarp) -> usize {
        end.windows_bound()
    }
}

stag_conformance::conformance_tests!(Loopback);
