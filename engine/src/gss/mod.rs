//! Contexts of RPCSEC_GSS (RFC 2203): the server's table of them, and what a shard keeps of it.
//! Protected calls and replies are in `protected`.
//!
//! | file | what |
//! |---|---|
//! | `acceptor.rs` | [`ContextAcceptor`]: set-up, which belongs to the program |
//! | `arrived.rs` | a call as it arrived |
//! | `contexts.rs` | [`GssContexts`]: the table, its limits, and the thread of the acceptor |
//! | `queue.rs` | requests for contexts that wait, and their turns |
//! | `table.rs` | the table itself, and which contexts make room |
//! | `shard.rs` | contexts and protected calls of one shard |

mod acceptor;
mod arrived;
mod contexts;
mod queue;
mod shard;
mod table;

pub use acceptor::{AcceptedContext, ContextAcceptor, RefusedContext};
pub(crate) use arrived::{ArrivedCall, is_reduced, reduces};
pub use contexts::{ContextCounts, ContextLimits, GssContexts};
pub(crate) use contexts::{InitDone, InitOutcome, InitRequest};
pub(crate) use shard::{ProtectedCall, ShardGss};
