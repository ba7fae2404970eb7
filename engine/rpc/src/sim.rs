//! The simulated fabric of this thread, for examples and tests: servers and clients at `sim://`
//! URLs run in one thread and in virtual time. A waiting client runs the passes of all servers.

use crate::shard::AnyShard;
use stag_engine::{App, Time};
use stag_sim::Fabric;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Time step while nothing is due.
const TICK: Duration = Duration::from_millis(1);

trait PassShard {
    fn pass(&mut self, now: Time) -> bool;
    fn wake_at(&self) -> Option<Time>;
}

struct SimulatedShard<A: App>(Box<dyn AnyShard<A>>);

impl<A: App> PassShard for SimulatedShard<A> {
    fn pass(&mut self, now: Time) -> bool {
        self.0.pass(now)
    }

    fn wake_at(&self) -> Option<Time> {
        self.0.wake_at()
    }
}

type Servers = Vec<(u64, Rc<RefCell<dyn PassShard>>)>;

thread_local! {
    static NOW: Cell<Time> = const { Cell::new(Time(0)) };
    static SERVERS: RefCell<Servers> = const { RefCell::new(Vec::new()) };
}

/// The time of this thread's fabric.
pub(crate) fn now() -> Time {
    NOW.get()
}

/// Adds a server; returns its name, which is unique among all threads.
pub(crate) fn add<A: App + 'static>(shard: Box<dyn AnyShard<A>>) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = NEXT.fetch_add(1, Ordering::Relaxed);
    SERVERS.with_borrow_mut(|servers| {
        servers.push((name, Rc::new(RefCell::new(SimulatedShard(shard)))))
    });
    name
}

/// Returns true if the server of this name belongs to this thread.
pub(crate) fn has(name: u64) -> bool {
    SERVERS.with_borrow(|servers| servers.iter().any(|(known, _)| *known == name))
}

/// Removes a server: its connections break.
pub(crate) fn remove(name: u64) {
    // It is dropped after the borrow. While a thread ends there may be none to remove.
    let removed = SERVERS.try_with(|servers| {
        let mut servers = servers.borrow_mut();
        let place = servers.iter().position(|(known, _)| *known == name)?;
        Some(servers.remove(place))
    });
    drop(removed);
}

/// Runs a pass of every server, and of `own`. If none of them did work, time advances to the next
/// due event.
pub(crate) fn step(own: &mut dyn FnMut(Time) -> bool, own_wake_at: Option<Time>) -> bool {
    let now = NOW.get();
    let servers = SERVERS.with_borrow(Clone::clone);
    let mut worked = own(now);
    let mut next = own_wake_at;
    for (_, server) in &servers {
        // A service that is itself a client of a server in the same thread is already borrowed.
        if let Ok(mut server) = server.try_borrow_mut() {
            worked |= server.pass(now);
            next = next.into_iter().chain(server.wake_at()).min();
        }
    }
    if !worked {
        let due = Fabric::of_thread().next_due().into_iter().chain(next).min();
        NOW.set(due.filter(|due| *due > now).unwrap_or(now + TICK));
    }
    worked
}
