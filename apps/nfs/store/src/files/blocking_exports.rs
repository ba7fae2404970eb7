//! Calls that block without blocking their shard.
//!
//! **Exports whose calls may block**: those on a network file system or one of another process
//! ([`SlowExports`]). Each helper has a store of its own ([`FilesBackend`]), in addition to the
//! shards' stores, and carries out whole calls with it, as their callers. If a file is open in
//! several of these stores, each gets a write-back failure from its own descriptor, and changes the
//! verifier for all.
//!
//! **Syncs**, of every export but those on tmpfs, where fsync(2) has nothing to write and the shard
//! calls it: a call that requires one is carried out here except for the sync. It
//! is answered when a helper has synced, by a duplicate of the shard's own descriptor: the kernel
//! reports a failed write-back to the descriptors open at the time.
//!
//! **Long copies**, of every export: the shard opens both files and checks the call. A helper has
//! the kernel copy through duplicates of the shard's descriptors (`content_copy`).

use core::cell::RefCell;
use std::{collections::BTreeMap, os::fd::AsFd, sync::Arc};

use rustix::io::fcntl_dupfd_cloexec;
use stag_engine::Time;
use stag_nfs_os::user;
use stag_protocol::nfs::v3::{FileHandle, Status, Verifier};

use super::{Files, SharedFiles, SyncExtent, errno, ranges::CopyBegun};
use crate::{
    Backend, Begun, Effort, ExportRoot, Failed, HelperStore, StoreCall, StoreCallDone,
    StoreOutcome, StoreRequest,
    contract::tickets::{TICKETS, WaitTicket},
    exports::{
        config::{Export, ExportId, Exports},
        handle::{FileId, HandleKey},
    },
    helpers::{HelperDone, HelperLane, OwedSync, OwedSyncs, THREADS, content_copy::CopyBudget},
    perform,
    start_error::StartError,
};

/// Exports whose calls may block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SlowExports {
    /// None: all calls are made by the shards.
    None,
    /// Exports on a network file system, or one of another process.
    #[default]
    ByFileSystem,
    /// These exports, and those on such a file system.
    Named(Vec<String>),
    /// All.
    All,
}

impl SlowExports {
    fn has(&self, export: &Export) -> bool {
        match self {
            Self::None => false,
            Self::ByFileSystem => export.limits().is_remote,
            Self::Named(names) => {
                export.limits().is_remote || names.iter().any(|name| name == export.name())
            }
            Self::All => true,
        }
    }

    /// Ids of the slow ones among `exports`.
    pub(super) fn of(&self, exports: &Exports) -> Arc<[ExportId]> {
        exports.iter().filter(|export| self.has(export)).map(Export::id).collect()
    }

    /// Refuses names of no export.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn check(&self, exports: &Exports) -> Result<(), StartError> {
        let Self::Named(names) = self else { return Ok(()) };
        let unknown = names.iter().find(|name| !exports.names().any(|known| known == **name));
        unknown.map_or(Ok(()), |name| Err(StartError(format!("no export is named {name}"))))
    }
}

/// Configuration of blocking calls for the stores of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingConfig {
    /// Number of helpers that the process starts; with none, the shards make all calls.
    pub helpers: usize,
    /// Exports whose calls the helpers carry out.
    pub slow: SlowExports,
}

impl WaitingConfig {
    /// The default number of helpers, for exports chosen by their file system.
    pub const USUAL: Self = Self { helpers: THREADS, slow: SlowExports::ByFileSystem };
}

/// Stores of helpers.
#[derive(Clone, Copy, Debug)]
pub(super) struct HelpingStores {
    /// Number of the first, after those of the shards.
    pub first: usize,
    /// Their count; zero if no export is slow.
    pub count: usize,
    /// Files that each keeps open.
    pub open_files: usize,
}

/// Directories whose calls helpers carry out.
#[derive(Debug)]
pub struct FilesBackend(Arc<SharedFiles>);

impl FilesBackend {
    /// Creates the helpers' part of `shared`; none if no export's calls may block.
    pub fn of(shared: &Arc<SharedFiles>) -> Option<Self> {
        (shared.helping.count > 0).then(|| Self(Arc::clone(shared)))
    }
}

impl Backend for FilesBackend {
    fn open_helper(&self, helper: usize) -> Result<Box<dyn HelperStore>, StartError> {
        let HelpingStores { first, count, open_files } = self.0.helping;
        if helper >= count {
            return Err(StartError(format!("there are {count} stores for helpers")));
        }
        // The thread may act as an earlier caller: the state directory is the server's own.
        user::leave().map_err(|error| StartError(format!("cannot act as the server: {error}")))?;
        let files = Files::open_with(&self.0, first + helper, open_files)?;
        Ok(Box::new(FilesHelper { files, is_flush_failing: false }))
    }

    fn exports(&self) -> Vec<String> {
        self.0.exports().names().map(str::to_owned).collect()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.0.exports().iter().map(|export| export.root_with(None)).collect()
    }

    fn unpin(&self, file: &FileHandle) {
        self.0.unpin(file);
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        self.0.faults.counts()
    }

