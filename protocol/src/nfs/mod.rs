//! NFS and its companion protocols: arguments and results, as bytes and their meaning.
//!
//! [`mount`] is MOUNT version 3 (RFC 1813 §5), [`v3`] is NFS version 3 (RFC 1813), [`acl`] is
//! NFSACL version 3, [`v4`] is NFS versions 4.1 and 4.2 (RFC 8881, RFC 7862); [`binding`] says how
//! NFS travels over RDMA (RFC 8267).

pub mod acl;
pub mod binding;
mod bulk;
mod list;
pub mod mount;
pub mod v3;
pub mod v4;

pub use bulk::Bulk;
pub use list::{List, ListWriter};
