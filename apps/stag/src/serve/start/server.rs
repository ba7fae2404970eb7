//! A server: its shards, each a thread, and the supervision of them by the main thread.

use super::seats::{SeatPlace, Seats};
use crate::{
    Error,
    admission::AdmissionTable,
    args::COMMIT,
    caller::aside,
    rpcbind::{Registration, TransportKind},
    serve::{
        plan::{Plan, checks::check_free, shards::FabricShards},
        reload::Reloading,
        report::{
            addresses::Addresses,
            sentences::{cannot_serve, without_ring},
            startup_text,
            systemd::tell_systemd,
            watching,
        },
    },
};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGUSR1};
use stag_engine::{
    RestListener,
    control::{self, Command},
    launch::{self, CoreId},
    stats::Snapshot,
};
use stag_fabrics::{FabricAddress, Sharing};
use stag_nfs::{
    GatewayReport,
    serve::{ServeShard, Started, StoreSource},
};
use stag_operate::metrics::{ShardEnd, Shards};
use stag_pools::Budget;
use stag_verbs::Outages;
use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Instant,
};

/// Message that this thread waits for.
pub enum Message {
    /// A shard is ready; whether it could be pinned.
    Started(Box<Started>, bool),
    /// A shard's thread is over, as asked for or not.
    Ended,
    /// A signal came.
    Signal(i32),
}

/// Reports that a shard's thread is over, on every kind of end.
struct Ending(Sender<Message>);

impl Drop for Ending {
    fn drop(&mut self) {
        // The other end lives as long as the process.
        let _ = self.0.send(Message::Ended);
    }
}

/// One shard, as seen from here.
struct Running {
    end: ShardEnd,
    thread: JoinHandle<Result<Snapshot<GatewayReport>, Error>>,
}

/// Both ends of the queue of messages to the thread that supervises the shards.
pub struct ServerEvents {
    /// For shards and signals.
    pub sender: Sender<Message>,
    receiver: Receiver<Message>,
}

impl ServerEvents {
    /// An empty queue.
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver }
    }
}

/// Texts and addresses of shards as they start.
#[derive(Default)]
struct StartNotes {
    found: Addresses,
    budgets: Vec<Budget>,
    /// Notices that were printed: each is reported once for all shards of a device.
    printed: BTreeSet<String>,
}

impl StartNotes {
    /// Prints what there is to say about the shard `index`, and keeps its addresses.
    fn take(&mut self, index: usize, core: Option<usize>, started: &Started) {
        if let (0, Some(error)) = (index, &started.ring_fault) {
            // Once for all shards.
            aside(without_ring(error) + "\n");
        }
        aside(startup_text::shard(index, core, started));
        for notice in &started.notices {
            if self.printed.insert(notice.clone()) {
                aside(format!("notice: {notice}\n"));
            }
        }
        self.found.add(started);
        self.budgets.extend_from_slice(&started.budgets);
    }
}

/// All shards.
pub struct Server {
    /// The plan that it carries out.
    pub plan: Plan,
    /// The peers that may connect.
    pub admission: Arc<AdmissionTable>,
    /// Notified when shards rest.
    rest: Option<Arc<dyn RestListener>>,
    /// Notified of devices that are gone.
    outages: Outages,
    /// SIGHUP reads the file of settings again.
    reloads: bool,
    began: Instant,
    running: Vec<Running>,
    events: ServerEvents,
    /// A signal asked to stop.
    is_stopping: bool,
}

/// The counters of a shard that stopped.
type Last = (Option<usize>, Snapshot<GatewayReport>);

impl Server {
    /// A server without shards.
    pub fn new(
        plan: Plan,
        admission: Arc<AdmissionTable>,
        rest: Option<Arc<dyn RestListener>>,
        reloads: bool,
        events: ServerEvents,
    ) -> Self {
        let (outages, began) = (Outages::default(), Instant::now());
        let (running, is_stopping) = (Vec::new(), false);
        Self { plan, admission, rest, outages, reloads, began, running, events, is_stopping }
    }

    /// Starts all shards.
    ///
    /// # Errors
    /// The sentence of the first that cannot run; the others have ended then.
    pub fn started(mut self, source: &StoreSource) -> Result<(Self, Addresses), Error> {
        match self.start(source) {
            Ok(found) => Ok((self, found)),
            Err(error) => {
                self.stop_all();
                // The shard that failed knows better why.
                Err(self.join().err().unwrap_or(error))
            }
        }
    }

