//! The reasons why a call of ours ends without a reply.

use stag_protocol::rpcrdma::ErrorBody;
use stag_verbs::Cause;
use std::fmt;

/// The reason why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The connection ended; the call may or may not have been executed.
    Disconnected(Cause),
    /// No reply came in time; the connection is closed.
    TimedOut,
    /// The responder's transport refused the call (RFC 8166 §4.5).
    Refused(ErrorBody),
    /// No such peer, or it is not established.
    NoPeer,
    /// Too many calls are pending, or there is no memory for this one.
    Limit,
    /// The call cannot be expressed: it does not fit any form.
    TooLong,
    /// [`Cx::cancel`](crate::Cx::cancel) was called; the call may or may not have been executed.
    Cancelled,
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(cause) => write!(f, "the connection ended: {cause}"),
            Self::TimedOut => f.write_str("no reply came in time"),
            Self::Refused(ErrorBody::Version { low, high }) => {
                write!(f, "the peer speaks RPC-over-RDMA versions {low} to {high} only")
            }
            Self::Refused(ErrorBody::Option) => f.write_str("the peer took the call for an option"),
            Self::Refused(ErrorBody::Chunk) => {
                f.write_str("the peer could not use the call's chunks")
            }
            Self::NoPeer => f.write_str("not connected"),
            Self::Limit => f.write_str("too many calls wait, or memory is short"),
            Self::TooLong => f.write_str("the call does not fit any message form"),
            Self::Cancelled => f.write_str("the call was cancelled"),
        }
    }
}

impl std::error::Error for CallFault {}
