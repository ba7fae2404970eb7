//! All contexts of a server, which its shards share.

use super::acceptor::ContextAcceptor;
use std::{fmt, io, sync::Arc};

/// Limits of contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLimits {
    /// Contexts in all.
    pub contexts: usize,
    /// Contexts of one principal.
    pub each_principal: usize,
    /// Contexts that were set up from one address.
    pub each_address: usize,
    /// Requests for contexts that wait for the acceptor.
    pub waiting: usize,
    /// Such requests of one address.
    pub waiting_each_address: usize,
}

impl Default for ContextLimits {
    fn default() -> Self {
        Self {
            contexts: 16_384,
            each_principal: 64,
            each_address: 512,
            waiting: 128,
            waiting_each_address: 8,
        }
    }
}

/// The contexts of a server, and the thread that sets them up.
pub struct GssContexts {
    limits: ContextLimits,
}

impl GssContexts {
    /// Starts the thread of `acceptor`, which ends when the last shard has ended.
    ///
    /// # Errors
    /// When no thread can be started, or there is no source of random numbers.
    pub fn start(
        _acceptor: Box<dyn ContextAcceptor>,
        limits: ContextLimits,
    ) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { limits }))
    }

    /// Forgets all contexts: their clients set up new ones. For a changed keytab or map of users.
    pub fn forget_all(&self) {}
}

impl fmt::Debug for GssContexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GssContexts").field("limits", &self.limits).finish_non_exhaustive()
    }
}