    /// Registers the addresses with rpcbind, if requested.
    ///
    /// # Errors
    /// A sentence about rpcbind; all shards have ended then.
    pub fn registered(self, found: &Addresses) -> Result<(Self, Option<Registration>), Error> {
        match self.register(found).transpose() {
            Ok(registration) => Ok((self, registration)),
            Err(error) => {
                self.stop_all();
                self.join().and(Err(error))
            }
        }
    }

    /// Starts the shards one after the other: the first of each fabric chooses the ports, at which
    /// the others then listen too. The shards of the first fabric serve TCP.
    fn start(&mut self, source: &StoreSource) -> Result<Addresses, Error> {
        check_free(self.shared_addresses())?;
        let Self { plan, admission, rest, outages, .. } = &*self;
        let mut seats = Seats::new(plan, source, admission, rest.clone(), outages.clone())?;
        let mut notes = StartNotes::default();
        let fabrics = self.plan.fabrics.clone();
        for (number, FabricShards { group: mut fabric, cores: places }) in
            fabrics.into_iter().enumerate()
        {
            let mut tcp = self.plan.tcp.filter(|_| number == 0);
            for place in 0..places {
                let index = self.running.len();
                let at = SeatPlace { index, place, places, fabric: fabric.clone(), tcp };
                let (seat, core) = seats.next(&self.plan, at);
                let started = self.start_one(seat, core)?;
                let core = self.describe(&started);
                notes.take(index, core, &started);
                // The next shard shares ports; sockets of shared memory are its own.
                if fabric.info().sharing == Sharing::Port {
                    fabric = started.fabric.clone();
                }
                tcp = started.tcp;
            }
        }
        aside(startup_text::pages(&notes.budgets));
        Ok(notes.found)
    }

