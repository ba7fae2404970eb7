//! NFS 4.1 and 4.2 in the gateway (RFC 8881, RFC 7862): the [`state`] that clients have at a shard.

pub mod state;
