//! Addresses of a simulated fabric.

use std::{fmt, num::ParseIntError, str::FromStr};

/// Port on which an end listens. 0 asks for a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Port(pub u16);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sim://{}", self.0)
    }
}

impl FromStr for Port {
    type Err = ParseIntError;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix("sim://").unwrap_or(text).parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_written() {
        assert_eq!("sim://7".parse(), Ok(Port(7)));
        assert_eq!(Port(7).to_string(), "sim://7");
        for text in ["sim://", "sim://x", "sim://65536", "iwarp://7"] {
            assert!(text.parse::<Port>().is_err(), "{text}");
        }
    }
}
