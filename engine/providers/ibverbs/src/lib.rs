//! RDMA devices: the provider contract over libibverbs and librdmacm (DESIGN D1, D3, D8).
//!
//! Both libraries are loaded when a provider is made: a program that contains this crate runs on
//! machines without them, and says what is missing (`Unavailable`). One `Ibverbs` belongs to one
//! shard and one thread: a device context, a protection domain, a completion queue and a shared
//! receive queue of its own, and type-2 memory windows that are bound on the data path.
//!
//! | file | what it does |
//! |---|---|
//! | `sys` | the used declarations of rdma-core: structures, constants, inline functions |
//! | `apart` | a thread whose credentials never change, for calls that need that |
//! | `library` | the table of functions, loaded at run time |
//! | `device`, `device/pair` | objects that a device lends: domains, regions, queues, windows |
//! | `rdmacm` | librdmacm: identifiers and events |
//! | `sockaddr` | addresses in the system's form |
//! | `config` | addresses, settings |
//! | `open`, `rails` | providers made from addresses, devices by their addresses |
//! | `memory` | locked memory against what is needed |
//! | `windows` | which window opens which buffer |
//! | `exposures` | windows, or regions for one use |
//! | `sinks` | where Reads land that need a peer's right to write |
//! | `conn` | one connection |
//! | `tx` | work requests out: one chain, one doorbell |
//! | `driver` | the provider: poll loop, doorbells, completions, timers |
//! | `rx` | messages in |
//! | `events` | what else is reported of a connection |
//! | `close` | how connections end |
//! | `errands` | a thread for the calls of set-up and end, which take long |
//! | `presence` | a device that goes and comes back |
//! | `cm` | listening, connection set-up |
//! | `shared` | one listener for several shards |
//! | `provider` | the contract's calls |
//! | `fake` | adapters that are not there, for tests |
//!
//! Nothing native is needed to build the crate: the declarations are in the tree. With the feature
//! `compare`, tests compare them with rdma-sys (`tests/declarations`), which needs the headers of
//! libibverbs and librdmacm and a libclang up to 15. Bindings made at build time would need those
//! everywhere. rdma-sys 0.3 also has defects: extended verbs (it compares a marker with 2^32 - 1),
//! `ibv_inc_rkey` (it overflows), asynchronous events (unknown ones are undefined behaviour).
//!
//! Without the feature `verbs`, which is a default, the crate is empty.
#![warn(clippy::undocumented_unsafe_blocks)]
#![cfg(feature = "verbs")]

mod address;
mod apart;
mod close;
mod cm;
mod config;
mod conn;
#[cfg(test)]
#[path = "../../../../tests/counting/mod.rs"]
mod counting;
mod device;
mod driver;
mod errands;
mod events;
mod exposures;
#[cfg(test)]
mod fake;
mod library;
mod memory;
mod open;
mod presence;
mod provider;
mod rails;
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
