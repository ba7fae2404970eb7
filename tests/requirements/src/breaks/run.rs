//! Breaks lines one after another and runs the tests of their rules.

use super::{
    mutate::{self, Mutation},
    plan::BreakJob,
    table::{BreakRow, BreakVerdict},
    targets::{Targets, TestTarget},
    workspace::{Build, TestOutcome, Workspace},
};
use crate::RustSources;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    time::{Duration, Instant},
};

/// The most changes of one line that the compiler is given.
const CHANGES_MAX: usize = 24;

/// The limits of trying one line.
#[derive(Clone, Copy, Debug)]
pub struct BreakLimits {
    /// A line counts as one that its tests do not guard when this number of changes that compile
    /// goes unseen.
    pub tries: usize,
    /// A test is stopped when it takes this long and ten times as long as with all lines whole.
    pub patience: Duration,
}

/// Tests of one program by their full names.
type TestNames = BTreeMap<TestTarget, BTreeSet<String>>;

/// The results of a program's tests while all lines are whole.
#[derive(Debug)]
struct Baseline {
    all: Vec<String>,
    whole: TestOutcome,
}

/// Runs jobs in a copy of the workspace.
#[derive(Debug)]
pub struct Runner {
    workspace: Workspace,
    targets: Targets,
    sources: RustSources,
    /// All tests that any job needs, as `file::function`, by program.
    wanted: BTreeMap<TestTarget, BTreeSet<String>>,
    baselines: BTreeMap<TestTarget, Baseline>,
    /// Tests, as `file::function`, that judge nothing: they fail with all lines whole.
    left_out: BTreeSet<String>,
    limits: BreakLimits,
    commit: String,
}

/// One rule of a job that is still to be judged.
struct OpenRule {
    rule: String,
    names: TestNames,
    /// `file::function` by full name.
    tests: BTreeMap<String, String>,
    survived: Vec<String>,
}

/// A line as a mutation left it.
#[derive(Clone, Copy)]
struct BrokenLine<'a> {
    change: &'a Mutation,
    /// The line as it was.
    text: &'a str,
}

/// The tests of one target, built with the broken line.
#[derive(Clone, Copy)]
struct Tested<'a> {
    target: &'a TestTarget,
    program: &'a Path,
}

impl Runner {
    /// Prepares the copy for `jobs`; `commit` is what rows name.
    ///
    /// # Errors
    ///
    /// A copy whose packages cannot be read.
    pub fn new(
        workspace: Workspace,
        jobs: &[BreakJob],
        limits: BreakLimits,
        commit: &str,
    ) -> io::Result<Self> {
        let targets = workspace.targets()?;
        let sources = RustSources::read(&workspace.tree())?;
        let mut wanted: BTreeMap<TestTarget, BTreeSet<String>> = BTreeMap::new();
        for test in jobs.iter().flat_map(|job| job.tests.values().flatten()) {
            let Some((file, name)) = test.rsplit_once("::") else { continue };
            for target in targets.of(file, name, &sources) {
                wanted.entry(target).or_default().insert(test.clone());
            }
        }
        let commit = commit.to_owned();
        Ok(Self {
            workspace,
            targets,
            sources,
            wanted,
            baselines: BTreeMap::new(),
            left_out: BTreeSet::new(),
            limits,
            commit,
        })
    }

