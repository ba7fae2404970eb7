//! A store all calls of which are executed elsewhere, and so wait: by helpers with a [`Backend`],
//! or by the shard that owns the memory.

use std::{collections::BTreeMap, io, sync::Arc};

use stag_engine::PeerAddress;
use stag_protocol::nfs::v3::{FileHandle, Status, Verifier};

use crate::{
    Answered, Backend, Begun, Effort, ExportRoot, Store, StoreCall, StoreCallDone,
    call::carrier::Carrier,
    contract::tickets::WaitTicket,
    exports::security::SecurityFlavors,
    helpers::{HelperDone, HelperLane, Helpers},
    memory::GuestMail,
};

/// The shard's end of a store that is elsewhere.
pub struct RemoteStore {
    carrier: Box<dyn Carrier>,
    exports: Vec<String>,
    has_security: bool,
    /// Fails every procedure: none is executed here.
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
        Self::by(Box::new(ByHelpers { backend, helpers }))
    }

    /// A store for one shard, whose calls go to the shard that has the memory.
    pub fn in_memory(mail: GuestMail) -> Self {
        Self::by(Box::new(mail))
    }

    fn by(carrier: Box<dyn Carrier>) -> Self {
        let (exports, has_security) = (carrier.exports(), carrier.has_security());
        Self { carrier, exports, has_security, nothing: Answered::failed(Status::Jukebox) }
    }
}

/// The transport to helper threads started for the same backend.
struct ByHelpers {
    backend: Arc<dyn Backend>,
    helpers: Helpers,
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

    fn has_security(&self) -> bool {
        self.backend.has_security()
    }

    fn flavors(&self, export: &str) -> Option<SecurityFlavors> {
        self.backend.flavors(export)
    }

    fn flavors_of(&self, object: &FileHandle) -> Option<SecurityFlavors> {
        self.backend.flavors_of(object)
    }

    fn is_root(&self, object: &FileHandle) -> bool {
        self.backend.is_root(object)
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
        match self.carrier.send(call, ticket) {
            Ok(()) => Begun::Later,
            Err(call) => Begun::Refused(call),
        }
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        self.carrier.next_done()
    }

    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall> {
        self.carrier.withdraw(ticket)
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.exports.iter().map(String::as_str)
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.carrier.export_roots()
    }

    fn has_security(&self) -> bool {
        self.has_security
    }

    fn flavors(&self, export: &str, _address: PeerAddress) -> Option<SecurityFlavors> {
        self.carrier.flavors(export)
    }

    fn flavors_of(&self, object: &FileHandle, _address: PeerAddress) -> Option<SecurityFlavors> {
        self.carrier.flavors_of(object)
    }

    fn is_root(&self, object: &FileHandle) -> bool {
        self.carrier.is_root(object)
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.carrier.unpin(file);
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        self.carrier.faults()
    }

    fn verifier(&self) -> Verifier {
        self.carrier.verifier()
    }

    /// The executor keeps the handles that it issues valid.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }
}
