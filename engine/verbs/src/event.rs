//! Events that a provider reports to its shard.

use crate::{Cause, Memory, Qp, Status, Tag};
use stag_pools::{Buf, Fenced};

/// Event of a provider. Events of one connection come in order.
#[derive(Debug)]
pub enum Event {
    /// A peer requests a connection: answer with [`Provider::accept`](crate::Provider::accept) or
    /// [`Provider::reject`](crate::Provider::reject).
    ConnectRequest {
        /// The requested connection.
        qp: Qp,
    },
    /// The connection can be used; the peer's private data is available.
    Established {
        /// The connection.
        qp: Qp,
    },
    /// A message arrived.
    Received {
        /// From this connection.
        qp: Qp,
        /// A receive of the shard; its content is the message.
        buf: Buf,
        /// The window the peer invalidated with this message (RFC 5040 §5.1).
        invalidated: Option<Fenced>,
    },
    /// A work request completed.
    Completed {
        /// On this connection.
        qp: Qp,
        /// The tag as posted.
        tag: Tag,
        /// Outcome of the work request.
        status: Status,
        /// Memory that the work request held.
        memory: Memory,
    },
    /// A window was closed by the end of its connection.
    Unbound {
        /// The dying connection.
        qp: Qp,
        /// The proof and the buffer.
        fenced: Fenced,
    },
    /// The connection is gone: no work is pending, and no window is bound. From the next poll on,
    /// `qp` is invalid, and it is never reused for another connection.
    Disconnected {
        /// The former connection.
        qp: Qp,
        /// The reason why it ended.
        cause: Cause,
    },
}

impl Event {
    /// The connection of the event.
    pub const fn qp(&self) -> Qp {
        match self {
            Self::ConnectRequest { qp }
            | Self::Established { qp }
            | Self::Received { qp, .. }
            | Self::Completed { qp, .. }
            | Self::Unbound { qp, .. }
            | Self::Disconnected { qp, .. } => *qp,
        }
    }
}
