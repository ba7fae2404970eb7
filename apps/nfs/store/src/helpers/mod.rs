//! Threads that wait for file systems in place of shards (DESIGN D11): one pool for all shards of a
//! process.
//!
//! They execute four kinds of jobs (`job`). A whole call, for a store whose calls may block: the
//! memory that it needs is lent by the shard and returned with the outcome. A sync, through a
//! descriptor of its own. A copy between two files, through such descriptors. And a fetch, for a
//! READ that missed the page cache ([`crate::Procedures::begin_read`]): the helper reads the
//! bytes into the page cache, drops its copy and returns the [`ReadTicket`]; then the shard reads
//! again. The bytes that a helper reads with the process' rights reach no caller.
//!
//! Everything has a limit: the threads, [`QUEUE_LEN`] queued jobs with descriptors, the share of
//! the threads for jobs of one [`HelperLane`], and one ticket for each call that a gateway defers.
//! At a limit, jobs are refused (`pool`).
//!
//! Helpers are never joined: one that hangs in an unresponsive file system ends with the process.

pub(crate) mod content_copy;
mod job;
mod pool;

use crate::{
    Backend, StoreCall, StoreCallDone,
    contract::tickets::{ReadTicket, TICKETS, WaitTicket},
    shard_mailbox::{Inbox, Wakeup, next_of},
};
use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, atomic::AtomicU64, mpsc::Receiver},
};

pub use job::HelperLane;
use job::{CallJob, CopyJob, FetchJob, HelperJob, SyncJob};
pub(crate) use job::{OwedCopy, OwedSync, SyncExtent};
use pool::HelperPool;
use rustix::io::fcntl_dupfd_cloexec;

/// Default number of helpers of one process.
pub const THREADS: usize = 32;
/// Helpers of one process at most.
pub const THREADS_MAX: usize = 512;
/// Queued jobs with descriptors, of all shards.
pub const QUEUE_LEN: usize = 128;
/// Descriptors in use at most while the number of helpers is [`THREADS`].
pub const DESCRIPTORS_MAX: usize = QUEUE_LEN + THREADS;

/// Function by which a helper fetches bytes of a file: reads them from `offset` on to the front of
/// `scratch`, up to the end of the file.
pub type Fetch = dyn Fn(BorrowedFd<'_>, u64, &mut [u8]) + Send + Sync;

/// Configuration of the helpers.
#[derive(Clone)]
pub struct HelperConfig {
    /// Shards that they work for.
    pub shards: usize,
    /// Their number: at least one.
    pub threads: usize,
    /// The store whose calls they carry out, if any.
    pub backend: Option<Arc<dyn Backend>>,
    /// Cores that they may use and no shard polls on; none: any core.
    pub cores: Vec<usize>,
    /// The function that fetches bytes to memory.
    pub fetch: Arc<Fetch>,
}

impl HelperConfig {
    /// [`THREADS`] helpers that carry out no calls.
    pub fn new(shards: usize) -> Self {
        let (backend, cores) = (None, Vec::new());
        Self { shards, threads: THREADS, backend, cores, fetch: Arc::new(job::fetch) }
    }
}

impl fmt::Debug for HelperConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HelperConfig({} threads for {} shards)", self.threads, self.shards)
    }
}

/// One shard's access to the helpers. It may be sent to the shard's thread, which gives it to its
/// store. The helpers live until the last shard is gone.
pub struct Helpers {
    pool: Arc<HelperPool>,
    fetched: Arc<Inbox<ReadTicket>>,
    tickets: Receiver<ReadTicket>,
    /// Has no wakeup of its own: senders wake the shard through `fetched`.
    done: Arc<Inbox<HelperDone>>,
    messages: Receiver<HelperDone>,
}

impl fmt::Debug for Helpers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Helpers")
    }
}

/// The syncs of one call.
#[derive(Debug)]
pub(crate) struct OwedSyncs {
    pub(crate) files: Vec<OwedSync>,
    /// Counts the failed ones.
    pub(crate) failures: Arc<AtomicU64>,
}

