//! Restarts of a server with files: who may take back what he had, whatever was being recorded when
//! it was killed (RFC 8881 §8.4.2, §8.4.3).

mod cases;
pub mod disk;
pub mod party;
mod seeds;
mod silent;
pub mod world;
