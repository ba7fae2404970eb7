//! The exports of a server: their directories, clients and file handles, and the state directory
//! that keeps them over a restart.
//!
//! | file | what |
//! |---|---|
//! | `config.rs`, `register.rs` | the exports, and their ids, which are never reused |
//! | `client_rules.rs`, `host_groups` | admitted clients with their rights; groups of users |
//! | `host_book.rs` | cached answers of this host's name service, which a thread of its own asks |
//! | `host_users.rs` | users and groups of this host by names and numbers |
//! | `security.rs` | security flavors that an export accepts |
//! | `handle.rs` | file handles, with a tag that only this server can make |
//! | `index` | names of files, by which a handle leads to a path after a restart |
//! | `state_dir.rs`, `cluster.rs` | the state directory; settings of a cluster |
//! | `file_system_limits.rs`, `blocking_probe.rs`, `faults.rs` | file systems: limits and faults |

pub(crate) mod blocking_probe;
pub mod client_rules;
pub mod cluster;
pub mod config;
pub(crate) mod faults;
pub(crate) mod file_system_limits;
pub mod handle;
pub mod host_book;
pub(crate) mod host_groups;
pub mod host_users;
pub mod index;
pub(crate) mod register;
pub mod security;
pub mod state_dir;
