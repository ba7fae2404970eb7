//! Stable storage, and the write verifier that reports its failures (RFC 1813 §3.3.7, §3.3.21).

use core::hash::Hasher as _;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::time::{ClockId, clock_gettime};
use siphasher::sip::SipHasher24;
use stag_protocol::nfs::v3::Verifier;

use crate::{exports::state_dir::cannot, start_error::StartError};

/// The write verifier of this run: boot id, start time, and number of failed syncs.
///
/// All shards share it. A writer takes it *before* it writes and a committer *after* its sync, so
/// that a failure in between shows. (The kernel reports a failed write-back to every descriptor
/// open at the time. A descriptor opened between another shard's failed sync and its count here
/// gets no report; the window is a few instructions wide.)
#[derive(Debug)]
pub(crate) struct Epoch {
    base: u64,
    failed_syncs: Arc<AtomicU64>,
}

impl Epoch {
    /// The verifier of a run that begins now.
    ///
    /// # Errors
    /// A sentence when the host's boot id cannot be read.
    pub fn of_now() -> Result<Self, StartError> {
        let path = Path::new("/proc/sys/kernel/random/boot_id");
        let boot_id = std::fs::read(path).map_err(cannot("read", path))?;
        let now = clock_gettime(ClockId::Realtime);
        let nanos = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        Ok(Self::new(&boot_id, nanos.unsigned_abs()))
    }

    /// The verifier of a run on the boot `boot_id` that began `started_ns` nanoseconds after 1970.
    pub fn new(boot_id: &[u8], started_ns: u64) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(boot_id);
        // RFC 1813 §3.3.7 [1813-46]: each run of the server has its own write verifier
        hasher.write(&started_ns.to_le_bytes());
        Self { base: hasher.finish(), failed_syncs: Arc::default() }
    }

    /// The current verifier.
    pub fn verifier(&self) -> Verifier {
        // RFC 1813 §3.3.7 [1813-45]: the write verifier stays while no unstable data is lost
        self.base.wrapping_add(self.failed_syncs.load(Ordering::Acquire)).to_be_bytes()
    }

    /// The count of failed syncs, for syncs in other threads: adding one changes the verifier.
    pub fn failed_syncs(&self) -> &Arc<AtomicU64> {
        &self.failed_syncs
    }

    /// Records a failed sync: unstable data may be lost.
    pub fn advance(&self) {
        self.failed_syncs.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_differs_between_boots_starts_and_failures() {
        let epoch = Epoch::new(b"boot", 1);
        let first = epoch.verifier();
        assert_eq!(epoch.verifier(), first);
        assert_ne!(Epoch::new(b"boot", 2).verifier(), first);
        assert_ne!(Epoch::new(b"root", 1).verifier(), first);
        epoch.advance();
        assert_ne!(epoch.verifier(), first);
    }
}
