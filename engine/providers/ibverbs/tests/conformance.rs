//! The generic suite of the contract on an RDMA device, every end in one thread. The device is the
//! one with the address in `STAG_RDMA_ADDRESS`; without it, and where there is no RDMA, each case
//! says so and passes (`tests/guest/verbs` runs it on rxe). With `STAG_RDMA_APART` in the
//! environment, the providers' calls are made as in a privileged server, by a thread of their own.
#![cfg(feature = "verbs")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_conformance::Fixture;
use stag_ibverbs::{Ibverbs, IbverbsConfig, RdmaAddress, Through};
use stag_pools::{Access, Class, Pool};
use stag_verbs::{Cause, Event, Limits, Memory, PeerAddress, Provider, Qp, Status, Tag, Time};
use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
    time::{Duration, Instant},
};

const LIMITS: Limits = Limits {
    connections: 1,
    send_queue: 1,
    receives: 1,
    receives_each: None,
    receive_len: 64,
    windows: 1,
    read_spans: 1,
    private_data_len: 8,
    sends_invalidation: true,
    bears_invalidation: true,
};

/// The address of ours on the device, or why there is none.
fn place() -> Result<IpAddr, String> {
    static PLACE: OnceLock<Result<IpAddr, String>> = OnceLock::new();
    PLACE
        .get_or_init(|| {
            let Ok(text) = std::env::var("STAG_RDMA_ADDRESS") else {
                let any = IpAddr::from([0, 0, 0, 0]);
                return Err(
                    match Ibverbs::new(IbverbsConfig::new(LIMITS, Through::Local(any), Time(0))) {
                        Ok(end) => {
                            format!(
                                "{} is there: name its address in STAG_RDMA_ADDRESS",
                                end.about().name
                            )
                        }
                        Err(why) => why.to_string(),
                    },
                );
            };
            let ip: IpAddr = text.parse().unwrap();
            let end = Ibverbs::new(IbverbsConfig::new(LIMITS, Through::Local(ip), Time(0)))
                .expect("a device was promised");
            assert!(end.about().has_windows, "the suite needs windows: {:?}", end.about());
            Ok(ip)
        })
        .clone()
}

/// True if the providers' calls are to be made by a thread of their own.
fn is_apart() -> bool {
    std::env::var_os("STAG_RDMA_APART").is_some()
}

/// Settings of an end with these limits on the device with our address.
fn config(limits: Limits, ip: IpAddr) -> IbverbsConfig {
    IbverbsConfig { is_apart: is_apart(), ..IbverbsConfig::new(limits, Through::Local(ip), now()) }
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
    const MOVES_DATA: bool = false;
    const PADS_PRIVATE_DATA: bool = true;
    // rxe of Linux 6.1 checks only that an access is inside the region under a window
    // (`check_rkey`).
    const CHECKS_BOUNDS: bool = false;

    fn new(_: u64) -> Self {
        Self { ip: place().unwrap() }
    }

    fn end(&mut self, limits: Limits, pool: &Pool) -> Ibverbs {
        let config = IbverbsConfig { spare: 0, always_sinks: SINKS, ..config(limits, self.ip) };
        let mut end = Ibverbs::new(config).unwrap();
        end.register(pool).unwrap();
        end
    }

    fn listen_address(&mut self) -> RdmaAddress {
        RdmaAddress(SocketAddr::new(self.ip, 0))
    }

    fn nowhere(&mut self) -> RdmaAddress {
        RdmaAddress(SocketAddr::new(self.ip, 9))
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
        static WHY: OnceLock<Option<String>> = OnceLock::new();
        if let Some(why) = WHY.get_or_init(|| place().err()) {
            return Some(why);
        }
        match case {
            "a_starved_connection_still_moves_memory" => Some(
                "a reliable connection keeps the order of its send queue: what is posted behind a \
                 message that waits for a receive waits with it",
            ),
            "keys_that_are_not_the_peers_cannot_be_invalidated" => Some(
                "rxe does not look whose window a peer invalidates (rxe_invalidate_mw); the \
                 connection of that peer ends, and the window is dead",
            ),
            _ => None,
        }
    }
}

