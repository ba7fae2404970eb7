//! Numbers of calls and of READs in flight, which a shard gives and a store returns.

/// READs, and other calls, that one shard defers at a time.
pub const TICKETS: usize = 256;

/// Identifies a deferred READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTicket(pub(crate) u16);

const _: () = assert!(TICKETS <= 1 << 16);

impl ReadTicket {
    /// All tickets of a shard.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TICKETS).map(|number| Self(number as u16))
    }

    /// Below [`TICKETS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a call that is in flight in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTicket(pub(crate) u16);

impl WaitTicket {
    /// All that a shard has, the first one first.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..TICKETS).map(|number| Self(number as u16))
    }

    /// Below [`TICKETS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
