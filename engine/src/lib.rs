//! The engine: a run-to-completion loop per core that turns messages of a fabric into calls and
//! replies of an app.
//!
//! A [`Shard`] owns one [`Provider`](stag_verbs::Provider), one [`App`], its memory and its tables.
//! Each turn of its loop, a *pass*, polls the fabric, advances calls of peers (`responder`) and our
//! own calls (`requester`), checks TCP connections (`stream`), lets the app finish, and rings the
//! doorbells once.
//!
//! A server and a client of the echo app on the simulated fabric, whose time the caller advances:
//!
//! ```
//! use stag_echo::{Caller, Echo};
//! use stag_engine::{Config, Shard, Time, Token};
//! use stag_sim::{Fabric, Faults, Port};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = Fabric::new(1, Faults::NONE);
//! let config = Config::small();
//! let end = |name| fabric.end(name, config.limits(64));
//! let mut server =
//!     Shard::new(end("server"), Echo::default(), config.clone(), Box::new(|_| true))?;
//! let at = server.listen(&Port(0))?;
//! let mut client =
//!     Shard::new(end("client"), Caller::default(), config.clone(), Box::new(|_| true))?;
//! let peer = client.connect(&at)?;
//!
//! client.with_app(|_, cx| Caller::call(cx, peer, Token(7), Some(b"hello")));
//! let mut now = Time(0);
//! let done = loop {
//!     if let Some(done) = client.with_app(|caller, _| caller.take()) {
//!         break done;
//!     }
//!     if !(server.pass(now) | client.pass(now)) {
//!         now = fabric.next_due().expect("the reply is under way");
//!     }
//! };
//! assert_eq!(done.echo?.as_deref(), Some(&b"hello"[..]));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod account;
pub mod app;
mod bulk;
mod call;
pub mod clock;
pub mod config;
mod config_fault;
pub mod control;
mod core;
mod cx;
pub mod detail;
mod fault;
pub mod gss;
mod item;
pub mod launch;
mod memory;
mod option_fault;
mod options;
mod pass;
mod payload;
mod peer_view;
mod peers;
mod protected;
mod receives;
mod requester;
mod responder;
mod room;
mod shard;
mod short_send;
mod spare;
mod stage_times;
pub mod stages;
mod state;
pub mod stats;
mod stream;
mod tcp;
mod turns;
pub mod waiting;
mod ways;
mod work;

pub use app::{
    Answer, AnswerItem, App, Call, CallFault, CallId, CannotSign, ClientName, ConnectLimit, Cx,
    Drained, Outcome, Over, Parted, PeerId, PeerSecurity, RefusedPeer, Request, RequestItem,
    ResultRooms, ShortRequest, SignCall, Token,
};
pub use clock::Meter;
pub use config::{Config, HEAD_ROOM};
pub use config_fault::{Allowed, ConfigFault};
pub use control::{Command, Control, Handle, Order, Question, Waker};
pub use item::{
    ExtentLists, Extents, ExtentsFull, ItemLists, ItemsFull, MoreItems, PlacedItem, Pulled,
};
pub use option_fault::OptionFault;
pub use options::HEALTH_MAX;
pub use pass::Sleeper;
pub use room::Room;
pub use shard::{Admission, Shard};
pub use stag_protocol::rpcrdma::option::health::Reply as Health;
pub use stag_tls as tls;
pub use stag_verbs::{Cause, PeerAddress, Time};
pub use stages::{Sampling, Stage, Stages, WatchedProgram};
pub use state::{RemoteCaller, TurnHolder};
pub use stats::Stats;
pub use waiting::{RestListener, Spin};
