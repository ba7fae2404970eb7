//! MOUNT version 3 (RFC 1813 §5): its procedures ([`service`]) and the list of mounts ([`list`]).

pub(crate) mod list;
pub(crate) mod service;
