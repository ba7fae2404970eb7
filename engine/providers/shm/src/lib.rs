//! Shared memory as a fabric: the provider contract between processes of one host (DESIGN D5).
//!
//! Two shards that know each other have one *link*: a Unix socket, and one memory file of each side
//! that only its owner can write. A side's file holds a ring of what it has to say (messages, data,
//! requests) and how far it has read the other's ring. So a peer can spoil nothing but its own
//! words, and those are copied out before they are judged. All connections of the two shards share
//! the link; a core looks at one line of memory for each process it serves.
//!
//! *The owner executes.* A request names a key; the owner of the memory checks key, bounds and
//! rights with the table that the software RNIC uses ([`stag_pools::Windows`]), and copies. No
//! other core reaches a window, so revoking one is a table write.
//!
//! Payload is copied twice: into the sender's ring and out of it. With `trust=uid`, between
//! processes of one user, pools are in memory files that the peer may map to read, and payload is
//! copied once: the ring names where it is, and the receiving core fetches it from there. Memory
//! that the ring names is given back when the peer has read on beyond it; when a connection ends
//! before, what the ring said is retracted, and a peer that looks again after its copy sees that.
//!
//! | file | what it does |
//! |---|---|
//! | `open` | providers made from addresses |
//! | `provider` | the contract's calls |
//! | `driver` | doorbells, timers, the poll |
//! | `lane` | messages and Writes that go at once |
//! | `cm` | listening, connection set-up, looks at the sockets |
//! | `sleep` | falling asleep, waking up |
//! | `link` | two processes find each other: socket, files, users |
//! | `rx`, `tx` | records in, records out |
//! | `close` | how connections and links end |
//! | `ring`, `record` | a ring of records, and what they say |
//! | `rings` | the two rings of a link |
//! | `peer` | who the other process is; has `unsafe` |
//! | `segment` | the mappings; has `unsafe` |
//! | `copy` | copies out of them; has `unsafe` |
#![warn(clippy::undocumented_unsafe_blocks)]

mod address;
mod close;
mod cm;
mod config;
mod conn;
mod copy;
mod driver;
mod lane;
mod link;
mod open;
mod peer;
mod provider;
mod record;
mod ring;
mod rings;
mod rx;
#[cfg(test)]
mod scribbler;
mod segment;
mod sleep;
mod stats;
#[cfg(test)]
mod tests;
mod tx;

pub use address::{ShmAddress, ShmAddressError};
pub use config::ShmConfig;
pub use driver::Shm;
pub use stats::ShmStats;
