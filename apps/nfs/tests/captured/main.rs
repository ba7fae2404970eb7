//! The traffic of a Linux client with Linux' server, played again to a gateway.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

// The codec's tests read captures, and the gateway's tests call a gateway: both are shared here.
#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../../../protocol/tests/captures/calls.rs"]
mod calls;
#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../../../protocol/tests/captures/crc.rs"]
mod crc;
#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../../../protocol/tests/captures/pcap.rs"]
mod pcap;
mod replay;
mod translate;
#[allow(dead_code, reason = "not all of it is used here")]
#[path = "../../../../protocol/tests/captures/wire.rs"]
mod wire;

pub const NFS41: &[u8] = include_bytes!("../../../../protocol/tests/captures/siw-nfs4.1.pcap");
