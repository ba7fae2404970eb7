//! One run: a thread with a generator for each core, and one that gathers what they measure.

use super::{
    files::Ground,
    host::{self, Ticks},
    options::Run,
    stop::Stop,
};
use crate::{
    Error,
    call::{Url, cannot_connect},
    caller::random,
    cli::written,
};
use stag_engine::{Sampling, Stages, clock::Clock, launch};
use stag_fabrics::{Endpoint, Fabric, FabricVisitor, Open, Settings, StreamsOnly};
use stag_load::bench::{
    Load, Outcome, Pace, Plan, Record, Schedule, Span, Times, To, Watch, Workload, doubts, floor,
    outcome::{self, Client, SCHEMA, Second, Setup},
    stages::{self, ClientStages},
};
use stag_protocol::rpc::Accepted;
use stag_verbs::{Provider, Time};
use std::{
    collections::BTreeMap,
    io,
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

/// Calls outstanding on a connection of an open loop, unless told otherwise.
const OPEN_DEPTH: u16 = 64;
/// Seconds that do not count, and that do, unless told otherwise.
const WARM_UP: f64 = 2.0;
pub const DURATION: f64 = 10.0;
/// From when all are connected to the first call.
const LEAD: Duration = Duration::from_millis(5);

/// How a run is made.
pub fn setup(arguments: &Run, url: &Url, (size, rate, seed): (usize, Option<f64>, u64)) -> Setup {
    let is_open = rate.is_some() && arguments.workload != Workload::ConnStorm;
    let depth = arguments.depth.unwrap_or(if is_open { OPEN_DEPTH } else { 1 });
    Setup {
        url: format!("{url}{}", String::from_utf8_lossy(&url.path).trim_end_matches('/')),
        workload: arguments.workload,
        size: if arguments.workload.has_payload() { size } else { 0 },
        connections: arguments.connections.into(),
        depth: depth.into(),
        cores: arguments.cores.into(),
        rate,
        arrivals: rate.map(|_| arguments.arrivals),
        warm_up_s: arguments.warm_up.unwrap_or(WARM_UP),
        duration_s: arguments.calls.is_none().then_some(arguments.duration.unwrap_or(DURATION)),
        calls: arguments.calls,
        verified: arguments.workload.has_payload() && !arguments.no_verify,
        seed,
        rdma_version: url.server.fabric().is_some().then(|| written(arguments.rdma_version).to_owned()),
    }
}

/// What a thread tells.
enum Message {
    /// It is connected, or cannot be.
    Ready(Result<(), Error>),
    /// A second is over.
    Second(usize, u64, Box<Record>),
    /// All is over.
    Over(usize, Report),
}

/// What a thread has to say at the end.
struct Report {
    measured: (Time, Time),
    watch: Watch,
    preemptions: Option<u64>,
    is_pinned: bool,
    failure: Option<String>,
    written: Vec<bool>,
    version: Option<u32>,
    stages: Option<Box<Watched>>,
}

/// What a thread knows of stages, when that was asked for.
struct Watched {
    every: u32,
    client: ClientStages,
    /// What the server said before and after.
    server: Result<[Vec<Stages>; 2], stag_load::Error>,
}

/// One thread.
struct Worker {
    /// Starts it, at this time.
    start: Sender<Time>,
    /// Gives memory back to it.
    spare: Sender<Box<Record>>,
    thread: JoinHandle<()>,
}

/// What a thread is made from.
struct Seat {
    part: usize,
    parts: usize,
    plan: Plan,
    setup: Setup,
    clock: Clock,
    to: Sender<Message>,
    start: Receiver<Time>,
    spare: Receiver<Box<Record>>,
    stop: Stop,
}

/// Runs until the end or until it is stopped, and tells of each second.
pub fn run(
    arguments: &Run,
    (url, stop): (&Url, &Stop),
    setup: Setup,
    live: &mut dyn FnMut(&Second),
) -> Result<Outcome, Error> {
    let mut ground = match arguments.workload.is_nfs() {
        true => Some(Ground::make(arguments, url, setup.size.max(1), stop)?),
        false => None,
    };
    let measured = gather(arguments, (url, stop), setup, ground.as_ref(), live);
    let compared = match (&measured, &mut ground) {
        (Ok((outcome, written)), Some(ground)) if outcome.setup.verified && outcome.failure.is_none() => {
            written.iter().enumerate().try_for_each(|(part, written)| ground.compare(part, written).map(drop))
        }
        _ => Ok(()),
    };
    let is_alive = measured.as_ref().is_ok_and(|(outcome, _)| outcome.failure.is_none());
    let removed = ground.map_or(Ok(()), |ground| ground.remove(is_alive));
    let (mut outcome, _) = measured?;
    // What was measured is told in any case.
    if let Err(error) = compared {
        outcome.failure.get_or_insert(error.to_string());
    }
    outcome.left_behind = removed.err().map(|error| error.to_string());
    Ok(outcome)
}

/// Runs; and what was written, by generator.
fn gather(
    arguments: &Run,
    (url, stop): (&Url, &Stop),
    setup: Setup,
    ground: Option<&Ground>,
    live: &mut dyn FnMut(&Second),
) -> Result<(Outcome, Vec<Vec<bool>>), Error> {
    let mut host = host::describe();
    host.floors_ns[0] = floor::measure();
    let (to, from) = channel();
    let clock = Clock::start();
    let files = ground.map(Ground::files).unwrap_or_default();
    let mut workers = Vec::new();
    for part in 0..setup.cores {
        let mut plan = plan(arguments, url, &setup, (part, clock))?;
        plan.files = files.get(part).copied();
        workers.push(spawn(url, plan, &setup, (part, clock, to.clone()), stop)?);
    }
    drop(to);
    for _ in &workers {
        match from.recv() {
            Ok(Message::Ready(ready)) => ready.map_err(|error| cannot(url, error, stop))?,
            _ => return Err(Error::failure("a generator ended before it was connected")),
        }
    }
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let start = clock.now() + LEAD;
    for worker in &workers {
        let _ = worker.start.send(start);
    }
    let mut gathered = Gathered::new(workers.len());
    gathered.take_all(&from, &workers, live);
    for Worker { thread, .. } in workers {
        thread.join().map_err(|_| Error::failure("a generator panicked"))?;
    }
    host.floors_ns[1] = floor::measure();
    let (outcome, written) = gathered.outcome(setup, host, began.as_secs_f64())?;
    Ok((Outcome { stopped: stop.is_asked(), ..outcome }, written))
}

/// The fabric's part of an error is a sentence of its own.
fn cannot(url: &Url, error: Error, stop: &Stop) -> Error {
    match error {
        _ if stop.is_asked() => {
            Error::Stopped(format!("stopped while connecting to {url}: nothing was measured"))
        }
        Error::Failure(text) => Error::failure(format!("{url}: {text}")),
        other => other,
    }
}

fn plan(arguments: &Run, url: &Url, setup: &Setup, (part, clock): (usize, Clock)) -> Result<Plan, Error> {
    let (all, cores) = (setup.connections, setup.cores);
    let every = if arguments.stages { Sampling::EVERY } else { 0 };
    Ok(Plan {
        workload: setup.workload,
        len: setup.size,
        connections: all / cores + usize::from(part < all % cores),
        depth: setup.depth,
        verify: setup.verified,
        timeout: Duration::from_secs(arguments.timeout.into()),
        seed: setup.seed.wrapping_add((part as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        user: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        is_nfs: url.path != b"/",
        files: None,
        versions: arguments.rdma_version,
        sampling: Sampling { every, clock: Some(clock), shard: 0 },
    })
}

/// Starts a thread on the fabric of the URL. What is measured is made for one fabric each.
fn spawn(
    url: &Url,
    plan: Plan,
    setup: &Setup,
    (part, clock, to): (usize, Clock, Sender<Message>),
    stop: &Stop,
) -> Result<Worker, Error> {
    let (start, started) = channel();
    let (spare, spares) = channel();
    let (parts, setup) = (setup.cores, setup.clone());
    let stop = stop.clone();
    let seat = Seat { part, parts, plan, setup, clock, to, start: started, spare: spares, stop };
    // Servers take the first cores.
    let core = launch::cores().into_iter().rev().nth(part);
    let server = url.server.clone();
    let thread = launch::spawn(format!("bench{part}"), core, move |is_pinned| match server {
        Endpoint::Tcp(at) => seat.work::<StreamsOnly>(&To::Tcp(at), is_pinned),
        Endpoint::Fabric(at) => at.visit(Pinned { seat, is_pinned }),
    });
    let thread = thread.map_err(|error| Error::failure(format!("cannot start a thread: {error}")))?;
    Ok(Worker { start, spare, thread })
}

/// A thread that runs, on a core of its own or not.
struct Pinned {
    seat: Seat,
    is_pinned: bool,
}

impl FabricVisitor for Pinned {
    type Output = ();

    fn visit<P: Fabric>(self, at: P::Address) {
        self.seat.work::<P>(&To::Fabric(at), self.is_pinned);
    }
}

impl Seat {
    fn work<P: Open>(self, at: &To<P::Address>, is_pinned: bool) {
        let mut load = match self.connect::<P>(at) {
            Ok(load) => load,
            Err(error) => return drop(self.to.send(Message::Ready(Err(error)))),
        };
        let asked = self.ask(&mut load);
        let _ = self.to.send(Message::Ready(Ok(())));
        // Nobody starts it when another one cannot connect.
        let Ok(start) = self.start.recv() else { return };
        let (pace, span) = self.pace(start);
        let before = host::preemptions();
        load.begin(self.clock.now(), pace, span);
        load.run(
            || self.clock.now(),
            || self.stop.is_asked(),
            |number, record| {
                let _ = self.to.send(Message::Second(self.part, number, Box::new(record)));
                self.spare.try_recv().ok().map(|record| *record)
            },
        );
        let stages = asked.map(|before| {
            let after =
                before.and_then(|before| Ok([before, self.ask(&mut load).transpose()?.unwrap_or_default()]));
            let (every, client) = load.generator().stages().expect("it watches when servers are asked");
            Box::new(Watched { every, client: client.clone(), server: after })
        });
        let generator = load.generator();
        let failure = generator.failure().map(|(call, error)| told(self.plan.workload, call, error));
        let report = Report {
            measured: generator.measured(),
            watch: generator.watch(),
            preemptions: host::preemptions().zip(before).map(|(after, before)| after.saturating_sub(before)),
            is_pinned,
            failure,
            written: generator.written().to_vec(),
            version: load.version(),
            stages,
        };
        let _ = self.to.send(Message::Over(self.part, report));
    }

    /// Asks the server for its stages, when they are to be shown.
    fn ask<P: Provider>(&self, load: &mut Load<P>) -> Option<Result<Vec<Stages>, stag_load::Error>> {
        let is_wanted = self.plan.sampling.every > 0;
        is_wanted.then(|| load.ask_stages(|| self.clock.now(), || self.stop.is_asked()))
    }

    fn connect<P: Open>(&self, at: &To<P::Address>) -> Result<Load<P>, Error> {
        let short =
            |error: io::Error| Error::failure(format!("no memory or descriptors to call with: {error}"));
        let settings = Settings {
            reserved_port: self.plan.takes_reserved_ports(),
            ..Settings::new(self.plan.limits(), random()?, self.clock.now())
        };
        let to = match at {
            To::Fabric(to) => Some(to),
            To::Tcp(_) => None,
        };
        let provider = P::for_connecting(settings, to).map_err(short)?;
        let mut load = Load::new(provider, &self.plan).map_err(short)?;
        let clock = self.clock;
        load.meet(at, move || clock.now(), || self.stop.is_asked())
            .map_err(|error| cannot_connect("it", error))?;
        Ok(load)
    }

    /// When calls go out, from `start` on, and which count.
    fn pace(&self, start: Time) -> (Pace, Span) {
        let Setup { rate, arrivals, seed, warm_up_s, duration_s, calls, .. } = &self.setup;
        let from = start + Duration::from_secs_f64(*warm_up_s);
        let until = duration_s.map_or(Time(u64::MAX), |seconds| from + Duration::from_secs_f64(seconds));
        let (part, parts) = (self.part as u64, self.parts as u64);
        let calls = calls.map(|calls| calls / parts + u64::from(part < calls % parts));
        let pace = match rate {
            Some(rate) => {
                let arrivals = arrivals.unwrap_or_default();
                let rate = rate / self.parts as f64;
                Pace::Open(Schedule::new(start, rate, arrivals, *seed, (self.part, self.parts)))
            }
            None => Pace::Closed,
        };
        (pace, Span { from, until, calls })
    }
}

/// Why a run failed.
fn told(workload: Workload, call: &str, error: stag_load::Error) -> String {
    let text = format!("{call}: {error}");
    let absent = matches!(
        error,
        stag_load::Error::Rejected(
            Accepted::ProgUnavail | Accepted::ProcUnavail | Accepted::ProgMismatch { .. }
        )
    );
    match workload {
        Workload::Null | Workload::ConnStorm if absent => {
            format!("{text}; a server of NFS is called by the name of an export: put /NAME behind the URL")
        }
        Workload::Reverse if absent => format!("{text}; reverse needs one that calls: 'stag echo'"),
        Workload::Echo | Workload::Pull | Workload::Push | Workload::Mixed if absent => {
            format!("{text}; {workload} needs one that has it: 'stag echo'")
        }
        _ => text,
    }
}

/// What all threads measured.
struct Gathered {
    all: Record,
    seconds: Vec<Second>,
    /// Seconds that not every thread has told of.
    open: BTreeMap<u64, Record>,
    /// The next second that each thread tells of.
    next: Vec<u64>,
    reports: Vec<Option<Report>>,
    ticks: [Option<Ticks>; 2],
    first: Option<Ticks>,
}

impl Gathered {
    fn new(workers: usize) -> Self {
        let ticks = Ticks::read();
        Self {
            all: Record::default(),
            seconds: Vec::new(),
            open: BTreeMap::new(),
            next: vec![0; workers],
            reports: (0..workers).map(|_| None).collect(),
            ticks: [ticks; 2],
            first: ticks,
        }
    }

    fn take_all(&mut self, from: &Receiver<Message>, workers: &[Worker], live: &mut dyn FnMut(&Second)) {
        while let Ok(message) = from.recv() {
            match message {
                Message::Ready(_) => {}
                Message::Second(part, number, mut record) => {
                    self.open.entry(number).or_default().add(&record);
                    self.next.get_mut(part).into_iter().for_each(|next| *next = number + 1);
                    record.clear();
                    if let Some(worker) = workers.get(part) {
                        let _ = worker.spare.send(record);
                    }
                }
                Message::Over(part, report) => {
                    self.next.get_mut(part).into_iter().for_each(|next| *next = u64::MAX);
                    if let Some(place) = self.reports.get_mut(part) {
                        *place = Some(report);
                    }
                    if self.reports.iter().all(Option::is_some) {
                        return self.close(live);
                    }
                }
            }
            self.close(live);
        }
    }

    /// Closes the seconds that every thread told of.
    fn close(&mut self, live: &mut dyn FnMut(&Second)) {
        let known = self.next.iter().copied().min().unwrap_or(0);
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < known) {
            let (number, record) = entry.remove_entry();
            let [_, last] = self.ticks;
            self.ticks = [last, Ticks::read()];
            let [before, after] = self.ticks;
            let stolen = before.zip(after).and_then(|(before, after)| after.stolen_since(before));
            let second = Second::new(number, &record, stolen);
            live(&second);
            self.all.add(&record);
            self.seconds.push(second);
        }
    }

    fn outcome(
        self,
        setup: Setup,
        host: outcome::Host,
        began_unix_s: f64,
    ) -> Result<(Outcome, Vec<Vec<bool>>), Error> {
        let stolen = self.first.zip(Ticks::read()).and_then(|(before, after)| after.stolen_since(before));
        let mut reports: Vec<_> = self.reports.into_iter().flatten().collect();
        if reports.len() != setup.cores {
            return Err(Error::failure("a generator ended early"));
        }
        let began = reports.iter().map(|report| report.measured.0).min().unwrap_or_default();
        let ended = reports.iter().map(|report| report.measured.1).max().unwrap_or_default();
        let elapsed_s = ended.since(began).as_secs_f64();
        let per_second = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
        let response = Times::new(&self.all.response);
        let mut client = Client {
            lag: Times::new(&self.all.lag),
            turns: reports.iter().map(|report| report.watch.turns).sum(),
            gap_max_us: self.all.gap as f64 / 1e3,
            preemptions: reports.iter().map(|report| report.preemptions).sum(),
            stolen,
            pinned: reports.iter().filter(|report| report.is_pinned).count(),
            doubts: Vec::new(),
        };
        let run = doubts::Run {
            client: &client,
            host: &host,
            response: &response,
            threads: setup.cores,
            ran_s: setup.warm_up_s + elapsed_s,
        };
        client.doubts = run.doubts();
        let gave_up = reports.iter().filter_map(|report| report.watch.gave_up).min();
        let outcome = Outcome {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began_unix_s,
            setup,
            rdma_version: reports.iter().find_map(|report| report.version),
            host,
            elapsed_s,
            calls: self.all.calls,
            failed: self.all.failed,
            failure: reports.iter().find_map(|report| report.failure.clone()),
            gave_up_s: gave_up.map(|at| (at.0 as f64 - began.0 as f64) / 1e9),
            stopped: false,
            left_behind: None,
            unsent: reports.iter().map(|report| report.watch.unsent).sum(),
            calls_per_s: per_second(self.all.calls),
            octets_per_s: per_second(self.all.octets),
            service: Times::new(&self.all.service),
            response,
            connected: self.all.connected.as_deref().map(Times::new),
            client,
            turns: None,
            stages: watched(reports.iter_mut().filter_map(|report| report.stages.take())),
            seconds: self.seconds,
        };
        Ok((outcome, reports.into_iter().map(|report| report.written).collect()))
    }
}

/// What all threads know of stages.
fn watched(all: impl Iterator<Item = Box<Watched>>) -> Option<stages::Stages> {
    let (mut every, mut client) = (None, ClientStages::default());
    let (mut before, mut after, mut unasked) = (Vec::new(), Vec::new(), None);
    for watched in all {
        every = Some(watched.every);
        client.add(&watched.client);
        match watched.server {
            Ok([first, last]) => {
                before.extend(first);
                after.extend(last);
            }
            Err(error) => unasked = Some(format!("the server does not tell its stages: {error}")),
        }
    }
    let server = stages::between(&before, &after).filter(|_| unasked.is_none());
    let server = server.filter(|server| server.every > 0);
    if server.is_none() {
        unasked
            .get_or_insert_with(|| "the server watches no calls, or was started again meanwhile".to_owned());
    }
    Some(stages::Stages { every: every?, client: client.times(), server, unasked })
}
