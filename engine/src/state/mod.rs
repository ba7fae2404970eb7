//! The state of a shard: the table of each role, and the parts of a peer.
//!
//! Nothing here sees the app, the fabric or the whole shard. The roles (`requester`, `responder`,
//! `peers`, `options`, `turns`, `pass`) decide, by methods of `Core` and `Shard`; each changes the
//! fields of its own tables only.

mod crowd;
mod deadlines;
pub(crate) mod grant_use;
pub(crate) mod inbound;
mod life;
mod line;
pub(crate) mod outbound;
mod peer;
mod peer_options;
mod peers;
mod receives;
mod requester;
mod responder;
mod turns;
mod wishes;
mod written;

pub(crate) use crowd::{Asked, Crowd, PassShare, Turn};
pub(crate) use deadlines::Deadlines;
pub(crate) use line::Wait;
pub(crate) use outbound::room_kept;
pub(crate) use peer::{FabricLink, Link, Peer, Sender};
pub(crate) use peer_options::PeerOption;
pub(crate) use peers::Peers;
pub(crate) use receives::Receives;
pub(crate) use requester::{Requester, Xids};
pub(crate) use responder::Responder;
pub(crate) use turns::{ActivePayer, Payer, TurnAccount, Turns};
pub use turns::{RemoteCaller, TurnHolder};
pub(crate) use wishes::{Action, Wishes};
pub(crate) use written::{NextCall, WrittenCall, WrittenRoom};
