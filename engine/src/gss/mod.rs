//! RPCSEC_GSS for the calls of peers (RFC 2203): contexts, protected calls and their replies.

mod acceptor;
mod contexts;

pub use acceptor::{AcceptedContext, ContextAcceptor, RefusedContext};
pub use contexts::{ContextLimits, GssContexts};