stag_conformance::conformance_tests!(Device<false>);

/// The cases in which Reads succeed, fail and are flushed, and one in which more Reads are posted
/// than the arena has places.
mod sinks {
    use stag_conformance::{endings, memory, run};

    type Device = super::Device<true>;

    #[test]
    fn reads_by_way_of_an_arena_fetch_their_spans_in_order() {
        run::<Device>(
            "a_read_fetches_its_spans_in_order",
            memory::a_read_fetches_its_spans_in_order,
        );
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

/// Shows a defect of rxe: a peer can invalidate a window of another connection. That peer's
/// connection ends; the window's owner, which is not notified, gets its buffer back by a local
/// invalidation that the device never sees (rxe would not survive it).
#[test]
fn a_window_that_a_stranger_invalidated_is_given_back() {
    let name = "a_window_that_a_stranger_invalidated_is_given_back";
    let Ok(ip) = place() else {
        println!("skipped: {name}: {}", place().unwrap_err());
        return;
    };
    let class = |slot_len, count| Class { slot_len, count };
    let pool = Pool::new(&[class(64, 64), class(8192, 64)]).unwrap();
    let limits = Limits {
        connections: 4,
        send_queue: 8,
        receives: 8,
        receive_len: 4096,
        windows: 4,
        ..LIMITS
    };
    let mut ends = [0, 1].map(|_| {
        let mut end = Ibverbs::new(config(limits, ip)).unwrap();
        end.register(&pool).unwrap();
        (0..8).for_each(|_| end.post_receive(pool.take(4096).unwrap()).unwrap());
        end
    });
    let mut seen: Vec<(usize, Event)> = Vec::new();
    let mut until = |ends: &mut [Ibverbs; 2], what: &dyn Fn(usize, &Event) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            for (index, end) in ends.iter_mut().enumerate() {
                seen.extend(std::iter::from_fn(|| end.poll(now())).map(|event| (index, event)));
            }
            if let Some(at) = seen.iter().position(|(index, event)| what(*index, event)) {
                return seen.remove(at).1;
            }
            assert!(Instant::now() < deadline, "not in time: {seen:?}");
            std::thread::yield_now();
        }
    };
    let at = ends[1].listen(&RdmaAddress(SocketAddr::new(ip, 0))).unwrap();
    let [owner, stranger] = [0, 1].map(|_| {
        let a = ends[0].connect(&at, b"").unwrap();
        let Event::ConnectRequest { qp: b } =
            until(&mut ends, &|_, event| matches!(event, Event::ConnectRequest { .. }))
        else {
            unreachable!()
        };
        ends[1].accept(b, b"").unwrap();
        for (index, qp) in [(0, a), (1, b)] {
            until(&mut ends, &|at, event| {
                at == index && matches!(event, Event::Established { qp: of } if *of == qp)
            });
        }
        (a, b)
    });
    let mut buf = pool.take(64).unwrap();
    buf.append(b"lent").unwrap();
    let window = ends[1].bind(owner.1, buf, 0..4, Access::RemoteRead).unwrap();
    ends[1].ring();
    ends[0].post_send(stranger.0, Tag(1), pool.take(64).unwrap(), Some(window.key)).unwrap();
    ends[0].ring();
    let ended = until(&mut ends, &|at, event| {
        matches!(
            event,
            Event::Disconnected { qp, .. } if at == 1 && *qp == stranger.1
        )
    });
    assert!(matches!(ended, Event::Disconnected { cause: Cause::PeerFault(_), .. }), "{ended:?}");
    ends[1].post_local_invalidate(owner.1, Tag(2), window.key).unwrap();
    ends[1].ring();
    let done = until(&mut ends, &|at, event| {
        at == 1 && matches!(event, Event::Completed { tag: Tag(2), .. })
    });
    let Event::Completed { status: Status::Success, memory: Memory::Fenced(fenced), .. } = done
    else {
        panic!("{done:?}")
    };
    assert_eq!((fenced.key(), &fenced.into_buf()[..]), (window.key, &b"lent"[..]));
    assert_eq!(ends[1].windows_bound(), 0);
}

