//! The generic suite of the contract on an RDMA device, every end in one thread. The device is the one with the address in
//! `STAG_RDMA_ADDRESS`; without it, and where there is no RDMA, each case says so and passes (`bench/guest/verbs` runs it on rxe).
#![cfg(feature = "verbs")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_ibverbs::{Address, Config, Ibverbs, Through};
use stag_pools::Pool;
use stag_verbs::{Limits, Provider, Time, conformance::Fixture};
use std::{
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    sync::OnceLock,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits {
    connections: 1,
    send_queue: 1,
    receives: 1,
    receive_len: 64,
    windows: 1,
    read_spans: 1,
    private_data_len: 8,
    remote_invalidation: true,
};

/// The address of ours on the device, or why there is none.
fn place() -> Result<IpAddr, String> {
    static PLACE: OnceLock<Result<IpAddr, String>> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            let Ok(text) = std::env::var("STAG_RDMA_ADDRESS") else {
                let any = IpAddr::from([0, 0, 0, 0]);
                return Err(match Ibverbs::new(Config::new(LIMITS, Through::Local(any), Time(0))) {
                    Ok(end) => {
                        format!("{} is there: name its address in STAG_RDMA_ADDRESS", end.about().name)
                    }
                    Err(why) => why.to_string(),
                });
            };
            let ip: IpAddr = text.parse().unwrap();
            let end = Ibverbs::new(Config::new(LIMITS, Through::Local(ip), Time(0)))
                .expect("a device was promised");
            assert!(end.about().has_windows, "the suite needs windows: {:?}", end.about());
            Ok(ip)
        })
        .clone()
}

fn now() -> Time {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Time(1 + u64::try_from(start.elapsed().as_nanos()).unwrap())
}

/// With `SINKS`, Reads land in an arena of their own first, as on devices that want it.
struct Device<const SINKS: bool> {
    ip: IpAddr,
}

impl<const SINKS: bool> Fixture for Device<SINKS> {
    type P = Ibverbs;

    // The guest is emulated.
    const PATIENCE: Duration = Duration::from_secs(30);
    const TELLS_FAULTS: bool = false;
    const PADS_PRIVATE_DATA: bool = true;
    // rxe of Linux 6.1 looks only whether an access lies inside the region behind a window (`check_rkey`).
    const CHECKS_BOUNDS: bool = false;

    fn new(_: u64) -> Self {
        Self { ip: place().unwrap() }
    }

    fn end(&mut self, limits: Limits, pool: &Pool) -> Ibverbs {
        let config =
            Config { spare: 0, always_sinks: SINKS, ..Config::new(limits, Through::Local(self.ip), now()) };
        let mut end = Ibverbs::new(config).unwrap();
        end.register(pool).unwrap();
        end
    }

    fn listen_address(&mut self) -> Address {
        Address(SocketAddr::new(self.ip, 0))
    }

    fn nowhere(&mut self) -> Address {
        Address(SocketAddr::new(self.ip, 9))
    }

    fn step(&mut self) -> Time {
        std::thread::yield_now();
        now()
    }

    fn windows_bound(&self, end: &Ibverbs) -> usize {
        end.windows_bound()
    }

    fn is_readable(&self, fd: BorrowedFd<'_>, patience: Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let patience =
            Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() == 1
    }

    fn skip(case: &str) -> Option<&'static str> {
        static WHY: OnceLock<Option<String>> = OnceLock::new();
        if let Some(why) = WHY.get_or_init(|| place().err()) {
            return Some(why);
        }
        match case {
            "a_starved_connection_still_moves_memory" => Some(
                "a reliable connection keeps the order of its send queue: what is posted behind a message that waits for a receive waits with it",
            ),
            "keys_that_are_not_the_peers_cannot_be_invalidated" => Some(
                "rxe does not look whose window a peer invalidates (rxe_invalidate_mw); the connection of that peer ends, and the window is dead",
            ),
            _ => None,
        }
    }
}

stag_verbs::conformance_tests!(Device<false>);

/// The cases in which Reads succeed, fail and are flushed, and one in which more Reads are posted than the arena has places.
mod sinks {
    use stag_verbs::conformance::{endings, memory, run};

    type Device = super::Device<true>;

    #[test]
    fn reads_by_way_of_an_arena_fetch_their_spans_in_order() {
        run::<Device>("a_read_fetches_its_spans_in_order", memory::a_read_fetches_its_spans_in_order);
    }

    #[test]
    fn many_reads_by_way_of_an_arena_complete_in_order() {
        run::<Device>("many_reads_complete_in_order", memory::many_reads_complete_in_order);
    }

    #[test]
    fn a_read_by_way_of_an_arena_that_breaks_a_rule_fails() {
        run::<Device>("a_read_that_breaks_a_rule_fails", memory::a_read_that_breaks_a_rule_fails);
    }

    #[test]
    fn reads_by_way_of_an_arena_complete_when_the_peer_disconnects() {
        run::<Device>(
            "all_work_completes_when_the_peer_disconnects",
            endings::all_work_completes_when_the_peer_disconnects,
        );
    }
}
