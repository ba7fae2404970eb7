//! The suite of the contract on adapters that are not there.

use super::{ADAPTERS, address, install};
use crate::{Ibverbs, IbverbsConfig, RdmaAddress, Through};
use stag_conformance::{Fixture, needs_windows};
use stag_pools::Pool;
use stag_verbs::{Limits, Provider, Qp, Time};
use std::{net::SocketAddr, sync::OnceLock, time::Instant};

fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Time(1 + start.elapsed().as_nanos() as u64)
}

/// An adapter of the table; with `SINKS`, Reads land in an arena first.
struct Fake<const ADAPTER: usize, const SINKS: bool>;

impl<const ADAPTER: usize, const SINKS: bool> Fixture for Fake<ADAPTER, SINKS> {
    type P = Ibverbs;

    const TELLS_FAULTS: bool = false;
    const MOVES_DATA: bool = false;
    const PADS_PRIVATE_DATA: bool = true;

    fn new(_: u64) -> Self {
        install(&ADAPTERS[ADAPTER..=ADAPTER]);
        Self
    }

    fn end(&mut self, limits: Limits, pool: &Pool) -> Ibverbs {
        let config = IbverbsConfig {
            spare: 0,
            always_sinks: SINKS,
            opens_regions: true,
            ..IbverbsConfig::new(limits, Through::Local(address(0)), now())
        };
        let mut end = Ibverbs::new(config).unwrap();
        end.register(pool).unwrap();
        end
    }

    fn listen_address(&mut self) -> RdmaAddress {
        RdmaAddress(SocketAddr::new(address(0), 0))
    }

    fn nowhere(&mut self) -> RdmaAddress {
        RdmaAddress(SocketAddr::new(address(0), 9))
    }

    fn step(&mut self) -> Time {
        std::thread::yield_now();
        now()
    }

    fn windows_bound(&self, end: &Ibverbs) -> usize {
        end.windows_bound()
    }

    fn has_opened(&self, end: &Ibverbs, qp: Qp) -> bool {
        end.is_drained(qp)
    }

    fn skip(case: &str) -> Option<&'static str> {
        match case {
            "a_starved_connection_still_moves_memory" => Some(
                "a reliable connection keeps the order of its send queue: what is posted behind a \
                 message that waits for a receive waits with it",
            ),
            case if ADAPTER == WITHOUT_WINDOWS => needs_windows(case),
            _ => None,
        }
    }
}

/// The number of an adapter without windows: its regions open buffers for one use.
const WITHOUT_WINDOWS: usize = 8;

stag_conformance::conformance_tests!(Fake<0, false>);

mod regions {
    use super::WITHOUT_WINDOWS;

    stag_conformance::conformance_tests!(super::Fake<WITHOUT_WINDOWS, false>);
}

/// The cases in which Reads succeed, fail and are flushed, by way of an arena.
mod sinks {
    use stag_conformance::{endings, memory, run};

    type Fake = super::Fake<0, true>;

    #[test]
    fn reads_by_way_of_an_arena_end_as_they_do_without() {
        run::<Fake>("a_read_fetches_its_spans_in_order", memory::a_read_fetches_its_spans_in_order);
        run::<Fake>("many_reads_complete_in_order", memory::many_reads_complete_in_order);
        run::<Fake>("a_read_that_breaks_a_rule_fails", memory::a_read_that_breaks_a_rule_fails);
        run::<Fake>(
            "all_work_completes_when_the_peer_disconnects",
            endings::all_work_completes_when_the_peer_disconnects,
        );
    }
}
