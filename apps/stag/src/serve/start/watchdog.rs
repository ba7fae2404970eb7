//! Watchdog of systemd (sd_notify(3), WatchdogSec=): it is notified as long as every shard answers,
//! so that a server with a hanging shard is restarted.

use crate::{Error, serve::report::systemd::tell_systemd};
use sd_notify::NotifyState;
use stag_engine::control::Command;
use stag_operate::metrics::Shards;
use std::{io, sync::Arc, thread, time::Duration};

/// Notifies systemd three times in its interval that `shards` answer, if it asks for that.
///
/// # Errors
/// A sentence when no thread can be started.
pub fn start(shards: &Arc<Shards>) -> Result<(), Error> {
    let Some(interval) = sd_notify::watchdog_enabled() else { return Ok(()) };
    let pause = pause(interval);
    let shards = Arc::clone(shards);
    let tell = move || {
        loop {
            match shards.gather(Command::Snapshot) {
                Ok(_) => tell_systemd(&NotifyState::Watchdog),
                Err(why) => {
                    tracing::error!(target: "stag", %why, "systemd's watchdog is not told");
                }
            }
            thread::sleep(pause);
        }
    };
    let failed = |error: io::Error| Error::failure(format!("cannot watch the shards: {error}"));
    thread::Builder::new().name("watchdog".to_owned()).spawn(tell).map(drop).map_err(failed)
}

/// The time between two messages: one may be late, and another one be lost.
fn pause(interval: Duration) -> Duration {
    (interval / 3).max(Duration::from_millis(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_messages_fit_into_an_interval_and_an_interval_of_nothing_is_no_busy_loop() {
        assert_eq!(pause(Duration::from_secs(60)), Duration::from_secs(20));
        assert_eq!(pause(Duration::ZERO), Duration::from_millis(10));
    }
}
