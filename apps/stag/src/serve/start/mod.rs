//! The start of a server, its supervision, and its end.

mod ceph_start;
mod confine;
mod core_sleep;
mod jitter;
mod nfs4_start;
mod outages;
mod privileges;
mod sources;
mod stop_events;
mod watchdog;

use super::{
    plan::{
        Plan, PlanPurpose, StorePlan,
        checks::check_free,
        client_rules::distrust,
        options::{ServeOptions, SteerOption},
        ready_file::ReadyFile,
        shards::FabricShards,
    },
    reload::{Reloader, Reloading},
    report::{
        addresses::Addresses,
        sentences::{cannot_serve, without_ring},
        startup_text,
        systemd::tell_systemd,
        watching,
    },
};
use crate::{
    Error,
    admission::AdmissionTable,
    caller::{aside, say, settle},
    metrics::{ShardEnd, Shards},
    rpcbind::{Registration, TransportKind},
    settings::Merged,
    trace,
};
use rustix::thread::set_no_new_privs;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGUSR1};
use sources::{helpers, memory_mail, source};
use stag_engine::{
    RestListener,
    clock::Clock,
    control::{self, Command},
    launch::{self, CoreId},
    stats::Snapshot,
};
use stag_fabrics::{FabricAddress, Sharing};
use stag_nfs::{
    ConnectionPolicy, GatewayReport, MountList,
    reply_cache::CacheHandle,
    serve::{ConnectionShare, ServeShard, Started, StoreSource},
};
use stag_verbs::Outages;
use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

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

/// All shards.
struct Server {
    plan: Plan,
    /// The peers that may connect.
    admission: Arc<AdmissionTable>,
    /// Notified when shards rest.
    rest: Option<Arc<dyn RestListener>>,
    /// Notified of devices that are gone.
    outages: Outages,
    /// SIGHUP reads the file of settings again.
    reloads: bool,
    began: Instant,
    running: Vec<Running>,
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    /// A signal asked to stop.
    is_stopping: bool,
}

/// Serves by these settings until a signal comes. `words` are the command line after `stag serve`.
pub fn serve(settings: &Merged<ServeOptions>, words: Vec<OsString>) -> Result<(), Error> {
    let arguments = &settings.options;
    let mut plan = Plan::new(settings, PlanPurpose::Start)?;
    // No program that this process might execute gets more rights than it has.
    if let Err(error) = set_no_new_privs(true).and_then(|()| privileges::give_up(&plan)) {
        plan.notices.push(format!("privileges that are not needed stay: {error}"));
    }
    let placed = |error| settings.origins.placed(error);
    if arguments.confine {
        confine::confine(&plan, arguments).map_err(placed)?;
    }
    let _log = trace::start_server(arguments.observe.log.as_deref(), arguments.observe.log_format)?;
    jitter::wait(arguments.start_jitter);
    let source = source(&plan).map_err(placed)?;
    distrust(&mut plan, &source).map_err(placed)?;
    let notices = match &source {
        StoreSource::Files(shared) => {
            confine::check(arguments.confine && shared.is_privileged()).map_err(placed)?;
            let set = plan.export_set();
            shared.replace_exports(&set).map_err(|error| Error::usage(error.to_string()))?;
            shared.notices()
        }
        StoreSource::Memory(_) | StoreSource::Ceph(_) => &[],
    };
    let bound = watching::bind(&arguments.observe, &plan).map_err(placed)?;
    aside(startup_text::introduction(&plan, notices));
    let settled = Arc::new(settle());
    let rest = core_sleep::listener(arguments.limits.awake.unwrap_or_default(), &settled);
    let (sender, receiver) = channel();
    let reloads = arguments.config.is_some();
    stop_events::forward_signals(sender.clone(), reloads)?;
    if arguments.while_stdin {
        stop_events::stop_without_stdin(sender.clone())?;
    }
    if let Some(pid) = arguments.exit_with {
        stop_events::stop_with(pid, sender.clone()).map_err(placed)?;
    }
    let began = Instant::now();
    let admission = Arc::new(AdmissionTable::new(plan.clients.clone()));
    let reloader = Reloader::of(settings, words, &source, &admission, &plan);
    let mut server = Server {
        plan,
        admission,
        rest,
        outages: Outages::default(),
        reloads,
        began,
        running: Vec::new(),
        sender,
        receiver,
        is_stopping: false,
    };
    let mut first = match server.start(&source) {
        Ok(first) => first,
        Err(error) => {
            server.stop_all();
            // The shard that failed knows better why.
            return Err(placed(server.join().err().unwrap_or(error)));
        }
    };
    let _registration = match server.register(&first).transpose() {
        Ok(registration) => registration,
        Err(error) => {
            server.stop_all();
            return server.join().and(Err(placed(error)));
        }
    };
    let shards = Arc::new(server.shards());
    let exports = watching::exports(&server.plan);
    let reloading = reloader.map(|it| Reloading::new(it, &shards, &exports));
    let reload = reloading.clone().map(Reloading::for_controllers);
    let facts = watching::facts(&server.plan, &first, exports);
    let (watched, _watching) = bound.start(&shards, facts, reload, &server.admission)?;
    first.watched = watched;
    watchdog::start(&shards)?;
    outages::watch(&shards)?;
    let block = startup_text::ready(&server.plan, &first);
    let ready_file = server.plan.ready_file.take();
    let _ready_file = ready_file.map(|file| ReadyFile::write(file, &block)).transpose()?;
    say(block);
    aside(startup_text::STOPPING);
    tell_systemd(&NotifyState::Ready);
    let ended = server.watch(&shards, reloading.as_deref());
    if let StoreSource::Ceph(backend) = &source
        && !backend.close(PARTING)
    {
        tracing::warn!(target: "stag", "calls to CephFS are blocked: its session is left behind");
    }
    ended
}

