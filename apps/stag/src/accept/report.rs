//! Result file of `stag accept`. `docs/guide/accept.md` explains it.

use super::facts::EndFacts;
use crate::{Error, replace};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// The version of the file format. A changed meaning of a member changes it; a new member does not.
pub const SCHEMA: &str = "stag-accept/1";

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepVerdict {
    /// It was as it should be.
    Passed,
    /// It was not.
    Failed,
    /// It was not tried, or there is nothing to try.
    Skipped,
}

impl StepVerdict {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// A step, and its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptStep {
    /// Its name.
    pub name: String,
    /// Its end.
    pub verdict: StepVerdict,
    /// The reason why it failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Duration in milliseconds.
    pub took_ms: f64,
    /// Measurements, by name and unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Steps about one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepGroup {
    /// The subject.
    pub name: String,
    /// The steps.
    pub steps: Vec<AcceptStep>,
}

impl StepGroup {
    /// A group without steps.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), steps: Vec::new() }
    }

    /// The number of steps with this verdict.
    pub fn count(&self, verdict: StepVerdict) -> usize {
        self.steps.iter().filter(|step| step.verdict == verdict).count()
    }

    /// The numbers of steps by verdict, in words.
    pub fn counts(&self) -> String {
        let all = [StepVerdict::Passed, StepVerdict::Failed, StepVerdict::Skipped];
        let counts = all.map(|verdict| (self.count(verdict), verdict.word()));
        let said = counts.iter().filter(|(count, word)| *count > 0 || *word == "passed");
        said.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }
}

/// A rule of a specification, and what the steps say about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleRow {
    /// Its id in `docs/requirements`.
    pub id: String,
    /// The specification, and the section.
    pub section: String,
    /// The rule.
    pub rule: String,
    /// Its standing on this fabric in `docs/requirements`.
    pub documented: String,
    /// The verdict of the steps together. Skipped: one of them was not tried, and none failed.
    pub verdict: StepVerdict,
    /// The steps, by name.
    pub steps: Vec<String>,
}

/// Everything that was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Nothing failed.
    pub passed: bool,
    /// The start, in seconds since 1970-01-01 UTC.
    pub began_unix_s: f64,
    /// Duration in seconds.
    pub took_s: f64,
    /// The scheme of the address.
    pub fabric: String,
    /// The end that tried everything.
    pub caller: EndFacts,
    /// The end that waited.
    pub server: EndFacts,
    /// Everything that was tried.
    pub groups: Vec<StepGroup>,
    /// The rules that the steps are about.
    pub rows: Vec<RuleRow>,
}

impl AcceptReport {
    /// Steps with this verdict, with their groups.
    pub fn steps(&self, verdict: StepVerdict) -> impl Iterator<Item = (&StepGroup, &AcceptStep)> {
        let all =
            self.groups.iter().flat_map(|group| group.steps.iter().map(move |it| (group, it)));
        all.filter(move |(_, step)| step.verdict == verdict)
    }

    /// As JSON.
    pub fn json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self);
        Ok(text.map_err(|error| Error::failure(error.to_string()))? + "\n")
    }
}

/// The two files of a report.
#[derive(Debug)]
pub struct ReportFiles {
    json: PathBuf,
    page: PathBuf,
}

impl ReportFiles {
    /// Checks, before any test, that the files can be written. Existing files are replaced only
    /// with `force`.
    pub fn check(json: &Path, force: bool) -> Result<Self, Error> {
        let page = json.with_extension("txt");
        if page == json {
            let name = json.display();
            return Err(Error::usage(format!(
                "--report {name} is the name of the page, which is written beside it: give a name \
                 that ends in .json"
            )));
        }
        for file in [json, &page] {
            if file.exists() && !force {
                return Err(Error::usage(format!(
                    "{} is there: give another file with --report, or replace it with --force",
                    file.display()
                )));
            }
            replace::check(file, "the report")?;
        }
        Ok(Self { json: json.to_owned(), page })
    }

    /// Writes both; returns a sentence with their names.
    pub fn write(&self, report: &AcceptReport, page: &str) -> Result<String, Error> {
        let json = report.json()?;
        for (file, text) in [(&self.json, json.as_str()), (&self.page, page)] {
            replace::write(file, |out| out.write_all(text.as_bytes()))
                .map_err(|error| Error::failure(format!("{}: {error}", file.display())))?;
        }
        Ok(format!("{} and {} are written", self.json.display(), self.page.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_there_are_replaced_only_when_that_is_asked_for() {
        let home = tempfile::tempdir().unwrap();
        let (json, page) = (home.path().join("a.json"), home.path().join("a.txt"));
        ReportFiles::check(&json, false).unwrap();
        std::fs::write(&page, "old").unwrap();
        let refused = ReportFiles::check(&json, false).unwrap_err().to_string();
        assert!(refused.contains("a.txt is there") && refused.contains("--force"), "{refused}");
        ReportFiles::check(&json, true).unwrap();
        let same = ReportFiles::check(&page, true).unwrap_err().to_string();
        assert!(same.contains("ends in .json"), "{same}");
    }
}
