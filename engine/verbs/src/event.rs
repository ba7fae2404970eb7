//! Events that a provider reports to its shard.

use crate::{Cause, Memory, Qp, Status, Tag};
use stag_pools::{Buf, Fenced};

/// Event of a provider. Events of one connection come in order.
#[derive(Debug)]
pub enum Event {
    /// A peer wants to connect: answer with [`Provider::accept`](crate::Provider::accept) or
    /// [`Provider::reject`](crate::Provider::reject).
    ConnectRequest {
        /// The connection to be.
        qp: Qp,
    },
    /// The connection can be used; the peer's private data is there.
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
    /// Work ended.
    Completed {
        /// On this connection.
        qp: Qp,
        /// As posted.
        tag: Tag,
        /// Outcome of the work request.
        status: Status,
        /// Memory that the work request held.
        memory: Memory,
    },
    /// A window ended with its connection.
    Unbound {
        /// The dying connection.
        qp: Qp,
        /// The proof and the buffer.
        fenced: Fenced,
    },
    /// The connection is gone: no work is pending, no window is bound, `qp` names nothing from the
    /// next poll on, and is no other connection's name.
    Disconnected {
        /// The connection that was.
        qp: Qp,
        /// Why it ended.
        cause: Cause,
    },
}

impl Event {
    /// The connection that it is of.
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
