//! RDMA devices that are gone, or have no port or address at the moment: reported to the log and
//! systemd.

use crate::{Error, serve::report::systemd::tell_systemd};
use sd_notify::NotifyState;
use stag_operate::metrics::Shards;
use stag_verbs::OutageTable;
use std::{io, sync::Arc, thread};

/// Logs each outage of `shards` and its end, and reports it to systemd, for as long as the process
/// lives.
///
/// # Errors
/// A sentence when no thread can be started.
pub fn watch(shards: &Arc<Shards>) -> Result<(), Error> {
    let shards = Arc::clone(shards);
    let run = move || {
        let mut before = OutageTable::default();
        loop {
            let now = shards.outages().wait(before.changes);
            for (shard, why) in &now.by_shard {
                if before.by_shard.get(shard) != Some(why) {
                    tracing::warn!(target: "stag", shard, %why, "no client reaches this shard");
                }
            }
            for shard in before.by_shard.keys().filter(|it| !now.by_shard.contains_key(it)) {
                tracing::info!(target: "stag", shard, "clients reach this shard again");
            }
            tell_systemd(&NotifyState::Status(&status(&now)));
            before = now;
        }
    };
    let failed = |error: io::Error| Error::failure(format!("cannot watch for outages: {error}"));
    thread::Builder::new().name("outages".to_owned()).spawn(run).map(drop).map_err(failed)
}

/// The line that `systemctl status` shows.
fn status(now: &OutageTable) -> String {
    let sentences: Vec<_> =
        now.by_shard.iter().map(|(shard, why)| format!("shard {shard}: {why}")).collect();
    match sentences.as_slice() {
        [] => "serving".to_owned(),
        sentences => format!("not reached: {}", sentences.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_each_shard_that_nobody_reaches() {
        let mut table = OutageTable::default();
        assert_eq!(status(&table), "serving");
        table.by_shard.insert(0, "mlx5_0 is gone".to_owned());
        table.by_shard.insert(2, "the port of mlx5_1 is down".to_owned());
        assert_eq!(
            status(&table),
            "not reached: shard 0: mlx5_0 is gone; shard 2: the port of mlx5_1 is down"
        );
    }
}
