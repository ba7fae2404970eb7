//! Version 4 of the gateway: compounds built by the protocol's encoders, over the simulated fabric
//! and over TCP.

mod allocations;
mod ceph;
mod client;
mod compounds;
mod files;
mod locks;
mod names;
mod sessions;
