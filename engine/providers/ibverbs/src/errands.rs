//! The thread that makes the calls which take long: set-up and end of connections.
//!
//! To make a queue pair, to bring it to the state in which it sends and to destroy it takes system
//! calls, which the firmware of an adapter carries out. A core that polls leaves them to this
//! thread, one for each shard, and so they cost its other connections nothing: not when a crowd
//! connects at once, and not when one call takes long. The thread also reads the events of the
//! connection manager, so that a look at them is no system call of the core.
//!
//! Errands are done in the order in which they were given, and what they report and the events
//! between them arrive in that order. So a connection can be ended while it is being set up: its
//! end is one more errand.
//!
//! The thread takes no more than about a tenth of a core from shards that poll on every core
//! ([`NICE`]).

use crate::{
    Ibverbs, apart,
    device::{MadeAgain, QueuePair},
    rdmacm::{self, Channel, Id},
    shared::Request,
};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{read, write},
};
use stag_verbs::Qp;
use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// The thread's nice value relative to its shard's. Against a thread of the usual one it then has
/// 110 parts of 1,134 of a core that both want, and all of a core that is otherwise idle.
pub(crate) const NICE: i32 = 10;
/// Reports waiting for a shard at which no more events are read: others wait in the kernel, which
/// limits them for each listener.
const WAITING: usize = 256;
/// Events that are read before errands are looked at again.
const EVENTS_AT_ONCE: usize = 16;

/// A call, or several.
type Errand = Box<dyn FnOnce() -> Option<Report> + Send>;

/// News for the shard.
#[derive(Debug)]
pub(crate) enum Report {
    /// The connection manager reported something.
    Event(rdmacm::Event),
    /// An errand of a connection that counts for it ([`Errands::send_for`]) is done.
    Done(Qp, Outcome),
    /// The identifier of a request that another shard's listener left to this one belongs to this
    /// shard's channel now, unless that failed.
    TakenOver(Option<Request>),
}

/// The result of a connection's errand.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The way to the peer is looked for.
    Dialled(io::Result<Id>),
    /// So is its route.
    RouteAsked(io::Result<()>),
    /// There is a queue pair, in the state in which it takes receives.
    Made(io::Result<Arc<QueuePair>>),
    /// The peer was asked or answered.
    Said(io::Result<()>),
    /// The peer had accepted, and was notified that this end is ready.
    Ready(io::Result<()>),
    /// The peer is gone; true if the device had stopped the queue pair before.
    Parted(bool),
    /// The device has released its objects of the connection, except those in here.
    Released(Released),
}

/// The outcome of giving back what a device lent to a connection.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// By the number of their entries.
    pub(crate) windows: Vec<(u32, MadeAgain)>,
    /// The device keeps it.
    pub(crate) pair: Option<Arc<QueuePair>>,
}

/// Errands that wait, and the state of the thread.
#[derive(Default)]
struct Orders {
    waiting: VecDeque<Errand>,
    /// The thread waits for its wake-up.
    sleeps: bool,
    /// The thread ends when nothing waits.
    is_over: bool,
}

/// The part that both threads see.
struct Desk {
    orders: Mutex<Orders>,
    /// Wakes the thread up.
    orders_fd: OwnedFd,
    reports: Mutex<VecDeque<Report>>,
    /// There are some.
    has_reports: AtomicBool,
    /// Wakes the shard up.
    reports_fd: OwnedFd,
    channel: Arc<Channel>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that may panic is done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    fn report(&self, report: Report) {
        let mut reports = locked(&self.reports);
        reports.push_back(report);
        if !self.has_reports.swap(true, Ordering::Release) {
            // A counter that is at its end is readable already.
            let _ = write(&self.reports_fd, &1_u64.to_ne_bytes());
        }
    }

    /// Does the oldest errand. False: there is none.
    fn do_one(&self) -> bool {
        let errand = locked(&self.orders).waiting.pop_front();
        let Some(errand) = errand else { return false };
        // What the errand had is dropped before it is reported.
        let Ok(report) = catch_unwind(AssertUnwindSafe(errand)) else {
            // The shard would wait for ever.
            process::abort();
        };
        if let Some(report) = report {
            self.report(report);
        }
        true
    }

    /// Reads some events of the connection manager. False: there is none, or there are too many.
    fn read_events(&self) -> bool {
        let mut count = 0;
        while count < EVENTS_AT_ONCE && !self.is_full() {
            let Some(event) = self.channel.next() else { break };
            self.report(Report::Event(event));
            count += 1;
        }
        count > 0
    }

    fn is_full(&self) -> bool {
        locked(&self.reports).len() >= WAITING
    }

