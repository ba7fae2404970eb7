//! Work of a helper, and its report to the shard.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::io::{Errno, pread};
use stag_nfs_os::{User, user::leave};
use stag_protocol::nfs::v3::Status;

use super::{
    Fetch, HelperDone,
    content_copy::{CopyBudget, CopySpan, copy_span},
};
use crate::{
    Backend, HelperStore, StoreCall, StoreCallDone, StoreOutcome, TRANSFER_MAX,
    contract::tickets::{ReadTicket, WaitTicket},
    shard_mailbox::Inbox,
};

/// A group of related jobs: those of one export. While its file system does not respond, they leave
/// helpers to other lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperLane(pub u32);

impl HelperLane {
    /// The lane of all fetches.
    pub const FETCHES: Self = Self(u32::MAX);
    /// The lane of calls on no export.
    pub const ROOTS: Self = Self(u32::MAX - 1);
}

/// Part of a file that must reach stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncExtent {
    /// Content, and what is needed to find it (`fdatasync`).
    Data,
    /// Content and all attributes (`fsync`).
    All,
    /// All of the file system (`syncfs`).
    FileSystem,
}

impl SyncExtent {
    /// Syncs this part of an open file, and waits for it.
    pub(crate) fn sync(self, file: impl AsFd) -> rustix::io::Result<()> {
        let synced = match self {
            Self::Data => rustix::fs::fdatasync(file),
            Self::All => rustix::fs::fsync(file),
            Self::FileSystem => rustix::fs::syncfs(file),
        };
        match synced {
            // The file system does not sync this kind of file.
            Err(Errno::INVAL) => Ok(()),
            synced => synced,
        }
    }
}

/// A sync that is required before a call can be answered.
#[derive(Debug)]
pub(crate) struct OwedSync {
    pub(crate) file: OwnedFd,
    pub(crate) extent: SyncExtent,
}

/// Bytes to copy from one open file to another.
#[derive(Debug)]
pub(crate) struct OwedCopy {
    pub(crate) source: OwnedFd,
    pub(crate) target: OwnedFd,
    pub(crate) span: CopySpan,
    /// The user to act as, in privileged mode: the kernel clears set-id bits and charges space as
    /// for that user's WRITE.
    pub(crate) user: Option<User>,
}

impl OwedCopy {
    /// Copies, and waits for the end.
    pub(crate) fn copy(&self, budget: CopyBudget) -> rustix::io::Result<u64> {
        copy_span(&self.source, &self.target, self.span, budget)
    }

    /// As [`copy`](Self::copy), as the user.
    fn copy_as_user(&self) -> rustix::io::Result<u64> {
        let Some(user) = &self.user else { return self.copy(CopyBudget::HELPER) };
        user.assume()?;
        let copied = self.copy(CopyBudget::HELPER);
        // If this fails, assuming the next user corrects the thread's identity.
        let _ = leave();
        copied
    }
}

/// Work for a helper.
pub(super) enum HelperJob {
    Fetch(FetchJob),
    Sync(SyncJob),
    Copy(Box<CopyJob>),
    Call(Box<CallJob>),
}

impl HelperJob {
    /// Returns true if it holds descriptors of files.
    pub(super) const fn has_files(&self) -> bool {
        !matches!(self, Self::Call(_))
    }
}

/// Bytes to fetch to memory.
pub(super) struct FetchJob {
    pub(super) file: OwnedFd,
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) ticket: ReadTicket,
    pub(super) by: Arc<Inbox<ReadTicket>>,
}

/// Files to sync.
pub(super) struct SyncJob {
    pub(super) files: Vec<OwedSync>,
    /// Counts syncs that failed.
    pub(super) failures: Arc<AtomicU64>,
    pub(super) ticket: WaitTicket,
    pub(super) by: Arc<Inbox<HelperDone>>,
    pub(super) bell: Arc<Inbox<ReadTicket>>,
}

/// A copy to make.
pub(super) struct CopyJob {
    pub(super) owed: OwedCopy,
    pub(super) ticket: WaitTicket,
    pub(super) by: Arc<Inbox<HelperDone>>,
    pub(super) bell: Arc<Inbox<ReadTicket>>,
}

