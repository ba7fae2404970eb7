//! The lines to break in one run, with their rules, in order.

use super::{mutate::Mutation, site, site::MarkSite};
use crate::{Rule, RustSources, Specification};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// A line to break, and the rules that hang on it.
#[derive(Clone, Debug)]
pub struct BreakJob {
    /// The line.
    pub site: MarkSite,
    /// Changes that the rule's author wrote down; without any, the ones [`super::mutate`] finds.
    pub given: Vec<Mutation>,
    /// Tests of each rule, as `file::function`.
    pub tests: BTreeMap<String, Vec<String>>,
}

/// Folders in the order in which their code is built: what many others are built on first, so that
/// a stopped run did the cheap ones.
const ORDER: [&str; 6] =
    ["protocol/", "pools/", "engine/verbs/", "engine/providers/", "engine/", "apps/"];

/// Every line that a rule with tests cites, in the order of `ORDER`.
///
/// # Errors
///
/// A change written down in a rule that does not fit the code.
pub fn jobs(
    specifications: &[Specification],
    sources: &RustSources,
) -> Result<Vec<BreakJob>, String> {
    let rules = specifications.iter().flat_map(|specification| &specification.rule);
    let rules: BTreeMap<&str, &Rule> =
        rules.filter(|rule| !rule.tests.is_empty()).map(|rule| (rule.id.as_str(), rule)).collect();
    let mut jobs = Vec::new();
    let mut files = BTreeSet::new();
    for rule in rules.values() {
        files.extend(&rule.code);
        for (file, mutation, line) in given(rule, sources)? {
            let text = sources
                .text(file)
                .unwrap_or_default()
                .lines()
                .nth(line.saturating_sub(1))
                .unwrap_or_default();
            let site = MarkSite {
                file: file.to_owned(),
                line,
                text: text.trim().to_owned(),
                nth: 0,
                rules: vec![rule.id.clone()],
            };
            jobs.push(BreakJob { site, given: vec![mutation], tests: BTreeMap::new() });
        }
    }
    for file in files {
        let is_automatic = |rule: &&&Rule| {
            rule.code.contains(file) && !rule.breaks.iter().any(|one| one.file == *file)
        };
        let ids = rules.values().filter(is_automatic).map(|rule| rule.id.as_str()).collect();
        let found = site::sites(file, sources.text(file).unwrap_or_default(), &ids);
        jobs.extend(found.into_iter().map(|site| BreakJob {
            site,
            given: Vec::new(),
            tests: BTreeMap::new(),
        }));
    }
    site::number(jobs.iter_mut().map(|job| &mut job.site));
    for job in &mut jobs {
        let tests = |id: &String| Some((id.clone(), rules.get(id.as_str())?.tests.clone()));
        job.tests = job.site.rules.iter().filter_map(tests).collect();
    }
    let place = |file: &str| {
        ORDER.iter().position(|folder| file.starts_with(folder)).unwrap_or(ORDER.len())
    };
    jobs.sort_by(|a, b| {
        let key = |job: &BreakJob| (place(&job.site.file), job.site.file.clone(), job.site.line);
        key(a).cmp(&key(b))
    });
    Ok(jobs)
}

/// A rule's own changes: the file, the change, the line where it begins.
fn given<'r>(
    rule: &'r Rule,
    sources: &RustSources,
) -> Result<Vec<(&'r str, Mutation, usize)>, String> {
    let mut found = Vec::new();
    for one in &rule.breaks {
        let wrong = |what: &str| format!("{}: break: {what} {}", rule.id, one.file);
        let text = sources.text(&one.file).ok_or_else(|| wrong("there is no file"))?;
        let mut places = text.match_indices(&one.from);
        let Some((start, _)) = places.next() else { return Err(wrong("'from' does not stand in")) };
        if places.next().is_some() {
            return Err(wrong("'from' stands more than once in"));
        }
        if one.from.is_empty() || one.from == one.to {
            return Err(wrong("it changes nothing in"));
        }
        let line = 1 + text.get(..start).unwrap_or_default().matches('\n').count();
        let range = start..start + one.from.len();
        found.push((
            one.file.as_str(),
            Mutation { range, to: one.to.clone(), why: "as the rule says" },
            line,
        ));
    }
    Ok(found)
}

