//! Calls of ours: how they wait, go out, and end.

pub(crate) mod calls;
pub(crate) mod chunked;
mod long_reply;

pub(crate) use long_reply::clear_behind;
