//! Reasons why a server or a client could not be made.

use stag_engine::Cause;
use stag_verbs::FabricFault;
use std::{fmt, io};

/// Why a server or a client could not be made.
#[derive(Debug)]
pub enum SetupError {
    /// This is no address.
    Url {
        /// As it was given.
        url: String,
        /// The mistake in it.
        why: String,
    },
    /// These sizes cannot be had together.
    Config(&'static str),
    /// There is no memory, no descriptor or no thread.
    Os(io::Error),
    /// This address cannot be listened at.
    Listen {
        /// The address.
        url: String,
        /// Why not.
        fault: FabricFault,
    },
    /// The fabric could not even try to connect.
    Connect {
        /// The address.
        url: String,
        /// Why not.
        fault: FabricFault,
    },
    /// No connection came about.
    NotConnected {
        /// The address.
        url: String,
        /// Why not; none when it took too long.
        cause: Option<Cause>,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, why } => write!(f, "{url:?} is no address: {why}"),
            Self::Config(why) => f.write_str(why),
            Self::Os(error) => write!(f, "the system has no memory, descriptor or thread for it: {error}"),
            Self::Listen { url, fault } => write!(f, "cannot listen at {url}: {fault}"),
            Self::Connect { url, fault } => write!(f, "cannot connect to {url}: {fault}"),
            Self::NotConnected { url, cause: Some(cause) } => write!(f, "no connection to {url}: {cause}"),
            Self::NotConnected { url, cause: None } => write!(f, "no connection to {url} in time"),
        }
    }
}

impl std::error::Error for SetupError {}

impl From<io::Error> for SetupError {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}
