//! NFS client of version 3 (RFC 1813), and of 4.1 and 4.2 (RFC 8881), over any fabric. It survives
//! the loss of its server.
//!
//! - [`client`]: one call at a time or several over a [`RawClient`](stag_rpc::RawClient), with an
//!   error that says whose fault it is.
//! - `nfs3`, `acl`, `ports`: a method of [`NfsClient`] for each procedure of NFS and MOUNT, of
//!   NFSACL, and for a question to a port mapper.
//! - `nfs4`: the same methods by a session of version 4, where a server has no version 3, and
//!   compounds of other clients on the same connection ([`OtherClient`]).
//! - [`transfer`]: whole files, several calls at a time. Octets that a server lost before COMMIT
//!   are written again.
//!
//! Nothing here opens a socket: the provider does. File data, and the path of a link, are handed to
//! the engine as items, so that they travel in Read and Write chunks when they do not fit inline
//! (RFC 8267 §4).
#![forbid(unsafe_code)]

mod acl;
pub mod client;
mod listing;
mod mount;
mod nfs3;
mod nfs4;
mod patience;
mod ports;
mod reconnect;
mod results;
pub mod transfer;

pub use acl::Acl;
pub use client::{ClientConfig, Error, NfsClient};

pub use nfs3::{CallTicket, Finished};
pub use nfs4::session::{create_session, exchange_id};
pub use nfs4::{HeldAttributes, OtherClient};
pub use results::{DirEntry, ReadResult};
pub use stag_rpc::Recovery;

/// A hint for a denied call of ours: the user in its credential.
pub fn denied_hint() -> String {
    let uid = rustix::process::geteuid();
    let root = "; a server that has root act as nobody says so at its start: \
                'stag serve --squash none' does not";
    format!("we call as uid {}{}", uid.as_raw(), if uid.is_root() { root } else { "" })
}

/// True if calls leave from ports below 1024, as root's do. A server whose callers can name any
/// user may require that.
pub fn takes_reserved_ports() -> bool {
    rustix::process::geteuid().is_root()
}