/// A completed job.
#[derive(Debug)]
pub enum HelperDone {
    /// A call.
    Called(Box<StoreCallDone>),
    /// A sync, and its outcome.
    Synced(WaitTicket, rustix::io::Result<()>),
    /// A copy, and the number of bytes copied.
    Copied(WaitTicket, rustix::io::Result<u64>),
}

impl Helpers {
    /// Starts [`THREADS`] helpers for `shards` shards, and returns each shard's access to them.
    ///
    /// # Errors
    /// When the system cannot create threads.
    pub fn start(shards: usize) -> io::Result<Vec<Self>> {
        Self::start_for(HelperConfig::new(shards))
    }

    /// As [`start`](Self::start), with another number of threads and another fetch function: a test
    /// can simulate a slow disk.
    ///
    /// # Errors
    /// When the system cannot create threads.
    pub fn start_with(shards: usize, threads: usize, fetch: Arc<Fetch>) -> io::Result<Vec<Self>> {
        Self::start_for(HelperConfig { threads, fetch, ..HelperConfig::new(shards) })
    }

    /// Starts the configured helpers, and returns each shard's access to them. To be called by a
    /// thread that is pinned to no core and acts as the server's own user, because they inherit
    /// both.
    ///
    /// # Errors
    /// When the system cannot create threads.
    pub fn start_for(config: HelperConfig) -> io::Result<Vec<Self>> {
        let shards = config.shards;
        let pool = HelperPool::start(config)?;
        let way = |_| {
            let (fetched, tickets) = Inbox::new(TICKETS);
            let (done, messages) = Inbox::new(TICKETS);
            Self {
                pool: Arc::clone(&pool),
                fetched: Arc::new(fetched),
                tickets,
                done: Arc::new(done),
                messages,
            }
        };
        Ok((0..shards).map(way).collect())
    }

    /// Wakes the shard when one of its jobs is done.
    pub fn wakeup(&self) -> Wakeup {
        Wakeup::new(&self.fetched)
    }

    /// Returns true if helpers carry out calls on the cores that shards poll on: a spinning shard
    /// then keeps them from their work.
    pub fn compete_with_shards(&self) -> bool {
        self.pool.makes_calls() && self.pool.shares_cores()
    }

    /// Lets a helper fetch `len` bytes of `file` and then return `ticket`. False if the queue is
    /// full, or there is no free descriptor.
    pub fn fetch(&self, file: impl AsFd, offset: u64, len: usize, ticket: ReadTicket) -> bool {
        // A duplicate: the store may close the file meanwhile.
        let Ok(file) = fcntl_dupfd_cloexec(file, 0) else { return false };
        let job = FetchJob { file, offset, len, ticket, by: Arc::clone(&self.fetched) };
        self.pool.submit(HelperLane::FETCHES, HelperJob::Fetch(job)).is_ok()
    }

    /// Returns true while no fetch can be expected to end soon: a shard that waited itself would
    /// hang, too.
    pub(crate) fn fetches_are_stuck(&self) -> bool {
        self.pool.is_stuck(HelperLane::FETCHES)
    }

    /// Lets a helper carry out a call.
    ///
    /// # Errors
    /// The call, untouched, when too many jobs are queued.
    pub fn perform(
        &self,
        lane: HelperLane,
        call: StoreCall,
        ticket: WaitTicket,
    ) -> Result<(), StoreCall> {
        let (by, bell) = (Arc::clone(&self.done), Arc::clone(&self.fetched));
        let job = HelperJob::Call(Box::new(CallJob { call, ticket, by, bell }));
        match self.pool.submit(lane, job) {
            Err(HelperJob::Call(job)) => Err(job.call),
            _ => Ok(()),
        }
    }