    /// The tests, as `file::function`, that judged nothing so far because they fail with all lines
    /// whole.
    pub fn left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().map(String::as_str)
    }

    /// Breaks the job's line and says for each rule what its tests made of it.
    ///
    /// # Errors
    ///
    /// A copy that cannot be written, built whole, or run.
    pub fn run(&mut self, job: &BreakJob) -> io::Result<Vec<BreakRow>> {
        let began = Instant::now();
        let text = fs::read_to_string(self.workspace.tree().join(&job.site.file))?;
        let mut rows = Vec::new();
        let mut open = Vec::new();
        for (rule, tests) in &job.tests {
            match self.whole(rule, tests)? {
                Ok(one) => open.push(one),
                Err((verdict, why)) => rows.push(self.row(job, rule, verdict, why)),
            }
        }
        let changes = if job.given.is_empty() {
            mutate::mutations(&text, job.site.line).map_err(io::Error::other)?
        } else {
            job.given.clone()
        };
        let mut compiled = 0;
        let mut asserted = None;
        for change in changes.iter().take(CHANGES_MAX) {
            if open.is_empty() || compiled >= self.limits.tries {
                break;
            }
            let _replaced = self.workspace.replace(&job.site.file, &change.apply(&text))?;
            match self.attempt(job, change, &text, &mut open)? {
                Attempt::Ran(caught) => {
                    compiled += 1;
                    rows.extend(caught);
                }
                Attempt::Refused { by_assertion: true } => asserted = asserted.or(Some(change)),
                Attempt::Refused { .. } => {}
            }
        }
        let is_built = compiled == 0 || open.is_empty() || self.is_built(job, &text, &open)?;
        for one in open {
            let (verdict, mutation) = match (one.survived.last(), asserted) {
                _ if !is_built => (BreakVerdict::NotRunHere, String::new()),
                (Some(last), _) => (BreakVerdict::Survived, last.clone()),
                (None, Some(change)) => (BreakVerdict::Refused, change.describe(&text)),
                (None, None) => (BreakVerdict::NothingCompiled, String::new()),
            };
            let mut row = self.row(job, &one.rule, verdict, mutation);
            row.unseen = if is_built { one.survived } else { Vec::new() };
            row.unseen.pop();
            rows.push(row);
        }
        let seconds = (began.elapsed().as_secs_f64() * 10.0).round() / 10.0;
        rows.iter_mut().for_each(|row| row.seconds = seconds);
        Ok(rows)
    }

    fn row(&self, job: &BreakJob, rule: &str, verdict: BreakVerdict, mutation: String) -> BreakRow {
        BreakRow {
            rule: rule.to_owned(),
            file: job.site.file.clone(),
            text: job.site.text.clone(),
            nth: job.site.nth,
            verdict,
            mutation,
            test: String::new(),
            unseen: Vec::new(),
            seconds: 0.0,
            commit: self.commit.clone(),
        }
    }

    /// The tests of a rule that pass while all lines are whole, or why there is none.
    fn whole(
        &mut self,
        rule: &str,
        tests: &[String],
    ) -> io::Result<Result<OpenRule, (BreakVerdict, String)>> {
        let mut one = OpenRule {
            rule: rule.to_owned(),
            names: TestNames::new(),
            tests: BTreeMap::new(),
            survived: Vec::new(),
        };
        let mut failing = Vec::new();
        for test in tests {
            let Some((file, name)) = test.rsplit_once("::") else { continue };
            for target in self.targets.of(file, name, &self.sources) {
                let baseline = self.baseline(&target)?;
                for full in target.names(file, name, &baseline.all) {
                    if baseline.whole.passed.contains(&full) {
                        one.names.entry(target.clone()).or_default().insert(full.clone());
                        one.tests.insert(full, test.clone());
                    } else if baseline.whole.failed.contains(&full) {
                        failing.push(test.clone());
                    }
                }
            }
        }
        self.left_out.extend(failing.iter().cloned());
        Ok(match (one.names.is_empty(), failing.first()) {
            (false, _) => Ok(one),
            (true, Some(test)) => Err((BreakVerdict::FailsWhole, test.clone())),
            (true, None) => Err((BreakVerdict::NotRunHere, String::new())),
        })
    }

    /// Builds and runs a program's tests with all lines whole, once.
    fn baseline(&mut self, target: &TestTarget) -> io::Result<&Baseline> {
        if !self.baselines.contains_key(target) {
            let one = BTreeSet::from([target.clone()]);
            let programs = match self.workspace.build(&target.package, &one)? {
                Build::Done(programs) => programs,
                Build::Refused { error, .. } => {
                    return Err(io::Error::other(format!(
                        "{} does not compile: {error}",
                        target.package
                    )));
                }
            };
            let program = programs
                .get(target)
                .ok_or_else(|| io::Error::other("cargo names no test program"))?;
            let all = self.workspace.list(program, target)?;
            let tests = self
                .wanted
                .get(target)
                .into_iter()
                .flatten()
                .filter_map(|test| test.rsplit_once("::"));
            let names: BTreeSet<String> =
                tests.flat_map(|(file, name)| target.names(file, name, &all)).collect();
            let whole = if names.is_empty() {
                TestOutcome::default()
            } else {
                self.workspace.run(program, target, &names, Duration::from_secs(600))?
            };
            self.baselines.insert(target.clone(), Baseline { all, whole });
        }
        self.baselines.get(target).ok_or_else(|| io::Error::other("a baseline was not kept"))
    }

    /// Says if the file of the job is part of what its tests are built of. A file that needs a
    /// feature, or another system, may be changed at will; where it is built, an error at its
    /// end is refused.
    fn is_built(&self, job: &BreakJob, text: &str, open: &[OpenRule]) -> io::Result<bool> {
        let refused = format!("{text}\ncompile_error!(\"this file is built\");\n");
        let _replaced = self.workspace.replace(&job.site.file, &refused)?;
        let targets: BTreeSet<&TestTarget> = open.iter().flat_map(|one| one.names.keys()).collect();
        for target in targets {
            let one = BTreeSet::from([target.clone()]);
            if let Build::Refused { .. } = self.workspace.build(&target.package, &one)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Builds what the open rules need with the change in place, and runs their tests: the changed
    /// package first, then package by package as long as a rule is open.
    fn attempt(
        &self,
        job: &BreakJob,
        change: &Mutation,
        text: &str,
        open: &mut Vec<OpenRule>,
    ) -> io::Result<Attempt> {
        let home = self.targets.package(&job.site.file).map(|target| target.package.clone());
        let mut packages: Vec<String> = open
            .iter()
            .flat_map(|one| one.names.keys().map(|target| target.package.clone()))
            .collect();
        packages.sort_by_key(|package| (Some(package) != home.as_ref(), package.clone()));
        packages.dedup();
        let mut caught = Vec::new();
        for package in packages {
            let needed = |one: &OpenRule| {
                one.names
                    .keys()
                    .filter(|target| target.package == package)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            let targets: BTreeSet<TestTarget> = open.iter().flat_map(needed).collect();
            if targets.is_empty() {
                continue;
            }
            let programs = match self.workspace.build(&package, &targets)? {
                Build::Done(programs) => programs,
                Build::Refused { by_assertion, .. } if caught.is_empty() => {
                    return Ok(Attempt::Refused { by_assertion });
                }
                // Others saw it before; of the rules that are left this change shows nothing.
                Build::Refused { .. } => return Ok(Attempt::Ran(caught)),
            };
            for (target, program) in &programs {
                let broken = BrokenLine { change, text };
                self.judge(job, broken, Tested { target, program }, open, &mut caught)?;
            }
        }
        open.iter_mut().for_each(|one| one.survived.push(change.describe(text)));
        Ok(Attempt::Ran(caught))
    }

    /// Runs one program's tests; rules whose tests fail are judged and leave `open`.
    fn judge(
        &self,
        job: &BreakJob,
        broken: BrokenLine<'_>,
        tested: Tested<'_>,
        open: &mut Vec<OpenRule>,
        caught: &mut Vec<BreakRow>,
    ) -> io::Result<()> {
        let BrokenLine { change, text } = broken;
        let Tested { target, program } = tested;
        let names: BTreeSet<String> =
            open.iter().filter_map(|one| one.names.get(target)).flatten().cloned().collect();
        if names.is_empty() {
            return Ok(());
        }
        let usual =
            self.baselines.get(target).map_or(Duration::ZERO, |baseline| baseline.whole.took);
        let limit = self.limits.patience + 10 * usual;
        let mut outcome = self.workspace.run(program, target, &names, limit)?;
        if !outcome.is_hung && !outcome.failed.is_empty() {
            // A test that fails by chance now and then has not seen the change.
            let again = self.workspace.run(program, target, &outcome.failed, limit)?;
            outcome.failed.retain(|name| again.failed.contains(name));
        }
        open.retain_mut(|one| {
            let own = one.names.get(target);
            let Some(full) =
                own.and_then(|own| own.iter().find(|name| outcome.failed.contains(*name)))
            else {
                return true;
            };
            let verdict = if outcome.is_hung { BreakVerdict::Hung } else { BreakVerdict::Caught };
            let mut row = self.row(job, &one.rule, verdict, change.describe(text));
            row.test = one.tests.get(full).cloned().unwrap_or_default();
            row.unseen = std::mem::take(&mut one.survived);
            caught.push(row);
            false
        });
        Ok(())
    }
}

/// The result of one change.
enum Attempt {
    /// It compiled; these rules saw it.
    Ran(Vec<BreakRow>),
    /// It does not compile.
    Refused { by_assertion: bool },
}
