//! The traffic of a Linux client with Linux' server, played again to a gateway.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

// How captures are read is the codec's, and the way to a gateway that of its own tests.
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

pub const NFS3: &[u8] = include_bytes!("../../../../protocol/tests/captures/siw-nfs3.pcap");
pub const NFS41: &[u8] = include_bytes!("../../../../protocol/tests/captures/siw-nfs4.1.pcap");
