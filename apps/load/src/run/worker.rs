//! A thread with a generator, on a core of its own where there is one.

use super::{RunError, host};
use crate::{
    drive::{Load, LoadPlan, To},
    generator::{Generator, GeneratorWatch, ReplySeries},
    latency::CallRecord,
    report::model::{ContextFigures, RunSetup},
    schedule::{Pace, RunSpan, Schedule, SchedulePart},
    stages::ClientStages,
};
use rustix::rand::{GetRandomFlags, getrandom};
use stag_client::Error;
use stag_engine::{Stages, clock::Clock, launch};
use stag_fabrics::{Endpoint, Fabric, FabricVisitor, Open, Settings, StreamsOnly};
use stag_rpc::gss::ContextFault;
use stag_verbs::{Provider, Time};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Words of a thread to the one that gathers.
pub(super) enum WorkerMessage {
    /// It is connected, or cannot be.
    Ready(Result<(), RunError>),
    /// A second is over.
    Second(usize, u64, Box<CallRecord>),
    /// All is over.
    Over(usize, Box<WorkerReport>),
}

/// Words of a thread at its end.
pub(super) struct WorkerReport {
    pub(super) measured: (Time, Time),
    pub(super) watch: GeneratorWatch,
    pub(super) preemptions: Option<u64>,
    pub(super) is_pinned: bool,
    pub(super) failure: Option<(&'static str, Error)>,
    pub(super) contexts: Option<ContextFigures>,
    pub(super) context_fault: Option<ContextFault>,
    pub(super) written: Vec<bool>,
    pub(super) version: Option<u32>,
    pub(super) stages: Option<Box<Watched>>,
    pub(super) outages: Vec<(Time, Time)>,
    /// Replies over time, of a run that goes on after outages.
    pub(super) replies: Option<ReplySeries>,
}

/// Stages that a thread recorded, if requested.
pub(super) struct Watched {
    pub(super) every: u32,
    pub(super) client: ClientStages,
    /// Those of the server before and after.
    pub(super) server: Result<[Vec<Stages>; 2], Error>,
}

/// One thread.
pub(super) struct Worker {
    /// Starts it, at this time.
    pub(super) start: Sender<Time>,
    /// Gives memory back to it.
    pub(super) spare: Sender<Box<CallRecord>>,
    pub(super) thread: JoinHandle<()>,
}

/// The parts that all threads have in common.
pub(super) struct Crew {
    pub(super) server: Endpoint,
    pub(super) setup: RunSetup,
    pub(super) clock: Clock,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) to: Sender<WorkerMessage>,
}

impl Crew {
    /// Starts thread `part` on the fabric of the server. A generator is made for one fabric.
    pub(super) fn spawn(&self, part: usize, plan: LoadPlan) -> Result<Worker, RunError> {
        let (start, started) = channel();
        let (spare, spares) = channel();
        let seat = WorkerSeat {
            part,
            parts: self.setup.cores,
            plan,
            setup: self.setup.clone(),
            clock: self.clock,
            to: self.to.clone(),
            start: started,
            spare: spares,
            stop: Arc::clone(&self.stop),
        };
        // Servers take the first cores.
        let core = launch::cores().into_iter().rev().nth(part);
        let server = self.server.clone();
        let run = move |is_pinned| match server {
            Endpoint::Tcp(at) => seat.work::<StreamsOnly>(&To::Tcp(at), is_pinned),
            Endpoint::Fabric(at) => at.visit(Pinned { seat, is_pinned }),
        };
        let thread = launch::spawn(format!("bench{part}"), core, run).map_err(RunError::Thread)?;
        Ok(Worker { start, spare, thread })
    }
}

/// The parts that a thread is made from.
struct WorkerSeat {
    part: usize,
    parts: usize,
    plan: LoadPlan,
    setup: RunSetup,
    clock: Clock,
    to: Sender<WorkerMessage>,
    start: Receiver<Time>,
    spare: Receiver<Box<CallRecord>>,
    stop: Arc<AtomicBool>,
}

/// A thread that runs, on a core of its own or not.
struct Pinned {
    seat: WorkerSeat,
    is_pinned: bool,
}

impl FabricVisitor for Pinned {
    type Output = ();

    fn visit<P: Fabric>(self, at: P::Address) {
        self.seat.work::<P>(&To::Fabric(at), self.is_pinned);
    }
}

