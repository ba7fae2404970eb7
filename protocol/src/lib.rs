//! The protocols Stag speaks, as bytes and their meaning.
//!
//! Layers from the bottom up: [`iwarp`] (MPA, DDP, RDMAP: a software RNIC), [`rpcrdma`]
//! (RPC-over-RDMA), [`rpc`] (ONC RPC and TCP record marking), [`nfs`] (MOUNT 3, NFS 3, 4.1 and 4.2,
//! and their binding to RDMA); [`xdr`] serves all of them. Nothing here owns a clock, a socket, a
//! thread or memory: bytes come in by `parse` and `handle_*`, bytes go out by `emit` and `poll_*`,
//! and nothing allocates.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod iwarp;
pub mod nfs;
pub mod rpc;
pub mod rpcrdma;
pub mod xdr;
