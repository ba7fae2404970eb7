//! Requests in slots: the facts by which SEQUENCE checks one, and its result.

use stag_protocol::{nfs::v4::SessionId, xdr::Reader};

use super::Principal;

/// The slot of a running compound. It is passed to [`Sessions::finish`](super::Sessions::finish),
/// whatever the outcome of the compound.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct SlotInUse {
    pub(in crate::v4) session: SessionId,
    pub(in crate::v4) client: u64,
    pub(in crate::v4) slot: u32,
    /// Sequence ID of the request.
    pub(in crate::v4) sequence: u32,
    /// The reply is to be cached whole.
    pub(in crate::v4) cache_this: bool,
    /// Octets of the longest reply, RPC header included.
    pub(in crate::v4) reply_max: usize,
    /// The same for a cached reply.
    pub(in crate::v4) cached_max: usize,
    /// The slot is at another shard, which ends its request.
    pub(in crate::v4) is_lent: bool,
}

/// Decision about a SEQUENCE.
#[derive(Debug)]
pub(in crate::v4) enum SlotVerdict {
    /// A new request: its slot is busy now.
    New(SlotInUse),
    /// A retry of a running compound.
    InProgress,
    /// A retry whose reply is kept.
    Replay,
    /// A retry whose reply is not kept.
    ReplayUncached,
}

/// Facts of a compound by which SEQUENCE is checked.
#[derive(Clone, Debug)]
pub(in crate::v4) struct SequenceFacts<'a> {
    /// User of the compound.
    pub(in crate::v4) principal: Principal,
    /// Octets of the call, RPC header included.
    pub(in crate::v4) request_len: usize,
    /// Its operations.
    pub(in crate::v4) operations: u32,
    /// Its arguments.
    pub(in crate::v4) arguments: Reader<'a>,
}
