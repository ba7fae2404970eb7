//! Peers that a fabric refuses by itself. The engine does not see them, so the fabric's counters
//! are read now and then, and logged.

use crate::metrics::{Shards, object};
use serde_json::Value;
use stag_engine::Command;
use std::{
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Counters in the total of the statistics, with their meaning.
const COUNTED: [(&str, &str); 8] = [
    ("/iwarp/accept_paused", "no descriptor was left to accept: raise the limit (ulimit -n)"),
    ("/iwarp/handshakes/shed", "all places for connections are taken: add cores (--cores)"),
    ("/iwarp/handshakes/displaced", "too many were connecting at once; the oldest made room"),
    ("/iwarp/handshakes/timed_out", "they took too long to say what they want"),
    ("/iwarp/handshakes/malformed", "they do not speak iWARP"),
    ("/shm/denied", "their user may not connect: name it (--shm-allow)"),
    ("/shm/turned_away", "too many processes connect by shared memory, or they did not say who"),
    ("/rdma/shed", "connect requests came beyond all limits"),
];

/// Ends the looks when it is dropped.
#[derive(Debug)]
pub struct RefusalWatch(#[expect(dead_code, reason = "the thread sees its end")] mpsc::Sender<()>);

/// Checks `shards` periodically, and logs the peers that their fabrics refused meanwhile. `settle`
/// is called each time, to log the number of other refusals.
///
/// # Errors
/// As starting a thread does.
pub fn watch(shards: Arc<Shards>, settle: impl Fn() + Send + 'static) -> io::Result<RefusalWatch> {
    let (sender, ended) = mpsc::channel();
    let run = move || {
        let mut before = Value::Null;
        while ended.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
            settle();
            // A shard that does not answer is looked at next time.
            let Ok(gathered) = shards.gather(Command::Snapshot) else { continue };
            let now = object::object(&gathered);
            let total = now.get("total").cloned().unwrap_or(Value::Null);
            for (count, why) in turned_away(&before, &total) {
                tracing::warn!(target: "stag", count, why, "turned away by the fabric");
            }
            before = total;
        }
    };
    thread::Builder::new().name("refusals".to_owned()).spawn(run)?;
    Ok(RefusalWatch(sender))
}

/// The counters that grew, the increase, and their meaning.
fn turned_away<'a>(
    before: &'a Value,
    now: &'a Value,
) -> impl Iterator<Item = (u64, &'static str)> + 'a {
    COUNTED.into_iter().filter_map(|(pointer, why)| {
        let at = |value: &Value| value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
        let more = at(now).saturating_sub(at(before));
        (more > 0).then_some((more, why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;
    use serde_json::json;

    #[test]
    fn what_grew_is_told_and_nothing_else() {
        let of = |shed: u64, denied: u64| {
            let handshakes = json!({ "shed": shed });
            json!({"iwarp": {"handshakes": handshakes}, "shm": {"denied": denied}})
        };
        assert_eq!(turned_away(&of(1, 2), &of(1, 2)).count(), 0);
        let found: Vec<_> = turned_away(&of(1, 2), &of(4, 2)).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == 3 && found[0].1.contains("--cores"), "{found:?}");
        assert_eq!(turned_away(&Value::Null, &of(1, 2)).count(), 2);
    }

    #[test]
    fn each_of_them_is_a_metric() {
        for (pointer, _) in COUNTED {
            let keys: Vec<_> = pointer.split('/').skip(1).collect();
            assert!(metrics::of(&keys).is_some(), "{pointer}");
        }
    }
}
