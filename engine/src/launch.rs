//! Shards on cores of their own.

pub use core_affinity::CoreId;
use std::{io, thread};

/// The cores this process may use, in order. Ask before the first thread is pinned: a pinned thread
/// sees its own core only.
pub fn cores() -> Vec<CoreId> {
    // `core_affinity` cannot pin to a core with a number of 1024 or more.
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .filter(|core| core.id < 1024)
        .collect()
}

/// Starts a thread for one shard, pinned to `core` if there is one; `run` builds the shard there,
/// so that its memory is near.
///
/// A core that cannot be pinned is not an error: the thread runs where the scheduler puts it, and
/// `pinned` tells `run`.
pub fn spawn<T: Send + 'static>(
    name: String,
    core: Option<CoreId>,
    run: impl FnOnce(bool) -> T + Send + 'static,
) -> io::Result<thread::JoinHandle<T>> {
    thread::Builder::new().name(name).spawn(move || {
        let pinned = core.is_some_and(core_affinity::set_for_current);
        run(pinned)
    })
}
