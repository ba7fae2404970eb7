//! Delegations in exports whose files local programs may change, too: only for reading, and only of
//! files that the store watches (`Store::watch`; RFC 8881 §10.4).
//!
//! The kernel blocks a program that opens such a file for writing, but not one that changes its
//! names or attributes. The store reports both cases, and the delegations are recalled. The kernel
//! does not distinguish clients: a client that is about to write or lock a watched file here waits
//! like a local program, even if it holds the delegation itself, until the store has stopped
//! watching.

use std::collections::HashMap;

use stag_engine::Time;
use stag_protocol::nfs::v3::FileHandle;

use crate::v4::{
    Nfs4,
    context::{CompoundContext, OpResult, state_calls::file_id},
    milliseconds,
};
use stag_nfs_store::{Store, TouchedFile};
use stag_nfs4_state::{DelegationOutcome, FileId, GivenDelegation, StateFault};

/// Clients whose leases expired that one recall removes because they hold the delegation.
const REMOVALS: usize = 64;

/// Exports whose files are watched, and the files.
#[derive(Debug, Default)]
pub(in crate::v4) struct WatchedFiles {
    /// The exports by the numbers of their file systems.
    exports: Vec<u64>,
    files: HashMap<FileId, DelegatedFile>,
    /// Files that the store has reported so far.
    pub(in crate::v4) touched: u64,
}

#[derive(Debug)]
struct DelegatedFile {
    handle: FileHandle,
    /// Set once the store has reported it.
    touched: Option<TouchedFile>,
}

impl WatchedFiles {
    /// Watches files of these file systems when they are delegated.
    pub(in crate::v4) fn set_exports(&mut self, file_systems: Vec<u64>) {
        self.exports = file_systems;
    }

    /// Files that are watched at this moment.
    pub(in crate::v4) fn len(&self) -> usize {
        self.files.len()
    }
}

impl Nfs4 {
    /// Returns true if files of a file system are watched when they are delegated.
    pub(in crate::v4) fn watches(&self, fsid: u64) -> bool {
        self.watched.exports.contains(&fsid)
    }

    /// Stops watching files without delegations. Must be called before any operation is resumed
    /// that waited for that.
    pub(in crate::v4) fn unwatch_returned<S: Store>(&mut self, store: &mut S) {
        while let Some(file) = self.state.next_undelegated() {
            if let Some(watched) = self.watched.files.remove(&file) {
                store.unwatch(&watched.handle);
            }
        }
    }

    /// Recalls the delegations of files that local programs have touched. Called once in a pass.
    pub(crate) fn tend_watched<S: Store>(&mut self, store: &mut S, now: Time) {
        if !self.has_watched() {
            return;
        }
        while let Some(touched) = store.next_touched() {
            let file = file_id(&touched.file);
            // The delegation may have been returned meanwhile.
            if let Some(watched) = self.watched.files.get_mut(&file) {
                self.watched.touched += u64::from(watched.touched.is_none());
                watched.touched = Some(touched);
                self.recall_touched(&touched, now);
            }
        }
        self.unwatch_returned(store);
    }

    /// Retries recalls that failed when the store reported the file.
    pub(in crate::v4) fn recall_all_touched(&mut self, now: Time) {
        let touched = self.watched.files.values().filter_map(|watched| watched.touched);
        for touched in touched.collect::<Vec<_>>() {
            self.recall_touched(&touched, now);
        }
    }

    fn recall_touched(&mut self, touched: &TouchedFile, now: Time) {
        let patience = touched.patience.map(|patience| milliseconds(Time(0) + patience));
        for _ in 0..REMOVALS {
            match self.state.recall_for_host(file_id(&touched.file), patience, milliseconds(now)) {
                // RFC 8881 §10.2.1: a client whose lease expired has no delegation that conflicts.
                Err(StateFault::AwaitRemoval(client)) => {
                    if !self.remove_expired(client, now) {
                        return;
                    }
                }
                _ => return,
            }
        }
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Waits until no client, not even the caller, has a delegation of a file that the store
    /// watches: it is about to be opened for writing, or locked.
    ///
    /// # Errors
    /// [`OpExit::Wait`](crate::v4::context::OpExit::Wait), and then NFS4ERR_DELAY, while a recall
    /// is outstanding.
    pub(in crate::v4) fn await_unwatched(&mut self, file: &FileHandle, fsid: u64) -> OpResult {
        if !self.nfs4.watches(fsid) || !self.sees_delegations() {
            return Ok(());
        }
        let id = file_id(file);
        self.check_once(|context| {
            context.with_state(|state, now| state.recall_for_host(id, None, now))?;
            context.nfs4.unwatch_returned(context.store);
            Ok(())
        })
    }

    /// Has the store watch a file of which a delegation was just granted, and which had the
    /// attribute `change` when it was opened. If that fails, the delegation is dropped, and the
    /// outcome returned follows `asked`, the access of the OPEN.
    pub(in crate::v4) fn watch(
        &mut self,
        given: &GivenDelegation,
        file: &FileHandle,
        change: u64,
        asked: u32,
    ) -> Option<DelegationOutcome> {
        if self.store.watch(file, change) {
            let watched = DelegatedFile { handle: *file, touched: None };
            self.nfs4.watched.files.entry(file_id(file)).or_insert(watched);
            return None;
        }
        Some(self.nfs4.state.take_back(given.state, asked))
    }
}
