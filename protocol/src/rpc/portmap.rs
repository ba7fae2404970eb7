//! Port mapper: the port at which a program listens (RFC 1833 §3, version 2, which every rpcbind
//! still answers).

use crate::xdr::structure;

/// The program number (RFC 1833 §3.1).
pub const PROGRAM: u32 = 100_000;
/// The version number (RFC 1833 §3.1).
pub const VERSION: u32 = 2;
/// The port of the port mapper itself (RFC 1833 §3.1).
pub const PORT: u16 = 111;
/// The procedure that gives a program's port, or 0 when it is not registered (PMAPPROC_GETPORT, RFC
/// 1833 §3.1).
pub const GETPORT: u32 = 3;
/// The protocol number of TCP (`IPPROTO_TCP`, RFC 1833 §3.1).
pub const TCP: u32 = 6;

/// Port on which a program listens (`mapping`, RFC 1833 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// [`TCP`], or the number of another protocol.
    pub protocol: u32,
    /// The port; GETPORT ignores it.
    pub port: u32,
}

structure!(Mapping { program, version, protocol, port });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{nfs::mount, xdr::survives};

    #[test]
    fn a_mapping_is_four_words() {
        let asked =
            Mapping { program: mount::PROGRAM, version: mount::VERSION, protocol: TCP, port: 0 };
        let octets = survives!(asked, Mapping);
        assert_eq!(octets, [0, 1, 0x86, 0xa5, 0, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 0]);
    }
}
