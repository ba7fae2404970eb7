//! A procedure as a value, for whatever executes it elsewhere: a request that owns its arguments
//! (`request`), its outcome (`outcome`), and its execution by another thread's store
//! (`execute`).

pub(crate) mod answered;
pub(crate) mod carrier;
pub(crate) mod execute;
pub(crate) mod listing;
pub(crate) mod outcome;
pub(crate) mod request;
pub(crate) mod store;