/// A call to carry out.
pub(super) struct CallJob {
    pub(super) call: StoreCall,
    pub(super) ticket: WaitTicket,
    pub(super) by: Arc<Inbox<HelperDone>>,
    pub(super) bell: Arc<Inbox<ReadTicket>>,
}

/// State that one helper keeps across jobs.
pub(super) struct HelperDesk<'a> {
    pub(super) number: usize,
    pub(super) fetch: &'a Fetch,
    pub(super) backend: Option<&'a dyn Backend>,
    pub(super) store: Option<Box<dyn HelperStore>>,
    scratch: Vec<u8>,
    /// True if the last attempt to open the store failed; reported once.
    is_failing: bool,
}

impl<'a> HelperDesk<'a> {
    pub(super) fn new(number: usize, fetch: &'a Fetch, backend: Option<&'a dyn Backend>) -> Self {
        Self { number, fetch, backend, store: None, scratch: Vec::new(), is_failing: false }
    }

    /// Executes a job and reports to its shard, which may be gone.
    pub(super) fn carry_out(&mut self, job: HelperJob) {
        match job {
            HelperJob::Fetch(job) => self.fetch(job),
            HelperJob::Sync(SyncJob { files, failures, ticket, by, bell }) => {
                let synced = files.iter().try_for_each(|owed| owed.extent.sync(&owed.file));
                drop(files);
                if synced.is_err() {
                    // Immediately: another client may commit before the shard is notified.
                    failures.fetch_add(1, Ordering::AcqRel);
                }
                let _ = by.put(HelperDone::Synced(ticket, synced));
                bell.wake();
            }
            HelperJob::Copy(job) => {
                let CopyJob { owed, ticket, by, bell } = *job;
                let copied = owed.copy_as_user();
                drop(owed);
                let _ = by.put(HelperDone::Copied(ticket, copied));
                bell.wake();
            }
            HelperJob::Call(job) => {
                let CallJob { mut call, ticket, by, bell } = *job;
                let outcome = self.perform(&mut call);
                let done = StoreCallDone { ticket, call, outcome };
                // The inbox has room for all of the shard's tickets.
                let _ = by.put(HelperDone::Called(Box::new(done)));
                bell.wake();
            }
        }
    }

    fn fetch(&mut self, FetchJob { file, offset, len, ticket, by }: FetchJob) {
        if self.scratch.is_empty() {
            self.scratch = vec![0; TRANSFER_MAX as usize];
        }
        let len = len.min(self.scratch.len());
        (self.fetch)(file.as_fd(), offset, self.scratch.get_mut(..len).unwrap_or_default());
        // Closed first: once the ticket is returned, a READ holds nothing here.
        drop(file);
        // The inbox has room for all of the shard's tickets; the shard may be gone.
        let _ = by.put(ticket);
        by.wake();
    }

    fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome {
        let Some(store) = self.store() else { return StoreOutcome::Failed(Status::Jukebox) };
        match catch_unwind(AssertUnwindSafe(|| store.perform(call))) {
            Ok(outcome) => outcome,
            Err(_) => {
                // A bug of ours or of a library. The store it left is not reused.
                self.store = None;
                StoreOutcome::Failed(Status::ServerFault)
            }
        }
    }

    fn store(&mut self) -> Option<&mut Box<dyn HelperStore>> {
        if self.store.is_none() {
            match self.backend?.open_helper(self.number) {
                Ok(store) => {
                    self.store = Some(store);
                    self.is_failing = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        eprintln!(
                            "stag-nfs: helper {} cannot open its store: {error}",
                            self.number
                        );
                    }
                }
            }
        }
        self.store.as_mut()
    }
}

/// Reads until the end. An error recurs when the shard reads again, and is reported then.
pub(super) fn fetch(file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]) {
    let mut done = 0;
    while let Some(rest) = scratch.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(at) = offset.checked_add(done as u64) else { return };
        match pread(file, rest, at) {
            Ok(0) => return,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