    /// Does errands and reads events until the shard wants no more.
    fn serve(&self) {
        loop {
            while self.do_one() {}
            if self.read_events() {
                continue;
            }
            {
                let mut orders = locked(&self.orders);
                if !orders.waiting.is_empty() {
                    continue;
                }
                if orders.is_over {
                    return;
                }
                orders.sleeps = true;
            }
            let orders_fd = PollFd::new(&self.orders_fd, PollFlags::IN);
            let channel_fd = self.channel.fd();
            let events = PollFd::new(&channel_fd, PollFlags::IN);
            // A shard that has taken its reports says so.
            if self.is_full() {
                let _ = poll(&mut [orders_fd], None);
            } else {
                let _ = poll(&mut [orders_fd, events], None);
            }
            locked(&self.orders).sleeps = false;
            let _ = read(&self.orders_fd, &mut [0; 8]);
        }
    }

    /// Wakes the thread up, if it sleeps.
    fn wake(&self, mut orders: MutexGuard<'_, Orders>) {
        if std::mem::take(&mut orders.sleeps) {
            let _ = write(&self.orders_fd, &1_u64.to_ne_bytes());
        }
    }
}

/// The thread, as its shard sees it.
pub(crate) struct Errands {
    desk: Arc<Desk>,
    /// None: errands are done by [`turn`](Self::turn).
    thread: Option<JoinHandle<()>>,
    /// Reports that were taken and not handled.
    taken: VecDeque<Report>,
}

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Errands").finish_non_exhaustive()
    }
}

impl Errands {
    /// Starts the thread, which reads the events of `channel`.
    pub(crate) fn start(channel: &Arc<Channel>) -> io::Result<Self> {
        let mut errands = Self::without_thread(channel)?;
        #[cfg(test)]
        if crate::fake::library().is_some() {
            return Ok(errands);
        }
        let desk = Arc::clone(&errands.desk);
        let is_apart = channel.library().is_apart;
        errands.thread = Some(apart::spawn("stag-errands", is_apart, move || desk.serve())?);
        Ok(errands)
    }

    /// The same without a thread.
    pub(crate) fn without_thread(channel: &Arc<Channel>) -> io::Result<Self> {
        let fd = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC);
        let desk = Desk {
            orders: Mutex::default(),
            orders_fd: fd()?,
            reports: Mutex::default(),
            has_reports: AtomicBool::new(false),
            reports_fd: fd()?,
            channel: Arc::clone(channel),
        };
        Ok(Self { desk: Arc::new(desk), thread: None, taken: VecDeque::new() })
    }

    /// Readable when there are reports.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.desk.reports_fd.as_fd()
    }

    /// Has the thread do something that nothing waits for.
    pub(crate) fn send(&self, errand: impl FnOnce() + Send + 'static) {
        self.put(Box::new(move || {
            errand();
            None
        }));
    }

    /// Has it do something for a connection, which counts what it waits for.
    pub(crate) fn send_for(&self, qp: Qp, errand: impl FnOnce() -> Outcome + Send + 'static) {
        self.put(Box::new(move || Some(Report::Done(qp, errand()))));
    }

    /// Takes over a request to be connected, for the channel of these errands.
    pub(crate) fn take_over(&self, mut request: Request) {
        let channel = Arc::clone(&self.desk.channel);
        self.put(Box::new(move || {
            let request = match request.id.migrate(&channel) {
                Ok(()) => Some(request),
                Err(_) => {
                    request.id.reject(&[]);
                    None
                }
            };
            Some(Report::TakenOver(request))
        }));
    }

    /// Gives an identifier back.
    pub(crate) fn discard(&self, id: Arc<Id>) {
        self.send(move || drop(id));
    }

    /// Rejects the peer of a request, which ends with that.
    pub(crate) fn reject(&self, id: Arc<Id>, private_data: Vec<u8>) {
        self.send(move || id.reject(&private_data));
    }

    fn put(&self, errand: Errand) {
        let mut orders = locked(&self.desk.orders);
        orders.waiting.push_back(errand);
        self.desk.wake(orders);
    }

    /// Returns true if there may be a report. It costs no more than a look at memory.
    pub(crate) fn has_reports(&self) -> bool {
        !self.taken.is_empty() || self.desk.has_reports.load(Ordering::Acquire)
    }

    /// The oldest report.
    pub(crate) fn take(&mut self) -> Option<Report> {
        if self.taken.is_empty() && self.desk.has_reports.load(Ordering::Acquire) {
            let mut reports = locked(&self.desk.reports);
            std::mem::swap(&mut self.taken, &mut *reports);
            self.desk.has_reports.store(false, Ordering::Relaxed);
            // Under the lock, so that no wake-up for a later report is cleared.
            let _ = read(&self.desk.reports_fd, &mut [0; 8]);
            drop(reports);
            if self.taken.len() >= WAITING {
                self.desk.wake(locked(&self.desk.orders));
            }
        }
        self.taken.pop_front()
    }

    /// Does waiting errands in tests without the thread, as far as errands may be done.
    #[cfg(test)]
    pub(crate) fn turn(&self) {
        use crate::fake::{may_do_errand, off_core};
        if self.thread.is_none() && may_do_errand() {
            off_core(|| {
                while self.desk.do_one() && may_do_errand() {}
                self.desk.read_events();
            });
        }
    }

    /// Ends the thread, once all errands are done.
    pub(crate) fn finish(&mut self) {
        {
            let mut orders = locked(&self.desk.orders);
            orders.is_over = true;
            self.desk.wake(orders);
        }
        match self.thread.take() {
            // It ends the process before it panics.
            Some(thread) => drop(thread.join()),
            None => while self.desk.do_one() {},
        }
    }
}

