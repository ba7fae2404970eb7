//! Costs of an operation on the simulated fabric: no heap allocation once connections are set up.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_pools::{Class, Pool};
use stag_sim::{Fabric, Faults, LIMITS, Port, Sim};
use stag_verbs::{Event, Memory, Provider, Qp, Status, Tag};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is handed to the system's allocator unchanged; counting touches no memory of
// the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

struct Pair {
    fabric: Fabric,
    pool: Pool,
    caller: Sim,
    answerer: Sim,
    caller_qp: Option<Qp>,
    answered: u64,
}

impl Pair {
    fn new(faults: Faults) -> Self {
        let fabric = Fabric::new(7, faults);
        let pool = Pool::new(&[Class { slot_len: 4096, count: 128 }]).unwrap();
        let (mut caller, mut answerer) =
            (fabric.end("caller", LIMITS), fabric.end("answerer", LIMITS));
        for end in [&mut caller, &mut answerer] {
            (0..16).for_each(|_| end.post_receive(pool.take(4096).unwrap()).unwrap());
        }
        let port = answerer.listen(&Port(0)).unwrap();
        caller.connect(&port, b"hello").unwrap();
        Self { fabric, pool, caller, answerer, caller_qp: None, answered: 0 }
    }

    fn pass(&mut self) {
        let now = self.fabric.next_due().unwrap_or(self.fabric.now());
        while let Some(event) = self.caller.poll(now) {
            match event {
                Event::Established { qp } => self.caller_qp = Some(qp),
                Event::Received { buf, .. } => {
                    self.answered += 1;
                    self.caller.post_receive(buf).unwrap();
                }
                Event::Completed { status: Status::Success, memory: Memory::Buf(_), .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = self.answerer.poll(now) {
            match event {
                Event::ConnectRequest { qp } => self.answerer.accept(qp, b"").unwrap(),
                Event::Received { qp, buf, .. } => {
                    let mut reply = self.pool.take(64).unwrap();
                    reply.append(&buf).unwrap();
                    self.answerer.post_receive(buf).unwrap();
                    self.answerer.post_send(qp, Tag(2), reply, None).unwrap();
                }
                Event::Completed { status: Status::Success, .. } | Event::Established { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        self.answerer.ring();
    }

    fn call(&mut self) {
        let qp = self.caller_qp.unwrap();
        let mut call = self.pool.take(64).unwrap();
        call.append(b"echo").unwrap();
        self.caller.post_send(qp, Tag(1), call, None).unwrap();
        self.caller.ring();
        let before = self.answered;
        while self.answered == before {
            self.pass();
        }
    }
}

fn count_100_000_calls(faults: Faults) {
    let mut pair = Pair::new(faults);
    while pair.caller_qp.is_none() {
        pair.pass();
    }
    let before = ALLOCATIONS.with(Cell::get);
    (0..100_000).for_each(|_| pair.call());
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

#[test]
fn a_call_without_delays_allocates_nothing() {
    count_100_000_calls(Faults::NONE);
}

#[test]
fn a_call_with_delays_allocates_nothing() {
    count_100_000_calls(Faults::DELAYS);
}
