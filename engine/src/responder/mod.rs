//! Calls of peers: how their chunks are pulled, and how they are answered.

pub(crate) mod deferred;
pub(crate) mod line;
pub(crate) mod pull;
pub(crate) mod reply;
