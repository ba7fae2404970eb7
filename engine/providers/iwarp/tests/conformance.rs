//! The generic suite of the contract over loopback: every end in one thread.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_conformance::Fixture;
use stag_iwarp::{Iwarp, IwarpAddress, IwarpConfig};
use stag_pools::Pool;
use stag_verbs::{Limits, Time};
use std::{net::TcpListener, os::fd::BorrowedFd, time::Duration};

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
        // The suite's engine makes no room for newcomers: nobody beyond the limit is asked about.
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

    fn is_readable(&self, fd: BorrowedFd<'_>, patience: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }
}

stag_conformance::conformance_tests!(Loopback);
