//! Addresses to listen at, as they are given: `SCHEME://IP:PORT`.

use crate::Error;
use std::net::SocketAddr;

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
        for url in ["rdma://127.0.0.1:20049", "shm://x", "127.0.0.1:20049"] {
            assert!(listen(url).unwrap_err().to_string().contains("iwarp://"), "{url}");
        }
        for text in ["2049", "127.0.0.1", "localhost:2049", ""] {
            assert!(tcp(text).unwrap_err().to_string().contains("or none"), "{text}");
        }
    }
}