    /// Lets a helper sync files.
    ///
    /// # Errors
    /// The descriptors, when too many jobs are queued.
    pub(crate) fn sync(
        &self,
        lane: HelperLane,
        owed: OwedSyncs,
        ticket: WaitTicket,
    ) -> Result<(), Vec<OwedSync>> {
        let OwedSyncs { files, failures } = owed;
        let (by, bell) = (Arc::clone(&self.done), Arc::clone(&self.fetched));
        match self.pool.submit(lane, HelperJob::Sync(SyncJob { files, failures, ticket, by, bell }))
        {
            Err(HelperJob::Sync(job)) => Err(job.files),
            _ => Ok(()),
        }
    }

    /// Lets a helper copy between files.
    ///
    /// # Errors
    /// The work, untouched, when too many jobs are queued.
    #[allow(clippy::result_large_err, reason = "work that is refused goes back as it came")]
    pub(crate) fn copy(
        &self,
        lane: HelperLane,
        owed: OwedCopy,
        ticket: WaitTicket,
    ) -> Result<(), OwedCopy> {
        let (by, bell) = (Arc::clone(&self.done), Arc::clone(&self.fetched));
        let job = HelperJob::Copy(Box::new(CopyJob { owed, ticket, by, bell }));
        match self.pool.submit(lane, job) {
            Err(HelperJob::Copy(job)) => Err(job.owed),
            _ => Ok(()),
        }
    }

    /// Withdraws a call that no helper has started.
    pub fn withdraw(&self, ticket: WaitTicket) -> Option<StoreCall> {
        let is_it = |job: &HelperJob| match job {
            HelperJob::Call(job) => job.ticket == ticket && Arc::ptr_eq(&job.by, &self.done),
            _ => false,
        };
        match self.pool.withdraw(is_it)? {
            HelperJob::Call(job) => Some(job.call),
            _ => None,
        }
    }

    /// The next returned ticket; costs one load if none was returned since the last check.
    pub fn next_fetched(&self) -> Option<ReadTicket> {
        next_of(&self.fetched, &self.tickets)
    }

