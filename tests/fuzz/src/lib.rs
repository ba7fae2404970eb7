//! Properties that hold for any octets a peer may send: a [`FuzzTarget`] for each parser, and for
//! whole connections.
//!
//! A target takes an input, panics when a property does not hold, and returns its outcome. Three
//! drivers share the targets: the tests of this crate (sweeps and mutations, bounded), its program
//! (as long as one likes), and libFuzzer (`libfuzzer/`). `README.md` has the commands.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of this is a test: a property that does not hold panics"
)]

// Code shared with the tests of the captures, and the items that it expects of its crate.
mod calls {
    pub const SERVER_GRANT: u32 = 64;
    pub const CLIENT_GRANT: u32 = 16;
}
pub mod corpus;
#[allow(missing_docs, reason = "written for the tests of the captures")]
#[path = "../../../protocol/tests/captures/crc.rs"]
mod crc;
pub mod make;
pub mod mutate;
mod octets;
pub mod random;
pub mod run;
pub mod table;
pub mod targets;

pub use random::FuzzRandom;
pub use run::{InputFailure, Session};
pub use table::{FuzzTarget, TARGETS, find};
pub use targets::InputVerdict;
