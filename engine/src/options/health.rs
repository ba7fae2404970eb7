//! The option that asks a peer about its health (`docs/options/health.md`).

use crate::{
    app::{App, Cx, PeerId},
    shard::Shard,
};
use stag_protocol::rpcrdma::option::{Exchange, Message, NoOption, health};
use stag_verbs::{Cause, Provider};
use std::{fmt, time::Duration};

/// The time that a peer may take to answer. After that its connection is closed.
pub const HEALTH_MAX: Duration = Duration::from_secs(10);

/// The request. It has no content.
pub(super) const REQUEST: Message = Message::Health(Exchange::Request(health::Request));

/// Why the health of a peer is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthFault {
    /// No such peer, or it has no connection.
    NoPeer,
    /// The option cannot be used with it, or not at this moment.
    Option(NoOption),
    /// There is no receive for the answer, no memory, or no room in the send queue.
    Limit,
    /// The connection ended first.
    Disconnected(Cause),
    /// No answer came in [`HEALTH_MAX`]; the connection is closed.
    TimedOut,
}

impl fmt::Display for HealthFault {
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

impl std::error::Error for HealthFault {}

impl<P: Provider, A: App> Shard<P, A> {
    /// Tells the app the health of a peer, or why it is not known.
    pub(super) fn tell_health(&mut self, peer: PeerId, answer: Result<health::Reply, HealthFault>) {
        self.app.on_health(&mut Cx { core: &mut self.core }, peer, answer);
        self.empty_outbox();
    }
}
