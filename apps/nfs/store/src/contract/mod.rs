//! The promises of a store of files to the versions of NFS: its procedures, their arguments and
//! results, and the rules that all stores share. Versions of NFS are unknown here.

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
