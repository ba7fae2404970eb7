//! A store every call of which waits: helpers carry them all out ([`Backend`]).

use std::{io, sync::Arc};

use stag_protocol::nfs::v3::{FileHandle, Status, Verifier};

use super::{
    Answered, Backend, Begun, Effort, ExportRoot, Store, StoreCall, StoreCallDone, WaitTicket,
};
use crate::helpers::{HelperDone, HelperLane, Helpers};

/// The shard's end of a [`Backend`].
pub struct RemoteStore {
    backend: Arc<dyn Backend>,
    exports: Vec<String>,
    helpers: Helpers,
    /// Nothing is carried out here.
    nothing: Answered,
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteStore({:?})", self.exports)
    }
}

impl RemoteStore {
    /// A store for one shard, whose calls go to `helpers`, which were started for the same backend.
    pub fn new(backend: Arc<dyn Backend>, helpers: Helpers) -> Self {
        let exports = backend.exports();
        Self { backend, exports, helpers, nothing: Answered::failed(Status::Jukebox) }
    }
}

impl Store for RemoteStore {
    type Now = Answered;

    const MAY_WAIT: bool = true;

    fn now(&mut self) -> &mut Answered {
        &mut self.nothing
    }

    fn waits(&self, _object: &FileHandle, _effort: Effort) -> bool {
        true
    }

    fn mount_waits(&self) -> bool {
        true
    }

    fn begin(&mut self, call: StoreCall, ticket: WaitTicket) -> Begun {
        match self.helpers.perform(HelperLane::ROOTS, call, ticket) {
            Ok(()) => Begun::Later,
            Err(call) => Begun::Refused(call),
        }
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        match self.helpers.next_done()? {
            HelperDone::Called(done) => Some(*done),
            // Nobody asks for any.
            HelperDone::Synced(..) => None,
        }
    }

    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall> {
        self.helpers.withdraw(ticket)
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.exports.iter().map(String::as_str)
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.backend.export_roots()
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.backend.unpin(file);
    }

    fn verifier(&self) -> Verifier {
        self.backend.verifier()
    }

    /// Handles that a backend issues are good for as long as they promise to be.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }
}
