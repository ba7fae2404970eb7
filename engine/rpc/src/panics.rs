//! Handling of panics in a program's methods: each ends its call and is counted, and the shard
//! continues.
//!
//! The panic hook of the process prints where each panic occurred. A build with `panic = "abort"`
//! ends at the first one.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The number of panics in the programs of a server or a client, shared by its shards.
#[derive(Clone, Debug, Default)]
pub(crate) struct PanicCount(Arc<AtomicU64>);

impl PanicCount {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs code of the program. A panic in it is counted, logged with `place`, and returns `None`.
    #[inline]
    pub(crate) fn catch<T>(&self, place: impl fmt::Display, run: impl FnOnce() -> T) -> Option<T> {
        // The program's state stays as the panic left it, as with a mutex that ignores poison.
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.note(&place, panic);
                None
            }
        }
    }

    /// Counts a panic. The first, second, fourth and so on is logged: a peer that can cause one can
    /// cause many.
    #[cold]
    #[inline(never)]
    fn note(&self, place: &dyn fmt::Display, panic: Box<dyn Any + Send>) {
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            eprintln!("stag-rpc: {place} panicked: {} (panics: {count})", message(&*panic));
        }
        // The payload is the program's, too: its destructor may panic.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(second);
        }
    }
}

/// The text of a panic, if it has one.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text,
        (None, None) => "a value that is no text",
    }
}

/// A procedure, as it appears in a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CalledProcedure {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
}

impl fmt::Display for CalledProcedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, version, procedure } = self;
        write!(f, "procedure {procedure} of program {program:#x} version {version}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_counted_whatever_they_carry() {
        /// A payload that panics once more.
        struct Again;
        impl Drop for Again {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    panic!("again");
                }
            }
        }
        let panics = PanicCount::default();
        assert_eq!(panics.catch("this", || 5), Some(5));
        assert_eq!(panics.catch("this", || -> u32 { panic!("text") }), None);
        assert_eq!(panics.catch("this", || -> u32 { panic!("{}", 7) }), None);
        assert_eq!(panics.catch("this", || std::panic::panic_any(7_u8)), None::<()>);
        assert_eq!(panics.catch("this", || std::panic::panic_any(Again)), None::<()>);
        assert_eq!(panics.clone().count(), 4);
    }
}