impl WorkerSeat {
    fn work<P: Open>(self, at: &To<P::Address>, is_pinned: bool) {
        let mut load = match self.connect::<P>(at) {
            Ok(load) => load,
            Err(error) => return drop(self.to.send(WorkerMessage::Ready(Err(error)))),
        };
        let asked = self.ask(&mut load);
        let _ = self.to.send(WorkerMessage::Ready(Ok(())));
        // It is not started when another one cannot connect.
        let Ok(start) = self.start.recv() else { return };
        let (pace, span) = self.pace(start);
        let before = host::preemptions();
        load.begin(self.clock.now(), pace, span);
        load.run(
            || self.clock.now(),
            || self.is_stopped(),
            |number, record| {
                let _ = self.to.send(WorkerMessage::Second(self.part, number, Box::new(record)));
                self.spare.try_recv().ok().map(|record| *record)
            },
        );
        let stages = asked.map(|before| self.watched(&mut load, before));
        if load.generator().failure().is_none() {
            // Sessions that remain end with their lease.
            let _ = load.end_sessions(|| self.clock.now(), || false);
            load.end_contexts(|| self.clock.now());
        }
        let context_fault = load.with_generator(Generator::take_context_fault);
        let generator = load.generator();
        let report = WorkerReport {
            measured: generator.measured(),
            watch: generator.watch(),
            preemptions: host::preemptions()
                .zip(before)
                .map(|(after, before)| after.saturating_sub(before)),
            is_pinned,
            failure: generator.failure(),
            contexts: generator.context_counts(),
            context_fault,
            written: generator.written().to_vec(),
            version: load.version(),
            outages: generator.outages().to_vec(),
            replies: generator.replies().cloned(),
            stages,
        };
        let _ = self.to.send(WorkerMessage::Over(self.part, Box::new(report)));
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Asks the server for its stages, when they are to be shown.
    fn ask<P: Provider>(&self, load: &mut Load<P>) -> Option<Result<Vec<Stages>, Error>> {
        let is_wanted = self.plan.sampling.every > 0;
        is_wanted.then(|| load.ask_stages(|| self.clock.now(), || self.is_stopped()))
    }

    /// Stages here, and there since `before`.
    fn watched<P: Provider>(
        &self,
        load: &mut Load<P>,
        before: Result<Vec<Stages>, Error>,
    ) -> Box<Watched> {
        let server =
            before.and_then(|before| Ok([before, self.ask(load).transpose()?.unwrap_or_default()]));
        let (every, client) = load.generator().stages().expect("it watches when servers are asked");
        Box::new(Watched { every, client: client.clone(), server })
    }

    fn connect<P: Open>(&self, at: &To<P::Address>) -> Result<Load<P>, RunError> {
        let mut seed = [0; 32];
        getrandom(&mut seed, GetRandomFlags::empty())
            .map_err(|error| RunError::Random(error.into()))?;
        let settings = Settings {
            reserved_port: self.plan.takes_reserved_ports(),
            ..Settings::new(self.plan.limits(), seed, self.clock.now())
        };
        let to = match at {
            To::Fabric(to) => Some(to),
            To::Tcp(_) => None,
        };
        let provider = P::for_connecting(settings, to).map_err(RunError::Memory)?;
        let mut load = Load::new(provider, &self.plan).map_err(RunError::Memory)?;
        let clock = self.clock;
        load.meet(at, move || clock.now(), || self.is_stopped()).map_err(RunError::Connect)?;
        load.begin_contexts(move || clock.now(), || self.is_stopped())
            .map_err(RunError::Context)?;
        let run = *seed.last_chunk().expect("a seed is longer than a name");
        load.begin_sessions(run, move || clock.now(), || self.is_stopped())
            .map_err(RunError::Session)?;
        Ok(load)
    }

    /// Returns the rule for the times of calls from `start` on, and the span of the calls that
    /// count.
    fn pace(&self, start: Time) -> (Pace, RunSpan) {
        let RunSetup { rate, arrivals, seed, warm_up_s, duration_s, calls, .. } = &self.setup;
        let from = start + Duration::from_secs_f64(*warm_up_s);
        let until =
            duration_s.map_or(Time(u64::MAX), |seconds| from + Duration::from_secs_f64(seconds));
        let (part, parts) = (self.part as u64, self.parts as u64);
        let calls = calls.map(|calls| calls / parts + u64::from(part < calls % parts));
        let pace = match rate {
            Some(rate) => {
                let arrivals = arrivals.unwrap_or_default();
                let rate = rate / self.parts as f64;
                let part = SchedulePart { part: self.part, parts: self.parts };
                Pace::Open(Schedule::new(start, rate, arrivals, *seed, part))
            }
            None => Pace::Closed,
        };
        (pace, RunSpan { from, until, calls })
    }
}
