//! The table of defects, one module for each layer.

mod ddp;
mod gss;
mod gss_bodies;
mod mpa;
mod nfs;
mod rdmap;
mod rpc;
mod rpcrdma;
mod rpcrdma_chunks;

use crate::play::{Defect, DefectLayer};

/// Defects that end a thread of Linux' server: a Read segment of no octets, which is legal, is a
/// BUG in `sg_alloc_table_chained` (seen in 6.1).
const STOPS_KERNELS: [&str; 3] = [
    "rpcrdma-read-segment-of-nothing",
    "rpcrdma-read-chunk-of-nothing",
    "rpcrdma-long-call-of-nothing",
];

/// All defects of a client, from the lowest layer up.
pub fn all() -> Vec<Defect> {
    let layers = [
        mpa::table(),
        ddp::table(),
        rdmap::table(),
        rpcrdma::table(),
        rpc::table(),
        gss::table(),
        nfs::table(),
    ];
    let mut all: Vec<_> = layers.into_iter().flatten().collect();
    for defect in all.iter_mut().filter(|defect| STOPS_KERNELS.contains(&defect.name.as_str())) {
        defect.is_kernel_safe = false;
    }
    all
}

/// Those of one layer.
pub fn of(layer: DefectLayer) -> Vec<Defect> {
    all().into_iter().filter(|defect| defect.layer == layer).collect()
}
