//! RDMA devices: the provider contract over libibverbs and librdmacm (DESIGN D1, D3, D8).
//!
//! Both libraries are loaded when a provider is made: a program that contains this crate runs on
//! machines without them, and says what is missing (`Unavailable`). One `Ibverbs` belongs to one
//! shard and one thread: a device context, a protection domain, a completion queue and a shared
//! receive queue of its own, and type-2 memory windows that are bound on the data path.
//!
//! | file | what it does |
//! |---|---|
//! | `sys` | what is used of rdma-sys |
//! | `library` | the table of functions, loaded at run time |
//! | `device`, `device/pair` | objects that a device lends: domains, regions, queues, windows |
//! | `rdmacm` | librdmacm: identifiers and events |
//! | `sockaddr` | addresses in the system's form |
//! | `config` | addresses, settings |
//! | `open` | providers made from addresses |
//! | `memory` | locked memory against what is needed |
//! | `windows` | which window opens which buffer |
//! | `sinks` | where Reads land that need a peer's right to write |
//! | `conn` | one connection |
//! | `tx` | work requests out: one chain, one doorbell |
//! | `driver` | the provider: poll loop, doorbells, completions, timers |
//! | `rx` | messages in |
//! | `events` | what else is reported of a connection |
//! | `close` | how connections end |
//! | `cm` | listening, connection set-up |
//! | `shared` | one listener for several shards |
//! | `provider` | the contract's calls |
//!
//! Taken from rdma-sys: types, constants, and the data path, which libibverbs has as inline
//! functions over a table in the device context. Every exported function goes through `library`
//! instead: one direct call would link the libraries. rdma-sys 0.3 gets some things wrong, which
//! are done here: extended verbs (it compares a marker with 2^32 - 1), `ibv_inc_rkey` (it
//! overflows), asynchronous events (unknown ones are undefined behaviour). It builds with libclang
//! up to 15.
//!
//! Without the feature `verbs` the crate is empty and nothing native is needed to build it.
#![warn(clippy::undocumented_unsafe_blocks)]
#![cfg(feature = "verbs")]

mod address;
mod close;
mod cm;
mod config;
mod conn;
mod device;
mod driver;
mod events;
mod library;
mod memory;
mod open;
mod provider;
mod rdmacm;
mod rx;
mod shared;
mod sinks;
mod sockaddr;
mod stats;
mod sys;
mod tx;
mod windows;

pub use address::{RdmaAddress, address_here};
pub use config::{IbverbsConfig, Through};
pub use device::DeviceAbout;
pub use driver::Ibverbs;
pub use library::Unavailable;
pub use stats::IbverbsStats;
