//! Agents: generators on other hosts that make runs for a coordinator, and the coordinator.
//!
//! An agent ([`AgentServer`]) serves one coordinator and makes one run at a time; others wait. A
//! coordinator ([`Nodes`]) that disconnects ends its run. A connection without the token keeps no
//! coordinator waiting. `stag bench` calls both; the words of a run are arguments of it.

mod coordinator;
mod greeting;
mod server;
mod wire;

pub use coordinator::{HearSecond, NodeSecond, Nodes, NodesPlan, check_names};
pub use server::{AgentServer, AgentWork};
pub use wire::SharedToken;

use std::{
    fmt, io,
    time::{SystemTime, UNIX_EPOCH},
};

/// The port of agents, unless another one is given.
pub const PORT: u16 = 20_051;

/// Reason for which an agent or a coordinator did not do what it was asked for, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentError {
    /// It cannot be done as asked for.
    Usage(String),
    /// It failed while it was done.
    Failure(String),
}

impl AgentError {
    fn usage(sentence: impl Into<String>) -> Self {
        Self::Usage(sentence.into())
    }

    fn failure(sentence: impl Into<String>) -> Self {
        Self::Failure(sentence.into())
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(sentence) | Self::Failure(sentence)) = self;
        f.write_str(sentence)
    }
}

impl std::error::Error for AgentError {}

/// Nanoseconds since 1970.
fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// An error of the system without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
