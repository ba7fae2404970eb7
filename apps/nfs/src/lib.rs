//! The NFS gateway: one app for each shard ([`gateway`]) that answers MOUNT version 3, NFS version
//! 3 (`v3`), 4.1 and 4.2 ([`v4`]) from a store of `stag-nfs-store`, and what a server around it
//! needs ([`serve`], [`kerberos`]). The state of version 4's clients is `stag-nfs4-state`'s.
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a reply that fails carries attributes like one that succeeds; boxing would allocate"
)]

mod data_counts;
pub mod gateway;
pub mod kerberos;
mod mount;
pub mod owner_names;
mod pending;
pub mod records;
mod reply;
pub mod reply_cache;
pub mod report;
mod requester;
pub mod serve;
mod v3;
pub mod v4;

pub use stag_nfs4_state::{LeaseFacts, ListedKind, ListedState, StateidKind};

pub use gateway::Gateway;
pub use gateway::connection_policy::ConnectionPolicy;
pub use mount::list::MountList;
pub use report::GatewayReport;
pub use v4::{
    BoundConnection, CallbackPath, ClientFacts, GraceFacts, Nfs4Config, Nfs4Link, Nfs4Records,
    Nfs4Report, SessionState, StateAnswer, StateDesk, StateFacts, StateQuestion,
};
