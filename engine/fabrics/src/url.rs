//! Errors of texts that are no URL of a fabric.

use crate::{ABSENT, FABRICS};
use std::{error::Error, fmt};

/// A fabric that a build has not, but could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The beginning of its URLs.
    pub scheme: &'static str,
    /// Its name, for people.
    pub name: &'static str,
    /// The feature that builds it.
    pub feature: &'static str,
}

/// The reason why a text is no URL of a fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlError {
    /// There is no `://` in it.
    NoScheme,
    /// No fabric has this scheme.
    UnknownScheme(String),
    /// This build has not the fabric of the scheme.
    Absent(Absent),
    /// The fabric has no such address.
    Address {
        /// The fabric's scheme.
        scheme: &'static str,
        /// A sentence of the fabric.
        why: String,
    },
}

impl UrlError {
    /// The error for a scheme that no fabric of a table has.
    pub fn unknown(scheme: &str) -> Self {
        let absent = ABSENT.iter().find(|absent| absent.scheme == scheme);
        absent
            .map_or_else(|| Self::UnknownScheme(scheme.to_owned()), |absent| Self::Absent(*absent))
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoScheme => {
                f.write_str("there is no scheme in front, as in iwarp://127.0.0.1:20049")
            }
            Self::UnknownScheme(scheme) => {
                let known = FABRICS.iter().map(|info| info.scheme).collect::<Vec<_>>().join(", ");
                write!(f, "there is no scheme {scheme}://, only {known} and tcp")
            }
            Self::Absent(Absent { name, feature, .. }) => {
                write!(f, "this build has no {name}: build it with --features {feature}")
            }
            Self::Address { scheme, why } => write!(f, "no address of {scheme}://: {why}"),
        }
    }
}

impl Error for UrlError {}

#[cfg(test)]
mod tests {
    use crate::FabricAddress;

    #[test]
    fn a_text_that_is_no_url_is_told_why() {
        for (url, part) in [
            ("127.0.0.1:20049", "no scheme in front"),
            ("udp://127.0.0.1:20049", "no scheme udp://, only iwarp, shm"),
            ("iwarp://localhost", "no address of iwarp://"),
            ("shm://run/stag.sock", "must be absolute"),
            #[cfg(not(feature = "verbs"))]
            ("rdma://127.0.0.1:1", "no RDMA devices: build it with --features verbs"),
        ] {
            let error = FabricAddress::parse(url).unwrap_err().to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
    }
}
