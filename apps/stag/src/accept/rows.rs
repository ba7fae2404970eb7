//! Rules of the specifications that the conformance suite covers, with the suite's verdicts.
//!
//! The rules, the cases that show them, and their standing on each fabric are read from
//! `docs/requirements`, whose files this build carries.

use super::report::{AcceptStep, RuleRow, StepVerdict};
use crate::Error;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The specifications that name cases of the suite.
const FILES: [&str; 5] = [
    include_str!("../../../../docs/requirements/rfc5042.toml"),
    include_str!("../../../../docs/requirements/rfc8166.toml"),
    include_str!("../../../../docs/requirements/rfc5040.toml"),
    include_str!("../../../../docs/requirements/rfc5041.toml"),
    include_str!("../../../../docs/requirements/rfc5044.toml"),
];
/// The folder of the suite's cases.
const SUITE: &str = "tests/conformance/src/";
/// Beginning of the standing of a rule that does not bind us.
const NOT_OURS: &str = "not ours";

/// A file of `docs/requirements`.
#[derive(Debug, Deserialize)]
struct RuleFile {
    specification: String,
    /// Standing of rules that do not say their own, by fabric.
    #[serde(default)]
    providers: BTreeMap<String, String>,
    rule: Vec<RuleEntry>,
}

#[derive(Debug, Deserialize)]
struct RuleEntry {
    id: String,
    section: String,
    text: String,
    status: String,
    #[serde(default)]
    tests: Vec<String>,
    #[serde(default)]
    providers: BTreeMap<String, String>,
}

impl RuleEntry {
    /// The standing of the rule on a fabric: its own, else that of the file; but a file's standing
    /// never marks an unmet rule as met.
    fn standing<'a>(&'a self, file: &'a RuleFile, column: &str) -> &'a str {
        let of_file = file.providers.get(column);
        let of_file = of_file.filter(|standing| self.status == "met" || *standing != "met");
        self.providers.get(column).or(of_file).unwrap_or(&self.status)
    }

    /// The cases of the suite that show the rule, as steps name them.
    fn cases(&self) -> Vec<String> {
        let case = |test: &String| {
            let (file, name) = test.strip_prefix(SUITE)?.split_once("::")?;
            Some(format!("{}::{name}", file.strip_suffix(".rs")?))
        };
        self.tests.iter().filter_map(case).collect()
    }
}

/// The column of a fabric in `docs/requirements`.
fn column(scheme: &str) -> &str {
    if scheme == super::place::DEVICES { "ibverbs" } else { scheme }
}

/// A row for each rule that binds the fabric `scheme` and has a case. `steps` are the suite's, from
/// both ends.
pub fn rows(scheme: &str, steps: &[&AcceptStep]) -> Result<Vec<RuleRow>, Error> {
    let mut rows = Vec::new();
    for text in FILES {
        let file: RuleFile =
            toml::from_str(text).map_err(|error| Error::failure(error.to_string()))?;
        for rule in &file.rule {
            let cases = rule.cases();
            let documented = rule.standing(&file, column(scheme));
            if cases.is_empty() || documented.starts_with(NOT_OURS) {
                continue;
            }
            rows.push(RuleRow {
                id: rule.id.clone(),
                section: format!("{} §{}", file.specification, rule.section),
                rule: rule.text.clone(),
                documented: documented.to_owned(),
                verdict: verdict(&cases, steps),
                steps: cases,
            });
        }
    }
    Ok(rows)
}

/// One failure is a failure; without one, each case has to have passed somewhere.
fn verdict(cases: &[String], steps: &[&AcceptStep]) -> StepVerdict {
    let of = |case: &String, verdict| {
        steps.iter().any(|step| step.name == *case && step.verdict == verdict)
    };
    if cases.iter().any(|case| of(case, StepVerdict::Failed)) {
        StepVerdict::Failed
    } else if cases.iter().all(|case| of(case, StepVerdict::Passed)) {
        StepVerdict::Passed
    } else {
        StepVerdict::Skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::{
        steps::{Figures, judge},
        suite,
    };

    fn passed() -> Vec<AcceptStep> {
        suite::names().into_iter().map(|name| judge(name, || Ok(Figures::new()))).collect()
    }

    fn row<'a>(rows: &'a [RuleRow], id: &str) -> &'a RuleRow {
        rows.iter().find(|row| row.id == id).unwrap_or_else(|| panic!("no row {id}"))
    }

    #[test]
    fn every_case_that_a_rule_names_is_in_the_suite() {
        let steps = passed();
        let rows = rows("iwarp", &steps.iter().collect::<Vec<_>>()).unwrap();
        for row in &rows {
            assert_eq!(row.verdict, StepVerdict::Passed, "{row:?}");
        }
        assert!(rows.len() >= 30, "{}", rows.len());
    }

    #[test]
    fn rules_that_are_open_on_hardware_have_rows_with_their_standing() {
        let rows = rows("rdma", &[]).unwrap();
        for id in ["5042-9", "5042-18", "8166-65", "8166-74"] {
            assert!(row(&rows, id).documented.starts_with("not met: "), "{id}");
        }
        assert!(row(&rows, "5042-16").documented.starts_with("not shown: "));
        // The wire of iWARP is the device's own.
        assert!(rows.iter().all(|row| !row.id.starts_with("5041")), "{rows:?}");
    }

    #[test]
    fn one_failure_at_either_end_fails_its_rules_and_a_case_that_did_not_run_shows_nothing() {
        let case = "memory::keys_that_are_not_the_peers_cannot_be_invalidated";
        let mut steps = passed();
        steps.push(judge(case, || panic!("the window is gone")));
        let rows_of =
            |steps: &[AcceptStep]| rows("shm", &steps.iter().collect::<Vec<_>>()).unwrap();
        let failed = rows_of(&steps);
        assert_eq!(row(&failed, "5042-18").verdict, StepVerdict::Failed);
        assert_eq!(row(&failed, "5042-10").verdict, StepVerdict::Passed);
        steps.retain(|step| step.name != case);
        assert_eq!(row(&rows_of(&steps), "5042-18").verdict, StepVerdict::Skipped);
    }
}
