//! The faults themselves: each one happens when it is asked for, and nothing is lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_sim::{Fabric, Faults, LIMITS, Port, Sim};
use stag_verbs::{
    Cause, Event, FabricFault, Layer, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag,
    Terminate, Time,
};

struct Pair {
    fabric: Fabric,
    pool: Pool,
    ends: [Sim; 2],
    qps: [Option<Qp>; 2],
    established: [bool; 2],
    received: [Vec<Buf>; 2],
    done: [Vec<(Tag, Status)>; 2],
    ended: [Option<Cause>; 2],
}

impl Pair {
    fn new(seed: u64, faults: Faults) -> Self {
        let fabric = Fabric::new(seed, faults);
        let pool = Pool::new(&[Class { slot_len: 4096, count: 64 }]).unwrap();
        let mut ends = [fabric.end("connector", LIMITS), fabric.end("listener", LIMITS)];
        let port = ends[1].listen(&Port(0)).unwrap();
        let qp = ends[0].connect(&port, b"").unwrap();
        Self {
            fabric,
            pool,
            ends,
            qps: [Some(qp), None],
            established: [false; 2],
            received: [Vec::new(), Vec::new()],
            done: [Vec::new(), Vec::new()],
            ended: [None; 2],
        }
    }

    fn receives(mut self, count: usize) -> Self {
        for end in &mut self.ends {
            (0..count).for_each(|_| end.post_receive(self.pool.take(4096).unwrap()).unwrap());
        }
        self
    }

    fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    /// Jumps to the next due time and polls both ends. False: nothing is in flight.
    fn pass(&mut self) -> bool {
        let Some(due) = self.fabric.next_due() else { return false };
        let now = due.max(self.fabric.now());
        for side in 0..2 {
            while let Some(event) = self.ends[side].poll(now) {
                self.handle(side, event);
            }
        }
        true
    }

    fn settle(&mut self) {
        while self.pass() {}
    }

    fn handle(&mut self, side: usize, event: Event) {
        assert!(self.ended[side].is_none(), "Disconnected is last: {event:?}");
        match event {
            Event::ConnectRequest { qp } => {
                self.qps[side] = Some(qp);
                self.ends[side].accept(qp, b"").unwrap();
            }
            Event::Established { .. } => self.established[side] = true,
            Event::Received { buf, .. } => self.received[side].push(buf),
            Event::Completed { tag, status, .. } => self.done[side].push((tag, status)),
            Event::Unbound { .. } => {}
            Event::Disconnected { cause, .. } => self.ended[side] = Some(cause),
        }
    }

    fn established(mut self) -> Self {
        while !self.established[0] {
            assert!(self.pass());
        }
        self
    }
}

/// A bit of everything; returns the pair after it, when nothing is in flight any more.
fn scenario(faults: Faults) -> Pair {
    let mut pair = Pair::new(3, faults).receives(8);
    while !pair.established[0] && pair.ended[0].is_none() {
        assert!(pair.pass());
    }
    if pair.established[0] {
        let (a, b) = (pair.qps[0].unwrap(), pair.qps[1].unwrap());
        let hello = pair.buf(b"hello");
        pair.ends[0].post_send(a, Tag(0), hello, None).unwrap();
        pair.ends[0].ring();
        while !pair.established[1] && pair.ended == [None; 2] {
            assert!(pair.pass());
        }
        if let Ok(window) = {
            let buf = pair.buf(&[7; 512]);
            pair.ends[1].bind(b, buf, 0..512, Access::RemoteRead)
        } {
            let from = RemoteSpan { key: window.key, offset: window.offset, len: window.len };
            for tag in 1..5 {
                let (sink, message) = (pair.buf(&[0; 512]), pair.buf(b"and a message"));
                let _ = pair.ends[0].post_read(a, Tag(10 * tag), sink, 0, &[from]);
                let key = (tag == 4).then_some(RemoteKey(9));
                let _ = pair.ends[0].post_send(a, Tag(10 * tag + 1), message, key);
            }
            pair.ends[0].ring();
        }
    }
    pair.settle();
    pair
}

