//! A simulated fabric: every end in one thread, virtual time, one seed (DESIGN D3).
//!
//! A [`Fabric`] carries messages between its [`Sim`] ends; each `Sim` is a [`Provider`](stag_verbs::Provider). Nothing
//! happens before its due time: the driver polls every end, asks [`Fabric::next_due`] and jumps there. Each direction of each
//! connection keeps its order, as a reliable connection does; everything else (which connection is first, when work
//! completes, when a connection breaks, whether a Send completes before it arrives, whether it is taken as a copy) is drawn from the seed, so one
//! seed is one run. Memory is guarded by [`stag_pools::Windows`], as in the software RNIC, and a peer that breaks
//! a rule is told what iWARP tells it (RFC 5040 §4.8, RFC 5041 §7.1).
//!
//! After a connection is set up no operation allocates; set-up, starvation and the end of a connection may.
#![forbid(unsafe_code)]

mod conn;
mod end;
mod net;
mod open;
mod sim;
mod trace;

pub use sim::Sim;

use net::Net;
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, fmt, ops::Range, rc::Rc};

/// Where an end listens. 0 asks for a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port(pub u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim://{}", self.0)
    }
}

/// How the fabric behaves. All chances are per million; all delays are uniform, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// From the doorbell, or the answer, to the other end.
    pub delay: Range<u64>,
    /// From the moment the fabric is done with a work request to its completion.
    pub completion_delay: Range<u64>,
    /// From the arrival of a Read Request to the fetch of its data; what arrives behind it does not wait.
    pub fetch_delay: Range<u64>,
    /// The chance that a connection breaks, for each thing that arrives.
    pub lost: u32,
    /// The connection on which the arrival with this number happens breaks there; the first one is 0.
    pub lost_at: Option<u64>,
    /// The chance that a connect is refused though somebody listens.
    pub refused: u32,
    /// The chance that a Send or Write completes before it arrives, as it does on TCP.
    pub early: u32,
    /// The chance that a short message is taken as a copy when that is asked for ([`Provider::send_inline`](stag_verbs::Provider)).
    pub inline: u32,
    /// Reads one connection has under way; work behind one more waits.
    pub reads: usize,
    /// Messages of one connection that wait for a receive; one more ends the connection.
    pub parked: usize,
    /// Whether a local invalidation of a key that is not bound is refused. Otherwise it panics: it is a bug of the engine.
    pub lenient: bool,
}

impl Faults {
    /// No delay, no fault: whatever is rung out is due at once.
    pub const NONE: Self = Self {
        delay: 0..1,
        completion_delay: 0..1,
        fetch_delay: 0..1,
        lost: 0,
        lost_at: None,
        refused: 0,
        early: 0,
        inline: 1_000_000,
        reads: 16,
        parked: 256,
        lenient: false,
    };

    /// Everything is late by its own time, and nothing breaks.
    pub const DELAYS: Self = Self {
        delay: 1_000..20_000,
        completion_delay: 100..20_000,
        fetch_delay: 0..10_000,
        early: 300_000,
        inline: 600_000,
        ..Self::NONE
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// What [`Fabric::end`] gives an end that has no wishes.
pub const LIMITS: Limits = Limits {
    connections: 16,
    send_queue: 128,
    receives: 256,
    receive_len: 4096,
    windows: 256,
    read_spans: 64,
    private_data_len: 196,
    remote_invalidation: true,
};

/// The medium all ends share. Clones are the same fabric.
#[derive(Clone)]
pub struct Fabric(Rc<RefCell<Net>>);

impl Fabric {
    /// A fabric whose every choice follows from `seed`. A test that panics while it exists prints the seed.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(Net::new(seed, faults))))
    }

    /// One more end; `name` is for [`trace`](Self::trace).
    pub fn end(&self, name: &'static str, limits: Limits) -> Sim {
        Sim::new(Rc::clone(&self.0), name, limits)
    }

    /// When something happens next at any end; `None` when nothing is under way.
    pub fn next_due(&self) -> Option<Time> {
        self.0.borrow().next_due()
    }

    /// The latest time any end was polled at.
    pub fn now(&self) -> Time {
        self.0.borrow().now()
    }

    /// Things that arrived so far: the clock of [`Faults::lost_at`].
    pub fn steps(&self) -> u64 {
        self.0.borrow().steps()
    }

    /// Changes the behaviour from here on; a fault may start after a peaceful set-up.
    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().set_faults(faults);
    }

    /// The latest arrivals, completions and deaths, one per line, the oldest first.
    pub fn trace(&self) -> String {
        self.0.borrow().trace()
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.0.borrow().seed()
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fabric(seed {})", self.seed())
    }
}
