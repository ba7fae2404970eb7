//! The simulated fabric of this thread, for examples and tests: servers and clients at `sim://`
//! URLs run in one thread and in virtual time. A waiting client runs the passes of all servers.

use crate::{shard::AnyShard, thread_shards::ThreadShards};
use stag_engine::{App, Time};
use stag_sim::Fabric;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
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

thread_local! {
    static NOW: Cell<Time> = const { Cell::new(Time(0)) };
    static SERVERS: ThreadShards<dyn PassShard> = const { ThreadShards::new() };
}

/// The time of this thread's fabric.
pub(crate) fn now() -> Time {
    NOW.get()
}

/// Adds a server; returns its name, which is unique among all threads.
pub(crate) fn add<A: App + 'static>(shard: Box<dyn AnyShard<A>>) -> u64 {
    SERVERS.with(|servers| servers.add(Rc::new(RefCell::new(SimulatedShard(shard)))))
}

/// Returns true if the server of this name belongs to this thread.
pub(crate) fn has(name: u64) -> bool {
    SERVERS.with(|servers| servers.get(name).is_some())
}

/// Removes a server: its connections break.
pub(crate) fn remove(name: u64) {
    // It is dropped after the borrow. While a thread ends there may be none to remove.
    drop(SERVERS.try_with(|servers| servers.remove(name)));
}

/// Runs a pass of every server, and of `own`. If none of them did work, time advances to the next
/// due event.
pub(crate) fn step(own: &mut dyn FnMut(Time) -> bool, own_wake_at: Option<Time>) -> bool {
    let now = NOW.get();
    let servers = SERVERS.with(ThreadShards::all);
    let mut worked = own(now);
    let mut next = own_wake_at;
    for server in &servers {
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
