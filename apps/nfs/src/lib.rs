//! The NFS gateway: the app that answers MOUNT and NFS ([`gateway`]), the exports ([`export`]), the
//! file handles ([`handle`]), and the [`store`] that serves the files.
//!
//! The store of a directory runs in one of two modes ([`store::files::CallerMode`]).
//! *Unprivileged*: every caller acts as the server's own user, and a file handle is resolved after
//! a restart through a persistent [`index`] in the [`state`] directory. *Privileged*: each caller
//! acts as the user it names, and the kernel opens files by its own handles (`stag-nfs-os`).
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a reply that fails carries attributes like one that succeeds; boxing would allocate"
)]

pub mod access;
pub mod cluster;
mod deferred;
pub mod drc;
pub mod export;
mod export_register;
pub mod gateway;
mod grain;
pub mod handle;
mod held;
mod inbox;
pub mod index;
mod limits;
mod mount;
mod mounted;
mod parked;
mod patience;
mod policy;
mod rate;
pub mod records;
mod reply;
pub mod report;
pub mod serve;
pub mod state;
pub mod store;
mod v3;
pub mod v4;

pub use gateway::Gateway;
pub use inbox::Wakeup;
pub use mounted::MountList;
pub use policy::ConnectionPolicy;
pub use rate::EventRate;
pub use report::GatewayReport;
pub use store::helpers;
pub use v4::{BoundConnection, Nfs4Config, Nfs4Link, Nfs4Records, Nfs4Report, SessionState};
