//! Costs of an operation in the steady state: no heap allocation, and few system calls.
//!
//! One test only, because its allocator counts for the whole process.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use stag_iwarp::{Iwarp, IwarpAddress, IwarpConfig};
use stag_pools::{Access, Buf, Class, Pool, Window};
use stag_verbs::{Event, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicU64, Ordering},
};

/// Counts the allocations that it forwards.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const LIMITS: Limits = Limits { receives: 64, send_queue: 64, ..support::LIMITS };
const BULK: usize = 128 << 10;
/// Messages, Writes and Reads of one round.
const DEPTH: usize = 16;

struct Side {
    end: Iwarp,
    qp: Option<Qp>,
    messages: Vec<Buf>,
    bulk: Vec<Buf>,
    received: usize,
    completed: usize,
}

impl Side {
    fn new(pool: &Pool, seed: u8) -> Self {
        let mut end = Iwarp::new(IwarpConfig::new(LIMITS, [seed; 32], support::now())).unwrap();
        for _ in 0..LIMITS.receives {
            end.post_receive(pool.take(LIMITS.receive_len).unwrap()).unwrap();
        }
        let content = |len: usize| {
            let mut buf = pool.take(len).unwrap();
            buf.extend(len);
            buf
        };
        let messages = (0..DEPTH).map(|_| content(64)).collect();
        let bulk = (0..DEPTH).map(|_| content(BULK)).collect();
        Self { end, qp: None, messages, bulk, received: 0, completed: 0 }
    }

    fn pump(&mut self) {
        while let Some(event) = self.end.poll(support::now()) {
            match event {
                Event::Received { buf, .. } => {
                    self.received += 1;
                    self.end.post_receive(buf).unwrap();
                }
                Event::Completed { status, memory, .. } => {
                    assert_eq!(status, Status::Success);
                    self.completed += 1;
                    if let Memory::Buf(buf) = memory {
                        if buf.len() == BULK {
                            self.bulk.push(buf)
                        } else {
                            self.messages.push(buf)
                        }
                    }
                }
                Event::ConnectRequest { qp } => {
                    self.qp = Some(qp);
                    self.end.accept(qp, b"").unwrap();
                }
                Event::Established { qp } => self.qp = Some(qp),
                other => panic!("{other:?}"),
            }
        }
    }

    fn qp(&self) -> Qp {
        self.qp.unwrap()
    }
}

fn span(window: Window) -> RemoteSpan {
    RemoteSpan { key: window.key, offset: window.offset, len: window.len }
}

fn pump_until(a: &mut Side, b: &mut Side, done: impl Fn(&Side, &Side) -> bool) {
    while !done(a, b) {
        a.pump();
        b.pump();
    }
}

/// `DEPTH` small messages each way, in one ring each.
fn ping_pong(a: &mut Side, b: &mut Side) {
    let (a_received, b_received) = (a.received, b.received);
    for side in [0, 1] {
        let from = if side == 0 { &mut *a } else { &mut *b };
        for _ in 0..DEPTH {
            let message = from.messages.pop().unwrap();
            from.end.post_send(from.qp(), Tag(0), message, None).unwrap();
        }
        from.end.ring();
        pump_until(a, b, |a, b| {
            if side == 0 {
                b.received - b_received == DEPTH
            } else {
                a.received - a_received == DEPTH
            }
        });
    }
    pump_until(a, b, |a, b| a.messages.len() == DEPTH && b.messages.len() == DEPTH);
}

/// A Write and a Read of `BULK` octets, then a Send after them.
fn bulk(a: &mut Side, b: &mut Side, to: Window, from: Window, pool: &Pool) {
    let (received, completed) = (b.received, a.completed);
    let mut source = pool.take(BULK).unwrap();
    source.extend(BULK);
    a.end.post_write(a.qp(), Tag(1), source.freeze(), span(to)).unwrap();
    let sink = a.bulk.pop().unwrap();
    a.end.post_read(a.qp(), Tag(2), sink, 0, &[span(from)]).unwrap();
    let message = a.messages.pop().unwrap();
    a.end.post_send(a.qp(), Tag(3), message, None).unwrap();
    a.end.ring();
    pump_until(a, b, |a, b| a.completed - completed == 3 && b.received - received == 1);
}

#[test]
fn operations_allocate_nothing_and_share_system_calls() {
    let class = |slot_len, count| Class { slot_len, count };
    let pool = Pool::new(&[class(64, 128), class(4096, 256), class(BULK, 64)]).unwrap();
    let (mut a, mut b) = (Side::new(&pool, 1), Side::new(&pool, 2));
    let at: IwarpAddress = b.end.listen(&support::localhost()).unwrap();
    a.qp = Some(a.end.connect(&at, b"").unwrap());
    pump_until(&mut a, &mut b, |a, b| {
        b.qp.is_some_and(|qp| b.end.send_room(qp) > 0) && a.end.send_room(a.qp()) > 0
    });
    let write_to = b.bulk.pop().unwrap();
    let write_to = b.end.bind(b.qp(), write_to, 0..BULK, Access::RemoteWrite).unwrap();
    let read_from = b.bulk.pop().unwrap();
    let read_from = b.end.bind(b.qp(), read_from, 0..BULK, Access::RemoteRead).unwrap();
    for _ in 0..50 {
        ping_pong(&mut a, &mut b);
        bulk(&mut a, &mut b, write_to, read_from, &pool);
    }

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..500 {
        ping_pong(&mut a, &mut b);
        bulk(&mut a, &mut b, write_to, read_from, &pool);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0, "allocations in 500 rounds");

    let (a_before, b_before) = (*a.end.stats(), *b.end.stats());
    const ROUNDS: u64 = 500;
    for _ in 0..ROUNDS {
        ping_pong(&mut a, &mut b);
    }
    for (stats, before) in [(a.end.stats(), a_before), (b.end.stats(), b_before)] {
        let messages = ROUNDS * DEPTH as u64;
        assert_eq!(stats.fpdus_out - before.fpdus_out, messages);
        assert_eq!(
            stats.sendmsg - before.sendmsg,
            ROUNDS,
            "one sendmsg for all messages of a ring"
        );
        // All of a ring usually arrives at once; TCP may still cut it.
        assert!(stats.recv - before.recv <= 2 * ROUNDS, "{} receives", stats.recv - before.recv);
        println!(
            "per message: {:.3} sendmsg, {:.3} recv, {:.3} epoll_wait",
            (stats.sendmsg - before.sendmsg) as f64 / messages as f64,
            (stats.recv - before.recv) as f64 / messages as f64,
            (stats.epoll_wait - before.epoll_wait) as f64 / messages as f64,
        );
    }
}
