//! A call that comes again is answered with its first reply, over whatever it comes, and is not
//! carried out again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod calls;
mod seeds;
mod shards;
mod threads;
mod world;
