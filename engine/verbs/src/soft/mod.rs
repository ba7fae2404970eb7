//! Common parts of providers without a device: work requests and receives with the memory they
//! hold, and the errors reported to a peer that breaks a rule.

mod moved;
mod posting;
mod queue;
mod receives;

pub use moved::MovedOctets;
pub use posting::{Postable, Posting};
pub use queue::{Op, Read, SendQueue, Work};
pub use receives::{Landing, Receives};

use crate::{Layer, Qp, Refusal, Refused, RemoteSpan, Terminate};
use stag_pools::{Access, AccessViolation, Buf, RemoteKey, Window, Windows};
use std::ops::Range;

/// Exposes the octets `span` of `buf` to the peer of `qp`, as
/// [`Provider::bind`](crate::Provider::bind) does.
///
/// # Errors
/// The buffer is returned if the span is not inside its content, and if all windows are bound.
pub fn bind(
    windows: &mut Windows,
    qp: Qp,
    buf: Buf,
    span: Range<usize>,
    access: Access,
) -> Result<Window, Refused<Buf>> {
    if span.start > span.end || span.end > buf.len() {
        return Err(Refused { why: Refusal::Malformed, token: buf });
    }
    let bound = windows.bind(qp.scope(), buf.expose(span, access));
    bound.map_err(|token| Refused { why: Refusal::NoWindow, token })
}

/// Returns true if the spans `from` fit `sink` from octet `at` on, and their sum does not wrap.
pub fn fits(sink: &Buf, at: usize, from: &[RemoteSpan]) -> bool {
    let end = from.iter().try_fold(at, |end, span| end.checked_add(span.len as usize));
    end.is_some_and(|end| end <= sink.len())
}

/// Returns true if `key` is bound to a window of `qp`. The check is an empty access, so it does not
/// depend on the window's rights.
pub fn is_bound(windows: &mut Windows, qp: Qp, key: RemoteKey) -> bool {
    let found = windows.target(qp.scope(), key, 0, 0).err();
    !matches!(found, Some(AccessViolation::InvalidKey | AccessViolation::OtherScope))
}

/// No receive is posted, and no more messages may wait; or more Reads than were negotiated (RFC
/// 5041 §7.2).
pub const NO_BUFFER: Terminate = terminate(Layer::Ddp, 2, 2);
/// The message is longer than a receive (RFC 5041 §7.2).
pub const TOO_LONG: Terminate = terminate(Layer::Ddp, 2, 5);
const fn terminate(layer: Layer, etype: u8, code: u8) -> Terminate {
    Terminate { layer, etype, code }
}

/// Error that answers a Write that breaks a rule (RFC 5041 §7.1). DDP has no code for missing
/// rights.
pub const fn write_fault(violation: AccessViolation) -> Terminate {
    let code = match violation {
        AccessViolation::InvalidKey | AccessViolation::Access => 0,
        AccessViolation::Bounds => 1,
        AccessViolation::OtherScope => 2,
        AccessViolation::Wrap => 3,
    };
    terminate(Layer::Ddp, 1, code)
}

/// Error that answers a Read that breaks a rule (RFC 5040 §7.2).
pub const fn read_fault(violation: AccessViolation) -> Terminate {
    let code = match violation {
        AccessViolation::InvalidKey => 0,
        AccessViolation::Bounds => 1,
        AccessViolation::Access => 2,
        AccessViolation::OtherScope => 3,
        AccessViolation::Wrap => 4,
    };
    terminate(Layer::Rdmap, 1, code)
}

/// Error that answers a Send With Invalidate that breaks a rule. RFC 5040 §4.8: "cannot be
/// invalidated" is a protection error if the key belongs to another connection.
pub const fn invalidate_fault(violation: AccessViolation) -> Terminate {
    let etype = if matches!(violation, AccessViolation::OtherScope) { 1 } else { 2 };
    terminate(Layer::Rdmap, etype, 9)
}