#[test]
fn a_connection_that_breaks_at_any_step_gives_everything_back() {
    let steps = scenario(Faults::DELAYS).fabric.steps();
    assert!(steps > 10, "{steps} steps are a scenario");
    for step in 0..steps {
        let pair = scenario(Faults { lost_at: Some(step), ..Faults::DELAYS });
        let pool = pair.pool.clone();
        // The first two arrivals are the request and its answer. A listener that never saw the
        // request has nothing to lose.
        assert_eq!(pair.ended[0], Some(Cause::Fabric(FabricFault::Lost)), "step {step}");
        assert_eq!(pair.ended[1].is_some(), step > 0, "step {step}");
        let mut done: Vec<_> = pair.done[0].iter().map(|(tag, _)| tag.0).collect();
        done.dedup();
        assert_eq!(done.len(), pair.done[0].len(), "once each");
        assert!(done.is_sorted(), "in order");
        assert_eq!((pair.ends[0].windows_bound(), pair.ends[1].windows_bound()), (0, 0));
        drop(pair);
        assert_eq!(pool.taken(), 0, "step {step}");
    }
}

#[test]
fn a_refused_connect_ends_although_somebody_listens() {
    let mut pair = Pair::new(1, Faults { refused: 1_000_000, ..Faults::DELAYS });
    pair.settle();
    assert_eq!(pair.ended, [Some(Cause::Fabric(FabricFault::Refused)), None]);
}

#[test]
fn nothing_happens_before_it_is_due() {
    let mut pair = Pair::new(1, Faults::DELAYS).receives(1).established();
    let qp = pair.qps[0].unwrap();
    let message = pair.buf(b"later");
    pair.ends[0].post_send(qp, Tag(1), message, None).unwrap();
    pair.ends[0].ring();
    // Remains of the set-up on the listener's side may be due earlier.
    let (due, now) = (pair.ends[1].wake_at().unwrap(), pair.fabric.now());
    assert!(due > now);
    assert!(pair.ends[1].arm());
    assert!(pair.ends[1].poll(Time(due.0 - 1)).is_none());
    pair.settle();
    assert_eq!(&pair.received[1][0][..], b"later");
    assert_eq!(pair.fabric.next_due(), None);
}

#[test]
fn early_work_completes_before_it_arrives_and_late_work_after() {
    for (early, expected) in [(1_000_000, 1), (0, 0)] {
        let faults =
            Faults { early, delay: 10_000..10_001, completion_delay: 10..11, ..Faults::DELAYS };
        let mut pair = Pair::new(1, faults).receives(1).established();
        let qp = pair.qps[0].unwrap();
        let message = pair.buf(b"soon");
        pair.ends[0].post_send(qp, Tag(1), message, None).unwrap();
        pair.ends[0].ring();
        while pair.received[1].is_empty() && pair.pass() {}
        assert_eq!((pair.received[1].len(), pair.done[0].len()), (1, expected));
        pair.settle();
        assert_eq!(pair.done[0], [(Tag(1), Status::Success)]);
    }
}

#[test]
fn one_message_too_many_without_a_receive_ends_the_connection() {
    let mut pair = Pair::new(1, Faults { parked: 3, ..Faults::DELAYS }).established();
    let qp = pair.qps[0].unwrap();
    for tag in 0..4 {
        let message = pair.buf(b"waiting");
        pair.ends[0].post_send(qp, Tag(tag), message, None).unwrap();
        pair.ends[0].ring();
    }
    pair.settle();
    let no_buffer = Terminate { layer: Layer::Ddp, etype: 2, code: 2 };
    assert_eq!(pair.ended, [Some(Cause::Terminated(no_buffer)), Some(Cause::PeerFault(no_buffer))]);
}

#[test]
fn the_invalidation_of_a_key_we_are_invalidating_ends_the_connection() {
    let mut pair = Pair::new(1, Faults::NONE).receives(4).established();
    let (a, b) = (pair.qps[0].unwrap(), pair.qps[1].unwrap());
    let hello = pair.buf(b"hello");
    pair.ends[0].post_send(a, Tag(0), hello, None).unwrap();
    pair.ends[0].ring();
    pair.settle();
    let buf = pair.buf(b"contested");
    let window = pair.ends[1].bind(b, buf, 0..9, Access::RemoteRead).unwrap();
    pair.ends[1].post_local_invalidate(b, Tag(7), window.key).unwrap();
    let message = pair.buf(b"reply");
    pair.ends[0].post_send(a, Tag(1), message, Some(window.key)).unwrap();
    pair.ends[0].ring();
    pair.settle();
    assert_eq!(pair.done[1], [(Tag(7), Status::Flushed)]);
    assert!(matches!(pair.ended[1], Some(Cause::PeerFault(Terminate { etype: 2, code: 9, .. }))));
}

