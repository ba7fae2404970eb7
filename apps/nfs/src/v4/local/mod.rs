//! Programs of this host that use the files of exports alongside the clients.
//!
//! | file | what |
//! |---|---|
//! | [`shown_locks`] | locks: programs see those of clients, and clients those of programs |
//! | [`delegated_exports`] | exports whose files may be delegated |
//! | [`watched_files`] | delegations of files that programs may change, too |

pub(in crate::v4) mod delegated_exports;
pub(in crate::v4) mod shown_locks;
pub(in crate::v4) mod watched_files;
