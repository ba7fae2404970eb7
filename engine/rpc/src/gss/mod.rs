//! Calls of RPCSEC_GSS (RFC 2203): a caller's end of a context, and the protection of each call.
//!
//! A [`RawClient`](crate::RawClient) protects its calls once it has a [`ContextSource`]
//! ([`RawClient::protect`](crate::RawClient::protect)). Code with a shard of its own uses
//! [`ProtectedCall`] directly.
//!
//! | file | content |
//! |---|---|
//! | `source.rs` | [`ContextSource`]: Kerberos as this crate needs it |
//! | `context.rs` | [`ClientContext`]: a context that its server has granted |
//! | `call.rs` | [`ProtectedCall`]: one call, signed at each transmission, and its reply |

mod call;
mod context;
mod source;

pub use call::{CalledProgram, ProtectedCall, ReplyVerdict, UnprovenReply};
pub use context::{ClientContext, CreationRequest};
pub use source::{ContextFault, ContextSource, PendingSetup};
