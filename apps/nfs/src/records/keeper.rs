//! A thread that stores client records, so that shards do not wait. Changes queued during one sync
//! share the next. Records with a non-blocking home need no thread.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
};

use super::{ClientRecord, RecordChange, RecordError, Records};
use stag_nfs_store::shard_mailbox::{Inbox, Wakeup};

/// Queued changes at most.
const QUEUE_LEN: usize = 1_024;

/// Number of a requested change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChangeTicket(pub u64);

/// Reason why a change is not stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeFault {
    /// The storage failed, or is full: retry later (NFS4ERR_DELAY).
    Storage,
    /// The maximum of clients is recorded: retry later.
    Full,
    /// Another gateway has taken over: grant no more state.
    TakenOver,
    /// The change is invalid.
    Unfit,
}

impl From<&RecordError> for ChangeFault {
    fn from(error: &RecordError) -> Self {
        match error {
            RecordError::Storage(_) => Self::Storage,
            RecordError::Full => Self::Full,
            RecordError::TakenOver => Self::TakenOver,
            RecordError::Unfit(_) => Self::Unfit,
        }
    }
}

/// A completed change.
#[derive(Debug)]
pub struct ChangeDone {
    /// Its number.
    pub ticket: ChangeTicket,
    /// The clients that may reclaim from here on, after a takeover; empty after another change.
    pub outcome: Result<Vec<ClientRecord>, ChangeFault>,
}

enum KeeperTask {
    Changes(ChangeTicket, Vec<RecordChange>),
    TakeOver(ChangeTicket, String),
}

/// A shard's handle of the thread. When it is dropped the thread ends, after all requested changes.
#[derive(Debug)]
pub struct RecordKeeper {
    tasks: Option<SyncSender<KeeperTask>>,
    inbox: Arc<Inbox<ChangeDone>>,
    done: Receiver<ChangeDone>,
    /// Requested changes that have not completed.
    under_way: usize,
    next_ticket: u64,
    thread: Option<JoinHandle<()>>,
    /// Records stored here, without a thread.
    here: Option<RecordsHere>,
}

/// Records whose changes are executed by the caller, and the outcomes.
struct RecordsHere {
    records: Box<dyn Records>,
    done: VecDeque<ChangeDone>,
    is_failing: bool,
}

impl std::fmt::Debug for RecordsHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordsHere")
    }
}

impl std::fmt::Debug for KeeperTask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeeperTask")
    }
}

impl RecordKeeper {
    /// Starts a thread with records whose boot has begun.
    ///
    /// # Errors
    /// When the system cannot create a thread.
    pub fn start(records: Box<dyn Records>) -> io::Result<Self> {
        let (tasks, queue) = sync_channel(QUEUE_LEN);
        let (inbox, done) = Inbox::new(QUEUE_LEN);
        let inbox = Arc::new(inbox);
        let outcomes = Arc::clone(&inbox);
        let thread = thread::Builder::new().name("stag-records".to_owned());
        let thread = thread.spawn(move || keep(records, &queue, &outcomes))?;
        Ok(Self {
            tasks: Some(tasks),
            inbox,
            done,
            under_way: 0,
            next_ticket: 0,
            thread: Some(thread),
            here: None,
        })
    }

    /// Stores records whose boot has begun without a thread: a caller that requests a change waits
    /// for their home. For homes in memory.
    pub fn without_thread(records: Box<dyn Records>) -> Self {
        let (inbox, done) = Inbox::new(0);
        let here = RecordsHere { records, done: VecDeque::new(), is_failing: false };
        Self {
            tasks: None,
            inbox: Arc::new(inbox),
            done,
            under_way: 0,
            next_ticket: 0,
            thread: None,
            here: Some(here),
        }
    }

    /// Wakes the shard when a change completes.
    pub fn wakeup(&self) -> Wakeup {
        Wakeup::new(&self.inbox)
    }

    /// Requests a change; none when too many are queued: retry later.
    pub fn change(&mut self, change: RecordChange) -> Option<ChangeTicket> {
        self.change_all(vec![change])
    }

    /// Requests changes that become stable together, in this order, or fail together; none when too
    /// many are queued.
    pub fn change_all(&mut self, changes: Vec<RecordChange>) -> Option<ChangeTicket> {
        self.ask(|ticket| KeeperTask::Changes(ticket, changes))
    }

