//! A software RNIC: the provider contract over iWARP on TCP (DESIGN D4).
//!
//! It speaks standard iWARP (RFC 5040, 5041, 5044, 6581), so a Linux kernel with siw or an iWARP
//! adapter can be its peer. One [`Iwarp`] belongs to one shard and one thread: its sockets are
//! non-blocking, one epoll watches them, and nothing is allocated once a connection is established.
//!
//! | file | what it does |
//! |---|---|
//! | `open` | providers made from addresses |
//! | `provider` | the contract's calls |
//! | `rnic` | the provider: its connections and their lists |
//! | `driver` | poll loop, doorbells, timers |
//! | `conn` | one connection, and what the connections of a shard share |
//! | `transmit`, `arrival` | parts of a connection: FPDUs to send, an FPDU that is landing |
//! | `input`, `crc_losers` | parts of a shard: the search for input, peers that fail at CRCs |
//! | `hot` | direct reads of the only busy connection |
//! | `look` | messages reported without an event |
//! | `accept` | listening, accepted peers |
//! | `cm` | connection set-up: connecting, TCP, MPA Request and Reply |
//! | `rx` | octets in: FPDUs, checks, placement |
//! | `tx` | octets out: segments, CRCs, one system call for many FPDUs |
//! | `close` | ends of connections |
//! | `siw` | workarounds for a Linux kernel that we connect to |
//! | `sock` | sockets and epoll |
//!
//! Promises beyond the contract: a peer's access is checked before its first octet is placed, and
//! placed octets count only after their CRC was verified (docs/landing.md). A violation gets the
//! Terminate that the RFCs name, and siw's encoding of a Terminate is understood. Completion of a
//! Send or Write means that the kernel has the octets.
//!
//! Silent peers cannot keep others out: every stage of set-up has its deadline, the oldest
//! half-open connection makes room for a newcomer, and ended connections linger only while their
//! entries are not needed. An idle connection has no memory for octets, work requests or FPDUs: the
//! shard lends it while there are any.
#![forbid(unsafe_code)]

mod accept;
mod address;
mod arrival;
mod close;
mod cm;
mod config;
mod conn;
mod crc;
mod crc_losers;
mod driver;
mod hot;
mod input;
mod look;
mod open;
mod provider;
mod rnic;
mod rx;
mod siw;
mod sock;
mod stats;
mod transmit;
mod tx;

pub use address::IwarpAddress;
pub use config::{FpduMax, IwarpConfig, READS_MAX};
pub use rnic::Iwarp;
pub use stag_protocol::iwarp::mpa::Crc;
pub use stats::{Disconnects, Handshakes, IwarpStats, Terminates};