    /// Addresses at which several shards will listen, so that no other server may have them. Ports
    /// of RDMA devices are not sockets of the system; those of the service manager are passed.
    fn shared_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let Plan { fabrics, tcp, passed, .. } = &self.plan;
        let shared = fabrics.iter().filter(|fabric| fabric.cores > 1);
        let shared = shared.filter(|fabric| fabric.group.info().is_over_tcp);
        let tcp = tcp.filter(|_| fabrics.first().is_some_and(|it| it.cores > 1));
        let own = shared.flat_map(|fabric| fabric.group.ips()).chain(tcp);
        own.filter(|at| !passed.has(*at))
    }

    /// Keeps the facts of the shard that was started last. Returns its core.
    fn describe(&mut self, started: &Started) -> Option<usize> {
        let end = &mut self.running.last_mut()?.end;
        end.memory = watching::memory(started);
        end.may_spin = !started.is_beside_helpers;
        end.states.clone_from(&started.states);
        end.place = watching::place(started);
        end.core
    }

    /// Starts one shard on `core`, and waits until it is ready.
    fn start_one(&mut self, seat: ServeShard, core: Option<CoreId>) -> Result<Started, Error> {
        let index = seat.index;
        let failed =
            |error: io::Error| Error::failure(format!("cannot start shard {index}: {error}"));
        let (control, handle) = control::pair().map_err(failed)?;
        let waker = handle.waker();
        if let Some(helpers) = &seat.helpers {
            let waker = waker.clone();
            helpers.wakeup().attach(move || waker.wake());
        }
        let of_store = waker.clone();
        seat.source.attach_wakeup(index, move || of_store.wake());
        if let Some(link) = &seat.link {
            let waker = waker.clone();
            link.wakeup().attach(move || waker.wake());
        }
        seat.branch.wakeup().attach(move || waker.wake());
        let sender = self.events.sender.clone();
        let run = move |pinned| {
            let ending = Ending(sender);
            let ran = seat.run(&control, |started| {
                let _ = ending.0.send(Message::Started(Box::new(started), pinned));
            });
            ran.map_err(cannot_serve)
        };
        let thread = launch::spawn(format!("shard-{index}"), core, run).map_err(failed)?;
        let core = core.map(|core| core.id);
        let end = ShardEnd::new(handle, core);
        self.running.push(Running { end, thread });
        self.await_start()
    }

    /// Waits until the shard that was started last is ready, or is over with an error.
    fn await_start(&mut self) -> Result<Started, Error> {
        loop {
            match self.events.receiver.recv() {
                Ok(Message::Started(started, pinned)) => {
                    if let Some(running) = self.running.last_mut().filter(|_| !pinned) {
                        running.end.core = None;
                    }
                    return Ok(*started);
                }
                Ok(Message::Signal(SIGUSR1)) => {}
                // The file was just read.
                Ok(Message::Signal(SIGHUP)) if self.reloads => {}
                Ok(Message::Signal(_)) => self.is_stopping = true,
                Ok(Message::Ended) | Err(_) => {
                    return Err(Error::failure("a shard stopped while the server was started"));
                }
            }
        }
    }

    /// Waits for signals and for the end of all shards, then writes the last statistics.
    pub fn watch(mut self, shards: &Shards, reloading: Option<&Reloading>) -> Result<(), Error> {
        if self.is_stopping {
            self.stop();
        }
        let mut live = self.running.len();
        while live > 0 {
            match self.events.receiver.recv() {
                Ok(Message::Signal(SIGUSR1)) => self.write_current(shards),
                Ok(Message::Signal(SIGHUP)) if self.reloads => {
                    if !self.is_stopping {
                        // Its outcome is logged.
                        let _ = reloading.map(Reloading::reload);
                    }
                }
                Ok(Message::Signal(_)) if self.is_stopping => {
                    return Err(Error::failure(
                        "stopped at once: calls in progress are lost, no statistics are written",
                    ));
                }
                Ok(Message::Signal(_)) => {
                    self.is_stopping = true;
                    self.stop();
                }
                Ok(Message::Ended) => {
                    live -= 1;
                    // One that ends by itself failed: the others cannot do its work.
                    if !self.is_stopping {
                        self.stop();
                    }
                    if live == 1 && self.has_home() {
                        self.stop_all();
                    }
                }
                Ok(Message::Started(..)) | Err(_) => {}
            }
        }
        let file = self.plan.stats.clone();
        let counted = self.join()?;
        file.map_or(Ok(()), |file| watching::write(&file, &shards.gathered(counted)))
    }

    /// Registers the addresses with rpcbind, if requested.
    fn register(&self, found: &Addresses) -> Option<Result<Registration, Error>> {
        let fabrics = found.listen.iter().filter_map(FabricAddress::ip);
        let fabrics = fabrics.map(|at| (TransportKind::Rdma, at));
        let all: Vec<_> =
            found.tcp.map(|at| (TransportKind::Tcp, at)).into_iter().chain(fabrics).collect();
        self.plan.rpcbind.then(|| Registration::new(&all))
    }

    /// The shards, for those who watch them.
    pub fn shards(&self) -> Shards {
        let ends = self.running.iter().map(|running| running.end.clone()).collect();
        Shards::new(self.began, COMMIT, ends, self.outages.clone())
    }

    /// Asks the shards to stop. One that has memory for others stops after them, as it carries out
    /// their calls until then.
    fn stop(&self) {
        tell_systemd(&NotifyState::Stopping);
        let ending = self.running.iter().skip(usize::from(self.has_home()));
        ending.for_each(|running| running.end.handle.tell(Command::Stop));
    }

    fn stop_all(&self) {
        self.running.iter().for_each(|running| running.end.handle.tell(Command::Stop));
    }

    /// The first shard has memory for the others.
    fn has_home(&self) -> bool {
        self.plan.store.is_in_first_shard() && self.running.len() > 1
    }

    /// Waits for the threads, and takes what they counted.
    fn join(self) -> Result<Vec<Last>, Error> {
        let ends: Vec<_> =
            self.running.into_iter().map(|it| (it.end.core, it.thread.join())).collect();
        let mut counted = Vec::with_capacity(ends.len());
        for (core, end) in ends {
            let last =
                end.map_err(|_| Error::failure("a shard stopped by a mistake of this program"))?;
            counted.push((core, last?));
        }
        Ok(counted)
    }

    /// Asks all shards for their counters, and writes them.
    fn write_current(&self, shards: &Shards) {
        let Some(file) = &self.plan.stats else {
            return tracing::warn!(target: "stag", "SIGUSR1 without --stats: no file is named");
        };
        let unwritten = |silent| Error::failure(format!("{silent}: no statistics are written"));
        let gathered = shards.gather(Command::Snapshot).map_err(unwritten);
        if let Err(error) = gathered.and_then(|gathered| watching::write(file, &gathered)) {
            tracing::warn!(target: "stag", "{error}");
        }
    }
}
