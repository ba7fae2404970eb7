//! NFS version 4: codec of every operation, and compounds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod codec;
mod compound;
mod samples;
