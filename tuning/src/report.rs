//! Reports: the results of checks, one row each.

use crate::{
    Answer, CoreList, Finding, FixClass, HostChange, HostCheck, HostPlan, Scene, Severity,
    checks::sampled, host::HostFiles, stall,
};
use serde::Serialize;
use std::time::Duration;

/// Time for which counters and cores are watched.
const WATCH: Duration = Duration::from_secs(1);
/// Checks that judge the stall probe.
const OF_STALLS: [&str; 2] = ["CPU06", "CPU07"];
/// Checks that judge files by how they change.
const OF_SAMPLES: [&str; 2] = ["CPU15", "NET07"];

/// State of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CheckState {
    /// The host has the wanted value.
    #[serde(rename = "PASS")]
    Pass,
    /// It has not, and that is good to know.
    #[serde(rename = "INFO")]
    Info,
    /// It has not, and results suffer.
    #[serde(rename = "WARN")]
    Warn,
    /// It has not, and something will not work.
    #[serde(rename = "FAIL")]
    Fail,
    /// The check does not apply here.
    #[serde(rename = "N-A")]
    NotApplicable,
    /// The answer needs root.
    #[serde(rename = "UNKNOWN")]
    Unknown,
}

impl CheckState {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
            Self::NotApplicable => "N-A",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// Answer of one check.
#[derive(Clone, Debug, Serialize)]
pub struct ReportRow {
    /// The check's id.
    pub id: &'static str,
    /// Its subject.
    pub name: &'static str,
    /// Its state.
    pub state: CheckState,
    /// The measured value; or the reason why there is none.
    pub measured: String,
    /// The wanted value.
    pub wanted: String,
    /// The party that can fix it.
    pub class: FixClass,
    /// The exact command that fixes it.
    pub fix: Option<String>,
    /// The same fix as values of files.
    pub changes: Vec<HostChange>,
}

/// Results of all checks that were run.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Purpose of the host.
    pub profile: &'static str,
    /// The answers, in the order of the checks.
    pub checks: Vec<ReportRow>,
}

impl HostReport {
    /// Runs `checks` on `scene`.
    #[must_use]
    pub fn of(scene: &Scene, checks: &[&'static HostCheck]) -> Self {
        let checks = checks.iter().map(|check| row(scene, check)).collect();
        Self { profile: scene.plan.profile.name(), checks }
    }

    /// Number of checks in `state`.
    #[must_use]
    pub fn count(&self, state: CheckState) -> usize {
        self.checks.iter().filter(|row| row.state == state).count()
    }

    /// Exit code: 0 nothing to do, 1 warnings, 2 failures.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (self.count(CheckState::Fail), self.count(CheckState::Warn)) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        }
    }

    /// Changes that `apply` would make, each once.
    #[must_use]
    pub fn changes(&self) -> Vec<HostChange> {
        let mut changes: Vec<HostChange> = Vec::new();
        for change in self.checks.iter().flat_map(|row| &row.changes) {
            if !changes.iter().any(|known| known.key == change.key) {
                changes.push(change.clone());
            }
        }
        changes
    }
}

fn row(scene: &Scene, check: &HostCheck) -> ReportRow {
    let profile = scene.plan.profile;
    let finding = match check.is_of(profile) {
        true => (check.judge)(scene).unwrap_or_else(|early| early),
        false => Finding::not_applicable(format!("no part of profile {}", profile.name())),
    };
    let state = match (finding.answer, check.severity) {
        (Answer::Met, _) => CheckState::Pass,
        (Answer::Unmet, Severity::Info) => CheckState::Info,
        (Answer::Unmet, Severity::Warn) => CheckState::Warn,
        (Answer::Unmet, Severity::Fail) => CheckState::Fail,
        (Answer::NotApplicable, _) => CheckState::NotApplicable,
        (Answer::Unknown, _) => CheckState::Unknown,
    };
    ReportRow {
        id: check.id,
        name: check.name,
        state,
        fix: finding.command(),
        measured: finding.measured,
        wanted: finding.wanted,
        class: check.class,
        changes: finding.changes,
    }
}

/// Returns true if `check` needs no second in which the host is watched.
pub(crate) fn is_quick(check: &HostCheck) -> bool {
    !OF_STALLS.contains(&check.id) && !OF_SAMPLES.contains(&check.id)
}

/// Makes the scene of this host for `checks`: watches counters and cores for a second if some of
/// them judge that. A recording is left as it is.
#[must_use]
pub fn measure(host: HostFiles, plan: HostPlan, checks: &[&'static HostCheck]) -> Scene {
    let mut scene = Scene { host, plan, gaps: None };
    if scene.host.is_recorded() {
        return scene;
    }
    let profile = scene.plan.profile;
    let has =
        |ids: &[&str]| checks.iter().any(|check| check.is_of(profile) && ids.contains(&check.id));
    let paths = sampled(&scene);
    if has(&OF_SAMPLES) {
        scene.host.keep(&paths);
    }
    if has(&OF_STALLS) {
        let allowed = scene.status("Cpus_allowed_list").unwrap_or_default();
        let allowed: CoreList = allowed.parse().unwrap_or_default();
        let cores = scene.plan.cores.clone().unwrap_or(allowed);
        scene.gaps = Some(stall::watch(&cores, WATCH));
    } else if has(&OF_SAMPLES) {
        std::thread::sleep(WATCH);
    }
    scene
}
