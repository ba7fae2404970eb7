//! Programs of this host that use the files of exports alongside the clients: each side sees the
//! other's locks ([`shown_locks`]), and the programs' changes recall delegations
//! ([`watched_files`]).

pub(in crate::v4) mod delegated_exports;
pub(in crate::v4) mod shown_locks;
pub(in crate::v4) mod watched_files;
