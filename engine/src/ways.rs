//! Selection of the fast paths: for messages without chunks (`short`), and for calls with one chunk
//! of one segment (`one_chunk`).

use stag_protocol::rpcrdma::{Connection, Setup, Versions};

/// The choice between the fast paths and the general path.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Messages take a fast path if they can.
    are_short: bool,
    /// Messages that took one.
    #[cfg(debug_assertions)]
    taken: u64,
}

impl Ways {
    pub(crate) const fn new(are_short: bool) -> Self {
        Self {
            are_short,
            #[cfg(debug_assertions)]
            taken: 0,
        }
    }

    /// Returns true if messages take a fast path if they can.
    #[inline(always)]
    pub(crate) const fn are_short(&self) -> bool {
        self.are_short
    }

    /// A new connection, whose messages without chunks take the short path if enabled.
    pub(crate) fn connection(&self, setup: Setup, versions: Versions) -> Connection {
        let connection = Connection::speaking(setup, versions);
        if self.are_short { connection } else { connection.without_short() }
    }

    /// Records that a message takes a fast path. Costs nothing without debug assertions.
    #[inline(always)]
    pub(crate) const fn note_short(&mut self) {
        debug_assert!(self.are_short, "a message takes the short way although it is off");
        #[cfg(debug_assertions)]
        {
            self.taken += 1;
        }
    }

    /// Messages that took a fast path.
    #[cfg(debug_assertions)]
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }
}
