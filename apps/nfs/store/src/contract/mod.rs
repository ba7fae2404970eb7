//! The promises of a store of files to the versions of NFS: its procedures, their arguments and
//! results, and the rules that all stores share. Versions of NFS are unknown here, except to the
//! conversions of `version3.rs` and `version4.rs`.
//!
//! | file | what |
//! |---|---|
//! | `procedures.rs` | the traits `Procedures` and `Procedures4` |
//! | `caller.rs`, `name.rs` | callers with the data that they pass, and names in a directory |
//! | `acl.rs` | access control lists, as stores keep them |
//! | `types.rs`, `change_attribute.rs`, `exclusive.rs` | attributes and changes to them |
//! | `results.rs`, `extensions.rs` | results; arguments and results of version 4 procedures |
//! | `tickets.rs` | numbers of calls and of READs in flight |
//! | `version3.rs`, `version4.rs` | attributes of these versions, converted |

pub(crate) mod acl;
pub(crate) mod caller;
pub(crate) mod change_attribute;
pub(crate) mod exclusive;
pub(crate) mod extensions;
pub(crate) mod name;
pub(crate) mod procedures;
pub(crate) mod results;
pub(crate) mod tickets;
pub(crate) mod types;
pub(crate) mod version3;
pub(crate) mod version4;
