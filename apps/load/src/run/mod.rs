//! One run: a thread with a generator for each core, and one that gathers their figures.

mod gather;
mod host;
mod worker;

use crate::{
    drive::LoadPlan,
    floor,
    report::model::{RunOutcome, RunSetup, SecondFigures},
};
pub(crate) use gather::GAPS;
use gather::Gathered;
use stag_client::Error;
use stag_engine::clock::Clock;
use stag_fabrics::Endpoint;
use stag_rpc::gss::ContextFault;
use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::{Duration, SystemTime},
};
use worker::{Crew, Worker, WorkerMessage};

/// Time from when all are connected to the first call, of a run on this node alone.
pub const LEAD: Duration = Duration::from_millis(5);

/// A run that is to be made.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The server.
    pub server: Endpoint,
    /// Parameters of the connections to it.
    pub setup: RunSetup,
    /// The work of each thread, one for each core.
    pub plans: Vec<LoadPlan>,
    /// The time, as the plans' sampling reads it.
    pub clock: Clock,
    /// Ends the run early and in order, once it is set.
    pub stop: Arc<AtomicBool>,
}

/// Callbacks to the caller of a run.
pub struct RunHooks<'a> {
    /// Called when all is connected; returns the time until the first call.
    pub begin: &'a mut dyn FnMut() -> Option<Duration>,
    /// Called with each second.
    pub live: &'a mut dyn FnMut(&SecondFigures),
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Figures, without a sentence about a failure.
    pub outcome: RunOutcome,
    /// The first call that failed, and why.
    pub failure: Option<(&'static str, Error)>,
    /// The reason for which the server granted no other context.
    pub context_fault: Option<ContextFault>,
    /// Blocks that each thread wrote.
    pub written: Vec<Vec<bool>>,
}

/// Reason for which nothing was measured.
#[derive(Debug)]
pub enum RunError {
    /// A thread cannot be started.
    Thread(io::Error),
    /// The system gives no random numbers.
    Random(io::Error),
    /// Memory or descriptors are short.
    Memory(io::Error),
    /// A connection cannot be made.
    Connect(Error),
    /// A context of RPCSEC_GSS cannot be made.
    Context(ContextFault),
    /// A session of NFS version 4.1 cannot be made.
    Session(Error),
    /// A thread ended too early.
    Ended,
    /// A thread panicked.
    Panicked,
    /// The caller withheld the start.
    Unwanted,
}

impl RunError {
    /// True if the server, or the way to it, is at fault.
    pub const fn is_of_connecting(&self) -> bool {
        matches!(self, Self::Random(_) | Self::Memory(_) | Self::Connect(_) | Self::Context(_))
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Random(error) => write!(f, "the system gives no random numbers: {error}"),
            Self::Memory(error) => write!(f, "no memory or descriptors to call with: {error}"),
            Self::Connect(error) => error.fmt(f),
            Self::Context(fault) => write!(f, "no context of Kerberos: {fault}"),
            Self::Session(error) => write!(f, "no session of NFS version 4.1: {error}"),
            Self::Ended => f.write_str("a generator ended early"),
            Self::Panicked => f.write_str("a generator panicked"),
            Self::Unwanted => f.write_str("nobody said when it begins"),
        }
    }
}

impl std::error::Error for RunError {}

impl RunPlan {
    /// Measures until the end, or until the run is stopped. `live` is called with each second when
    /// it is over.
    ///
    /// # Errors
    /// Nothing was measured.
    pub fn measure(self, live: &mut dyn FnMut(&SecondFigures)) -> Result<Measured, RunError> {
        self.measure_from(&mut || Some(LEAD), live)
    }

    /// Measures as [`RunPlan::measure`] does. `begin` is called when all are connected, and returns
    /// the time until the first call: several generators may begin together. `None` cancels the
    /// run.
    ///
    /// # Errors
    /// Nothing was measured.
    pub fn measure_from(
        self,
        begin: &mut dyn FnMut() -> Option<Duration>,
        live: &mut dyn FnMut(&SecondFigures),
    ) -> Result<Measured, RunError> {
        let mut host = host::describe();
        host.floors_ns[0] = floor::measure();
        let (to, from) = channel();
        let Self { server, setup, plans, clock, stop } = self;
        let crew = Crew { server, setup: setup.clone(), clock, stop: Arc::clone(&stop), to };
        let workers = (0..).zip(plans).map(|(part, plan)| crew.spawn(part, plan));
        let workers = workers.collect::<Result<Vec<_>, _>>()?;
        drop(crew);
        for _ in &workers {
            match from.recv() {
                Ok(WorkerMessage::Ready(ready)) => ready?,
                _ => return Err(RunError::Ended),
            }
        }
        let lead = begin().ok_or(RunError::Unwanted)?;
        let start = clock.now() + lead;
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        for worker in &workers {
            let _ = worker.start.send(start);
        }
        let mut gathered = Gathered::new(workers.len());
        gathered.take_all(&from, &workers, live);
        for Worker { thread, .. } in workers {
            thread.join().map_err(|_| RunError::Panicked)?;
        }
        host.floors_ns[1] = floor::measure();
        let mut measured = gathered.finish(setup, host, began.as_secs_f64())?;
        measured.outcome.stopped = stop.load(Ordering::Relaxed);
        Ok(measured)
    }
}
