//! Transports between a [`RemoteStore`](crate::RemoteStore) and the threads that execute its calls.

use std::collections::BTreeMap;

use stag_protocol::nfs::v3::{FileHandle, Verifier};

use crate::{
    ExportRoot, StoreCall, StoreCallDone, contract::tickets::WaitTicket,
    exports::security::SecurityFlavors,
};

/// One shard's transport to the executor of its calls.
pub(crate) trait Carrier {
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

    /// As [`Backend::has_security`].
    fn has_security(&self) -> bool;

    /// As [`Backend::flavors`].
    fn flavors(&self, export: &str) -> Option<SecurityFlavors>;

    /// As [`Backend::flavors_of`].
    fn flavors_of(&self, object: &FileHandle) -> Option<SecurityFlavors>;

    /// As [`Backend::is_root`].
    fn is_root(&self, object: &FileHandle) -> bool {
        self.export_roots().iter().any(|export| export.root.as_ref() == Some(object))
    }

    /// As [`Backend::unpin`].
    fn unpin(&self, file: &FileHandle);

    /// As [`Backend::faults`].
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// As [`Backend::verifier`].
    fn verifier(&self) -> Verifier;
}
