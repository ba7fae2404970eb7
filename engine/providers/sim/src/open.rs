//! Simulated ends opened at addresses: those of one thread share a fabric.

use crate::{Fabric, Faults, Port, Sim};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{io, num::ParseIntError, path::Path, str::FromStr};

thread_local! {
    static OF_THREAD: Fabric = Fabric::new(0, Faults::NONE);
}

impl Fabric {
    /// The fabric of `sim://` URLs in this thread: no delay and no fault.
    pub fn of_thread() -> Self {
        OF_THREAD.with(Self::clone)
    }
}

impl FromStr for Port {
    type Err = ParseIntError;

    /// With or without the scheme.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_prefix("sim://").unwrap_or(text).parse().map(Self)
    }
}

impl Open for Sim {
    const NOTATION: Notation = Notation::Other;
    const SHARING: Sharing = Sharing::Nobody;
    const IS_SIMULATED: bool = true;

    fn here(_: &Path) -> Result<Here<Port>, String> {
        Ok(Here { at: Port(0), facts: Vec::new() })
    }

    fn for_listening(settings: Settings, _: &[Port]) -> io::Result<Self> {
        Ok(Fabric::of_thread().end("listener", settings.limits))
    }

    fn for_connecting(settings: Settings, _: Option<&Port>) -> io::Result<Self> {
        Ok(Fabric::of_thread().end("caller", settings.limits))
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
