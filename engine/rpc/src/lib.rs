//! ONC RPC services and clients over RDMA, shared memory and TCP: the one crate that an app needs.
//!
//! A program is described once, by [`program!`]. That generates the trait that a service
//! implements, the routing of calls to it, and typed clients. None of them depends on the fabric:
//! the same service answers over `iwarp://`, `shm://` and `tcp://`, and in examples over `sim://`,
//! in virtual time.
//!
//! ```
//! use stag_rpc::{Replied, Replier, Server, Text, program};
//!
//! program! {
//!     /// Greets.
//!     pub mod greeter: 0x2053_5401, version 1 {
//!         /// The length of a name.
//!         1 => fn measure(name: Text<255>) -> u32;
//!     }
//! }
//!
//! struct Greeter;
//!
//! impl greeter::Service for Greeter {
//!     fn measure(&mut self, name: &str, reply: Replier<'_, '_, u32>) -> Replied {
//!         reply.send(name.len() as u32)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().listen("sim://0").serve(|| greeter::Serve(Greeter))?;
//! let mut client = greeter::Client::connect(&server.addresses()[0])?;
//! assert_eq!(client.measure("world")?, 5);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod app;
mod async_client;
mod call;
mod client;
mod codec;
mod error;
pub mod gss;
mod idle;
mod panics;
mod program;
mod raw;
mod reply;
mod server;
mod shard;
mod sim;
mod thread_shards;

pub use app::app;
pub use async_client::{AsyncClient, AsyncReply, PendingCall};
pub use call::{CallError, CallOutcome, accepted, call};
pub use client::{Client, ClientBuilder};
pub use codec::{Bulk, Decoder, Encoder, List, Octets, Opaque, Text, XdrType};
pub use error::{Failure, SetupError};
pub use program::{ArgumentsOf, IncomingCall, Procedure, Programs, ResultsOf};
pub use raw::{ConnectFault, FinishedCall, RawCall, RawClient, Recovery};
pub use reply::{LaterReply, Replied, Replier};
pub use server::{Server, ServerBuilder};
pub use stag_engine::{
    CallFault, CallId, Cause, ClientName, Config, ConfigFault, Cx, Health, OptionFault,
    PeerAddress, PeerId, Request, RequestItem, Room, Time, Token,
    clock::Clock,
    config::{INLINE_LEN, ITEM_MAX},
    stats::Snapshot,
};
pub use stag_fabrics::{AnyProvider, Endpoint, FabricAddress};
pub use stag_pools::{Buf, Extent};
pub use stag_protocol::{
    rpc::{Accepted, Auth, AuthStatus, AuthSys, Credential, Denied, Gids, ProvenUser},
    xdr::{Error as XdrError, NoRoom, Reader, Writer},
};
pub use stag_verbs::{FabricFault, Limits, Provider};

/// The guide, so that its code is compiled and run as the documentation's is.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/write-a-service.md")]
struct Guide;
