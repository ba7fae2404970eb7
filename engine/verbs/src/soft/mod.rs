//! What providers without a device have in common: work requests and receives with the memory they hold, and what a peer
//! that breaks a rule is told.

mod queue;
mod receives;

pub use queue::{Op, Read, SendQueue, Work};
pub use receives::{Landing, Receives};

use crate::{Layer, Terminate};
use stag_pools::Violation;

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