/// The mistakes in the changes that rules write down, as sentences.
#[must_use]
pub fn problems(specifications: &[Specification], sources: &RustSources) -> Vec<String> {
    let rules = specifications.iter().flat_map(|specification| &specification.rule);
    rules.filter_map(|rule| given(rule, sources).err()).collect()
}

impl BreakJob {
    /// Leaves the rules that `keep` names; nothing when none is left.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&Self, &str) -> bool) -> Option<Self> {
        let kept: BTreeSet<String> =
            self.tests.keys().filter(|id| keep(&self, id)).cloned().collect();
        self.tests.retain(|id, _| kept.contains(id));
        (!kept.is_empty()).then_some(self)
    }
}

/// At most `count` of `ids`, drawn without repetition; the same for the same seed.
#[must_use]
pub fn sample(ids: &BTreeSet<String>, count: usize, seed: u64) -> BTreeSet<String> {
    Rng::with_seed(seed).choose_multiple(ids, count).into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str =
        "fn a() -> u8 {\n    // [1-1] [1-2]\n    7\n}\nfn b() {\n    c(); // [1-2]\n}\n";

    fn specification(breaks: &str) -> Vec<Specification> {
        let head = "specification = \"S\"\ntitle = \"T\"\nprefix = \"1\"\nwords = \"\"\n";
        let rule = |id: &str, more: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nsection = \"1\"\nlevel = \"MUST\"\nrole = \"both\"\ntext \
                 = \"T.\"\nstatus = \"met\"\ncode = [\"z/a.rs\"]\ntests = [\"z/t.rs::t\"]\n{more}"
            )
        };
        let text = format!("{head}{}{}", rule("1-1", ""), rule("1-2", breaks));
        vec![Specification::parse("s", &text).unwrap()]
    }

    fn planned(breaks: &str) -> Result<Vec<String>, String> {
        let jobs = jobs(&specification(breaks), &RustSources::of(&[("z/a.rs", CODE)]))?;
        let rules = |job: &BreakJob| job.tests.keys().cloned().collect::<Vec<_>>().join(" ");
        Ok(jobs
            .iter()
            .map(|job| format!("{} {} {}", job.site.line, rules(job), job.given.len()))
            .collect())
    }

    #[test]
    fn each_line_is_broken_once_for_all_its_rules() {
        assert_eq!(planned("").unwrap(), ["3 1-1 1-2 0", "6 1-2 0"]);
    }

    #[test]
    fn a_rules_own_change_takes_the_place_of_its_lines_in_that_file() {
        let own = "breaks = [{ file = \"z/a.rs\", from = \"7\", to = \"8\" }]\n";
        assert_eq!(planned(own).unwrap(), ["3 1-2 1", "3 1-1 0"]);
    }

    #[test]
    fn a_change_that_does_not_fit_the_code_is_told() {
        for (file, from, to, problem) in [
            ("z/b.rs", "7", "8", "there is no file z/b.rs"),
            ("z/a.rs", "9", "8", "'from' does not stand in"),
            ("z/a.rs", "fn", "8", "'from' stands more than once"),
            ("z/a.rs", "7", "7", "it changes nothing"),
        ] {
            let own =
                format!("breaks = [{{ file = \"{file}\", from = \"{from}\", to = \"{to}\" }}]\n");
            let error = planned(&own).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn a_sample_has_no_rule_twice_and_is_the_same_for_the_same_seed() {
        let ids: BTreeSet<String> = (0..100).map(|number| format!("1-{number}")).collect();
        let drawn = sample(&ids, 20, 7);
        assert_eq!(drawn.len(), 20);
        assert!(drawn.is_subset(&ids));
        assert_eq!(drawn, sample(&ids, 20, 7));
        assert_ne!(drawn, sample(&ids, 20, 8));
        assert_eq!(sample(&ids, 1000, 7), ids);
    }
}
