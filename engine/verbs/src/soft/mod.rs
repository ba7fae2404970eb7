//! What providers without a device have in common: work requests and receives with the memory they hold, and what a peer
//! that breaks a rule is told.

mod posting;
mod queue;
mod receives;

pub use posting::{Postable, Posting};
pub use queue::{Op, Read, SendQueue, Work};
pub use receives::{Landing, Receives};

use crate::{Layer, Qp, Refusal, Refused, RemoteSpan, Terminate};
use stag_pools::{Access, Buf, RemoteKey, Violation, Window, Windows};
use std::ops::Range;

/// Opens the octets `span` of `buf` to the peer of `qp`, as [`Provider::bind`](crate::Provider::bind) does.
///
/// # Errors
/// The buffer comes back when the span is not inside its content, and when all windows are bound.
pub fn bind(
    windows: &mut Windows,
    qp: Qp,
    buf: Buf,
    (span, access): (Range<usize>, Access),
) -> Result<Window, Refused<Buf>> {
    if span.start > span.end || span.end > buf.len() {
        return Err(Refused { why: Refusal::Malformed, token: buf });
    }
    let bound = windows.bind(qp.scope(), buf.expose(span, access));
    bound.map_err(|token| Refused { why: Refusal::NoWindow, token })
}

/// Whether the spans `from` fit `sink` from octet `at` on. Their sum does not wrap.
pub fn fits(sink: &Buf, at: usize, from: &[RemoteSpan]) -> bool {
    let end = from.iter().try_fold(at, |end, span| end.checked_add(span.len as usize));
    end.is_some_and(|end| end <= sink.len())
}

/// Whether a window of `qp` has this key. An empty access tells, whatever the window's rights are.
pub fn is_bound(windows: &mut Windows, qp: Qp, key: RemoteKey) -> bool {
    let found = windows.target(qp.scope(), key, 0, 0).err();
    !matches!(found, Some(Violation::InvalidKey | Violation::OtherScope))
}

/// No receive is posted, and none more may wait; or more Reads than were agreed on (RFC 5041 §7.2).
pub const NO_BUFFER: Terminate = terminate(Layer::Ddp, 2, 2);
/// The message is longer than a receive (RFC 5041 §7.2).
pub const TOO_LONG: Terminate = terminate(Layer::Ddp, 2, 5);
const fn terminate(layer: Layer, etype: u8, code: u8) -> Terminate {
    Terminate { layer, etype, code }
}

/// What a Write that breaks a rule is answered with (RFC 5041 §7.1). DDP has no code for missing rights.
pub const fn write_fault(violation: Violation) -> Terminate {
    let code = match violation {
        Violation::InvalidKey | Violation::Access => 0,
        Violation::Bounds => 1,
        Violation::OtherScope => 2,
        Violation::Wrap => 3,
    };
    terminate(Layer::Ddp, 1, code)
}

/// What a Read that breaks a rule is answered with (RFC 5040 §7.2).
pub const fn read_fault(violation: Violation) -> Terminate {
    let code = match violation {
        Violation::InvalidKey => 0,
        Violation::Bounds => 1,
        Violation::Access => 2,
        Violation::OtherScope => 3,
        Violation::Wrap => 4,
    };
    terminate(Layer::Rdmap, 1, code)
}

/// What a Send With Invalidate that breaks a rule is answered with. RFC 5040 §4.8: "cannot be invalidated" is a protection
/// error when the key is somebody else's.
pub const fn invalidate_fault(violation: Violation) -> Terminate {
    let etype = if matches!(violation, Violation::OtherScope) { 1 } else { 2 };
    terminate(Layer::Rdmap, etype, 9)
}
