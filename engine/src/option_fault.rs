//! The reasons why requests of options get no answer.

use stag_protocol::rpcrdma::option::NoOption;
use stag_verbs::Cause;
use std::{error, fmt};

/// The reason why a request of an option got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionFault {
    /// No such peer, or it has no connection.
    NoPeer,
    /// The option cannot be used with this peer, or not at this moment.
    Option(NoOption),
    /// No receive for the answer, no memory, or no room in the send queue.
    Limit,
    /// The connection ended first.
    Disconnected(Cause),
    /// No answer came in [`HEALTH_MAX`](crate::HEALTH_MAX); the connection is closed.
    TimedOut,
}

impl fmt::Display for OptionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPeer => f.write_str("not connected"),
            Self::Option(why) => why.fmt(f),
            Self::Limit => f.write_str("receives, memory or the send queue are used up"),
            Self::Disconnected(cause) => write!(f, "the connection ended: {cause}"),
            Self::TimedOut => f.write_str("no answer came in time"),
        }
    }
}

impl error::Error for OptionFault {}
