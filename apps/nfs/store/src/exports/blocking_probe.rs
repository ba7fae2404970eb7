//! Access to file systems that may not respond, with a time limit.

use std::{path::Path, sync::mpsc::sync_channel, thread, time::Duration};

use super::state_dir::cannot;
use crate::start_error::StartError;

/// Longest time that a start waits for a file system.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(10);

/// Runs a look at the file system of `path` in a thread, and waits for it up to the limit. A thread
/// that hangs in the file system is abandoned: it ends with the process.
///
/// # Errors
/// A sentence when the thread cannot be created, or there is no answer in time.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    path: &Path,
    look: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StartError> {
    let (sender, receiver) = sync_channel(1);
    thread::Builder::new()
        .name("look".to_owned())
        .spawn(move || {
            let _ = sender.send(look());
        })
        .map_err(cannot("start a thread to look at", path))?;
    receiver.recv_timeout(limit).map_err(|_| {
        StartError(format!(
            "the file system of {} did not answer within {} s: bring it back, mount it anew, or \
             leave it out",
            path.display(),
            limit.as_secs()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn whoever_does_not_answer_in_time_is_named_and_left_behind() {
        let path = Path::new("/srv/dead");
        assert_eq!(within(START_LIMIT, path, || 7), Ok(7));
        let (_hold, gate) = channel::<()>();
        let limit = Duration::from_millis(20);
        let error = within(limit, path, move || gate.recv().is_ok()).unwrap_err();
        assert!(error.to_string().starts_with("the file system of /srv/dead did not"), "{error}");
    }
}
