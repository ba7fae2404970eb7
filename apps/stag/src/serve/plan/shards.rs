//! Shards of a server: each fabric has its own, on cores of their own.

use crate::{
    Error,
    settings::{ListenEntry, Origins},
};
use stag_fabrics::{FabricAddress, FabricGroup};

/// Addresses of one fabric, and the cores that serve them.
#[derive(Clone, Debug)]
pub struct FabricShards {
    pub group: FabricGroup,
    /// Shards, each on a core of its own.
    pub cores: usize,
}

impl FabricShards {
    /// The NUMA node of the device of each shard, where there is one.
    pub fn nodes(&self) -> impl Iterator<Item = Option<u32>> {
        (0..self.cores).map(|place| self.group.node(place))
    }

    /// One for each fabric, in the order in which fabrics were named first. `entries` are listeners
    /// of the file, which may say how many cores theirs has; else it has `usual`.
    ///
    /// # Errors
    /// A sentence when two listeners of one fabric have different numbers of cores.
    pub fn all(
        listen: Vec<FabricAddress>,
        entries: &[ListenEntry],
        usual: usize,
        origins: &Origins,
    ) -> Result<Vec<Self>, Error> {
        let mut all = Vec::new();
        for group in FabricGroup::all(listen) {
            let scheme = format!("{}://", group.info().scheme);
            let own = |entry: &&ListenEntry| entry.url.starts_with(&scheme);
            let mut told: Option<(usize, usize)> = None;
            for entry in entries.iter().filter(own) {
                let Some(cores) = entry.cores.map(usize::from) else { continue };
                match told.filter(|(other, _)| *other != cores) {
                    None => told = Some((cores, entry.line)),
                    Some((other, line)) => {
                        return Err(Error::usage(format!(
                            "{}: all listeners of {scheme} share its cores, and line {line} says \
                             {other}: give one number, or leave it to one of them",
                            origins.at(entry.line)
                        )));
                    }
                }
            }
            all.push(Self { group, cores: told.map_or(usual, |(cores, _)| cores) });
        }
        Ok(all)
    }
}
