//! RDMA devices: the provider contract over libibverbs and librdmacm (DESIGN D1, D3, D8).
//!
//! Both libraries are loaded when a provider is made: a program that contains this crate runs on machines without them, and says
//! what is missing (`Unavailable`). One `Ibverbs` belongs to one shard and one thread: a device context, a protection domain,
//! a completion queue and a shared receive queue of its own, and type-2 memory windows that are bound on the data path.
//!
//! | file | what it does |
//! |---|---|
//! | `library` | the table of functions, loaded at run time |
//! | `device`, `device/pair` | what a device lends us: domains, regions, queues, queue pairs, windows |
//! | `cm` | connection manager: identifiers and events |
//! | `config` | addresses, settings |
//! | `open` | providers made from addresses |
//! | `memory` | locked memory against what is needed |
//! | `windows` | which window opens which buffer |
//! | `sinks` | where Reads land that need a peer's right to write |
//! | `conn` | one connection |
//! | `tx` | work requests out: one chain, one doorbell |
//! | `shard` | the poll loop, completions |
//! | `events` | what else is reported of a connection |
//! | `close` | how connections end |
//! | `connect` | how connections begin |
//! | `provider` | the contract's calls |
//!
//! What comes from rdma-sys: types, constants, and the data path, which libibverbs has as inline functions over a table in the
//! device context. Every exported function goes through `library` instead: one direct call would link the libraries. rdma-sys
//! 0.3 gets some things wrong, which are done here: extended verbs (it compares a marker with 2^32 - 1), `ibv_inc_rkey` (it
//! overflows), asynchronous events (unknown ones are undefined behaviour). It builds with libclang up to 15.
//!
//! Without the feature `verbs` the crate is empty and nothing native is needed to build it.
#![warn(clippy::undocumented_unsafe_blocks)]
#![cfg(feature = "verbs")]

mod close;
mod cm;
mod config;
mod conn;
mod connect;
mod device;
mod events;
mod library;
mod memory;
mod open;
mod provider;
mod shard;
mod sinks;
mod stats;
mod tx;
mod windows;

pub use config::{Address, Config, Through};
pub use device::About;
pub use library::Unavailable;
pub use shard::{Ibverbs, address_here};
pub use stats::Stats;