/// The thread of a privileged server's device calls exists if it is asked for, and only then.
#[test]
fn calls_are_made_by_the_thread_that_was_asked_for() {
    let name = "calls_are_made_by_the_thread_that_was_asked_for";
    let Ok(ip) = place() else {
        println!("skipped: {name}: {}", place().unwrap_err());
        return;
    };
    let _end = Ibverbs::new(config(LIMITS, ip)).unwrap();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    let is_there = names.flatten().any(|name| name.trim_end() == "stag-verbs");
    assert_eq!(is_there, is_apart());
}

/// Shards that share a port have peers in turn, wherever the listener is; and all of them when the
/// others take no more.
#[test]
fn shards_share_a_listener() {
    let name = "shards_share_a_listener";
    let Ok(ip) = place() else {
        println!("skipped: {name}: {}", place().unwrap_err());
        return;
    };
    let pool = Pool::new(&[Class { slot_len: 4096, count: 64 }]).unwrap();
    let limits =
        Limits { connections: 16, send_queue: 8, receives: 8, receive_len: 4096, ..LIMITS };
    // The last one is the peers'.
    let mut ends = [true, true, false].map(|shared_port| {
        let config = IbverbsConfig { shared_port, ..config(limits, ip) };
        let mut end = Ibverbs::new(config).unwrap();
        end.register(&pool).unwrap();
        (0..8).for_each(|_| end.post_receive(pool.take(4096).unwrap()).unwrap());
        end
    });
    let at = ends[0].listen(&RdmaAddress(SocketAddr::new(ip, 0))).unwrap();
    assert_eq!(ends[1].listen(&at), Ok(at));
    // The shard that a new peer gets; both of its sides are established and a message arrives.
    let connect = |ends: &mut [Ibverbs; 3]| {
        let from = ends[2].connect(&at, b"hello").unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut found = None;
        loop {
            for index in 0..3 {
                match ends[index].poll(now()) {
                    Some(Event::ConnectRequest { qp }) => {
                        assert!(index < 2 && found.is_none());
                        found = Some((index, qp));
                        assert_eq!(&ends[index].private_data(qp)[..5], b"hello");
                        let peer = ends[index].peer_address(qp);
                        assert!(matches!(peer, Some(PeerAddress::Ip(peer)) if peer.ip() == ip));
                        ends[index].accept(qp, b"well").unwrap();
                    }
                    Some(Event::Established { qp }) if index == 2 => {
                        assert_eq!(qp, from);
                        let mut message = pool.take(64).unwrap();
                        message.append(b"told").unwrap();
                        ends[2].post_send(qp, Tag(1), message, None).unwrap();
                        ends[2].ring();
                    }
                    Some(Event::Received { qp, buf, .. }) => {
                        assert_eq!((Some((index, qp)), &buf[..]), (found, &b"told"[..]));
                        ends[index].post_receive(buf).unwrap();
                        return index;
                    }
                    Some(Event::Disconnected { cause, .. }) => panic!("{index}: {cause:?}"),
                    _ => {}
                }
            }
            assert!(Instant::now() < deadline, "not in time");
            std::thread::yield_now();
        }
    };
    let places: Vec<usize> = (0..4).map(|_| connect(&mut ends)).collect();
    assert_eq!(places.iter().sum::<usize>(), 2, "{places:?}");
    ends[1].stop_listening();
    assert_eq!([connect(&mut ends), connect(&mut ends)], [0, 0]);
}
