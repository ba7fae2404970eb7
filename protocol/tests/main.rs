//! The protocol's tests in one program, because each program is linked with everything it tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod nfs3;
mod nfs3_readdir;
mod rpcrdma_common;
mod rpcrdma_roles;
mod rpcrdma_rules;
mod rpcrdma_v2;
mod rpcrdma_versions;
mod rpcrdma_wire;
