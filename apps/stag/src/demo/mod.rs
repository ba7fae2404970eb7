//! `stag demo`: a gateway as a child process and a requester, on this host, without root, device or
//! configuration.

pub mod options;
mod relay;
mod report;
mod scene;
mod server;
mod steps;

use crate::{Error, caller, caller::aside, probe, progress::Progress};
use report::DemoReport;
use server::Custody;
use stag_fabrics::{FabricAddress, FabricInfo, StreamsOnly};
use stag_verbs::Provider;
use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use steps::DemoStage;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");
/// Time after which the demo is aborted: it waits for an event that never comes.
const GIVE_UP: Duration = Duration::from_secs(120);
/// Interval at which the demo checks that the server still runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Kind of store that serves the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A directory.
    Files,
    /// Memory.
    Memory,
}

impl Store {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Memory => "memory",
        }
    }

    /// Returns true if the content of the store is lost with its server.
    pub const fn forgets(self) -> bool {
        matches!(self, Self::Memory)
    }
}

/// The fabric that needs nothing but TCP.
const SOFTWARE: &str = StreamsOnly::SCHEME;

/// An address on the fabric `scheme` for a server's first start.
fn address(scheme: &str, custody: &Custody) -> Result<FabricAddress, Error> {
    let here = FabricAddress::here(scheme, &custody.path("demo.sock")?);
    here.map(|here| here.at).map_err(Error::failure)
}

/// Amount of work that the demo does.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Octets of the stream in which the server is killed, and of the one whose connection is cut.
    pub stream: u64,
    /// Entries of the directory of the functional run.
    pub entries: u32,
    /// Time for which each rate is measured.
    pub measured: Duration,
}

impl Scale {
    const FULL: Self =
        Self { stream: 64 << 20, entries: 500, measured: Duration::from_millis(700) };
    const QUICK: Self = Self { stream: 12 << 20, entries: 40, measured: Duration::from_millis(80) };
}

/// Shows everything, on every store and every fabric that works here.
pub fn run(arguments: &options::DemoOptions) -> Result<(), Error> {
    let began = Instant::now();
    let custody = Custody::new()?;
    let doing = Arc::new(Mutex::new(String::new()));
    watch(custody.clone(), Arc::clone(&doing))?;
    let scale = if arguments.quick { Scale::QUICK } else { Scale::FULL };
    let mut progress = Progress::new(true);
    let mut stores = Vec::new();
    let mut outcome = Ok(());
    let others = FabricInfo::real().map(|info| info.scheme).filter(|scheme| *scheme != SOFTWARE);
    let acts = [(Store::Files, SOFTWARE), (Store::Memory, SOFTWARE)]
        .into_iter()
        .chain(others.filter(|scheme| probe::works(scheme)).map(|scheme| (Store::Memory, scheme)));
    for (store, via) in acts {
        let mut stage =
            DemoStage::new(store, via, scale, &custody, &mut progress, Arc::clone(&doing));
        outcome = stage.run();
        if outcome.is_err() {
            break;
        }
        stores.push(stage.report());
    }
    progress.finish();
    // A failure caused by the removal of the server is not reported.
    while custody.is_cleared() {
        thread::park();
    }
    let outcome = outcome.map_err(|error| {
        let step = doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Error::failure(format!("the demo failed at {step}: {error}"))
    });
    custody.clear();
    let report = DemoReport { elapsed: began.elapsed(), stores };
    if outcome.is_ok() || arguments.json {
        let failure = outcome.as_ref().err().map(ToString::to_string);
        caller::say(&if arguments.json { report.object(failure)? } else { report.table() });
    }
    outcome
}

/// Aborts a demo that waits for an event that never comes, and reports the step: because the server
/// stopped by itself, or for any other reason.
fn watch(custody: Custody, doing: Arc<Mutex<String>>) -> Result<(), Error> {
    let began = Instant::now();
    let wait = move || {
        let why = loop {
            thread::sleep(LOOK_INTERVAL);
            if let Some(status) = custody.ended() {
                break format!("the server stopped by itself ({status}): {}", custody.last_words());
            }
            if began.elapsed() > GIVE_UP {
                break format!("it is not over after {} s", GIVE_UP.as_secs());
            }
        };
        custody.clear();
        let step = doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        aside(format!("stag: the demo failed at {step}: {why}\n"));
        std::process::exit(1);
    };
    thread::Builder::new()
        .name("watch".to_owned())
        .spawn(wait)
        .map(drop)
        .map_err(|error| Error::failure(format!("cannot start a thread: {error}")))
}