impl Drop for Errands {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Ibverbs {
    /// Handles the oldest report, if there is one.
    pub(crate) fn take_report(&mut self) {
        match self.shared.errands.take() {
            None => {}
            Some(Report::Event(event)) => self.handle_connection_event(event),
            Some(Report::Done(qp, outcome)) => {
                self.handle_outcome(qp, outcome);
                // The last one may have held what a lost device waits for.
                self.shared.any_flushed |= self.shared.is_lost;
            }
            Some(Report::TakenOver(request)) => {
                self.taking_over -= 1;
                match request {
                    Some(request) => self.handle_request(request),
                    None => self.shared.stats.shed += 1,
                }
            }
        }
    }

    /// Ends the thread of errands. What it reports is put where it belongs, and begins nothing.
    pub(crate) fn finish_errands(&mut self) {
        self.shared.errands.finish();
        while let Some(report) = self.shared.errands.take() {
            match report {
                Report::Event(event) => drop(self.request_of(&event)),
                Report::Done(qp, outcome) => self.handle_outcome(qp, outcome),
                Report::TakenOver(request) => drop(request),
            }
        }
        // Peers that no listener waits for any more are rejected with their identifiers.
        while let Some(event) = self.shared.channel.next() {
            drop(self.request_of(&event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{library::Library, rdmacm::tests::channel};
    use rustix::event::Timespec;
    use stag_pools::table::Key;
    use std::{
        sync::mpsc::channel as way,
        thread::{self, sleep},
        time::Duration,
    };

    /// A thread for a channel without events.
    fn errands() -> Errands {
        let channel = channel(Box::leak(Box::new(Library::idle())));
        let mut errands = Errands::without_thread(&channel).unwrap();
        let desk = Arc::clone(&errands.desk);
        errands.thread = Some(apart::spawn("stag-errands", false, move || desk.serve()).unwrap());
        errands
    }

    fn qp(number: usize) -> Qp {
        Qp(Key::from_bits(number as u64))
    }

    /// Waits for a report as a shard that sleeps does.
    fn await_report(errands: &mut Errands) -> Report {
        let within = Timespec { tv_sec: 60, tv_nsec: 0 };
        while !errands.has_reports() {
            let fd = errands.fd();
            assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within)), Ok(1));
        }
        errands.take().unwrap()
    }

    #[test]
    fn errands_are_done_elsewhere_in_their_order_and_wake_a_shard_that_sleeps() {
        let mut errands = errands();
        let here = thread::current().id();
        for pause in [0, 20] {
            for number in 0..100 {
                let work = move || Outcome::Parted(thread::current().id() != here);
                errands.send_for(qp(number), work);
            }
            // Whether the thread sleeps when it is asked, or not.
            sleep(Duration::from_millis(pause));
            for number in 0..100 {
                let Report::Done(of, Outcome::Parted(true)) = await_report(&mut errands) else {
                    panic!("it is done by the shard's thread")
                };
                assert_eq!(of, qp(number));
            }
            assert!(!errands.has_reports() && errands.take().is_none());
        }
    }

    #[test]
    fn what_an_errand_has_is_dropped_before_it_is_reported() {
        let mut errands = errands();
        let held = Arc::new(());
        for _ in 0..200 {
            let own = Arc::clone(&held);
            errands.send_for(qp(1), move || Outcome::Parted(Arc::strong_count(&own) > 1));
            drop(await_report(&mut errands));
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn the_end_waits_for_errands_and_none_is_done_after_it() {
        let mut errands = errands();
        let (sender, done) = way();
        for number in 0..50 {
            let sender = sender.clone();
            errands.send(move || {
                sleep(Duration::from_micros(100));
                sender.send(number).unwrap();
            });
        }
        errands.finish();
        assert!(done.try_iter().eq(0..50));
        errands.send(move || sender.send(50).unwrap());
        errands.finish();
        assert_eq!(done.try_iter().count(), 1, "without a thread the end does them");
    }
}
