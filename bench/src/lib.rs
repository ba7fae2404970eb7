//! What Stag costs. The counts per call stand in `tests/`; `guest/` boots real kernels as peers.
#![forbid(unsafe_code)]

pub mod callgrind;
pub mod ends;
pub mod headers;
