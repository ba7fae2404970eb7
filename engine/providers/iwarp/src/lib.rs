//! A software RNIC: the provider contract over iWARP on TCP (DESIGN D4).
//!
//! It speaks real iWARP (RFC 5040, 5041, 5044, 6581), so a Linux kernel with siw or an iWARP
//! adapter can be its peer. One [`Iwarp`] belongs to one shard and one thread: its sockets never
//! block, one epoll watches them, and nothing is allocated once a connection stands.
//!
//! | file | what it does |
//! |---|---|
//! | `open` | providers made from addresses |
//! | `provider` | the contract's calls |
//! | `driver` | the provider: poll loop, doorbells, timers |
//! | `hot` | a connection that is busy alone |
//! | `look` | messages told without an event |
//! | `accept` | listening, peers taken in |
//! | `cm` | connection set-up: connecting, TCP, MPA Request and Reply |
//! | `rx` | octets in: FPDUs, checks, placement |
//! | `tx` | octets out: segments, CRCs, one system call for many FPDUs |
//! | `close` | how connections end |
//! | `siw` | what a Linux kernel needs that we connect to |
//! | `sock` | sockets and epoll |
//!
//! Promises beyond the contract: a peer's access is checked before its first octet is placed, and
//! nothing that was placed counts before its CRC was right (docs/landing.md); a violation gets the
//! Terminate that the RFCs name, and siw's way of writing a Terminate is understood. Completion of
//! a Send or Write means that the kernel has the octets.
//!
//! Peers that connect and say nothing keep nobody out: every stage of set-up has its deadline, the
//! oldest half-open connection makes place for a newcomer, and those that have ended linger only
//! while nobody needs their places. An idle connection has no memory for octets, work requests or
//! FPDUs: the shard lends it while they wait.
#![forbid(unsafe_code)]

mod accept;
mod address;
mod close;
mod cm;
mod config;
mod conn;
mod crc;
mod driver;
mod hot;
mod look;
mod open;
mod provider;
mod rx;
mod siw;
mod sock;
mod stats;
mod tx;

pub use address::IwarpAddress;
pub use config::{FpduMax, IwarpConfig, READS_MAX};
pub use driver::Iwarp;
pub use stag_protocol::iwarp::mpa::Crc;
pub use stats::{Disconnects, Handshakes, IwarpStats, Terminates};
