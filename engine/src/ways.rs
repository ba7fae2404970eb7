//! The short ways of messages: code of their own for those without chunks (`short`), and for calls
//! with one chunk of one segment (`one_chunk`).

use stag_protocol::rpcrdma::{Connection, Setup, Versions};

/// The choice between the short ways and that of all messages.
#[derive(Debug)]
pub(crate) struct Ways {
    /// A message takes the short way where it can.
    are_short: bool,
    /// Messages that took it.
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

    /// Returns true if a message takes the short way where it can.
    #[inline(always)]
    pub(crate) const fn are_short(&self) -> bool {
        self.are_short
    }

    /// A fresh connection, on which messages without chunks are short where they may be.
    pub(crate) fn connection(&self, setup: Setup, versions: Versions) -> Connection {
        let connection = Connection::speaking(setup, versions);
        if self.are_short { connection } else { connection.without_short() }
    }

    /// Notes that a message takes a short way. Costs nothing where assertions are off.
    #[inline(always)]
    pub(crate) const fn note_short(&mut self) {
        debug_assert!(self.are_short, "a message takes the short way although it is off");
        #[cfg(debug_assertions)]
        {
            self.taken += 1;
        }
    }

    /// Messages that took a short way.
    #[cfg(debug_assertions)]
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }
}
