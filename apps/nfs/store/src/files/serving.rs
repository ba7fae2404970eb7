//! The current exports, in the roster and in each store's copy. MNT looks for another directory at
//! the path of its export ([`super::paths`]).

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use stag_protocol::nfs::v3::{FileHandle, FileKind};

use super::{
    Files, SharedFiles, access_table::AccessTable, blocking_exports::SlowExports, cache::OpenFile,
    kernel_handles::ExportMounts,
};
use crate::exports::{
    config::{Export, ExportId, Exports},
    handle::Named,
};

/// The exports, and how the kernel opens their files.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    pub exports: Arc<Exports>,
    pub mounts: Arc<ExportMounts>,
    /// Exports whose calls may block, and are carried out by helpers.
    pub waiting: Arc<[ExportId]>,
    /// Exports on tmpfs: no helper is needed for their syncs.
    pub in_memory: Arc<[ExportId]>,
    /// The rules that determine `waiting`.
    pub slow: Arc<SlowExports>,
    /// Client rules of exports; none if no export has any.
    pub access: Option<Arc<AccessTable>>,
    pub edition: u64,
}

/// The exports that all shards copy. Only a call with the handle of an unknown export looks here.
#[derive(Debug)]
pub(super) struct Roster {
    serving: Mutex<Serving>,
    edition: AtomicU64,
    /// Held while a new edition is made, which may take long. No shard waits for it.
    pub reviving: Mutex<()>,
}

/// Ids of the exports among these that are on tmpfs.
pub(super) fn in_memory(exports: &Exports) -> Arc<[ExportId]> {
    exports.iter().filter(|export| export.limits().is_in_memory).map(Export::id).collect()
}

impl Roster {
    /// The exports that the server starts with.
    pub fn new(exports: Exports, mounts: ExportMounts, slow: SlowExports) -> Self {
        let serving = Serving {
            waiting: slow.of(&exports),
            in_memory: in_memory(&exports),
            slow: Arc::new(slow),
            exports: Arc::new(exports),
            mounts: Arc::new(mounts),
            access: None,
            edition: 0,
        };
        Self { serving: Mutex::new(serving), edition: AtomicU64::new(0), reviving: Mutex::new(()) }
    }

    /// The current exports.
    pub fn serving(&self) -> Serving {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes another edition to all shards.
    pub(super) fn publish(&self, serving: Serving) {
        let edition = serving.edition;
        *self.serving.lock().unwrap_or_else(PoisonError::into_inner) = serving;
        self.edition.store(edition, Ordering::Release);
    }

    pub(super) fn has_changed_since(&self, serving: &Serving) -> bool {
        self.edition.load(Ordering::Acquire) != serving.edition
    }
}

impl Serving {
    /// The export with this id.
    pub fn export(&self, id: ExportId) -> Option<&Export> {
        self.exports.by_id(id)
    }
}

impl SharedFiles {
    /// Returns true in privileged mode: threads act as their callers.
    pub const fn acts_as_callers(&self) -> bool {
        self.policy.is_some()
    }

    /// Serves these exports from now on, under the rules in force.
    pub(super) fn publish(&self, serving: Serving, exports: Exports) {
        let mounts = match self.policy {
            Some(_) => serving.mounts.renewed(&exports),
            None => ExportMounts::default(),
        };
        let access = serving.access.as_ref().map(|table| Arc::new(table.renewed(&exports)));
        self.roster.publish(Serving {
            waiting: serving.slow.of(&exports),
            in_memory: in_memory(&exports),
            exports: Arc::new(exports),
            mounts: Arc::new(mounts),
            access,
            slow: serving.slow,
            edition: serving.edition + 1,
        });
    }
}

impl Files {
    /// Serves the current exports. No file may be in use.
    pub(super) fn renew(&mut self) {
        if !self.shared.roster.has_changed_since(&self.serving) {
            return;
        }
        let old = core::mem::replace(&mut self.serving, self.shared.roster.serving());
        self.forget_guest();
        let is_over = |id: ExportId| match (old.export(id), self.serving.export(id)) {
            (Some(old), Some(new)) => !core::ptr::eq(old, new),
            _ => true,
        };
        let ended: Vec<_> = (0..self.cache.slots())
            .filter_map(|number| self.cache.slot(number))
            .filter(|slot| is_over(self.cache.get(*slot).identity.file.export))
            .collect();
        for slot in ended {
            let open = self.cache.take(slot);
            self.part_with(open);
        }
        let serving = self.serving.clone();
        for export in serving.exports.iter() {
            // Without free descriptors the root is opened by its names, of which it has none: MNT
            // is retried.
            if self.cache.look_for(export.identity().file).is_none()
                && let Ok(root) = self.root_of(export)
            {
                let evicted = self.cache.pin(root);
                self.part_with(evicted);
            }
        }
    }

    /// An export's root, open.
    pub(super) fn root_of(&self, export: &Export) -> std::io::Result<OpenFile> {
        let path = export.root().try_clone()?;
        let kernel = self.serving.mounts.root(export.id());
        Ok(OpenFile { kernel, ..OpenFile::by_path(export.identity(), FileKind::Directory, path) })
    }

    /// The handle of an export's root.
    pub(super) fn root_handle(&self, export: &Export) -> FileHandle {
        self.shared.seal_root(&self.serving.mounts, export)
    }
}

impl SharedFiles {
    /// The handle of an export's root; MOUNT's answer.
    pub fn root(&self, export: &Export) -> FileHandle {
        self.seal_root(&self.roster.serving().mounts, export)
    }

    fn seal_root(&self, mounts: &ExportMounts, export: &Export) -> FileHandle {
        self.handles.seal(&match mounts.root(export.id()) {
            Some(handle) => Named::Kernel(export.identity().file, handle),
            None => Named::Birth(export.identity()),
        })
    }
}