    /// The next completed call or sync; costs one load if none completed since the last check.
    pub fn next_done(&self) -> Option<HelperDone> {
        next_of(&self.done, &self.messages)
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.pool.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::{job::fetch, *};
    use crate::{
        Caller, ExportRoot, HelperStore, OwnedName, StoreOutcome, StoreRequest, User,
        start_error::StartError,
    };
    use stag_engine::PeerAddress;
    use stag_protocol::nfs::v3::{FileHandle, Status, Verifier};
    use std::thread;
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
            mpsc::{Sender, channel},
        },
        time::{Duration, Instant},
    };

    /// Helpers that wait for a message before each fetch, and report each request.
    fn gated(threads: usize) -> (Vec<Helpers>, Sender<()>, Receiver<(u64, usize)>) {
        let ((go, gate), (tell, asked)) = (channel(), channel());
        let (gate, tell) = (Mutex::new(gate), Mutex::new(tell));
        let fetch = move |_: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]| {
            tell.lock().unwrap().send((offset, scratch.len())).unwrap();
            let _ = gate.lock().unwrap().recv();
        };
        (Helpers::start_with(2, threads, Arc::new(fetch)).unwrap(), go, asked)
    }

    fn file() -> std::fs::File {
        std::fs::File::open("/proc/self/exe").unwrap()
    }

    fn await_ticket(helpers: &Helpers) -> ReadTicket {
        let began = Instant::now();
        loop {
            if let Some(ticket) = helpers.next_fetched() {
                return ticket;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no ticket comes back");
            thread::yield_now();
        }
    }

    #[test]
    fn a_ticket_comes_back_to_its_shard_after_the_octets_were_read_and_rings_there() {
        let (helpers, go, asked) = gated(1);
        let wakes = [const { AtomicUsize::new(0) }; 2].map(Arc::new);
        for (helpers, wakes) in helpers.iter().zip(&wakes) {
            let wakes = Arc::clone(wakes);
            helpers.wakeup().attach(move || {
                wakes.fetch_add(1, Ordering::SeqCst);
            });
        }
        for shard in [1, 0, 1] {
            assert!(helpers[shard].fetch(
                file(),
                77 + shard as u64,
                5,
                ReadTicket(shard as u16 + 9)
            ));
            assert_eq!(asked.recv(), Ok((77 + shard as u64, 5)));
            assert!(
                helpers.iter().all(|helpers| helpers.next_fetched().is_none()),
                "it is still read"
            );
            go.send(()).unwrap();
            assert_eq!(await_ticket(&helpers[shard]), ReadTicket(shard as u16 + 9));
            assert!(helpers.iter().all(|helpers| helpers.next_fetched().is_none()));
        }
        // The shard is woken after its ticket is returned: once every job is over, all were woken.
        drop((helpers, go));
        assert!(asked.recv().is_err(), "the helper is gone");
        assert_eq!(wakes.map(|wakes| wakes.load(Ordering::SeqCst)), [1, 2]);
    }

    #[test]
    fn the_queue_is_bounded_and_nothing_of_it_is_lost() {
        let (helpers, go, asked) = gated(1);
        assert!(helpers[0].fetch(file(), 0, 1, ReadTicket(0)));
        asked.recv().unwrap();
        for number in 1..=QUEUE_LEN {
            assert!(helpers[0].fetch(file(), 0, 1, ReadTicket(number as u16)));
        }
        assert!(
            (0..2).all(|shard| !helpers[shard].fetch(file(), 0, 1, ReadTicket(200))),
            "it is full for all"
        );
        drop(go);
        let tickets: Vec<_> = (0..=QUEUE_LEN).map(|_| await_ticket(&helpers[0]).index()).collect();
        assert!(tickets.into_iter().eq(0..=QUEUE_LEN), "in their order");
        assert!(helpers[1].fetch(file(), 0, 1, ReadTicket(3)));
        assert_eq!(await_ticket(&helpers[1]), ReadTicket(3));
    }

    /// A backend that waits for a message in each MNT; a LOOKUP is an error.
    struct Gated(Mutex<Receiver<()>>);

    struct Session(Arc<Gated>);

    impl HelperStore for Session {
        fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome {
            assert!(
                !matches!(call.operation, StoreRequest::Lookup { .. }),
                "a mistake of the store"
            );
            if matches!(call.operation, StoreRequest::Mount) {
                let _ = self.0.0.lock().unwrap().recv();
            }
            StoreOutcome::Failed(Status::NoEnt)
        }
    }

    struct Shared(Arc<Gated>);

    impl Backend for Shared {
        fn open_helper(&self, _: usize) -> Result<Box<dyn HelperStore>, StartError> {
            Ok(Box::new(Session(Arc::clone(&self.0))))
        }

        fn exports(&self) -> Vec<String> {
            vec![]
        }

        fn export_roots(&self) -> Vec<ExportRoot> {
            vec![]
        }

        fn verifier(&self) -> Verifier {
            [0; 8]
        }
    }

    fn gated_calls(threads: usize) -> (Helpers, Sender<()>) {
        let (go, gate) = channel();
        let backend = Arc::new(Shared(Arc::new(Gated(Mutex::new(gate)))));
        let config = HelperConfig { threads, backend: Some(backend), ..HelperConfig::new(1) };
        (Helpers::start_for(config).unwrap().remove(0), go)
    }

    fn call(operation: StoreRequest) -> StoreCall {
        let caller = Caller::trusted(User::Anyone, PeerAddress::Simulated);
        StoreCall { caller, operation, room: None, payload: None }
    }

    fn await_done(helpers: &Helpers) -> StoreCallDone {
        let began = Instant::now();
        loop {
            match helpers.next_done() {
                Some(HelperDone::Called(done)) => return *done,
                Some(other) => panic!("{other:?}"),
                None => thread::yield_now(),
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no call ends");
        }
    }

    #[test]
    fn calls_of_one_lane_that_hang_leave_helpers_to_others_and_are_not_waited_behind() {
        let (helpers, go) = gated_calls(4);
        let (hung, other) = (HelperLane(1), HelperLane(2));
        for number in 0..5 {
            helpers.perform(hung, call(StoreRequest::Mount), WaitTicket(number)).unwrap();
        }
        let quick = || call(StoreRequest::GetAttr { file: handle() });
        for number in 10..20 {
            helpers.perform(other, quick(), WaitTicket(number)).unwrap();
            let done = await_done(&helpers);
            assert_eq!(done.ticket, WaitTicket(number), "three hang, two wait for them");
            assert!(matches!(done.outcome, StoreOutcome::Failed(Status::NoEnt)));
        }
        // Only calls that were not started can be withdrawn.
        let taken = (0..5).filter(|number| helpers.withdraw(WaitTicket(*number)).is_some());
        assert_eq!(taken.collect::<Vec<_>>(), [3, 4]);
        thread::sleep(pool::PATIENCE + Duration::from_millis(50));
        assert!(helpers.perform(hung, quick(), WaitTicket(7)).is_err(), "it would hang, too");
        helpers.perform(other, quick(), WaitTicket(8)).unwrap();
        assert_eq!(await_done(&helpers).ticket, WaitTicket(8));
        drop(go);
        let mut ended: Vec<_> = (0..3).map(|_| await_done(&helpers).ticket.0).collect();
        ended.sort_unstable();
        assert_eq!(ended, [0, 1, 2]);
        helpers.perform(hung, quick(), WaitTicket(7)).unwrap();
        assert_eq!(await_done(&helpers).ticket, WaitTicket(7));
    }

    #[test]
    fn no_call_is_left_while_helpers_sleep() {
        let (helpers, _go) = gated_calls(4);
        let quick = || call(StoreRequest::GetAttr { file: handle() });
        // One, and then ever more than there are helpers: some sleep, some are starting.
        for round in 0..2_000 {
            let many = [1, 2, 5, 9][round % 4];
            for number in 0..many {
                helpers.perform(HelperLane(1), quick(), WaitTicket(number)).unwrap();
            }
            let mut done: Vec<_> = (0..many).map(|_| await_done(&helpers).ticket.0).collect();
            done.sort_unstable();
            assert!(done.into_iter().eq(0..many), "round {round}");
        }
    }

    #[test]
    fn a_mistake_of_a_store_ends_one_call_and_no_helper() {
        let (helpers, _go) = gated_calls(1);
        let name = OwnedName::new(b"name");
        for round in 0..3 {
            let lookup = call(StoreRequest::Lookup { directory: handle(), name });
            helpers.perform(HelperLane(1), lookup, WaitTicket(round)).unwrap();
            let done = await_done(&helpers);
            assert!(matches!(done.outcome, StoreOutcome::Failed(Status::ServerFault)));
        }
    }

    fn handle() -> FileHandle {
        FileHandle::new(&[7; 40]).unwrap()
    }

    #[test]
    fn a_shard_that_is_gone_stops_no_helper() {
        let (mut helpers, go, _asked) = gated(2);
        let gone = helpers.remove(0);
        assert!(gone.fetch(file(), 0, 1, ReadTicket(0)));
        drop((gone, go));
        assert!(helpers[0].fetch(file(), 0, 1, ReadTicket(1)));
        assert_eq!(await_ticket(&helpers[0]), ReadTicket(1));
    }

    #[test]
    fn a_fetch_reads_all_there_is_and_ends_at_the_end_and_at_errors() {
        let len = file().metadata().unwrap().len();
        let mut scratch = vec![0; 4096];
        fetch(file().as_fd(), len - 100, &mut scratch);
        assert!(scratch[100..].iter().all(|octet| *octet == 0));
        fetch(file().as_fd(), 0, &mut scratch);
        assert_eq!(scratch[..4], *b"\x7fELF");
        assert!(scratch[64..].iter().any(|octet| *octet != 0));
        for offset in [len, u64::MAX, i64::MAX as u64] {
            fetch(file().as_fd(), offset, &mut scratch);
        }
        fetch(std::fs::File::open("/").unwrap().as_fd(), 0, &mut scratch);
    }
}
