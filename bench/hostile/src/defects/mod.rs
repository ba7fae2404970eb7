//! The table of defects, one module for each layer.

mod ddp;
mod mpa;
mod nfs;
mod rdmap;
mod rpc;
mod rpcrdma;
mod rpcrdma_chunks;

use crate::play::{Defect, Layer};

/// All defects of a client, from the lowest layer up.
pub fn all() -> Vec<Defect> {
    [mpa::table(), ddp::table(), rdmap::table(), rpcrdma::table(), rpc::table(), nfs::table()]
        .into_iter()
        .flatten()
        .collect()
}

/// Those of one layer.
pub fn of(layer: Layer) -> Vec<Defect> {
    all().into_iter().filter(|defect| defect.layer == layer).collect()
}
