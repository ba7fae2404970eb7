//! The search for input: the connection that is hot, and the octets that the latest read brought.
//! `hot` and `look` use them.

use stag_pools::table::Key;
use std::ops::Range;

/// Consecutive times that only this connection had input, after which it is hot.
pub(crate) const STREAK: u32 = 16;

/// Direct reads between two looks at all others.
const ASKS: u32 = 4;

/// The connection that is hot, or about to be: the only one with input for several looks in a row.
#[derive(Debug, Default)]
pub(crate) struct Hot {
    /// The only connection with input at the latest look; `streak` counts the consecutive times.
    pub(crate) latest: Option<Key>,
    pub(crate) streak: u32,
    /// Direct reads left before the next look.
    pub(crate) asks: u32,
    /// Another connection had input since the latest sleep.
    pub(crate) is_mixed: bool,
}

impl Hot {
    /// Returns the hot connection, if there is one and it is not time to look at all others.
    #[inline]
    pub(crate) fn ask(&mut self) -> Option<Key> {
        match self.asks.checked_sub(1) {
            Some(asks) => self.asks = asks,
            None => {
                // For the next time, if one is hot.
                self.asks = if self.streak >= STREAK { ASKS } else { 0 };
                return None;
            }
        }
        self.latest
    }

    /// The only connection that had input since the latest sleep.
    pub(crate) fn only(&self) -> Option<Key> {
        self.latest.filter(|_| !self.is_mixed)
    }

    /// Makes `latest` be read once after the sleep that begins.
    pub(crate) fn expect(&mut self, latest: Option<Key>) {
        *self = Self { latest, asks: u32::from(latest.is_some()), ..Self::default() };
    }
}

/// Unused octets of one connection in the shared buffer, from the latest read.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    pub(crate) from: Option<Key>,
    pub(crate) octets: Range<usize>,
}
