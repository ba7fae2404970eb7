//! Records of TCP connections whose octets arrive one after another.

use super::table::Stream;
use crate::memory::{Lane, Memory};
use stag_pools::Buf;
use stag_verbs::{Cause, FabricFault};

/// The memory that the records of one peer come to lie in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) memory: &'a Memory,
    pub(super) lane: Lane,
}

impl Source<'_> {
    /// A buffer for octets that were read already: there was one when they were read, and if it
    /// went to a call among them, what is kept for others serves.
    pub(super) fn borrow(self, len: usize) -> Option<Buf> {
        self.memory.lend(len, self.lane).or_else(|| self.memory.take(len))
    }
}

/// Keeps a part of a record until the rest arrives. A record that outgrows its buffer moves to a
/// longer one: a peer that announces much and sends little holds little.
pub(super) fn gather(
    stream: &mut Stream,
    source: Source<'_>,
    octets: &[u8],
    at: usize,
) -> Result<(), Cause> {
    let exhausted = Cause::Fabric(FabricFault::Exhausted);
    let end = at.checked_add(octets.len()).ok_or(exhausted)?;
    if stream.record.as_ref().is_none_or(|record| record.capacity() < end) {
        let mut longer = source.borrow(end).ok_or(exhausted)?;
        longer.reset(0);
        if let Some(shorter) = stream.record.take() {
            longer.append(&shorter).map_err(|_| exhausted)?;
        }
        stream.record = Some(longer);
    }
    let record = stream.record.as_mut().ok_or(exhausted)?;
    debug_assert_eq!(record.len(), at, "parts of a record arrive in order");
    record.append(octets).map_err(|_| exhausted)
}
