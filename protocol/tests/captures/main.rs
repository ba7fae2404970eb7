//! Conversations of a Linux client with Linux' server, run through every codec; see `README.md`
//! next to this file.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod calls;
mod corpora;
mod counting;
mod crc;
mod disorder;
mod malformed;
mod nfs4;
mod pcap;
mod receive;
mod understood;
mod wire;

pub const NFS3: &[u8] = include_bytes!("siw-nfs3.pcap");
pub const NFS41: &[u8] = include_bytes!("siw-nfs4.1.pcap");