    fn verifier(&self) -> Verifier {
        self.0.verifier()
    }
}

/// The store of one helper.
struct FilesHelper {
    files: Files,
    is_flush_failing: bool,
}

impl HelperStore for FilesHelper {
    fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome {
        // No file is in use between two calls.
        self.files.renew();
        self.files.inside.begin_step();
        let outcome = perform(&mut self.files, call);
        // The reply may carry a handle.
        self.flush();
        outcome
    }

    fn tidy(&mut self, now: Time) {
        self.files.tidy(now);
        self.flush();
    }

    fn wants_tidying(&self) -> bool {
        self.files.wants_idle_passes()
    }
}

impl FilesHelper {
    fn flush(&mut self) {
        match self.files.flush() {
            Ok(()) => self.is_flush_failing = false,
            Err(error) => {
                if !core::mem::replace(&mut self.is_flush_failing, true) {
                    eprintln!("stag-nfs: a helper cannot write the handle index: {error}");
                }
            }
        }
    }
}

/// A call that was carried out except for its syncs, or for the bytes of a COPY.
#[derive(Debug)]
struct LateCall {
    call: StoreCall,
    outcome: StoreOutcome,
    /// The target of a COPY.
    copies_to: Option<FileId>,
}

/// Calls of one shard that await their syncs, and the syncs that the current call requires.
#[derive(Debug, Default)]
pub(crate) struct LateCalls {
    /// By ticket.
    calls: Vec<Option<LateCall>>,
    /// The syncs deferred so far; none while syncs are not deferred.
    owed: RefCell<Option<Vec<OwedSync>>>,
}

impl Files {
    /// Returns true if a call on an object must not be completed by the shard.
    pub(super) fn waits(&self, object: &FileHandle, effort: Effort) -> bool {
        self.helpers.is_some()
            && match effort {
                Effort::Long => true,
                Effort::Sync => self.syncs_wait(object),
                Effort::Change if self.shared.sync_directories => self.syncs_wait(object),
                Effort::Change | Effort::Plain => self.is_slow(object),
            }
    }

    /// Returns true if a sync of an object may take long. An export is one file system (`NO_XDEV`),
    /// so the type of its root decides for all of its objects.
    fn syncs_wait(&self, object: &FileHandle) -> bool {
        let in_memory = &self.serving.in_memory;
        let is_quick = !in_memory.is_empty()
            && HandleKey::claimed_export(object).is_some_and(|id| in_memory.contains(&id));
        !is_quick || self.is_slow(object)
    }

    pub(super) fn mount_waits(&self) -> bool {
        self.helpers.is_some() && !self.serving.waiting.is_empty()
    }

    pub(super) fn is_slow(&self, object: &FileHandle) -> bool {
        let slow = &self.serving.waiting;
        !slow.is_empty() && HandleKey::claimed_export(object).is_some_and(|id| slow.contains(&id))
    }

    /// The lane of a call that a helper has to carry out; none for the shard's own calls.
    fn lane_of(&self, call: &StoreCall) -> Option<HelperLane> {
        if matches!(call.operation, StoreRequest::Mount) {
            return Some(HelperLane::ROOTS);
        }
        let mut objects = call.operation.objects().into_iter().flatten();
        let slow = objects.find(|object| self.is_slow(object))?;
        HandleKey::claimed_export(&slow).map(|id| HelperLane(id.0))
    }

    /// Begins a call: gives it to a helper, or carries it out except for its syncs.
    pub(super) fn begin_call(&mut self, mut call: StoreCall, ticket: WaitTicket) -> Begun {
        if let (Some(lane), Some(helpers)) = (self.lane_of(&call), &self.helpers) {
            return match helpers.perform(lane, call, ticket) {
                Ok(()) => Begun::Later,
                Err(call) => Begun::Refused(call),
            };
        }
        if let StoreRequest::Copy { from, to, count } = call.operation {
            self.act_as_caller(&call.caller);
            let begun = self.begin_copy(from, to, count);
            return self.go_on_copying(call, ticket, begun);
        }
        self.late.owed.replace(Some(Vec::new()));
        let outcome = perform(self, &mut call);
        let owed = self.late.owed.take().unwrap_or_default();
        if owed.is_empty() {
            return Begun::Done(StoreCallDone { ticket, call, outcome });
        }
        let [object, _] = call.operation.objects();
        let lane = object
            .as_ref()
            .and_then(HandleKey::claimed_export)
            .map_or(HelperLane::ROOTS, |id| HelperLane(id.0));
        let refused = match &self.helpers {
            Some(helpers) => {
                let failures = Arc::clone(self.shared.epoch.failed_syncs());
                helpers.sync(lane, OwedSyncs { files: owed, failures }, ticket).err()
            }
            None => Some(owed),
        };
        let late = LateCall { call, outcome, copies_to: None };
        match refused {
            // The call cannot be undone: the shard waits itself.
            Some(owed) => {
                let synced = owed.iter().try_for_each(|owed| owed.extent.sync(&owed.file));
                Begun::Done(self.end_late(ticket, late, self.judge_sync(synced)))
            }
            None => {
                self.late.put(ticket, late);
                Begun::Later
            }
        }
    }

