//! Shared memory opened at addresses.

use crate::{Address, Config, Shm};
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier_query};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{io, path::Path};

fn config(settings: Settings, trust: bool) -> Config {
    let Settings { limits, seed, now, links, allow, .. } = settings;
    let mut config = Config { trust, ..Config::new(limits, seed, now) };
    config.links = links.unwrap_or(config.links);
    config.allow.extend(allow);
    config
}

impl Open for Shm {
    const NOTATION: Notation = Notation::Path;
    const SHARING: Sharing = Sharing::Apart;

    fn is_trusting(at: &Address) -> bool {
        at.is_trusting()
    }

    fn of_shard(at: &Address, index: usize) -> Result<Address, String> {
        at.of_shard(index).map_err(|why| why.to_string())
    }

    fn here(socket: &Path) -> Result<Here<Address>, String> {
        let at = Address::new(socket).map_err(|why| why.to_string())?.trusting();
        let commands = membarrier_query();
        let has =
            |command: MembarrierCommand| commands.contains(MembarrierQuery::from_bits_retain(command as u32));
        let barrier =
            has(MembarrierCommand::GlobalExpedited) && has(MembarrierCommand::RegisterGlobalExpedited);
        let sleep = if barrier { "yes" } else { "no: sleeping servers wake up every millisecond" };
        let facts = vec![("needs", "memory files".to_owned()), ("membarrier", sleep.to_owned())];
        Ok(Here { at, facts })
    }

    fn for_listening(settings: Settings, at: &[Address]) -> io::Result<Self> {
        Self::new(config(settings, at.iter().any(Address::is_trusting)))
    }

    fn for_connecting(settings: Settings, to: Option<&Address>) -> io::Result<Self> {
        Self::new(config(settings, to.is_some_and(Address::is_trusting)))
    }
}
