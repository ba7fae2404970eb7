//! Connections that end after each errand of their set-up and of their end.

use super::{
    ADAPTERS, Adapter, ERRANDS, address, install,
    removal::{objects, remove, restore},
    roles::{end, full, small},
};
use crate::{Ibverbs, RdmaAddress, Through};
use stag_pools::{Class, Pool};
use stag_verbs::{Event, Provider, Qp, Time};
use std::net::SocketAddr;

/// Errands that a set-up takes at both ends, and more.
const STEPS: usize = 40;
const RECEIVES: usize = 256;

/// The reason for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    CallerLeaves,
    ServerLeaves,
    BothLeave,
    ServerIsSilent,
    DeviceIsLost,
    ProgramEnds,
}

const ALL: [Why; 6] = [
    Why::CallerLeaves,
    Why::ServerLeaves,
    Why::BothLeave,
    Why::ServerIsSilent,
    Why::DeviceIsLost,
    Why::ProgramEnds,
];

/// A server's and a caller's end, and their events.
struct Ends {
    pool: Pool,
    ends: [Ibverbs; 2],
    now: Time,
    accepts: bool,
    accepted: Option<Qp>,
    established: usize,
    ended: usize,
}

impl Ends {
    fn new(adapter: Adapter) -> Self {
        ERRANDS.set(usize::MAX);
        install(&[adapter, full(&adapter)]);
        let pool = Pool::new(&[Class { slot_len: 4_096, count: 2 * RECEIVES }]).unwrap();
        let to = SocketAddr::new(address(0), 1);
        let ends = [Through::Local(address(0)), Through::Toward(to)].map(|through| {
            let mut end = end(&small(), through).unwrap();
            end.register(&pool).unwrap();
            (0..RECEIVES).for_each(|_| end.post_receive(pool.take(4_096).unwrap()).unwrap());
            end
        });
        Self { pool, ends, now: Time(1), accepts: true, accepted: None, established: 0, ended: 0 }
    }

    fn poll(&mut self, times: usize) {
        for _ in 0..times {
            self.now = Time(self.now.0 + 1_000_000);
            for end in &mut self.ends {
                match end.poll(self.now) {
                    Some(Event::ConnectRequest { .. }) if !self.accepts => {}
                    Some(Event::ConnectRequest { qp }) => {
                        end.accept(qp, b"welcome").unwrap();
                        self.accepted = Some(qp);
                    }
                    Some(Event::Established { .. }) => self.established += 1,
                    Some(Event::Disconnected { .. }) => self.ended += 1,
                    Some(event) => panic!("{event:?}"),
                    None => {}
                }
            }
        }
    }
}

/// Ends a connection for which `steps` errands were done. Returns true if it was established by
/// then.
fn ends_after(adapter: Adapter, steps: usize, why: Why) -> bool {
    let mut it = Ends::new(adapter);
    let at = it.ends[0].listen(&RdmaAddress(SocketAddr::new(address(0), 0))).unwrap();
    it.poll(10);
    let before = objects();
    ERRANDS.set(steps);
    it.accepts = why != Why::ServerIsSilent;
    let caller = it.ends[1].connect(&at, b"hello").unwrap();
    it.poll(200);
    let is_established = it.established == 2;
    if matches!(why, Why::CallerLeaves | Why::BothLeave) {
        it.ends[1].disconnect(caller);
    }
    if let (Why::ServerLeaves | Why::BothLeave, Some(qp)) = (why, it.accepted) {
        it.ends[0].disconnect(qp);
    }
    if why == Why::DeviceIsLost {
        remove(0);
    }
    if why == Why::ProgramEnds {
        drop(it.ends);
        // The connection manager keeps the devices open.
        let (left, taken) = (&objects()[1..], it.pool.taken());
        assert_eq!((left, taken), (&[0; 7][..], 0), "{} {steps} {why:?}", adapter.name);
        return is_established;
    }
    // The end without an errand is waited for, and none is forgotten.
    it.poll(50);
    ERRANDS.set(usize::MAX);
    it.poll(100);
    if why == Why::DeviceIsLost {
        restore(0);
    }
    // Longer than any time limit. One that the server's end does not end is ended then.
    it.poll(12_000);
    if why == Why::ServerLeaves && it.ended == 0 {
        it.ends[1].disconnect(caller);
        it.poll(12_000);
    }
    let what = format!("{} {steps} {why:?}", adapter.name);
    assert!(it.ended >= 1, "{what}");
    assert_eq!(it.ends.each_ref().map(Ibverbs::connections), [0, 0], "{what}");
    assert_eq!(it.ends.each_ref().map(Provider::receives_posted), [RECEIVES; 2], "{what}");
    assert_eq!((objects(), it.pool.taken()), (before, 2 * RECEIVES), "{what}");
    // Another one finds its place.
    it.accepts = true;
    let [caller_ended, established] = [it.ended, it.established];
    let again = it.ends[1].connect(&at, &[]).unwrap();
    it.poll(200);
    assert_eq!((it.ended, it.established), (caller_ended, established + 2), "{what}");
    it.ends[1].disconnect(again);
    it.poll(4_000);
    assert_eq!(objects(), before, "{what}");
    is_established
}

#[test]
fn a_connection_can_end_after_any_errand_and_leaves_nothing() {
    let names = ["mlx5", "cxgb4-t5", "erdma", "rxe"];
    for adapter in ADAPTERS.into_iter().filter(|it| names.contains(&it.name)) {
        for why in ALL {
            let reached: Vec<_> = (0..STEPS).map(|steps| ends_after(adapter, steps, why)).collect();
            let is_reached = why != Why::ServerIsSilent;
            assert_eq!(reached[STEPS - 1], is_reached, "{} {why:?}", adapter.name);
            assert!(!reached[0]);
        }
    }
}
