//! Rivals that are worth a comparison but that no package measures: named, and skipped.

use crate::{
    contender::{Absence, Contender, Reading},
    site::MeasuringSite,
};

/// A rival that is not measured.
#[derive(Clone, Copy, Debug)]
pub struct Unpackaged {
    name: &'static str,
    why: &'static str,
}

/// Chimera: an NFS server of threads that poll, with files in memory.
pub const CHIMERA: Unpackaged = Unpackaged {
    name: "Chimera (memfs)",
    why: "it is in no distribution and no crates registry; --rival measures one that runs",
};
/// Mercury: RPC for high-performance computing, over shared memory.
pub const MERCURY: Unpackaged =
    Unpackaged { name: "Mercury (na+sm)", why: "it is in no distribution and no crates registry" };
/// libfabric's own measurements.
pub const LIBFABRIC: Unpackaged = Unpackaged {
    name: "libfabric (shm)",
    why: "the fi_pingpong of libfabric-bin gives a mean, not the median that is compared; its \
        fabtests are in no distribution",
};

impl Contender for Unpackaged {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn commands(&self) -> Vec<String> {
        Vec::new()
    }

    fn start(&mut self, _site: &MeasuringSite) -> Result<(), Absence> {
        Err(Absence::failed(self.why))
    }

    fn measure(&mut self, _site: &MeasuringSite) -> Result<Reading, String> {
        Err(self.why.to_owned())
    }
}
