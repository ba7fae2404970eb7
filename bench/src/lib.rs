//! Measurements of Stag's costs. The counts per call are in `tests/`; `tests/guest/` of the
//! workspace boots real kernels as peers.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod compounds;
pub mod counted;
pub mod crowd;
pub mod ends;
pub mod headers;
pub mod lane;
pub mod loaded;
pub mod secured;
pub mod shards;
