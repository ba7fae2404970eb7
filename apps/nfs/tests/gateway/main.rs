//! The gateway in a shard, called over the simulated fabric and over TCP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::result_large_err, missing_docs)]

mod callers;
mod canary;
mod client;
#[path = "../../../../tests/counting/mod.rs"]
mod counting;
mod errors;
mod files;
mod listing;
mod memory;
mod mounts;
mod nfs4;
mod rpc;
mod wire;
