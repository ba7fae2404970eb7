//! A budget of steps for one message, so that tests detect loops whose length a peer chooses,
//! independently of time.
//!
//! Loops over the blocks of a file and over the state of a file count their rounds. A test, or a
//! fuzz target, sets a [`limit`] before it submits a message. Only builds with debug assertions
//! count.

use std::cell::Cell;

thread_local! {
    /// Steps that this thread may still take; none without a limit.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lets this thread take at most `steps` more steps, or any number.
///
/// Without debug assertions nothing is counted.
pub fn limit(steps: Option<u64>) {
    LEFT.set(steps);
}

/// Counts one round of a loop.
///
/// # Panics
/// In builds with debug assertions, when the thread's limit is used up.
#[inline(always)]
pub fn count() {
    if cfg!(debug_assertions)
        && let Some(left) = LEFT.get()
    {
        assert!(left > 0, "a message takes more steps than its budget");
        LEFT.set(Some(left - 1));
    }
}

/// Runs `act`, which may take at most `steps` steps: for tests.
pub fn within<T>(steps: u64, act: impl FnOnce() -> T) -> T {
    limit(Some(steps));
    let value = act();
    limit(None);
    value
}
