//! Simulated ends made from addresses: ends of one thread share a fabric.

use crate::{Fabric, Port, Sim};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{io, path::Path};

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
