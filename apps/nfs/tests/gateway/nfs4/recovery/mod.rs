//! Restarts of a server with files: clients that may reclaim their state, at any point of recording
//! at which it was killed (RFC 8881 §8.4.2, §8.4.3).

mod cases;
pub mod disk;
pub mod party;
mod script;
mod seeds;
mod silent;
pub mod world;
