//! Threads that wait for a file system, so that no shard does (DESIGN D11): one pool for all shards
//! of a process.
//!
//! They carry out four kinds of jobs (`job`). A whole call, for a store whose calls may wait:
//! what it needs of the shard's memory is lent, and comes back with the outcome. A sync, by a
//! descriptor of its own. A copy between two files, by such descriptors. And a fetch, for a READ
//! that found that not all is in memory ([`crate::store::Procedures::begin_read`]): the helper
//! reads the octets, which brings them to the page cache, throws its copy away and gives the
//! [`ReadTicket`] back; then the shard reads again. What a helper reads so, with the rights of the
//! process, reaches no caller.
//!
//! Everything has a limit: the threads, [`QUEUE_LEN`] jobs with descriptors that wait for one of
//! them, the part of the threads that jobs of one [`HelperLane`] may have, and one ticket for each
//! call that a gateway puts off. Where one is met, nothing is queued (`pool`).
//!
//! Nobody ever joins a helper: one that hangs in a file system which does not answer ends with the
//! process.

mod job;
mod pool;

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, atomic::AtomicU64, mpsc::Receiver},
};

use rustix::io::fcntl_dupfd_cloexec;

use crate::{
    inbox::{Inbox, Wakeup, next_of},
    store::{Backend, StoreCall, StoreCallDone, WaitTicket},
};
pub use job::HelperLane;
use job::{CallJob, CopyJob, FetchJob, HelperJob, SyncJob};
pub(crate) use job::{OwedCopy, OwedSync, SyncExtent};
use pool::HelperPool;

/// Helpers of one process, unless it is told otherwise.
pub const THREADS: usize = 32;
/// Helpers of one process at most.
pub const THREADS_MAX: usize = 512;
/// Jobs of all shards, with descriptors, that wait for a helper.
pub const QUEUE_LEN: usize = 128;
/// READs, and other calls, that one shard puts off at a time.
pub const TICKETS: usize = 256;
/// Descriptors in use at most while the number of helpers is [`THREADS`].
pub const DESCRIPTORS_MAX: usize = QUEUE_LEN + THREADS;

/// Stands for a READ that was put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTicket(u16);

const _: () = assert!(TICKETS <= 1 << 16);

impl ReadTicket {
    /// All tickets of a shard.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..TICKETS).map(|number| Self(number as u16))
    }

    /// Below [`TICKETS`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Action of a helper on a file: brings octets from `offset` on to the front of `scratch`, as far
