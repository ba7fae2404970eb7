//! Addresses as they are given: `SCHEME://HOST:PORT`, and for a caller `/NAME` behind it.

use crate::Error;
use std::net::{SocketAddr, ToSocketAddrs};

/// The schemes this build has, for messages.
const SCHEMES: &str = "iwarp://";

/// The address to listen at in a URL without a path.
pub fn listen(url: &str) -> Result<stag_iwarp::Address, Error> {
    let authority = iwarp(url)?;
    authority.parse().map(stag_iwarp::Address).map_err(|_| {
        Error::usage(format!(
            "{url:?} is not an address to listen at: write iwarp://IP:PORT, for example iwarp://127.0.0.1:20049 or iwarp://[::1]:20049"
        ))
    })
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

/// A server and its export, `/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub server: stag_iwarp::Address,
    /// The export, with its slash.
    pub export: String,
}

/// What a caller calls.
pub fn target(url: &str) -> Result<Target, Error> {
    let rest = iwarp(url)?;
    let bad = || {
        Error::usage(format!(
            "{url:?} names no server and export: write iwarp://HOST:PORT/NAME, for example iwarp://127.0.0.1:20049/data"
        ))
    };
    let (authority, name) = rest.split_once('/').ok_or_else(bad)?;
    if name.is_empty() || authority.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(bad());
    }
    let server = match authority.parse() {
        Ok(address) => address,
        Err(_) => authority.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
            Error::usage(format!(
                "no address is known for {authority:?} in {url:?}: give the server's IP address"
            ))
        })?,
    };
    Ok(Target { server: stag_iwarp::Address(server), export: format!("/{name}") })
}

/// What is behind the scheme.
fn iwarp(url: &str) -> Result<&str, Error> {
    match url.split_once("://") {
        Some(("iwarp", rest)) => Ok(rest),
        Some((scheme, _)) => {
            Err(Error::usage(format!("{url:?}: this build has no scheme {scheme}://, only {SCHEMES}")))
        }
        None => Err(Error::usage(format!("{url:?} has no scheme: this build has {SCHEMES}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_an_export() {
        assert_eq!(listen("iwarp://127.0.0.1:20049").unwrap().to_string(), "iwarp://127.0.0.1:20049");
        assert_eq!(listen("iwarp://[::1]:0").unwrap().to_string(), "iwarp://[::1]:0");
        let found = target("iwarp://127.0.0.1:20049/data").unwrap();
        assert_eq!(
            (found.server.to_string().as_str(), found.export.as_str()),
            ("iwarp://127.0.0.1:20049", "/data")
        );
        assert_eq!(target("iwarp://localhost:7/a b").unwrap().server.0.port(), 7);
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
        for url in [
            "iwarp://127.0.0.1:1",
            "iwarp://127.0.0.1:1/",
            "iwarp://127.0.0.1/x",
            "iwarp://:/x",
            "iwarp:///x",
        ] {
            assert!(target(url).unwrap_err().to_string().contains("write iwarp://HOST:PORT/NAME"), "{url}");
        }
        for url in ["rdma://127.0.0.1:20049", "shm://x", "127.0.0.1:20049"] {
            assert!(listen(url).unwrap_err().to_string().contains("iwarp://"), "{url}");
            assert!(target(url).is_err(), "{url}");
        }
        for text in ["2049", "127.0.0.1", "localhost:2049", ""] {
            assert!(tcp(text).unwrap_err().to_string().contains("or none"), "{text}");
        }
    }
}
