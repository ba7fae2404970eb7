//! Shared memory opened at addresses.

use crate::{Shm, ShmAddress, ShmConfig};
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier_query};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{io, path::Path};

fn config(settings: Settings, trust: bool) -> ShmConfig {
    let Settings { limits, seed, now, links, allow, .. } = settings;
    let mut config = ShmConfig { trust, ..ShmConfig::new(limits, seed, now) };
    config.links = links.unwrap_or(config.links);
    config.allow.extend(allow);
    config
}

impl Open for Shm {
    const NOTATION: Notation = Notation::Path;
    const SHARING: Sharing = Sharing::Apart;

    fn is_trusting(at: &ShmAddress) -> bool {
        at.is_trusting()
    }

    fn of_shard(at: &ShmAddress, index: usize) -> Result<ShmAddress, String> {
        at.of_shard(index).map_err(|why| why.to_string())
    }

    fn here(socket: &Path) -> Result<Here<ShmAddress>, String> {
        let at = ShmAddress::new(socket).map_err(|why| why.to_string())?.trusting();
        let commands = membarrier_query();
        let has = |command: MembarrierCommand| {
            commands.contains(MembarrierQuery::from_bits_retain(command as u32))
        };
        let barrier = has(MembarrierCommand::GlobalExpedited)
            && has(MembarrierCommand::RegisterGlobalExpedited);
        let sleep = if barrier { "yes" } else { "no: sleeping servers wake up every millisecond" };
        let facts = vec![("needs", "memory files".to_owned()), ("membarrier", sleep.to_owned())];
        Ok(Here { at, facts })
    }

    fn for_listening(settings: Settings, at: &[ShmAddress]) -> io::Result<Self> {
        Self::new(config(settings, at.iter().any(ShmAddress::is_trusting)))
    }

    fn for_connecting(settings: Settings, to: Option<&ShmAddress>) -> io::Result<Self> {
        Self::new(config(settings, to.is_some_and(ShmAddress::is_trusting)))
    }
}
