//! Floors: times that nothing on this host can go below, with none of our code but the measurement.

pub mod copy;
pub mod libcephfs;
pub mod ring;
pub mod tcp;
pub mod wake;

use crate::site::{self, Seats};
use std::thread;

/// Runs two closures at once, each on a core of its own; what the second one gives.
///
/// # Errors
/// When a thread cannot be pinned.
pub fn pair<T: Send>(
    seats: Seats,
    answer: impl FnOnce() + Send,
    ask: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    let seated = |core: usize| {
        site::pin(core).map_err(|error| format!("core {core} cannot be taken: {error}"))
    };
    thread::scope(|scope| {
        // Asking starts once the answering thread has its core: without it, no reply would come.
        let (ready, go) = std::sync::mpsc::channel();
        let answering = scope.spawn(move || {
            let pinned = seated(seats.server);
            let is_pinned = pinned.is_ok();
            let _ = ready.send(pinned);
            if is_pinned {
                answer();
            }
        });
        let asking = scope.spawn(move || {
            go.recv().map_err(|_| "a thread ended".to_owned())??;
            seated(seats.client)?;
            Ok(ask())
        });
        let asked = asking.join().unwrap_or_else(|_| Err("a floor's thread panicked".to_owned()));
        answering.join().map_err(|_| "a floor's thread panicked".to_owned())?;
        asked
    })
}
