//! `stag serve`: one thread per shard, and this one, which watches over them (DESIGN D11).

mod announce;
mod ceph_start;
mod ceph_url;
mod checks;
mod jitter;
mod need;
mod nfs4;
pub mod options;
mod plan;
mod ready_file;
mod sentences;
mod watching;

pub use checks::check_open;
pub use sentences::cannot_listen;

use crate::{
    Error,
    caller::{aside, say},
    metrics::{ShardEnd, Shards},
    observe::Watched,
    plain, signals, trace,
};
use plan::{Plan, StorePlan};
use ready_file::ReadyFile;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, geteuid, pidfd_open},
};
use sd_notify::NotifyState;
use sentences::{cannot_serve, without_ring};
use signal_hook::{
    consts::{SIGTERM, SIGUSR1},
    iterator::Signals,
};
use stag_engine::{
    clock::Clock,
    control::{self, Command},
    launch::{self, CoreId},
    stats::Snapshot,
};
use stag_fabrics::{FabricAddress, FabricGroup, Sharing};
use stag_nfs::{
    GatewayReport,
    drc::CacheHandle,
    helpers::{HelperConfig, Helpers},
    serve::{ConnectionShare, ServeShard, Started, StoreSource},
    store::{
        Backend,
        files::{self, FilesBackend, SharedFiles},
        memory,
    },
};
use stag_verbs::FabricFault;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Time that the end of a session with a Ceph cluster may take.
const PARTING: Duration = Duration::from_secs(3);

/// Message that this thread waits for.
enum Message {
    /// A shard is ready; whether it could be pinned.
    Started(Box<Started>, bool),
    /// A shard's thread is over, as asked for or not.
    Ended,
    /// A signal came.
    Signal(i32),
}

/// Says that a shard's thread is over, however it ends.
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

/// Addresses at which the started shards listen.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Over RDMA and shared memory.
    listen: Vec<FabricAddress>,
    tcp: Option<SocketAddr>,
    watched: Watched,
}

impl Addresses {
    fn add(&mut self, started: &Started) {
        for at in started.fabric.addresses() {
            if !self.listen.contains(at) {
                self.listen.push(at.clone());
            }
        }
        self.tcp = self.tcp.or(started.tcp);
    }
}

/// All shards.
struct Server {
    plan: Plan,
    began: Instant,
    running: Vec<Running>,
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    /// A signal asked to stop.
    is_stopping: bool,
}

/// Serves until a signal comes.
pub fn run(arguments: &options::ServeOptions) -> Result<(), Error> {
    let _log = trace::start_server(arguments.observe.log.as_deref(), arguments.observe.log_format)?;
    let mut plan = Plan::new(arguments)?;
    jitter::wait(arguments.start_jitter);
    let source = source(&plan)?;
    let notices = match &source {
        StoreSource::Files(shared) => {
            if let Some(who) = named_at_will(shared.is_privileged()) {
                plan.distrust(who)?;
            }
            shared.notices()
        }
        StoreSource::Memory(_) => &[],
        StoreSource::Ceph(_) => {
            plan.distrust("any other user")?;
            &[]
        }
    };
    let bound = watching::bind(&arguments.observe, &plan)?;
    aside(announce::introduction(&plan, notices));
    let (sender, receiver) = channel();
    forward_signals(sender.clone())?;
    if arguments.while_stdin {
        stop_without_stdin(sender.clone())?;
    }
    if let Some(pid) = arguments.exit_with {
        stop_with(pid, sender.clone())?;
    }
    let began = Instant::now();
    let mut server =
        Server { plan, began, running: Vec::new(), sender, receiver, is_stopping: false };
    let mut first = match server.start(&source) {
        Ok(first) => first,
        Err(error) => {
            server.stop();
            // The shard that failed knows better why.
            return Err(server.join().err().unwrap_or(error));
        }
    };
    let shards = Arc::new(server.shards());
    let (watched, _watching) = watching::start(bound, &server.plan, &first, &shards)?;
    first.watched = watched;
    let block = announce::ready(&server.plan, &first);
    let ready_file = server.plan.ready_file.take();
    let _ready_file = ready_file.map(|file| ReadyFile::write(file, &block)).transpose()?;
    say(block);
    aside(announce::STOPPING);
    tell_systemd(&NotifyState::Ready);
    let ended = server.watch(&shards);
    if let StoreSource::Ceph(backend) = &source
        && !backend.close(PARTING)
    {
        tracing::warn!(target: "stag", "calls to CephFS are blocked: its session is left behind");
    }
    ended
}

/// The user that a caller can act as by naming him, beyond the user of this server.
fn named_at_will(is_privileged: bool) -> Option<&'static str> {
    match is_privileged {
        true => Some("any other user"),
        false => geteuid().is_root().then_some("root"),
    }
}

