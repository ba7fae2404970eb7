//! Transports between a [`RemoteStore`](super::RemoteStore) and the threads that execute its calls.

use std::{collections::BTreeMap, sync::Arc};

use stag_protocol::nfs::v3::{FileHandle, Verifier};

use super::{Backend, ExportRoot, StoreCall, StoreCallDone, WaitTicket};
use crate::helpers::{HelperDone, HelperLane, Helpers};

/// One shard's transport to the executor of its calls.
pub(super) trait Carrier {
    /// Sends a call, identified by `ticket` until [`next_done`](Self::next_done) returns it.
    ///
    /// # Errors
    /// The call, untouched, when too many calls are queued.
    fn send(&mut self, call: StoreCall, ticket: WaitTicket) -> Result<(), StoreCall>;

    /// The next completed call.
    fn next_done(&mut self) -> Option<StoreCallDone>;

    /// Withdraws a call that has not been started.
    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall>;

    /// The names of the exports, without the slash before them.
    fn exports(&self) -> Vec<String>;

    /// As [`Backend::export_roots`].
    fn export_roots(&self) -> Vec<ExportRoot>;

    /// As [`Backend::unpin`].
    fn unpin(&self, file: &FileHandle);

    /// As [`Backend::faults`].
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// As [`Backend::verifier`].
    fn verifier(&self) -> Verifier;
}

/// The transport to helper threads started for the same backend.
pub(super) struct ByHelpers {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) helpers: Helpers,
}

impl Carrier for ByHelpers {
    fn send(&mut self, call: StoreCall, ticket: WaitTicket) -> Result<(), StoreCall> {
        self.helpers.perform(HelperLane::ROOTS, call, ticket)
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        match self.helpers.next_done()? {
            HelperDone::Called(done) => Some(*done),
            // Never requested here.
            HelperDone::Synced(..) | HelperDone::Copied(..) => None,
        }
    }

    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall> {
        self.helpers.withdraw(ticket)
    }

    fn exports(&self) -> Vec<String> {
        self.backend.exports()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.backend.export_roots()
    }

    fn unpin(&self, file: &FileHandle) {
        self.backend.unpin(file);
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        self.backend.faults()
    }

    fn verifier(&self) -> Verifier {
        self.backend.verifier()
    }
}
