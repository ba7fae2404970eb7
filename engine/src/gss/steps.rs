//! Calls and replies whose protection goes on in later passes, or waits for memory.

use super::{OwnedCall, ProtectedReply, ReplyStep};
use stag_gss::Unprotecting;
use stag_pools::table::Key;
use stag_verbs::Time;

/// Octets of the longest message that is protected, or opened, at once.
pub(crate) const AT_ONCE: usize = STEP_LEN + 4_096;
/// Octets of a step.
pub(crate) const STEP_LEN: usize = 64 << 10;

/// A call or a reply whose protection goes on in the next passes.
pub(crate) struct Step {
    pub(crate) key: Key,
    pub(crate) work: StepWork,
    /// Octets of memory that its peer occupies meanwhile.
    pub(crate) octets: u64,
}

/// The protection that goes on.
pub(crate) enum StepWork {
    Open(OwnedCall, Unprotecting),
    Protect(ProtectedReply, ReplyStep),
}

/// A reply that waits for memory to be protected in.
#[derive(Debug)]
pub(crate) struct WaitingReply {
    pub(crate) key: Key,
    pub(crate) reply: ProtectedReply,
    pub(crate) since: Time,
    /// Octets of memory that its peer occupies meanwhile.
    pub(crate) octets: u64,
}
