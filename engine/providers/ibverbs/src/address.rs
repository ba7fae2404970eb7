//! Addresses of this fabric, as they are written, and one that this host has.

use crate::{device::DeviceAbout, library::Library, rails};
use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Address to listen on or to connect to, written `rdma://IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RdmaAddress(pub SocketAddr);

impl fmt::Display for RdmaAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rdma://{}", self.0)
    }
}

impl FromStr for RdmaAddress {
    type Err = stag_verbs::AddressFault;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        stag_verbs::socket_address(text.strip_prefix("rdma://").unwrap_or(text)).map(Self)
    }
}

/// An address of this host that belongs to an RDMA device, and what that device says of itself. An
/// error says why there is none.
pub fn address_here() -> io::Result<(IpAddr, DeviceAbout)> {
    let library = Library::get().map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
    let (ip, device) = rails::address_here(library)?;
    Ok((ip, device.about.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        for text in ["rdma://10.0.2.15:20049", "rdma://[fe80::1%2]:20049"] {
            let address: RdmaAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.0.to_string().parse(), Ok(address));
        }
        assert!("iwarp://127.0.0.1:1".parse::<RdmaAddress>().is_err());
    }
}
