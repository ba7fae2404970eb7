//! The calling side: an NFS version 3 client (RFC 1813) over any fabric, and runs that show what a server does.
//!
//! | module | what it does |
//! |---|---|
//! | [`caller`] | the app in the shard: it keeps how calls ended |
//! | [`client`] | one call at a time or several, driven from outside of the shard, with an error that says whose fault it is |
//! | `nfs3`, `acl`, `ports` | a method of [`Client`] for each procedure of NFS and MOUNT, of NFSACL, and for a question to a port mapper |
//! | [`rate`] | calls per second and full round trips |
//! | [`transfer`] | whole files, several calls at a time; what a server lost before COMMIT is written again |
//! | [`mod@bench`] | the load generator: closed and open loops, what came of them, and how two runs compare |
//! | [`functional`] | the functional run: every procedure, every size that matters, every octet compared |
//!
//! Nothing here opens a socket: the provider does. File data, and the path of a link, are handed to the engine as items, so that
//! they travel in Read and Write chunks when they do not fit inline (RFC 8267 §4).
#![forbid(unsafe_code)]

mod acl;
pub mod bench;
pub mod caller;
pub mod client;
pub mod functional;
mod nfs3;
mod ports;
pub mod rate;
pub mod transfer;

pub use acl::Acl;
pub use caller::{Caller, Done, Recovery};
pub use client::{Client, Config, Error};
/// Octets that follow from a seed, a file and a place.
pub use stag_echo::pattern;

pub use nfs3::{DirEntry, Finished, ReadDone, Ticket};

/// A hint for a call of ours that is denied: the user that it names.
pub fn denied_hint() -> String {
    let uid = rustix::process::geteuid();
    let root =
        "; a server that has root act as nobody says so at its start: 'stag serve --squash none' does not";
    format!("we call as uid {}{}", uid.as_raw(), if uid.is_root() { root } else { "" })
}

/// True if calls leave from ports below 1024: those of root do. A server whose callers can name any user may ask for that.
pub fn takes_reserved_ports() -> bool {
    rustix::process::geteuid().is_root()
}
