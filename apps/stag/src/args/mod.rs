//! Values on the command line that several subcommands read: addresses, networks, sizes, versions.
//!
//! Every subcommand imports this folder, and it imports none of them.

pub mod address;
pub mod cidr;
mod complaint;
mod rdma_versions;
pub mod size;
mod version;

pub use complaint::{plain_numbers, sentence};
pub use rdma_versions::{versions, written};
pub use version::{COMMIT, VERSION};
