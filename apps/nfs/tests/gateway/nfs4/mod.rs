//! Version 4 of the gateway: compounds built by the protocol's encoders, over the simulated fabric
//! and over TCP.

mod access;
mod acls;
mod allocations;
mod beside;
mod callbacks;
pub mod ceph;
pub mod client;
mod compounds;
mod files;
mod flavors;
mod locks;
mod machine;
mod names;
mod owner_names;
mod owners;
mod places;
mod ranges;
mod reads;
pub mod recovery;
mod refusals;
mod sessions;
mod xattrs;
