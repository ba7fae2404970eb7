//! Contexts of RPCSEC_GSS (RFC 2203): the server's table of them, and what a shard keeps of it.
//! Protected calls and replies are in `protected`.
//!
//! | file | what |
//! |---|---|
//! | `acceptor.rs` | [`ContextAcceptor`]: set-up, which belongs to the program |
//! | `arrived.rs` | a call as it arrived |
//! | `by_principal.rs` | [`PrincipalContexts`]: a list of contexts for the operator |
//! | `contexts.rs` | [`GssContexts`]: the table, its limits, and the thread of the acceptor |
//! | `opening.rs` | a call whose arguments are opened in its own buffer |
//! | `queue.rs` | requests for contexts that wait, and their turns |
//! | `reply_steps.rs` | protection of results |
//! | `steps.rs` | calls and replies whose protection goes on later |
//! | `table.rs` | the table itself, and which contexts make room |
//! | `shard.rs` | contexts and protected calls of one shard |

mod acceptor;
mod arrived;
mod by_principal;
mod contexts;
mod opening;
mod queue;
mod reply_steps;
mod shard;
mod steps;
mod table;

pub use acceptor::{AcceptedContext, ContextAcceptor, RefusedContext};
pub(crate) use arrived::{ArrivedCall, asks_for_protection, is_reduced, reduces};
pub use by_principal::PrincipalContexts;
pub use contexts::{ContextCounts, ContextLimits, GssContexts};
pub(crate) use contexts::{InitDone, InitOutcome, InitRequest};
pub(crate) use opening::{OpeningFault, OwnedCall};
pub(crate) use reply_steps::{ProtectedReply, ReplyStep, Unprotectable};
pub(crate) use shard::{ProtectedCall, ShardGss};
pub(crate) use steps::{AT_ONCE, STEP_LEN, Step, StepWork, WaitingReply};
