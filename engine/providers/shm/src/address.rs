//! Address on which a process of this host listens.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

/// A socket in the file system, written `shm:///path` or `shm:///path?trust=uid`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShmAddress {
    path: PathBuf,
    trust: bool,
}

/// Why a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmAddressError {
    /// The path does not begin with `/`.
    Relative,
    /// The path has more octets than a socket's name may have.
    TooLong,
    /// The text after the question mark is not `trust=uid`.
    Parameter,
}

impl fmt::Display for ShmAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relative => {
                f.write_str("the path of the socket must be absolute, as in shm:///run/stag.sock")
            }
            Self::TooLong => {
                write!(f, "the path of a socket has at most {} octets", ShmAddress::PATH_MAX)
            }
            Self::Parameter => f.write_str("the only parameter is ?trust=uid"),
        }
    }
}

impl std::error::Error for ShmAddressError {}

impl ShmAddress {
    /// Octets of the longest path (`sun_path` without its final zero).
    pub const PATH_MAX: usize = 107;

    /// The socket at `path`, isolated.
    ///
    /// # Errors
    /// The path is relative or too long.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, ShmAddressError> {
        let path = path.into();
        if !path.is_absolute() {
            return Err(ShmAddressError::Relative);
        }
        if path.as_os_str().len() > Self::PATH_MAX {
            return Err(ShmAddressError::TooLong);
        }
        Ok(Self { path, trust: false })
    }

    /// The same, with memory mapped between processes of one user so that payload is copied once.
    pub fn trusting(self) -> Self {
        Self { trust: true, ..self }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the peer may map this side's pools.
    pub const fn is_trusting(&self) -> bool {
        self.trust
    }

    /// The address of shard `index` of a server that listens here: a shard has a socket of its own.
    ///
    /// # Errors
    /// The path becomes too long.
    pub fn of_shard(&self, index: usize) -> Result<Self, ShmAddressError> {
        if index == 0 {
            return Ok(self.clone());
        }
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{index}"));
        Ok(Self { trust: self.trust, ..Self::new(path)? })
    }
}

impl fmt::Display for ShmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shm://{}{}", self.path.display(), if self.trust { "?trust=uid" } else { "" })
    }
}

impl FromStr for ShmAddress {
    type Err = ShmAddressError;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.strip_prefix("shm://").unwrap_or(text);
        match text.split_once('?') {
            None => Self::new(text),
            Some((path, "trust=uid")) => Ok(Self::new(path)?.trusting()),
            Some(_) => Err(ShmAddressError::Parameter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["shm:///run/stag.sock", "shm:///a b?trust=uid"] {
            assert_eq!(text.parse::<ShmAddress>().unwrap().to_string(), text);
        }
        let address: ShmAddress = "/x?trust=uid".parse().unwrap();
        assert!(address.is_trusting() && address.path() == Path::new("/x"));
        assert_eq!(address.of_shard(0).unwrap(), address);
        assert_eq!(address.of_shard(2).unwrap().to_string(), "shm:///x.2?trust=uid");
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, why) in [
            ("shm://run/stag", ShmAddressError::Relative),
            ("", ShmAddressError::Relative),
            ("shm:///x?trust=all", ShmAddressError::Parameter),
            ("shm:///x?", ShmAddressError::Parameter),
        ] {
            assert_eq!(text.parse::<ShmAddress>().unwrap_err(), why, "{text}");
        }
        let long = format!("/{}", "x".repeat(ShmAddress::PATH_MAX - 1));
        assert!(ShmAddress::new(&long).unwrap().of_shard(1).is_err());
        assert_eq!(ShmAddress::new(format!("{long}x")).unwrap_err(), ShmAddressError::TooLong);
    }
}
