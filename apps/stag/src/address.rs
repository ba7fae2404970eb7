//! Addresses to listen at, as they are given: `SCHEME://IP:PORT`.

use crate::Error;
use std::{fmt, net::SocketAddr};

/// The schemes this build serves, for messages.
const SCHEMES: &str =
    if cfg!(feature = "verbs") { "iwarp://, rdma:// and shm://" } else { "iwarp:// and shm://" };

/// Where to listen, over which fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// The software RNIC.
    Iwarp(stag_iwarp::Address),
    /// An RDMA device.
    #[cfg(feature = "verbs")]
    Rdma(stag_ibverbs::Address),
    /// Memory shared with processes of this host.
    Shm(stag_shm::Address),
}

impl Listen {
    /// Where it is on an IP network.
    pub const fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Iwarp(at) => Some(at.0),
            #[cfg(feature = "verbs")]
            Self::Rdma(at) => Some(at.0),
            Self::Shm(_) => None,
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iwarp(at) => at.fmt(f),
            #[cfg(feature = "verbs")]
            Self::Rdma(at) => at.fmt(f),
            Self::Shm(at) => at.fmt(f),
        }
    }
}

/// The address to listen at in a URL without a path.
pub fn listen(url: &str) -> Result<Listen, Error> {
    match url.split_once("://") {
        Some(("iwarp", authority)) => authority
            .parse()
            .map(|at| Listen::Iwarp(stag_iwarp::Address(at)))
            .map_err(|_| no_ip(url, "iwarp")),
        #[cfg(feature = "verbs")]
        Some(("rdma", authority)) => authority
            .parse()
            .map(|at| Listen::Rdma(stag_ibverbs::Address(at)))
            .map_err(|_| no_ip(url, "rdma")),
        #[cfg(not(feature = "verbs"))]
        Some(("rdma", _)) => Err(without_verbs(url)),
        Some(("shm", _)) => url.parse().map(Listen::Shm).map_err(|why: stag_shm::AddressError| {
            Error::usage(format!("{url:?} is not an address to listen at: {why}"))
        }),
        Some((scheme, _)) => {
            Err(Error::usage(format!("{url:?}: this build has no scheme {scheme}://, only {SCHEMES}")))
        }
        None => Err(Error::usage(format!("{url:?} has no scheme: this build has {SCHEMES}"))),
    }
}

fn no_ip(url: &str, scheme: &str) -> Error {
    Error::usage(format!(
        "{url:?} is not an address to listen at: write {scheme}://IP:PORT, for example {scheme}://127.0.0.1:20049 or {scheme}://[::1]:20049"
    ))
}

/// What a build without RDMA devices says of them.
#[cfg(not(feature = "verbs"))]
pub fn without_verbs(url: &str) -> Error {
    Error::usage(format!(
        "{url:?}: this build has no RDMA devices, only {SCHEMES}; build it with --features verbs"
    ))
}

/// The address for TCP; none for `none`.
pub fn tcp(text: &str) -> Result<Option<SocketAddr>, Error> {
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Error::usage(format!(
            "{text:?} is not an address for --tcp: write IP:PORT, for example 127.0.0.1:2049, or none"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        assert_eq!(listen("iwarp://127.0.0.1:20049").unwrap().to_string(), "iwarp://127.0.0.1:20049");
        assert_eq!(listen("iwarp://[::1]:0").unwrap().to_string(), "iwarp://[::1]:0");
        assert_eq!(tcp("none"), Ok(None));
        assert_eq!(tcp("[::1]:2049").unwrap().unwrap().to_string(), "[::1]:2049");
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_form_it_should_have() {
        for url in [
            "iwarp://",
            "iwarp://127.0.0.1",
            "iwarp://host:20049",
            "iwarp://1.2.3.4:99999",
            "iwarp://1.2.3.4:1/x",
        ] {
            assert!(listen(url).unwrap_err().to_string().contains("write iwarp://IP:PORT"), "{url}");
        }
        for url in ["udp://127.0.0.1:20049", "127.0.0.1:20049"] {
            assert!(listen(url).unwrap_err().to_string().contains("iwarp://"), "{url}");
        }
        let rdma = listen("rdma://127.0.0.1:20049");
        if cfg!(feature = "verbs") {
            assert_eq!(rdma.unwrap().to_string(), "rdma://127.0.0.1:20049");
        } else {
            assert!(rdma.unwrap_err().to_string().contains("--features verbs"));
        }
        assert!(listen("shm://x").unwrap_err().to_string().contains("must be absolute"));
        assert!(listen("shm:///x?trust=all").unwrap_err().to_string().contains("?trust=uid"));
        assert_eq!(listen("shm:///x?trust=uid").unwrap().to_string(), "shm:///x?trust=uid");
        for text in ["2049", "127.0.0.1", "localhost:2049", ""] {
            assert!(tcp(text).unwrap_err().to_string().contains("or none"), "{text}");
        }
    }
}
