//! The gateway in a shard, called over the simulated fabric and over TCP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::result_large_err, missing_docs)]

mod callers;
mod canary;
pub mod client;
mod errors;
mod files;
pub mod flavors;
mod listing;
mod memory;
mod mounts;
pub mod nfs4;
mod rpc;
pub mod wire;