#[test]
#[should_panic(expected = "seed 77: local invalidation of")]
fn invalidating_what_is_not_bound_is_a_bug_with_a_seed() {
    let mut pair = Pair::new(77, Faults::NONE).established();
    let qp = pair.qps[0].unwrap();
    let _ = pair.ends[0].post_local_invalidate(qp, Tag(1), RemoteKey(1));
}

#[test]
fn a_connection_can_be_lost_on_demand() {
    let mut pair = Pair::new(1, Faults::DELAYS).receives(1).established();
    let qp = pair.qps[0].unwrap();
    for tag in 0..2 {
        let message = pair.buf(b"lost");
        pair.ends[0].post_send(qp, Tag(tag), message, None).unwrap();
    }
    pair.ends[0].lose(qp);
    pair.settle();
    assert_eq!(pair.done[0], [(Tag(0), Status::Lost), (Tag(1), Status::Flushed)]);
    assert_eq!(pair.ended, [Some(Cause::Fabric(FabricFault::Lost)); 2]);
    pair.ends[0].lose(qp);
}

#[test]
fn a_full_table_of_the_listener_refuses_the_connector() {
    let fabric = Fabric::new(1, Faults::DELAYS);
    let mut listener = fabric.end("listener", Limits { connections: 0, ..LIMITS });
    let mut connector = fabric.end("connector", LIMITS);
    let port = listener.listen(&Port(9)).unwrap();
    assert_eq!((port, port.to_string().as_str()), (Port(9), "sim://9"));
    connector.connect(&port, b"").unwrap();
    let mut cause = None;
    while let Some(now) = fabric.next_due() {
        assert!(listener.poll(now).is_none());
        if let Some(Event::Disconnected { cause: why, .. }) = connector.poll(now) {
            cause = Some(why);
        }
    }
    assert_eq!(cause, Some(Cause::Fabric(FabricFault::Refused)));
}

#[test]
fn the_trace_tells_the_story_and_keeps_its_end() {
    let pair = scenario(Faults::DELAYS);
    let trace = pair.fabric.trace();
    let story = [
        "listener #0 ConnectRequest 0",
        "connector #0 Accepted 0",
        "listener #0 Send 5",
        "ReadResponse 512",
        "ended",
    ];
    let mut rest = &trace[..];
    for part in story {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing in\n{trace}"));
        rest = &rest[at..];
    }
    let mut pair = Pair::new(1, Faults::NONE).receives(1).established();
    let qp = pair.qps[0].unwrap();
    for tag in 0..2_000 {
        let message = pair.buf(b"again");
        pair.ends[0].post_send(qp, Tag(tag), message, None).unwrap();
        pair.ends[0].ring();
        pair.settle();
        let buf = pair.received[1].pop().unwrap();
        pair.ends[1].post_receive(buf).unwrap();
    }
    let trace = pair.fabric.trace();
    assert_eq!(trace.trim_end().lines().count(), 2_048);
    assert!(trace.trim_end().ends_with("completed 1999") && !trace.contains("ConnectRequest"));
}

#[test]
fn dropping_everything_at_any_step_gives_everything_back() {
    for passes in 0..30 {
        for dropped in 0..2 {
            let mut pair = Pair::new(5, Faults::DELAYS).receives(4).established();
            let a = pair.qps[0].unwrap();
            for tag in 0..8 {
                let message = pair.buf(&[1; 4096]);
                pair.ends[0].post_send(a, Tag(tag), message, None).unwrap();
            }
            pair.ends[0].ring();
            let _ = (0..passes).take_while(|_| pair.pass()).count();
            let pool = pair.pool.clone();
            let Pair { ends, received, fabric, .. } = pair;
            let [first, second] = ends;
            let (gone, mut left) = if dropped == 0 { (first, second) } else { (second, first) };
            drop((gone, received));
            while let Some(now) = fabric.next_due() {
                while let Some(event) = left.poll(now.max(fabric.now())) {
                    if let Event::Completed { memory, .. } = event {
                        assert!(matches!(memory, Memory::Buf(_)));
                    }
                }
            }
            assert_eq!(left.connections(), 0, "the end is noticed");
            drop(left);
            assert_eq!(pool.taken(), 0);
        }
    }
}