    /// Gives a helper the work of a COPY. If none takes it, the shard copies a little itself.
    fn go_on_copying(&mut self, call: StoreCall, ticket: WaitTicket, begun: CopyBegun) -> Begun {
        let (work, target, done) = match begun {
            CopyBegun::Done(outcome) => {
                self.report_noted(&call.operation);
                let outcome = StoreOutcome::Copied(outcome);
                return Begun::Done(StoreCallDone { ticket, call, outcome });
            }
            CopyBegun::Owed { work, target, done } => (work, target, done),
        };
        let refused = match &self.helpers {
            Some(helpers) => helpers.copy(HelperLane(target.export.0), work, ticket).err(),
            None => Some(work),
        };
        let Some(work) = refused else {
            let outcome = StoreOutcome::Copied(Ok(done));
            self.late.put(ticket, LateCall { call, outcome, copies_to: Some(target) });
            return Begun::Later;
        };
        let copied = work.copy(CopyBudget::SHARD);
        let outcome = StoreOutcome::Copied(self.end_copy(target, done, copied));
        self.report_noted(&call.operation);
        Begun::Done(StoreCallDone { ticket, call, outcome })
    }

    /// The next call that a helper has completed.
    pub(super) fn next_call_done(&mut self) -> Option<StoreCallDone> {
        loop {
            match self.helpers.as_ref()?.next_done()? {
                HelperDone::Called(done) => return Some(*done),
                HelperDone::Synced(ticket, synced) => {
                    if let Some(late) = self.late.take(ticket) {
                        // The helper has counted a failure.
                        let synced = synced.map_err(errno::status);
                        return Some(self.end_late(ticket, late, synced));
                    }
                }
                HelperDone::Copied(ticket, copied) => {
                    if let Some(LateCall { call, outcome, copies_to: Some(target) }) =
                        self.late.take(ticket)
                        && let StoreOutcome::Copied(Ok(done)) = outcome
                    {
                        let outcome = StoreOutcome::Copied(self.end_copy(target, done, copied));
                        self.report_noted(&call.operation);
                        return Some(StoreCallDone { ticket, call, outcome });
                    }
                }
            }
        }
    }

    /// Completes a call whose syncs have ended.
    fn end_late(
        &self,
        ticket: WaitTicket,
        LateCall { call, outcome, .. }: LateCall,
        synced: Result<(), Status>,
    ) -> StoreCallDone {
        self.report_noted(&call.operation);
        let outcome = match (synced, outcome) {
            (Err(status), outcome) => unsynced(outcome, status),
            // The verifier that holds after its sync.
            (Ok(()), StoreOutcome::Committed(Ok(mut done))) => {
                done.verifier = self.shared.verifier();
                StoreOutcome::Committed(Ok(done))
            }
            (Ok(()), outcome) => outcome,
        };
        StoreCallDone { ticket, call, outcome }
    }

    /// Leaves a sync of the current call to a helper, if its syncs are deferred; false if the
    /// caller has to sync.
    pub(super) fn owes(&self, file: impl AsFd, extent: SyncExtent) -> bool {
        let mut owed = self.late.owed.borrow_mut();
        let Some(owed) = &mut *owed else { return false };
        // Without a free descriptor the caller syncs here.
        let Ok(file) = fcntl_dupfd_cloexec(file, 0) else { return false };
        owed.push(OwedSync { file, extent });
        true
    }
}

impl LateCalls {
    fn put(&mut self, ticket: WaitTicket, late: LateCall) {
        if self.calls.is_empty() {
            self.calls.resize_with(TICKETS, || None);
        }
        let earlier = self.calls.get_mut(ticket.index()).and_then(|entry| entry.replace(late));
        debug_assert!(earlier.is_none(), "a ticket stands for one call");
    }

    fn take(&mut self, ticket: WaitTicket) -> Option<LateCall> {
        self.calls.get_mut(ticket.index())?.take()
    }
}

/// The outcome of a call whose sync failed: it was carried out, and may be lost.
fn unsynced(outcome: StoreOutcome, status: Status) -> StoreOutcome {
    match outcome {
        StoreOutcome::Set(Ok(about)) => StoreOutcome::Set(Err(Failed { status, about })),
        StoreOutcome::Changed(Ok(about)) => StoreOutcome::Changed(Err(Failed { status, about })),
        StoreOutcome::Written(Ok(done)) => {
            StoreOutcome::Written(Err(Failed { status, about: done.file }))
        }
        StoreOutcome::Committed(Ok(done)) => {
            StoreOutcome::Committed(Err(Failed { status, about: done.file }))
        }
        StoreOutcome::Made(Ok(made)) => {
            StoreOutcome::Made(Err(Failed { status, about: made.directory }))
        }
        StoreOutcome::Renamed(Ok(about)) => StoreOutcome::Renamed(Err(Failed { status, about })),
        StoreOutcome::Linked(Ok(about)) => StoreOutcome::Linked(Err(Failed { status, about })),
        other => other,
    }
}
