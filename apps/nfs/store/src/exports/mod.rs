//! The exports of a server: their directories, clients and file handles, and the state directory
//! that keeps them over a restart.

pub(crate) mod blocking_probe;
pub mod client_rules;
pub mod cluster;
pub mod config;
pub(crate) mod faults;
pub(crate) mod file_system_limits;
pub mod handle;
pub(crate) mod host_groups;
pub mod index;
pub(crate) mod register;
pub mod state_dir;
