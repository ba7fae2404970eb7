//! Servers, by URL: over a fabric or over a TCP stream.

use crate::{FabricAddress, UrlError};
use stag_verbs::{AddressFault, socket_address};
use std::{fmt, net::SocketAddr};

/// The place of a server, and the transport to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// RPC over RDMA, on a fabric.
    Fabric(FabricAddress),
    /// RPC over a TCP stream.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// Reads `tcp://IP:PORT`, or the URL of a fabric.
    ///
    /// # Errors
    /// The text is no such URL.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        match url.strip_prefix("tcp://") {
            Some(at) => socket_address(at).map(Self::Tcp).map_err(|fault| UrlError::Address {
                scheme: "tcp",
                why: match fault {
                    AddressFault::Form => "write tcp://IP:PORT".to_owned(),
                    other => other.to_string(),
                },
            }),
            None => FabricAddress::parse(url).map(Self::Fabric),
        }
    }

    /// The address on a fabric; none for a stream.
    pub const fn fabric(&self) -> Option<&FabricAddress> {
        match self {
            Self::Fabric(at) => Some(at),
            Self::Tcp(_) => None,
        }
    }

    /// The address on an IP network, if it is on one.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Fabric(at) => at.ip(),
            Self::Tcp(at) => Some(*at),
        }
    }

    /// True when a connection takes a descriptor of this process.
    pub fn is_over_tcp(&self) -> bool {
        self.fabric().is_none_or(|at| at.info().is_over_tcp)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fabric(at) => at.fmt(f),
            Self::Tcp(at) => write!(f, "tcp://{at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_reads_back_as_it_is_written() {
        for (url, is_ip, is_over_tcp) in [
            ("tcp://127.0.0.1:2049", true, true),
            ("iwarp://[::1]:20049", true, true),
            ("iwarp://[fe80::1%1]:20049", true, true),
            ("tcp://[fe80::1%1]:2049", true, true),
            ("shm:///run/stag.sock?trust=uid", false, false),
        ] {
            let at = Endpoint::parse(url).unwrap();
            assert_eq!((at.to_string().as_str(), at.ip().is_some()), (url, is_ip));
            assert_eq!(
                (at.is_over_tcp(), at.fabric().is_none()),
                (is_over_tcp, url.starts_with("tcp"))
            );
        }
        assert!(Endpoint::parse("tcp://localhost").is_err());
        for (url, part) in [
            ("tcp://[fe80::1]:2049", "needs its interface"),
            ("iwarp://[fe80::1]:2049", "needs its interface"),
            ("tcp://[fe80::1%none-such]:2049", "no interface none-such"),
            ("iwarp://[fe80::1%25none-such]:2049", "no interface none-such"),
        ] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
        for url in ["tcp://[fe80::1%lo]:7", "tcp://[fe80::1%25lo]:7"] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), "tcp://[fe80::1%1]:7");
        }
    }
}
