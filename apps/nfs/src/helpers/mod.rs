//! Threads that wait for a disk, so that no shard does (DESIGN D11).
//!
//! A shard whose READ finds that not all is in memory ([`crate::store::Store::begin_read`]) hands
//! the descriptor, the place and a [`ReadTicket`] to a helper. The helper reads the octets, which
//! brings them to the page cache, throws its copy away and gives the ticket back; then the shard
//! reads again. So no buffer leaves its shard, and whoever called is judged where he always is:
//! what a helper reads, with the rights of the process, nobody gets to see.
//!
//! Everything has a limit: [`THREADS`], [`QUEUE_LEN`] fetches that wait for one of them, and one
//! ticket for each READ that a gateway puts off. Where one is met the shard waits itself.

use std::{
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use rustix::io::{Errno, fcntl_dupfd_cloexec, pread};

use crate::{
    inbox::{Inbox, Wakeup},
    store::TRANSFER_MAX,
};

/// Helpers of one process.
pub const THREADS: usize = 2;
/// Fetches of all shards that wait for a helper.
pub const QUEUE_LEN: usize = 128;
/// READs that one shard puts off at a time.
pub const TICKETS: usize = 256;
/// Descriptors in use at most.
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

struct FetchJob {
    file: OwnedFd,
    offset: u64,
    len: usize,
    ticket: ReadTicket,
    by: Arc<Inbox<ReadTicket>>,
}

/// One shard's way to the helpers. It may be sent to the shard's thread, which gives it to its
/// store. The helpers live until the last shard is gone.
pub struct Helpers {
    jobs: SyncSender<FetchJob>,
    inbox: Arc<Inbox<ReadTicket>>,
    tickets: Receiver<ReadTicket>,
}

impl fmt::Debug for Helpers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Helpers")
    }
}

impl Helpers {
    /// Starts [`THREADS`] helpers for so many shards, and gives each shard its way to them.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(shards: usize) -> io::Result<Vec<Self>> {
        Self::start_with(shards, THREADS, Arc::new(fetch))
    }

    /// As [`start`](Self::start), with so many threads and another way to bring octets: a disk as
    /// slow as a test wants it.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start_with(shards: usize, threads: usize, fetch: Arc<Fetch>) -> io::Result<Vec<Self>> {
        let (jobs, queue) = sync_channel(QUEUE_LEN);
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads {
            let (queue, fetch) = (Arc::clone(&queue), Arc::clone(&fetch));
            thread::Builder::new()
                .name(format!("helper-{number}"))
                .spawn(move || work(&queue, &*fetch))?;
        }
        let way = |_| {
            let (inbox, tickets) = Inbox::new(TICKETS);
            Self { jobs: jobs.clone(), inbox: Arc::new(inbox), tickets }
        };
        Ok((0..shards).map(way).collect())
    }

    /// Wakes the shard when octets that it waits for are there.
    pub fn wakeup(&self) -> Wakeup {
        Wakeup::new(&self.inbox)
    }

    /// Lets a helper bring `len` octets of `file`, after which `ticket` comes back. False when none
    /// can: the queue is full, or there is no descriptor.
    pub fn fetch(&self, file: impl AsFd, offset: u64, len: usize, ticket: ReadTicket) -> bool {
        // A descriptor of its own: the store may close the file meanwhile.
        let Ok(file) = fcntl_dupfd_cloexec(file, 0) else { return false };
        let job = FetchJob { file, offset, len, ticket, by: Arc::clone(&self.inbox) };
        self.jobs.try_send(job).is_ok()
    }

    /// The next ticket that came back: one load when none did since the last look.
    pub fn next_fetched(&self) -> Option<ReadTicket> {
        if !self.inbox.is_filled() {
            return None;
        }
        self.tickets.try_recv().ok().or_else(|| {
            // One that is put in from here on is found now, or by the next look.
            self.inbox.look();
            self.tickets.try_recv().ok()
        })
    }
}

/// Runs a helper until all shards are gone.
fn work(queue: &Mutex<Receiver<FetchJob>>, fetch: &Fetch) {
    let mut scratch = vec![0; TRANSFER_MAX as usize];
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(FetchJob { file, offset, len, ticket, by }) = job else { return };
        let len = len.min(scratch.len());
        fetch(file.as_fd(), offset, scratch.get_mut(..len).unwrap_or_default());
        // Closed first: with its ticket back, a READ holds nothing here any more.
        drop(file);
        // The box has room for all of the shard's tickets; the shard may be gone.
        let _ = by.put(ticket);
        by.wake();
    }
}

/// Reads until the end. What fails here fails when the shard reads again, and is reported then.
fn fetch(file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::{
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
