//! A simulated fabric: every end in one thread, virtual time, one seed (DESIGN D3).
//!
//! A [`Fabric`] carries messages between its [`Sim`] ends; each `Sim` is a
//! [`Provider`](stag_verbs::Provider). Nothing happens before its due time: the driver polls every
//! end, asks [`Fabric::next_due`] and jumps there. Each direction of each connection keeps its
//! order, as a reliable connection does; everything else (which connection is first, when work
//! completes, when a connection breaks, whether a Send completes before it arrives, whether it is
//! taken as a copy) is drawn from the seed, so one seed is one run. Memory is guarded by
//! [`stag_pools::Windows`], as in the software RNIC, and a peer that breaks a rule is sent what
//! iWARP would send it (RFC 5040 §4.8, RFC 5041 §7.1).
//!
//! | file | what it does |
//! |---|---|
//! | `fabric` | the state that all ends share, in the hands of a test |
//! | `address`, `config`, `open` | addresses, behaviour, providers made from addresses |
//! | `provider` | the contract's calls |
//! | `driver` | the provider: doorbells and polls |
//! | `end` | the state of an end |
//! | `cm` | connect requests and their answers |
//! | `rx`, `tx` | arrivals; departures and completions |
//! | `close` | how connections end |
//! | `conn`, `net`, `trace` | one connection, the medium, its latest events |
//!
//! After a connection is set up no operation allocates; set-up, starvation and the end of a
//! connection may.
#![forbid(unsafe_code)]

mod address;
mod close;
mod cm;
mod config;
mod conn;
mod driver;
mod end;
mod fabric;
mod net;
mod open;
mod provider;
mod rx;
mod trace;
mod tx;

pub use address::Port;
pub use config::{Faults, LIMITS};
pub use driver::Sim;
pub use fabric::Fabric;
