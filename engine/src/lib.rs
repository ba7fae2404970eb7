//! The engine: a run-to-completion loop per core that turns messages of a fabric into calls and replies of an app.
//!
//! A [`Shard`] owns one [`Provider`](stag_verbs::Provider), one [`App`], its memory and its tables. Each turn of its
//! loop, a *pass*, polls the fabric, carries calls of peers on (`responder`) and calls of ours (`requester`), looks at TCP
//! connections (`stream`), lets the app finish, and rings the doorbells once.
#![forbid(unsafe_code)]

mod account;
pub mod app;
pub mod clock;
pub mod config;
pub mod control;
mod core;
mod item;
pub mod launch;
mod memory;
mod options;
mod payload;
mod peers;
mod receives;
mod requester;
mod responder;
mod shard;
mod spare;
pub mod stages;
pub mod stats;
mod stream;
mod work;

pub use app::{
    Answer, AnswerItem, App, Call, CallFault, CallId, ClientName, Cx, Outcome, Over, PeerId, Request,
    RequestItem, Token,
};
pub use config::{Config, HEAD_ROOM};
pub use control::{Command, Control, Handle, Waker};
pub use item::{ExtentLists, Extents, ExtentsFull, Pulled};
pub use options::{HEALTH_MAX, HealthFault};
pub use shard::{Admission, Shard};
pub use stag_protocol::rpcrdma::option::health::Reply as Health;
pub use stag_verbs::{Cause, PeerAddress, Time};
pub use stages::{Sampling, Stage, Stages};
pub use stats::Stats;
