//! Programs of this host that use the files of exports beside clients: they see clients' locks
//! ([`export_locks`]), and take delegations away ([`watched_files`]).

pub(in crate::v4) mod delegated_exports;
pub(in crate::v4) mod export_locks;
pub(in crate::v4) mod watched_files;