/// The counters of a shard that stopped.
type Last = (Option<usize>, Snapshot<GatewayReport>);

impl Server {
    /// Starts the shards one after the other: the first of each fabric chooses the ports, at which
    /// the others then listen too. The shards of the first fabric serve TCP.
    fn start(&mut self, source: &StoreSource) -> Result<Addresses, Error> {
        let fabrics = self.plan.fabrics.clone();
        let wanted: Vec<_> = fabrics.iter().flat_map(FabricShards::nodes).collect();
        let (cores, clock) = (launch::near(launch::cores(), &wanted), Clock::start());
        let mounts = Arc::new(MountList::default());
        let shared = fabrics.iter().filter(|fabric| fabric.cores > 1);
        // Ports of RDMA devices are not sockets of the system.
        let shared = shared.filter(|fabric| fabric.group.info().is_over_tcp);
        let tcp = self.plan.tcp.filter(|_| fabrics.first().is_some_and(|it| it.cores > 1));
        let own = shared.flat_map(|fabric| fabric.group.ips()).chain(tcp);
        check_free(own.filter(|at| !self.plan.passed.has(*at)))?;
        let mut parts = CacheHandle::all(self.plan.shards()).into_iter();
        let mut links = nfs4_start::links(&self.plan).into_iter();
        let mut helpers = helpers(source, &self.plan, &cores)?.into_iter();
        let mut memory = memory_mail(&self.plan).into_iter();
        let (versions, mut records) = nfs4_start::versions(&self.plan, source)?;
        let steers = self.plan.steer == SteerOption::Address;
        let (mut found, mut budgets) = (Addresses::default(), Vec::new());
        // Each is reported once for all shards of a device.
        let mut told = BTreeSet::new();
        for (number, FabricShards { group: mut fabric, cores: places }) in
            fabrics.into_iter().enumerate()
        {
            let mut tcp = self.plan.tcp.filter(|_| number == 0);
            for place in 0..places {
                let index = self.running.len();
                let branch = parts.next().expect("one for each shard");
                let plan = &self.plan;
                let share = plan.share;
                let admission = Arc::clone(&self.admission);
                let seat = ServeShard {
                    index,
                    place,
                    fabric: fabric.clone(),
                    shm_allow: plan.shm_allow.clone(),
                    rdma: plan.link,
                    tcp,
                    passed: plan.passed.clone(),
                    tls: plan.tls.clone(),
                    places,
                    steered: u32::try_from(places).ok().filter(|places| *places > 1 && steers),
                    sizes: plan.sizes,
                    admission: Arc::new(move |over| Arc::clone(&admission).admission(over)),
                    policy: Arc::clone(&self.admission) as Arc<dyn ConnectionPolicy>,
                    mounts: Arc::clone(&mounts),
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
                    nfs: versions,
                    records: records.take(),
                    exclusive: plan.nfs.delegations.exclusive.clone(),
                    watched: plan.nfs.delegations.watched.clone(),
                    link: links.next(),
                    branch,
                    helpers: helpers.next(),
                    memory: memory.next(),
                    clock,
                    rest: self.rest.clone(),
                    outage: self.outages.of_shard(index),
                };
                let started = self.start_one(seat, cores.get(index).copied())?;
                let core = self.running.last_mut().and_then(|running| {
                    running.end.memory = watching::memory(&started);
                    running.end.may_spin = !started.is_beside_helpers;
                    running.end.place = watching::place(&started);
                    running.end.core
                });
                if let (0, Some(error)) = (index, &started.ring_fault) {
                    // Once for all shards.
                    aside(without_ring(error) + "\n");
                }
                aside(startup_text::shard(index, core, &started));
                for notice in started.notices.iter().filter(|it| told.insert((*it).clone())) {
                    aside(format!("notice: {notice}\n"));
                }
                found.add(&started);
                // The next shard shares ports; sockets of shared memory are its own.
                if fabric.info().sharing == Sharing::Port {
                    fabric = started.fabric.clone();
                }
                tcp = started.tcp;
                budgets.extend_from_slice(&started.budgets);
            }
        }
        aside(startup_text::pages(&budgets));
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
        if let Some(link) = &seat.link {
            let waker = waker.clone();
            link.wakeup().attach(move || waker.wake());
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
        let end = ShardEnd::new(handle, core);
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
    fn watch(mut self, shards: &Shards, reloading: Option<&Reloading>) -> Result<(), Error> {
        if self.is_stopping {
            self.stop();
        }
        let mut live = self.running.len();
        while live > 0 {
            match self.receiver.recv() {
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
    fn shards(&self) -> Shards {
        let ends = self.running.iter().map(|running| running.end.clone()).collect();
        Shards::new(self.began, ends, self.outages.clone())
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
        matches!(self.plan.store, StorePlan::Memory { .. }) && self.running.len() > 1
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
