//! The functional run: checks that a server works correctly before it is measured.
//!
//! It works in a directory of its own under the export's root, compares every octet and every name,
//! and removes all that it made, also after a failure. A step that fails reports the expected and
//! the actual result; the others still run, unless the connection or the directory is gone.

mod acl;
mod data;
mod delegations;
mod errors;
mod listing;
mod names;
mod scene;
mod setup;
mod state;

use scene::{CheckScene, StepResult};
use serde::Serialize;
use stag_client::NfsClient;
use stag_engine::Stats;
use stag_verbs::{Provider, Time};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

pub use scene::CheckFailure;

/// Sizes of files in octets: nothing, less than a word, around the limits of inline messages and
/// pages, and of one and several READs (the list of the project's issue "First light").
pub const SIZES: [usize; 18] = [
    0, 1, 3, 4, 1_000, 1_023, 1_024, 1_025, 3_999, 4_095, 4_096, 4_097, 65_535, 65_536, 65_537,
    600_001, 1_048_576, 3_000_001,
];

/// Settings of a functional run.
#[derive(Clone, Debug)]
pub struct CheckPlan {
    /// Decides contents and places.
    pub seed: u64,
    /// Entries of the large directory.
    pub entries: u32,
    /// The directory to work in. It must not exist.
    pub directory: String,
    /// Names from the export's root down to the directory that it is made in.
    pub below: Vec<Vec<u8>>,
    /// Ends the run after the current step, once it is set. Objects that the run made are removed.
    pub stop: Arc<AtomicBool>,
}

impl CheckPlan {
    /// The whole run.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            entries: 2_000,
            directory: format!("stag-functional-{seed:016x}"),
            below: Vec::new(),
            stop: Arc::default(),
        }
    }
}

/// Outcome of one step.
#[derive(Clone, Debug, Serialize)]
pub struct CheckStep {
    /// Which.
    pub name: &'static str,
    /// True if the step did what it should.
    pub passed: bool,
    /// Calls it made.
    pub calls: u64,
    /// Octets of file data it wrote and read.
    pub octets: u64,
    /// Duration of the step, in microseconds.
    pub elapsed_us: u64,
    /// Failure of the step.
    pub failure: Option<CheckFailure>,
    /// A remark on a choice that servers may make: the one that this server made.
    pub note: Option<String>,
}

/// Report on a run.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    /// Export that was mounted.
    pub export: String,
    /// The seed of the run.
    pub seed: u64,
    /// Steps that did what they should.
    pub passed: usize,
    /// Steps that did not.
    pub failed: usize,
    /// Steps that were not tried, because the connection was lost or there was nothing to work in.
    pub skipped: usize,
    /// Calls made.
    pub calls: u64,
    /// Octets of file data written and read.
    pub octets: u64,
    /// Duration of the run, in microseconds.
    pub elapsed_us: u64,
    /// Times that the connection was lost, and made again if the client keeps it.
    pub losses: u64,
    /// Each step that was tried.
    pub steps: Vec<CheckStep>,
    /// Counters of the calling shard.
    pub engine: Stats,
}

impl CheckReport {
    /// Returns true if every step was tried and did what it should.
    pub const fn is_success(&self) -> bool {
        self.failed == 0 && self.skipped == 0
    }
}

/// Function of a step, marked if the steps after it need it.
struct CheckTask<P: Provider> {
    name: &'static str,
    run: fn(&mut CheckScene<'_, P>) -> StepResult,
    needed: bool,
}

/// All steps; with `state`, those of version 4 alone, too.
fn tasks<P: Provider>(state: bool) -> Vec<CheckTask<P>> {
    let needed = |name, run| CheckTask { name, run, needed: true };
    let task = |name, run| CheckTask { name, run, needed: false };
    let mut tasks = vec![
        needed("null", setup::null),
        task("programs", setup::programs),
        task("exports", setup::exports),
        needed("mount", setup::mount),
        needed("fsinfo", setup::file_system),
        needed("workspace", setup::workspace),
        task("files", data::files),
        task("odd offsets", data::odd_offsets),
        task("end of file", data::end_of_file),
        task("truncate", data::truncate),
        task("rename", names::rename),
        task("link", names::link),
        task("symlink", names::symlink),
        task("directories", names::directories),
        task("attributes", names::attributes),
        task("nodes", names::nodes),
        task("create", names::create),
        task("access lists", acl::lists),
        task("listing", listing::listing),
        task("names that fail", errors::names),
        task("kinds that fail", errors::kinds),
        task("handles that fail", errors::handles),
    ];
    if state {
        tasks.push(task("opens and locks", state::of_two_clients));
        tasks.push(task("delegations", delegations::of_two_clients));
    }
    tasks
}

/// Runs `plan` on the export `/NAME` that a connected `client` reaches. `progress` gets each
/// step when it is over.
pub fn run<P: Provider>(
    client: &mut NfsClient<P>,
    export: &str,
    plan: &CheckPlan,
    progress: &mut dyn FnMut(&CheckStep),
) -> CheckReport {
    run_apart(client, None, export, plan, progress)
}

/// As [`run`], with a client that is connected to MOUNT where that has a port of its own.
pub fn run_apart<P: Provider>(
    client: &mut NfsClient<P>,
    mount: Option<&mut NfsClient<P>>,
    export: &str,
    plan: &CheckPlan,
    progress: &mut dyn FnMut(&CheckStep),
) -> CheckReport {
    let (start, calls, losses) = (client.now(), client.calls(), client.recovery().losses);
    let mut scene = CheckScene::new(client, export, plan);
    scene.mount = mount;
    let tasks = tasks(scene.client.minor_version().is_some());
    let mut steps = Vec::with_capacity(tasks.len() + 1);
    for task in &tasks {
        let step = perform(&mut scene, task, progress);
        let goes_on = step.passed
            || !task.needed && step.failure.as_ref().is_none_or(|failure| !failure.fatal);
        steps.push(step);
        if !goes_on || plan.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let skipped = tasks.len() - steps.len();
    if scene.is_dirty {
        let task = CheckTask { name: "clean up", run: setup::clean_up, needed: false };
        steps.push(perform(&mut scene, &task, progress));
    }
    let passed = steps.iter().filter(|step| step.passed).count();
    CheckReport {
        export: export.to_owned(),
        seed: plan.seed,
        passed,
        failed: steps.len() - passed,
        skipped,
        calls: client.calls() - calls,
        octets: steps.iter().map(|step| step.octets).sum(),
        elapsed_us: micros(start, client.now()),
        losses: client.recovery().losses - losses,
        steps,
        engine: client.snapshot().engine,
    }
}

fn perform<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    task: &CheckTask<P>,
    progress: &mut dyn FnMut(&CheckStep),
) -> CheckStep {
    let (start, calls, octets) = (scene.client.now(), scene.client.calls(), scene.octets);
    let failure = (task.run)(scene).err();
    let step = CheckStep {
        name: task.name,
        passed: failure.is_none(),
        calls: scene.client.calls() - calls,
        octets: scene.octets - octets,
        elapsed_us: micros(start, scene.client.now()),
        failure,
        note: scene.note.take(),
    };
    progress(&step);
    step
}

fn micros(from: Time, to: Time) -> u64 {
    u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX)
}
