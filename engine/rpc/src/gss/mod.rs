//! Calls of RPCSEC_GSS (RFC 2203): a caller's end of a context, and the protection of each call.
//!
//! A [`RawClient`](crate::RawClient) protects its calls once it has a [`ContextSource`]
//! ([`RawClient::protect`](crate::RawClient::protect)), a typed client with [`Tickets`]
//! ([`ClientBuilder::tickets`](crate::ClientBuilder::tickets)). Code with a shard of its own uses
//! [`ProtectedCall`] directly.
//!
//! | file | content |
//! |---|---|
//! | `source.rs` | [`ContextSource`]: Kerberos as this crate needs it |
//! | `tickets.rs` | [`Tickets`] of a client, contexts of a server's keytab, by `stag-gssapi` |
//! | `context.rs` | [`ClientContext`]: a context that its server has granted |
//! | `route.rs` | [`CreationRoute`]: the way to a context over TCP, where RDMA has none |
//! | `call.rs` | [`ProtectedCall`]: one call, signed at each transmission, and its reply |

mod call;
mod context;
mod route;
mod source;
mod tickets;

pub use crate::error::UnprovenReply;
pub use call::{CalledProgram, ProtectedCall, ReplyVerdict};
pub use context::{ClientContext, CreationFault, CreationRequest, Refusal};
pub use route::{CreationRoute, TcpCreation};
pub use source::{ContextFault, ContextSource, PendingSetup};
pub use stag_engine::gss::{
    AcceptedContext, ContextAcceptor, ContextLimits, GssContexts, RefusedContext,
};
pub use stag_gss::{AcceptorContext, InitiatorContext};
pub use stag_protocol::rpc::gss::GssService;
pub use tickets::{KerberosTickets, Tickets, contexts_of_keytab};
