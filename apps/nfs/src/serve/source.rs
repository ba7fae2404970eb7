//! The source of a server's store, from which each shard opens its own: all that a server does by
//! the kind of its store.

use super::{Copied, ServeError, ServeShard, Started, shard::StoreNotes};
use crate::GatewayReport;
use stag_engine::{control::Control, stats::Snapshot};
use stag_nfs_store::{
    Backend, RemoteStore, StartError,
    ceph::CephBackend,
    files::{ExportChanges, ExportSet, Files, FilesBackend, Ring, SharedFiles},
    helpers::Helpers,
    memory::{Memory, MemoryConfig, MemoryMail, Progress},
};
use stag_nfs4_state::DelegationPolicy;
use std::{sync::Arc, time::Duration};

/// The source of a shard's store.
#[derive(Clone, Debug)]
pub enum StoreSource {
    /// Directories served by all shards.
    Files(Arc<SharedFiles>),
    /// Directories of a Ceph file system served by all shards.
    Ceph(CephBackend),
    /// Memory owned by the first shard, which executes the calls of the others.
    Memory(MemoryConfig),
}

impl StoreSource {
    /// Returns true if shards act as their callers on files, and change their credentials.
    pub(super) fn changes_user(&self) -> bool {
        matches!(self, Self::Files(shared) if shared.acts_as_callers())
    }

    /// True if each caller acts on files of this host as the user it names.
    pub fn is_privileged(&self) -> bool {
        matches!(self, Self::Files(shared) if shared.is_privileged())
    }

    /// Sixteen octets that identify its file handles among those of all servers; none if they do
    /// not outlive the process.
    pub(super) fn identity(&self) -> Option<[u8; 16]> {
        match self {
            Self::Files(shared) => Some(shared.identity()),
            Self::Ceph(backend) => Some(backend.identity()),
            Self::Memory(_) => None,
        }
    }

    /// Delegations of exports without a setting: none where changes by others go unnoticed.
    pub(super) const fn delegations(&self) -> DelegationPolicy {
        match self {
            Self::Files(_) | Self::Ceph(_) => DelegationPolicy::Never,
            Self::Memory(_) => DelegationPolicy::ReadWrite,
        }
    }

    /// Sentences to print at the start; of files of this host, the first says as whom callers act.
    pub fn notices(&self) -> &[String] {
        match self {
            Self::Files(shared) => shared.notices(),
            Self::Ceph(_) | Self::Memory(_) => &[],
        }
    }

    /// The backend by which helpers execute calls in place of shards; none if no call waits.
    pub fn backend(&self) -> Option<Arc<dyn Backend>> {
        match self {
            Self::Files(shared) => {
                FilesBackend::of(shared).map(|files| Arc::new(files) as Arc<dyn Backend>)
            }
            Self::Ceph(backend) => Some(Arc::new(backend.clone())),
            Self::Memory(_) => None,
        }
    }

    /// Serves the exports of `set` from here on; none if its exports are those of the start.
    ///
    /// # Errors
    /// A sentence. All exports are then served as before.
    pub fn replace_exports(&self, set: &ExportSet) -> Option<Result<ExportChanges, StartError>> {
        match self {
            Self::Files(shared) => Some(shared.replace_exports(set)),
            Self::Ceph(_) | Self::Memory(_) => None,
        }
    }

    /// Registers the function that wakes `shard` when another one has something for its store.
    pub fn attach_wakeup(&self, shard: usize, wake: impl Fn() + Send + Sync + 'static) {
        match self {
            Self::Files(shared) => shared.attach_wakeup(shard, wake),
            Self::Ceph(_) | Self::Memory(_) => {}
        }
    }

    /// Ends the session with its cluster, if it has one; false if that takes longer than `limit`,
    /// because calls are blocked.
    pub fn close(&self, limit: Duration) -> bool {
        match self {
            Self::Ceph(backend) => backend.close(limit),
            Self::Files(_) | Self::Memory(_) => true,
        }
    }
}

impl ServeShard {
    /// Builds the shard, calls `ready`, and runs until it is asked to stop.
    pub fn run(
        mut self,
        control: &Control<Snapshot<GatewayReport>>,
        ready: impl FnOnce(Started),
    ) -> Result<Snapshot<GatewayReport>, ServeError> {
        let is_beside_helpers = self.helpers.as_ref().is_some_and(Helpers::compete_with_shards);
        let mut notes = StoreNotes { is_beside_helpers, ..StoreNotes::default() };
        match self.source.clone() {
            StoreSource::Files(shared) => {
                let mut files = Files::open(&shared, self.index)?;
                if let Some(helpers) = self.helpers.take() {
                    files = files.with_helpers(helpers);
                }
                match Ring::new(self.ring_reads(), control.waker()) {
                    Ok(ring) => files = files.with_ring(ring),
                    Err(error) => notes.ring_fault = Some(error),
                }
                self.run_with(files, notes, control, ready)
            }
            StoreSource::Ceph(backend) => {
                let helpers = self.helpers.take().ok_or_else(|| {
                    StartError("a store on CephFS needs helpers, and has none".to_owned())
                })?;
                let store = RemoteStore::new(Arc::new(backend), helpers);
                self.run_with(store, notes, control, ready)
            }
            StoreSource::Memory(config) => {
                let mail = self.memory.take();
                if let Some(mail) = &mail {
                    let waker = control.waker();
                    mail.wakeup().attach(move || waker.wake());
                }
                let home = match mail {
                    Some(MemoryMail::Guest(mail)) => {
                        // The first shard has the files and executes all of version 4: this takes
                        // fewer calls by mail than forwarding compounds would.
                        self.nfs.four = None;
                        return self.run_with(RemoteStore::in_memory(mail), notes, control, ready);
                    }
                    Some(MemoryMail::Home(mail)) => Some(mail),
                    None => None,
                };
                let config = MemoryConfig { shared: self.fabric.is_trusting(), ..config };
                let mut copied = Copied::default();
                let mut progress = |at: &Progress<'_>| {
                    copied =
                        Copied { objects: at.objects, octets: at.octets, left_out: at.left_out };
                };
                let mut memory = Memory::new(&config, &mut progress)?;
                let copied = Some(copied).filter(|copied| copied.objects > 0);
                (notes.memory, notes.copied) = (Some(memory.budget()), copied);
                if let Some(mail) = home {
                    memory = memory.with_guests(mail);
                }
                self.run_with(memory, notes, control, ready)
            }
        }
    }
}