/// Makes the source of the shards' stores.
fn source(plan: &Plan) -> Result<StoreSource, Error> {
    match &plan.store {
        StorePlan::Files { state_dir, callers, cluster, waiting } => {
            let config = files::FilesConfig {
                state_dir: state_dir.clone(),
                exports: plan.directories(),
                shards: plan.shards(),
                sync_directories: true,
                callers: callers.clone(),
                open_files: Some(plan.share.files),
                cluster: cluster.clone(),
            };
            SharedFiles::open_waiting(&config, waiting)
                .map(StoreSource::Files)
                .map_err(|error| Error::usage(error.to_string()))
        }
        StorePlan::Ceph { ceph, state_dir, callers, cluster, .. } => {
            ceph_start::open(plan, ceph, state_dir, callers, cluster.as_ref())
                .map(StoreSource::Ceph)
        }
        StorePlan::Memory { capacity } => {
            Ok(StoreSource::Memory(memory::MemoryConfig::new(plan.copies(), *capacity)))
        }
    }
}

/// Threads that wait for file systems instead of the shards, on the cores that these leave free; a
/// store in memory needs none.
fn helpers(source: &StoreSource, plan: &Plan, cores: &[CoreId]) -> Result<Vec<Helpers>, Error> {
    let (threads, backend) = match (source, &plan.store) {
        (StoreSource::Files(shared), StorePlan::Files { waiting, .. }) => {
            let backend = FilesBackend::of(shared).map(|files| Arc::new(files) as Arc<dyn Backend>);
            (waiting.helpers, backend)
        }
        (StoreSource::Ceph(backend), StorePlan::Ceph { helpers, .. }) => {
            (*helpers, Some(Arc::new(backend.clone()) as Arc<dyn Backend>))
        }
        _ => return Ok(Vec::new()),
    };
    let shards = plan.shards();
    let cores = cores.iter().skip(shards).map(|core| core.id).collect();
    let config = HelperConfig { threads, backend, cores, ..HelperConfig::new(shards) };
    Helpers::start_for(config).map_err(|error| {
        Error::failure(format!("cannot start threads that wait for file systems: {error}"))
    })
}

/// Signals become messages, so that one thread waits for one thing.
fn forward_signals(sender: Sender<Message>) -> Result<(), Error> {
    let failed = |error: io::Error| Error::failure(format!("cannot wait for signals: {error}"));
    let strays = signals::STRAYS;
    let known = signals::stopping().into_iter().chain([SIGUSR1]).chain(strays);
    let mut signals = Signals::new(known).map_err(failed)?;
    let forward = move || {
        for signal in signals.forever() {
            if strays.contains(&signal) {
                tracing::warn!(target: "stag", signal, "a signal that means nothing here");
            } else if sender.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(forward).map(drop).map_err(failed)
}

/// The end of standard input is a signal to stop: whoever started this command is gone.
fn stop_without_stdin(sender: Sender<Message>) -> Result<(), Error> {
    let wait = move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        let _ = sender.send(Message::Signal(SIGTERM));
    };
    let failed =
        |error: io::Error| Error::failure(format!("cannot wait for standard input: {error}"));
    thread::Builder::new().name("stdin".to_owned()).spawn(wait).map(drop).map_err(failed)
}

/// The end of the process `pid` is a signal to stop.
fn stop_with(pid: i32, sender: Sender<Message>) -> Result<(), Error> {
    let bad = |why: &str| Error::usage(format!("--exit-with {pid}: {why}"));
    let process = Pid::from_raw(pid).ok_or_else(|| bad("give the number of a process"))?;
    let process = pidfd_open(process, PidfdFlags::empty()).map_err(|error| match error {
        Errno::SRCH => bad("there is no such process; give the number of one that runs"),
        Errno::INVAL => bad("this is a thread; give the number of its process"),
        error => bad(&format!("cannot watch that process: {}", plain(&error.into()))),
    })?;
    let wait = move || {
        // A process that has ended can be read from (pidfd_open(2)).
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&process, PollFlags::IN)], None) {}
        tracing::info!(target: "stag", pid, "the process of --exit-with ended");
        let _ = sender.send(Message::Signal(SIGTERM));
    };
    let failed = |error: io::Error| Error::failure(format!("cannot wait for {pid}: {error}"));
    thread::Builder::new().name("exit-with".to_owned()).spawn(wait).map(drop).map_err(failed)
}

fn tell_systemd(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!(target: "stag", %error, "systemd cannot be told");
    }
}

/// The counters of a shard that stopped.
type Last = (Option<usize>, Snapshot<GatewayReport>);

