//! Version 4 of the gateway: compounds built by the protocol's encoders, over the simulated fabric
//! and over TCP.

mod beside;
mod client;
mod compounds;
mod files;
mod locks;
mod names;
mod recovery;
mod sessions;