/// as the file has them.
pub type Fetch = dyn Fn(BorrowedFd<'_>, u64, &mut [u8]) + Send + Sync;

/// Helpers to be started.
#[derive(Clone)]
pub struct HelperConfig {
    /// Shards that they work for.
    pub shards: usize,
    /// Their number: at least one.
    pub threads: usize,
    /// The store whose calls they carry out, if there is one.
    pub backend: Option<Arc<dyn Backend>>,
    /// Numbers of the cores that they may use, which no shard polls on; none: any.
    pub cores: Vec<usize>,
    /// Their way to bring octets to memory.
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

/// One shard's way to the helpers. It may be sent to the shard's thread, which gives it to its
/// store. The helpers live until the last shard is gone.
pub struct Helpers {
    pool: Arc<HelperPool>,
    fetched: Arc<Inbox<ReadTicket>>,
    tickets: Receiver<ReadTicket>,
    /// Wakes nobody by itself: whoever puts a letter in wakes by `fetched`.
    done: Arc<Inbox<HelperDone>>,
    letters: Receiver<HelperDone>,
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
    /// Counts those that failed.
    pub(crate) failures: Arc<AtomicU64>,
}

/// A call or a sync that is over.
#[derive(Debug)]
pub enum HelperDone {
    /// A call.
    Called(Box<StoreCallDone>),
    /// A sync, and how it ended.
    Synced(WaitTicket, rustix::io::Result<()>),
    /// A copy, and the octets that were copied.
    Copied(WaitTicket, rustix::io::Result<u64>),
}

impl Helpers {
    /// Starts [`THREADS`] helpers for so many shards, and gives each shard its way to them.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(shards: usize) -> io::Result<Vec<Self>> {
        Self::start_for(HelperConfig::new(shards))
    }

    /// As [`start`](Self::start), with so many threads and another way to bring octets: a disk as
    /// slow as a test wants it.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start_with(shards: usize, threads: usize, fetch: Arc<Fetch>) -> io::Result<Vec<Self>> {
        Self::start_for(HelperConfig { threads, fetch, ..HelperConfig::new(shards) })
    }

    /// Starts the helpers that `config` says, and gives each shard its way to them. To be called by
    /// a thread that is pinned to no core and acts as nobody else, because they inherit both.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start_for(config: HelperConfig) -> io::Result<Vec<Self>> {
        let shards = config.shards;
        let pool = HelperPool::start(config)?;
        let way = |_| {
            let (fetched, tickets) = Inbox::new(TICKETS);
            let (done, letters) = Inbox::new(TICKETS);
            Self {
                pool: Arc::clone(&pool),
                fetched: Arc::new(fetched),
                tickets,
                done: Arc::new(done),
                letters,
            }
        };
        Ok((0..shards).map(way).collect())
    }

    /// Wakes the shard when something that it waits for is there.
    pub fn wakeup(&self) -> Wakeup {
        Wakeup::new(&self.fetched)
    }

    /// Returns true if helpers carry out calls on the cores that shards poll on: a shard that spins
    /// then keeps them from their work.
    pub(crate) fn compete_with_shards(&self) -> bool {
        self.pool.makes_calls() && self.pool.shares_cores()
    }

    /// Lets a helper bring `len` octets of `file`, after which `ticket` comes back. False when none
    /// can: the queue is full, or there is no descriptor.
    pub fn fetch(&self, file: impl AsFd, offset: u64, len: usize, ticket: ReadTicket) -> bool {
        // A descriptor of its own: the store may close the file meanwhile.
        let Ok(file) = fcntl_dupfd_cloexec(file, 0) else { return false };
        let job = FetchJob { file, offset, len, ticket, by: Arc::clone(&self.fetched) };
        self.pool.submit(HelperLane::FETCHES, HelperJob::Fetch(job)).is_ok()
    }

    /// Returns true while nothing that fetches can be expected to end soon: a shard that waited
    /// itself would hang with them.
    pub(crate) fn fetches_are_stuck(&self) -> bool {
        self.pool.is_stuck(HelperLane::FETCHES)
    }

    /// Lets a helper carry out a call.
    ///
    /// # Errors
    /// The call, of which nothing was done, when too much waits already.
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

    /// Lets a helper bring files to stable storage.
    ///
    /// # Errors
    /// The descriptors, when too much waits already.
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
    /// The work, of which nothing was done, when too much waits already.
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

    /// Takes back a call that no helper has begun.
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

    /// The next ticket that came back: one load when none did since the last look.
    pub fn next_fetched(&self) -> Option<ReadTicket> {
        next_of(&self.fetched, &self.tickets)
    }

    /// The next call or sync that is over: one load when none is since the last look.
    pub fn next_done(&self) -> Option<HelperDone> {
        next_of(&self.done, &self.letters)
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
    use crate::state::StartError;
    use crate::store::{
        Caller, ExportRoot, HelperStore, OwnedName, StoreOperation, StoreOutcome, User,
    };
    use stag_engine::PeerAddress;
    use stag_protocol::nfs::v3::{FileHandle, GetAttrArgs, Status, Verifier};
    use std::thread;
    use std::{
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
            mpsc::{Sender, channel},
        },
        time::{Duration, Instant},
    };

    /// Helpers that wait for a word before each fetch, and say what they were asked for.
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
        // The shard is woken after its ticket is there: once every job is over, all were woken.
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

    /// A backend that waits for a word in each call but NULL's like; a LOOKUP is a mistake.
    struct Gated(Mutex<Receiver<()>>);

    struct Session(Arc<Gated>);

    impl HelperStore for Session {
        fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome {
            assert!(!matches!(call.operation, StoreOperation::Lookup(_)), "a mistake of the store");
            if matches!(call.operation, StoreOperation::Mount) {
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

    fn call(operation: StoreOperation) -> StoreCall {
        let caller =
            Caller { user: User::Anyone, address: PeerAddress::Simulated, is_proven: true };
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
            helpers.perform(hung, call(StoreOperation::Mount), WaitTicket(number)).unwrap();
        }
        let quick = || call(StoreOperation::GetAttr(GetAttrArgs { object: handle() }));
        for number in 10..20 {
            helpers.perform(other, quick(), WaitTicket(number)).unwrap();
            let done = await_done(&helpers);
            assert_eq!(done.ticket, WaitTicket(number), "three hang, two wait for them");
            assert!(matches!(done.outcome, StoreOutcome::Failed(Status::NoEnt)));
        }
        // Only what was not begun can be taken back.
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
        let quick = || call(StoreOperation::GetAttr(GetAttrArgs { object: handle() }));
        // One, and then more and more than there are helpers: some sleep, some are on their way.
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
        let name = OwnedName::new(handle(), b"name");
        for round in 0..3 {
            let lookup = call(StoreOperation::Lookup(name));
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
