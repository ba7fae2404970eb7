//! Peers: their connections, their names, and their grants.

mod connections;
mod grants;
mod names;
