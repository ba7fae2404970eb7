//! The fabric in the hands of a test.

use crate::{Faults, Sim, net::Net};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, fmt, rc::Rc};

thread_local! {
    static OF_THREAD: Fabric = Fabric::new(0, Faults::NONE);
}

/// The medium all ends share. Clones are the same fabric.
#[derive(Clone)]
pub struct Fabric(Rc<RefCell<Net>>);

impl Fabric {
    /// The fabric of `sim://` URLs in this thread: no delay and no fault.
    pub fn of_thread() -> Self {
        OF_THREAD.with(Self::clone)
    }

    /// A fabric whose every choice follows from `seed`. A test that panics while it exists prints
    /// the seed.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(Net::new(seed, faults))))
    }

    /// One more end; `name` is for [`trace`](Self::trace).
    pub fn end(&self, name: &'static str, limits: Limits) -> Sim {
        Sim::new(Rc::clone(&self.0), name, limits)
    }

    /// Returns the time of the next event at any end; `None` if nothing is in flight.
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
