//! The reason why a server cannot start.

use std::{error::Error, fmt};

/// Reason why the gateway cannot start: one sentence for the administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StartError {}
