//! The text form of iWARP addresses.

use std::{fmt, net::SocketAddr, str::FromStr};

/// Address to listen on or to connect to, written `iwarp://IP:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IwarpAddress(pub SocketAddr);

impl fmt::Display for IwarpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iwarp://{}", self.0)
    }
}

impl FromStr for IwarpAddress {
    type Err = stag_verbs::AddressFault;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        stag_verbs::socket_address(text.strip_prefix("iwarp://").unwrap_or(text)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        for text in ["iwarp://127.0.0.1:20049", "iwarp://[::1]:20049", "iwarp://[fe80::1%2]:1"] {
            let address: IwarpAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.0.to_string().parse(), Ok(address));
        }
        assert!("rdma://127.0.0.1:1".parse::<IwarpAddress>().is_err());
    }
}
