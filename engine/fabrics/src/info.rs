//! Facts about the fabrics of a table.

use stag_verbs::{Notation, Open, Sharing};

/// Facts about a fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricInfo {
    /// The beginning of its URLs.
    pub scheme: &'static str,
    /// The form of its addresses.
    pub notation: Notation,
    /// The way in which shards share an address.
    pub sharing: Sharing,
    /// True when a connection is a TCP connection, which takes a descriptor of this process.
    pub is_over_tcp: bool,
    /// True when both ends belong to one thread: a fabric for tests.
    pub is_simulated: bool,
}

impl FabricInfo {
    /// Facts about the fabric of `P`.
    pub const fn of<P: Open>() -> Self {
        Self {
            scheme: P::SCHEME,
            notation: P::NOTATION,
            sharing: P::SHARING,
            is_over_tcp: P::IS_OVER_TCP,
            is_simulated: P::IS_SIMULATED,
        }
    }

    /// Every fabric of [`FABRICS`](crate::FABRICS) but simulated ones: two processes can meet
    /// there.
    pub fn real() -> impl Iterator<Item = Self> {
        crate::FABRICS.iter().copied().filter(|info| !info.is_simulated)
    }

    /// The fabric in [`FABRICS`](crate::FABRICS) whose URLs begin with `scheme`.
    pub fn named(scheme: &str) -> Option<Self> {
        crate::FABRICS.iter().copied().find(|info| info.scheme == scheme)
    }
}
