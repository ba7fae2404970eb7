//! Connections are lost at every step and servers are killed. Data acknowledged as stable is there,
//! calls that may be carried out once are carried out once, and neither end keeps a buffer, a
//! window or a promised receive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod pair;
mod pieces;
mod play;
pub mod requester;
mod seeds;
