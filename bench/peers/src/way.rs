//! The fabrics between two ends of ours, as URLs.

use crate::site::{MeasuringSite, unique};

/// A way between two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    name: &'static str,
    scheme: &'static str,
    /// Follows the path of a socket.
    query: &'static str,
    /// CRCs, where the fabric lets us choose.
    pub crc: bool,
    /// The longest message that the server takes without chunks, where it is not its default.
    pub inline: Option<&'static str>,
}

/// Shared memory, each side's memory out of reach of the other.
pub const SHM: Way = Way { name: "shm", scheme: "shm", query: "", crc: true, inline: None };
/// Shared memory of processes of one user that trust each other: an item is copied once.
pub const SHM_TRUSTED: Way = Way { name: "shm trusted", query: "?trust=uid", ..SHM };
/// The software RNIC over loopback.
pub const IWARP: Way = Way { name: "iwarp", scheme: "iwarp", ..SHM };
/// The same without CRCs.
pub const IWARP_WITHOUT_CRC: Way = Way { name: "iwarp without CRC", crc: false, ..IWARP };
/// The same to a server that takes 4 KiB without chunks, so that it pulls arguments of 4 KiB.
pub const IWARP_PULLED: Way = Way { name: "iwarp, pulled", inline: Some("4K"), ..IWARP };
/// RPC over TCP, without RDMA.
pub const TCP: Way = Way { name: "tcp", scheme: "tcp", ..SHM };

impl Way {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The URL at which a server listens: a socket of its own, or a free port of loopback.
    pub fn listen(self, site: &MeasuringSite) -> String {
        let Self { scheme, query, .. } = self;
        match scheme {
            "shm" => {
                format!("shm://{}{query}", site.home().join(format!("{}.sock", unique())).display())
            }
            _ => format!("{scheme}://127.0.0.1:0"),
        }
    }
}
