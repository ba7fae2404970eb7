//! Ours, where a goal is about what no command of [`stag`](crate::stag) shows: in processes of this
//! program.

pub mod callers;
pub mod ceph;
pub mod ends;
pub mod headers;
pub mod idle;
mod load;
pub mod many;
pub mod shards;
pub mod sink;
pub mod tail;