impl Server {
    /// Starts the shards one after the other: the first of each fabric finds the ports, where the
    /// others then listen too. What is served over TCP, the first fabric's shards serve.
    fn start(&mut self, source: &StoreSource) -> Result<Addresses, Error> {
        let (cores, clock) = (launch::cores(), Clock::start());
        let fabrics = self.plan.fabrics.clone();
        if self.plan.cores > 1 {
            let shared = fabrics.iter().filter(|fabric| fabric.info().sharing == Sharing::Port);
            check_free(shared.flat_map(FabricGroup::ips).chain(self.plan.tcp))?;
        }
        let mut parts = CacheHandle::all(self.plan.shards()).into_iter();
        let mut helpers = helpers(source, &self.plan, &cores)?.into_iter();
        let (mut found, mut budgets) = (Addresses::default(), Vec::new());
        for (number, mut fabric) in fabrics.into_iter().enumerate() {
            let mut tcp = self.plan.tcp.filter(|_| number == 0);
            for place in 0..self.plan.cores {
                let index = self.running.len();
                let branch = parts.next().expect("one for each shard");
                let plan = &self.plan;
                let share = plan.share;
                let clients = plan.clients.clone();
                let seat = ServeShard {
                    index,
                    place,
                    fabric: fabric.clone(),
                    shm_allow: plan.shm_allow.clone(),
                    tcp,
                    tls: plan.tls.clone(),
                    is_shared: plan.cores > 1,
                    admission: Arc::new(move |over| clients.clone().admission(over)),
                    share: ConnectionShare {
                        connections: share.connections,
                        streams: share.streams,
                        half_open: share.half_open,
                        spare: share.spare,
                        links: share.links,
                    },
                    private_data: plan.private_data,
                    versions: plan.versions,
                    sample: plan.sample,
                    tells_stages: plan.tells_stages,
                    source: source.clone(),
                    nfs: nfs4::versions(plan, source)?,
                    branch,
                    helpers: helpers.next(),
                    clock,
                };
                let started = self.start_one(seat, cores.get(index).copied())?;
                let core = self.running.last_mut().and_then(|running| {
                    running.end.memory = watching::memory(&started);
                    running.end.core
                });
                if let (0, Some(error)) = (index, &started.ring_fault) {
                    // Once for all shards.
                    aside(without_ring(error) + "\n");
                }
                aside(announce::shard(index, core, &started));
                found.add(&started);
                // The next shard shares ports; sockets of processes it has of its own.
                if fabric.info().sharing == Sharing::Port {
                    fabric = started.fabric.clone();
                }
                tcp = started.tcp;
                budgets.extend_from_slice(&started.budgets);
            }
        }
        aside(announce::pages(&budgets));
        Ok(found)
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
        if let StoreSource::Files(shared) = &seat.source {
            let waker = waker.clone();
            shared.attach_wakeup(index, move || waker.wake());
        }
        seat.branch.wakeup().attach(move || waker.wake());
        let sender = self.sender.clone();
        let run = move |pinned| {
            let ending = Ending(sender);
            let ran = seat.run(&control, |started| {
                let _ = ending.0.send(Message::Started(Box::new(started), pinned));
            });
            ran.map_err(cannot_serve)
        };
        let thread = launch::spawn(format!("shard-{index}"), core, run).map_err(failed)?;
        let core = core.map(|core| core.id);
        let end = ShardEnd { handle: Arc::new(handle), core, memory: Vec::new() };
        self.running.push(Running { end, thread });
        self.await_start()
    }

    /// Waits until the shard that was started last is ready, or is over with an error.
    fn await_start(&mut self) -> Result<Started, Error> {
        loop {
            match self.receiver.recv() {
                Ok(Message::Started(started, pinned)) => {
                    if let Some(running) = self.running.last_mut().filter(|_| !pinned) {
                        running.end.core = None;
                    }
                    return Ok(*started);
                }
                Ok(Message::Signal(SIGUSR1)) => {}
                Ok(Message::Signal(_)) => self.is_stopping = true,
                Ok(Message::Ended) | Err(_) => {
                    return Err(Error::failure("a shard stopped while the server was started"));
                }
            }
        }
    }

    /// Waits for signals and for the end of all shards, then writes the last statistics.
    fn watch(mut self, shards: &Shards) -> Result<(), Error> {
        if self.is_stopping {
            self.stop();
        }
        let mut live = self.running.len();
        while live > 0 {
            match self.receiver.recv() {
                Ok(Message::Signal(SIGUSR1)) => self.write_current(shards),
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
                }
                Ok(Message::Started(..)) | Err(_) => {}
            }
        }
        let file = self.plan.stats.clone();
        let counted = self.join()?;
        file.map_or(Ok(()), |file| watching::write(&file, &shards.gathered(counted)))
    }

    /// The shards, for those who watch them.
    fn shards(&self) -> Shards {
        Shards::new(self.began, self.running.iter().map(|running| running.end.clone()).collect())
    }

    /// Tells all shards to stop.
    fn stop(&self) {
        tell_systemd(&NotifyState::Stopping);
        self.running.iter().for_each(|running| running.end.handle.tell(Command::Stop));
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

/// Several shards share their ports, and would do so with another server of the same user: that is
/// found out by listening alone for a moment.
fn check_free(addresses: impl Iterator<Item = SocketAddr>) -> Result<(), Error> {
    for at in addresses.filter(|at| at.port() != 0) {
        TcpListener::bind(at)
            .map_err(|error| cannot_listen(&at, FabricFault::from(&error), "--listen or --tcp"))?;
    }
    Ok(())
}