    /// Requests the records of another gateway, which is dead and fenced; none when too many
    /// changes are queued.
    pub fn take_over(&mut self, gateway: &str) -> Option<ChangeTicket> {
        self.ask(|ticket| KeeperTask::TakeOver(ticket, gateway.to_owned()))
    }

    fn ask(&mut self, task: impl FnOnce(ChangeTicket) -> KeeperTask) -> Option<ChangeTicket> {
        // Each change has room for its outcome.
        if self.under_way >= QUEUE_LEN {
            return None;
        }
        let ticket = ChangeTicket(self.next_ticket);
        if let Some(here) = &mut self.here {
            here.carry_out(task(ticket));
            self.next_ticket += 1;
            self.under_way += 1;
            return Some(ticket);
        }
        match self.tasks.as_ref()?.try_send(task(ticket)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return None,
        }
        self.next_ticket += 1;
        self.under_way += 1;
        Some(ticket)
    }

    /// The next completed change. Called until there is none, once per pass.
    pub fn next_done(&mut self) -> Option<ChangeDone> {
        if self.under_way == 0 {
            return None;
        }
        let done = match &mut self.here {
            Some(here) => here.done.pop_front()?,
            None => self.done.try_recv().ok()?,
        };
        self.under_way -= 1;
        Some(done)
    }
}

impl Drop for RecordKeeper {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was already printed.
            let _ = thread.join();
        }
    }
}

impl RecordsHere {
    fn carry_out(&mut self, task: KeeperTask) {
        let (ticket, outcome) = match task {
            KeeperTask::Changes(ticket, changes) => {
                (ticket, self.records.apply(&changes).map(|()| Vec::new()))
            }
            KeeperTask::TakeOver(ticket, gateway) => (ticket, self.records.take_over(&gateway)),
        };
        report(&outcome, &mut self.is_failing);
        let outcome = outcome.map_err(|error| (&error).into());
        self.done.push_back(ChangeDone { ticket, outcome });
    }
}

/// Executes tasks until the sender is gone.
fn keep(mut records: Box<dyn Records>, queue: &Receiver<KeeperTask>, done: &Inbox<ChangeDone>) {
    let mut is_failing = false;
    let mut next = queue.recv().ok();
    while let Some(task) = next.take() {
        let mut asked: Vec<(ChangeTicket, Vec<RecordChange>)> = Vec::new();
        let mut take_over = None;
        let mut waiting = Some(task);
        while let Some(task) = waiting.take().or_else(|| queue.try_recv().ok()) {
            match task {
                KeeperTask::Changes(ticket, changes) => asked.push((ticket, changes)),
                KeeperTask::TakeOver(ticket, gateway) => {
                    take_over = Some((ticket, gateway));
                    break;
                }
            }
        }
        if !asked.is_empty() {
            let all: Vec<_> = asked.iter().flat_map(|(_, changes)| changes).cloned().collect();
            let outcome = records.apply(&all);
            report(&outcome, &mut is_failing);
            // An invalid change must not block the others.
            let is_alone = asked.len() == 1;
            for (ticket, changes) in asked {
                let outcome = match &outcome {
                    Err(RecordError::Unfit(_) | RecordError::Full) if !is_alone => {
                        records.apply(&changes)
                    }
                    Err(error) => {
                        tell(done, ticket, Err(error.into()));
                        continue;
                    }
                    Ok(()) => Ok(()),
                };
                tell(done, ticket, outcome.map(|()| Vec::new()).map_err(|error| (&error).into()));
            }
        }
        if let Some((ticket, gateway)) = take_over {
            let outcome = records.take_over(&gateway);
            report(&outcome, &mut is_failing);
            tell(done, ticket, outcome.map_err(|error| (&error).into()));
        }
        done.wake();
        next = queue.recv().ok();
    }
}

fn tell(
    done: &Inbox<ChangeDone>,
    ticket: ChangeTicket,
    outcome: Result<Vec<ClientRecord>, ChangeFault>,
) {
    let put = done.put(ChangeDone { ticket, outcome });
    debug_assert!(put.is_ok(), "each change has a place for its outcome");
}

/// Logs once that records cannot be stored, until they are again.
fn report<T>(outcome: &Result<T, RecordError>, is_failing: &mut bool) {
    match outcome {
        Ok(_) => *is_failing = false,
        Err(error) => {
            if !std::mem::replace(is_failing, true) {
                eprintln!("stag-nfs: {error}");
            }
        }
    }
}
