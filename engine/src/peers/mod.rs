//! Peers: their connections, their names, and the calls that they may have outstanding.

mod connections;
mod grants;
pub(crate) mod names;
