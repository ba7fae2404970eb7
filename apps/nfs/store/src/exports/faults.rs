//! Faults of the served file system: logged with export, operation and error at a limited rate, and
//! counted.
//!
//! A system error becomes an NFS status in one place (`files::errno`), which notes errors caused by
//! the file system. Each procedure of a store then reports the noted fault, even one that its reply
//! does not show, as in a listing with attributes.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::io::Errno;
use stag_engine::clock::Clock;
use stag_protocol::nfs::v3::Status;

use crate::log_rate::EventRate;

/// Faults of one export that are logged in each [`INTERVAL`].
const LOGGED_MAX: u32 = 5;
/// The interval.
const INTERVAL: Duration = Duration::from_secs(10);

thread_local! {
    /// The first fault since this thread last took one.
    static NOTED: Cell<Option<NotedFault>> = const { Cell::new(None) };
}

/// An error, and the place where it occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotedFault {
    pub(crate) errno: Errno,
    pub(crate) at: FaultPlace,
}

/// The place of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultPlace {
    /// The file system of an export.
    Export,
    /// The server's own state directory.
    State,
}

/// Returns true for an error of the file system itself. A full file system, a quota, and a name
/// that the file system cannot store are the user's own.
fn is_fault(errno: Errno, status: Status) -> bool {
    match status {
        Status::Io | Status::NoDev => errno != Errno::ILSEQ,
        // The store judges the last two: an export may be read-only by intent, and a file may be
        // gone.
        _ => matches!(errno, Errno::TIMEDOUT | Errno::ROFS | Errno::STALE),
    }
}

/// Notes an error that became `status`, if it is a fault.
pub(crate) fn note(errno: Errno, status: Status, at: FaultPlace) {
    if is_fault(errno, status) && NOTED.get().is_none() {
        NOTED.set(Some(NotedFault { errno, at }));
    }
}

/// Returns true if this thread has noted a fault.
#[inline]
pub(crate) fn is_noted() -> bool {
    NOTED.get().is_some()
}

/// Takes the fault that this thread has noted.
pub(crate) fn take() -> Option<NotedFault> {
    NOTED.take()
}

/// Faults of one export so far.
#[derive(Debug)]
struct ExportFaults {
    count: u64,
    rate: EventRate,
}

impl ExportFaults {
    const fn none() -> Self {
        Self { count: 0, rate: EventRate::limited("faults of an export", LOGGED_MAX, INTERVAL) }
    }
}

/// Faults of a process, by export.
pub(crate) struct StoreFaults {
    clock: Clock,
    exports: Mutex<BTreeMap<String, ExportFaults>>,
    /// True while faults are suppressed and not yet reported.
    owes: AtomicBool,
}

impl fmt::Debug for StoreFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreFaults({:?})", self.counts())
    }
}

impl Default for StoreFaults {
    fn default() -> Self {
        Self { clock: Clock::start(), exports: Mutex::default(), owes: AtomicBool::new(false) }
    }
}

impl StoreFaults {
    /// Counts a fault, and logs it within the rate limit.
    pub(crate) fn report(&self, export: &str, operation: &str, fault: NotedFault) {
        let now = self.clock.now();
        let mut exports = self.exports();
        let known = exports.entry(export.to_owned()).or_insert_with(ExportFaults::none);
        known.count += 1;
        let is_logged = known.rate.allows(now);
        if known.rate.has_left_out() {
            self.owes.store(true, Ordering::Relaxed);
        }
        drop(exports);
        if !is_logged {
            return;
        }
        let errno = fault.errno;
        match fault.at {
            FaultPlace::Export => tracing::error!(
                target: "stag", export, operation, %errno, "the file system of an export fails"
            ),
            FaultPlace::State => tracing::error!(
                target: "stag", export, operation, %errno, "the state directory fails"
            ),
        }
    }

    /// Faults so far, by export.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.exports().iter().map(|(name, known)| (name.clone(), known.count)).collect()
    }

    /// Returns true while suppressed faults are not yet reported in the log.
    pub(crate) fn owes_the_log(&self) -> bool {
        self.owes.load(Ordering::Relaxed)
    }

    /// Logs the number of suppressed faults once their interval is over.
    pub(crate) fn settle_with_the_log(&self) {
        if !self.owes_the_log() {
            return;
        }
        let now = self.clock.now();
        let mut exports = self.exports();
        exports.values_mut().for_each(|known| known.rate.settle(now));
        let owes = exports.values().any(|known| known.rate.has_left_out());
        self.owes.store(owes, Ordering::Relaxed);
    }

    fn exports(&self) -> MutexGuard<'_, BTreeMap<String, ExportFaults>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_disk_are_faults_and_those_of_a_user_are_none() {
        let faults = [Errno::IO, Errno::UCLEAN, Errno::BADMSG, Errno::REMOTEIO, Errno::NOLINK];
        for errno in faults.into_iter().chain([Errno::NOTCONN, Errno::NODATA]) {
            assert!(is_fault(errno, Status::Io), "{errno}");
        }
        assert!(is_fault(Errno::NODEV, Status::NoDev));
        assert!(is_fault(Errno::TIMEDOUT, Status::Jukebox));
        for (errno, status) in [
            (Errno::NOSPC, Status::NoSpc),
            (Errno::DQUOT, Status::DQuot),
            (Errno::NOENT, Status::NoEnt),
            (Errno::ACCESS, Status::Acces),
            (Errno::MFILE, Status::Jukebox),
            (Errno::ILSEQ, Status::Io),
        ] {
            assert!(!is_fault(errno, status), "{errno}");
        }
    }

    #[test]
    fn the_first_fault_of_an_operation_is_the_one_reported() {
        note(Errno::NOENT, Status::NoEnt, FaultPlace::Export);
        assert!(!is_noted());
        note(Errno::IO, Status::Io, FaultPlace::Export);
        note(Errno::NODEV, Status::NoDev, FaultPlace::Export);
        assert_eq!(take().map(|fault| fault.errno), Some(Errno::IO));
        assert_eq!(take(), None);
    }

    #[test]
    fn each_export_has_its_own_share_of_the_log_and_every_fault_is_counted() {
        let faults = StoreFaults::default();
        let fault = NotedFault { errno: Errno::IO, at: FaultPlace::Export };
        for _ in 0..100 {
            faults.report("dying", "READ", fault);
        }
        faults.report("other", "READ", fault);
        assert!(faults.owes_the_log());
        let exports = faults.exports();
        assert!(exports["dying"].rate.has_left_out() && !exports["other"].rate.has_left_out());
        drop(exports);
        let counts: Vec<_> = faults.counts().into_iter().collect();
        assert_eq!(counts, [("dying".to_owned(), 100), ("other".to_owned(), 1)]);
    }
}
