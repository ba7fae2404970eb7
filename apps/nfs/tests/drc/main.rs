//! A retransmitted call is answered with its first reply, over any transport, and is not carried
//! out again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod calls;
mod seeds;
mod shards;
mod threads;
mod world;
