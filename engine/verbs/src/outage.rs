//! A table of devices that cannot be reached at the moment, for monitoring.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// The outages of a process: shards whose fabric reaches no peer at the moment, each with the
/// reason. Providers [report](OutageReport::set) them, and any thread can read or wait. Clones
/// share the same table.
#[derive(Clone, Debug, Default)]
pub struct Outages(Arc<OutageBoard>);

#[derive(Debug, Default)]
struct OutageBoard {
    table: Mutex<OutageTable>,
    changed: Condvar,
}

/// The outages at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutageTable {
    /// Reasons, by the number of the shard.
    pub by_shard: BTreeMap<usize, String>,
    /// Number of changes so far.
    pub changes: u64,
}

impl Outages {
    /// The handle by which shard number `shard` reports.
    pub fn of_shard(&self, shard: usize) -> OutageReport {
        OutageReport { outages: self.clone(), shard }
    }

    /// The current outages.
    pub fn now(&self) -> OutageTable {
        self.table().clone()
    }

    /// Waits until there are more changes than `seen`.
    pub fn wait(&self, seen: u64) -> OutageTable {
        let mut table = self.table();
        while table.changes <= seen {
            table = self.0.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
        table.clone()
    }

    fn table(&self) -> MutexGuard<'_, OutageTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle by which one shard's provider reports that it reaches no peer. Reports to the default
/// one are not read.
#[derive(Clone, Debug, Default)]
pub struct OutageReport {
    outages: Outages,
    shard: usize,
}

impl OutageReport {
    /// Reports the reason why no peer is reached, or the end of the outage.
    pub fn set(&self, reason: Option<String>) {
        let mut table = self.outages.table();
        let earlier = match &reason {
            Some(reason) => table.by_shard.insert(self.shard, reason.clone()),
            None => table.by_shard.remove(&self.shard),
        };
        if earlier != reason {
            table.changes += 1;
            self.outages.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_seen_by_those_who_wait_and_counts_once() {
        let outages = Outages::default();
        let reports = [0, 1].map(|shard| outages.of_shard(shard));
        assert_eq!(outages.now(), OutageTable::default());
        let waiting = outages.clone();
        let waiter = std::thread::spawn(move || waiting.wait(0));
        reports[1].set(Some("mlx5_0 is gone".to_owned()));
        let seen = waiter.join().unwrap();
        assert_eq!((seen.by_shard[&1].as_str(), seen.changes), ("mlx5_0 is gone", 1));
        reports[1].set(Some("mlx5_0 is gone".to_owned()));
        reports[0].set(None);
        assert_eq!(outages.now(), seen);
        reports[1].set(None);
        assert_eq!(outages.wait(1), OutageTable { by_shard: BTreeMap::new(), changes: 2 });
    }
}
