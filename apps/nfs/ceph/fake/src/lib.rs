//! libcephfs over a map in memory: the functions that `stag-ceph` loads, with faults that a test
//! asks for by options (`world.rs`). Tests use it where there is no cluster. Its answers were
//! compared with those of Ceph 16.2 by running the same tests on both.

mod c;
pub mod cluster;
mod files;
mod namespace;
mod node;
mod objects;
mod tree;
mod world;
