//! libcephfs over a map in memory: the functions that `stag-ceph` loads, with faults that a test
//! asks for by options (`world.rs`). It stands in for a cluster where there is none; what it
//! answers was compared with Ceph 16.2, for the same tests run on both.

mod c;
mod files;
mod namespace;
mod node;
mod objects;
mod tree;
mod world;
