//! Conformance suite on the device under test: both ends of each case are in this thread.
//!
//! The suite shows what `docs/requirements` demands of a provider. That includes the bounds of a
//! window and the rejection of foreign keys (RFC 5042), which only the device itself can enforce.

use super::{
    place::DevicePlace,
    report::{AcceptStep, StepGroup},
    steps::{Figures, StepFault, caught, judge},
};
use stag_conformance::{ConformanceCase, Fixture, cases, needs_windows};
use stag_engine::clock::Clock;
use stag_fabrics::{AnyProvider, FabricAddress, Settings};
use stag_pools::{Class, Pool};
use stag_verbs::{Limits, Provider, Time};
use std::{
    cell::RefCell,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Why a case is left out on RDMA devices.
const NOT_ON_DEVICES: (&str, &str) = (
    "a_starved_connection_still_moves_memory",
    "a reliable connection keeps the order of its send queue: what is posted after a message that \
     waits for a receive waits with it",
);

thread_local! {
    /// The place of the case that runs in this thread.
    static PLACE: RefCell<Option<Arc<DevicePlace>>> = const { RefCell::new(None) };
}

/// The environment of a case, on any fabric. Devices and software differ in two facts.
struct AnyFixture<const DEVICE: bool> {
    place: Arc<DevicePlace>,
    clock: Clock,
    ends: u8,
}

impl<const DEVICE: bool> Fixture for AnyFixture<DEVICE> {
    type P = AnyProvider;

    const TELLS_FAULTS: bool = !DEVICE;
    const MOVES_DATA: bool = !DEVICE;
    const PADS_PRIVATE_DATA: bool = DEVICE;

    fn new(_: u64) -> Self {
        let place = PLACE.with_borrow(Clone::clone).expect("a case runs at a place");
        Self { place, clock: Clock::start(), ends: 0 }
    }

    fn pool(&self, classes: &[Class]) -> Pool {
        let pool =
            if self.place.is_trusting() { Pool::shared(classes) } else { Pool::new(classes) };
        pool.expect("there is memory for the case")
    }

    fn end(&mut self, limits: Limits, pool: &Pool) -> AnyProvider {
        self.ends += 1;
        // The suite keeps no spare places: peers beyond the limit are not considered.
        let settings =
            Settings { spare: Some(0), ..Settings::new(limits, [self.ends; 32], self.clock.now()) };
        let at = self.listen_address();
        let mut end = AnyProvider::for_connecting(settings, Some(&at))
            .unwrap_or_else(|error| panic!("an end cannot be opened: {error}"));
        end.register(pool).unwrap_or_else(|error| panic!("memory cannot be registered: {error}"));
        end
    }

    fn listen_address(&mut self) -> FabricAddress {
        self.place.address().unwrap_or_else(|why| panic!("no address to listen at: {why}"))
    }

    fn nowhere(&mut self) -> FabricAddress {
        self.place.nowhere().unwrap_or_else(|why| panic!("no address without a listener: {why}"))
    }

    fn step(&mut self) -> Time {
        thread::yield_now();
        // Before the first poll there is a moment, too.
        Time(self.clock.now().0 + 1)
    }

    fn windows_bound(&self, end: &AnyProvider) -> usize {
        end.windows_bound()
    }

    #[cfg(feature = "verbs")]
    fn has_opened(&self, end: &AnyProvider, qp: stag_verbs::Qp) -> bool {
        match end {
            AnyProvider::Rdma(end) => end.is_drained(qp),
            _ => true,
        }
    }
}

/// The cases, in the order of the suite, as they end.
#[derive(Debug, Default)]
pub struct SuiteProgress {
    /// Cases that have ended.
    pub steps: Vec<AcceptStep>,
    /// All are over.
    pub is_done: bool,
}

/// The suite while it runs in a thread of its own.
#[derive(Clone, Debug)]
pub struct SuiteRun(Arc<Mutex<SuiteProgress>>);

impl SuiteRun {
    /// Starts all cases at `place`. If no thread can be started, that is a failed case.
    pub fn start(place: DevicePlace) -> Self {
        let run = Self(Arc::default());
        let (place, to) = (Arc::new(place), run.clone());
        let work = move || {
            if place.is_device() { to.run_all::<true>(&place) } else { to.run_all::<false>(&place) }
        };
        if let Err(error) = thread::Builder::new().name("suite".to_owned()).spawn(work) {
            run.note(judge("start", || Err(format!("no thread for the suite: {error}").into())));
            run.finish();
        }
        run
    }

    /// A suite that did not start, for this reason.
    pub fn failed(why: String) -> Self {
        let run = Self(Arc::default());
        run.note(judge("start", || Err(StepFault::Failed(why))));
        run.finish();
        run
    }

    fn run_all<const DEVICE: bool>(&self, place: &Arc<DevicePlace>) {
        PLACE.set(Some(Arc::clone(place)));
        let limits = limits::<DEVICE>();
        for case in cases::<AnyFixture<DEVICE>>() {
            self.note(judge(name_of(&case), || run_case(&case, &limits)));
        }
        PLACE.take();
        self.finish();
    }

    fn note(&self, step: AcceptStep) {
        self.with(|progress| progress.steps.push(step));
    }

    fn finish(&self) {
        self.with(|progress| progress.is_done = true);
    }

    /// Looks at the progress.
    pub fn with<T>(&self, look: impl FnOnce(&mut SuiteProgress) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Name of a case: `memory::many_reads_complete_in_order`.
fn name_of<F: Fixture>(case: &ConformanceCase<F>) -> String {
    format!("{}::{}", case.group, case.name)
}

/// Names of all cases.
#[cfg(test)]
pub fn names() -> Vec<String> {
    cases::<AnyFixture<false>>().iter().map(name_of).collect()
}

fn run_case<const DEVICE: bool>(
    case: &ConformanceCase<AnyFixture<DEVICE>>,
    limits: &Result<Limits, String>,
) -> Result<Figures, StepFault> {
    let skipped = |why: &str| Err(StepFault::Skipped(why.to_owned()));
    let limits = match limits {
        Ok(limits) => limits,
        Err(why) => return skipped(why),
    };
    if let Some(why) = needs_windows(case.name).filter(|_| !limits.bears_invalidation) {
        return skipped(why);
    }
    if DEVICE && case.name == NOT_ON_DEVICES.0 {
        return skipped(NOT_ON_DEVICES.1);
    }
    case.run(0);
    Ok(Figures::new())
}

/// The limits of an end here, or the reason why no case can run: the device cannot be opened.
fn limits<const DEVICE: bool>() -> Result<Limits, String> {
    let open = || {
        let mut fixture = AnyFixture::<DEVICE>::new(0);
        let at = fixture.listen_address();
        let limits = stag_engine::Config::small().limits(32);
        let settings = Settings::new(limits, [1; 32], fixture.clock.now());
        AnyProvider::for_connecting(settings, Some(&at)).map(|end| *end.limits())
    };
    match caught(open) {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(words) => Err(words),
    }
}

/// The group of a suite that ran at the end with this name.
pub fn group(end: &str, steps: Vec<AcceptStep>) -> StepGroup {
    StepGroup { name: format!("conformance, {end}"), steps }
}
