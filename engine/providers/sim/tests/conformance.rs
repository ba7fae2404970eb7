//! The simulated fabric keeps every promise of the contract.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_conformance::Fixture;
use stag_pools::Pool;
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::time::Duration;

const NOWHERE: Port = Port(60_000);

/// The next moment of `fabric`: what is due next, and a microsecond later than the last one at
/// least.
fn step(fabric: &Fabric) -> Time {
    let little_later = fabric.now() + Duration::from_micros(1);
    fabric.next_due().map_or(fabric.now() + Duration::from_millis(1), |due| due.max(little_later))
}

macro_rules! fixture {
    ($name:ident, $runs:expr, $faults:expr) => {
        struct $name(Fabric);

        impl Fixture for $name {
            type P = Sim;

            const RUNS: u64 = $runs;
            const MOVES_DATA: bool = false;

            fn new(run: u64) -> Self {
                Self(Fabric::new(run, Faults { lenient: true, ..$faults }))
            }

            fn end(&mut self, limits: Limits, _: &Pool) -> Sim {
                self.0.end("end", limits)
            }

            fn listen_address(&mut self) -> Port {
                Port(0)
            }

            fn nowhere(&mut self) -> Port {
                NOWHERE
            }

            fn step(&mut self) -> Time {
                step(&self.0)
            }

            fn windows_bound(&self, end: &Sim) -> usize {
                end.windows_bound()
            }

            fn skip(case: &str) -> Option<&'static str> {
                (case == "an_arrival_ends_sleep").then_some("a simulated fabric has no descriptor")
            }
        }
    };
}

mod at_once {
    use super::*;

    fixture!(AtOnce, 4, Faults::NONE);
    stag_conformance::conformance_tests!(AtOnce);
}

mod with_delays {
    use super::*;

    fixture!(WithDelays, 50, Faults::DELAYS);
    stag_conformance::conformance_tests!(WithDelays);
}

mod one_read_at_a_time {
    use super::*;

    fixture!(OneRead, 10, Faults { reads: 1, early: 1_000_000, ..Faults::DELAYS });
    stag_conformance::conformance_tests!(OneRead);
}
