//! Buffers for records of TCP connections that arrive in parts.

use super::table::Stream;
use crate::memory::{Lane, Memory};
use stag_pools::Buf;
use stag_verbs::{Cause, FabricFault};

/// The memory for the records of one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) lane: Lane,
    /// The peer is a server that we connected to.
    pub(crate) is_server: bool,
}

impl Source<'_> {
    /// A buffer for octets that were already read. One was free when they were read; if a call
    /// among them took it, the memory reserved for others is used.
    pub(crate) fn borrow(self, len: usize) -> Option<Buf> {
        match self.is_server {
            true => self.memory.lend_to_reply(len),
            false => self.memory.lend(len, self.lane).or_else(|| self.memory.take(len)),
        }
    }
}

/// Keeps part of a record until the rest arrives. A record that outgrows its buffer moves to a
/// longer one, so that a peer that announces much and sends little holds little.
pub(crate) fn gather(
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
