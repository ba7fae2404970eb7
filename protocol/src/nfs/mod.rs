//! NFS and the protocols around it: arguments and results, as bytes and their meaning.
//!
//! [`v3`] is NFS version 3 (RFC 1813).

pub mod v3;
