//! Checks that rules, code and tests agree.

use crate::{
    Claim, Column, Rule, RuleStanding, RuleStatus, RustSources, Specification,
    sources::FoundFunction,
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong, each as a sentence with the rule's id; nothing when all is right.
#[must_use]
pub fn problems(specifications: &[Specification], sources: &RustSources) -> Vec<String> {
    let mut problems = Vec::new();
    let mut prefixes = BTreeSet::new();
    for specification in specifications {
        if !prefixes.insert(specification.prefix.as_str()) {
            problems.push(format!(
                "{}: the prefix '{}' is taken",
                specification.name, specification.prefix
            ));
        }
        if specification.words.len() < 20 {
            problems.push(format!(
                "{}: it does not say where each key word went (words)",
                specification.name
            ));
        }
        numbering(specification, &mut problems);
        for rule in &specification.rule {
            wording(rule, &mut problems);
            standing(rule, sources, &mut problems);
            claims(specification, rule, sources, &mut problems);
        }
    }
    ids(specifications, sources, &mut problems);
    problems.extend(crate::breaks::plan::problems(specifications, sources));
    problems
}

/// Ids begin with the prefix and rise: a number given twice, or out of order, is seen.
fn numbering(specification: &Specification, problems: &mut Vec<String>) {
    let mut last = 0;
    for rule in &specification.rule {
        let number =
            rule.number().filter(|number| rule.id == format!("{}-{number}", specification.prefix));
        match number {
            Some(number) if number > last => last = number,
            Some(_) => problems.push(format!("{}: its number does not rise", rule.id)),
            None => problems.push(format!("{}: an id here is {}-N", rule.id, specification.prefix)),
        }
    }
}

fn wording(rule: &Rule, problems: &mut Vec<String>) {
    let mut problem = |what: &str| problems.push(format!("{}: {what}", rule.id));
    if !rule.section.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        problem("it has no section");
    }
    if rule.role.trim().is_empty() {
        problem("it binds nobody (role)");
    }
    if rule.text.len() < 20 || !rule.text.ends_with('.') {
        problem("its text is no sentence");
    }
}

/// A rule that is met has code and tests; one that is not has a reason.
fn standing(rule: &Rule, sources: &RustSources, problems: &mut Vec<String>) {
    let mut problem = |what: String| problems.push(format!("{}: {what}", rule.id));
    match rule.status {
        RuleStatus::Met => {
            if rule.code.is_empty() {
                problem("it is met, but no code is named".to_owned());
            }
            if rule.tests.is_empty() {
                problem("it is met, but no test is named".to_owned());
            }
            if !rule.reason.is_empty() || !rule.counter.is_empty() {
                problem("it is met: reason and counter are for those that are not".to_owned());
            }
        }
        RuleStatus::NotMet | RuleStatus::NotOurs => {
            if rule.reason.len() < 20 {
                problem(format!("it is {}, but no reason is given", rule.status));
            }
        }
    }
    if rule.status == RuleStatus::NotOurs && !(rule.code.is_empty() && rule.tests.is_empty()) {
        problem("it is not ours: no code or test of ours can meet it".to_owned());
    }
    if !rule.counter.is_empty() && !rule.counter.split('.').all(|word| sources.mention(word)) {
        problem(format!("no code knows the counter {}", rule.counter));
    }
    for file in &rule.code {
        if sources.text(file).is_none() {
            problem(format!("there is no file {file}"));
        }
    }
    for test in &rule.tests {
        let found = test
            .rsplit_once("::")
            .map_or(FoundFunction::Nothing, |(file, name)| sources.test(file, name));
        match found {
            FoundFunction::Test => {}
            FoundFunction::Ignored => problem(format!("{test} is ignored by cargo test")),
            FoundFunction::NoTest => problem(format!("{test} is no test")),
            FoundFunction::Nothing => problem(format!("there is no {test}")),
        }
    }
}

/// A rule that is met says on which providers, and where it is, code and a test run there;
/// elsewhere there is a reason.
fn claims(
    specification: &Specification,
    rule: &Rule,
    sources: &RustSources,
    problems: &mut Vec<String>,
) {
    let mut problem = |what: String| problems.push(format!("{}: {what}", rule.id));
    let mut is_met = false;
    for column in Column::ALL {
        let name = column.name();
        let Some(Claim { standing, reason }) = specification.claim(rule, column) else {
            problem(format!("its code is a provider's: it does not say how it stands on {name}"));
            continue;
        };
        is_met |= standing == RuleStanding::Met;
        if standing == RuleStanding::Met {
            if rule.status != RuleStatus::Met {
                problem(format!("it is {}, so it cannot be met on {name}", rule.status));
            }
            if !rule.is_above_providers() {
                if !rule.code.iter().any(|file| column.runs(file)) {
                    problem(format!("it is met on {name}, but no code named runs there"));
                }
                if !rule.tests.iter().any(|test| column.runs_test(test, sources)) {
                    problem(format!("it is met on {name}, but no test named runs there"));
                }
            }
        } else if rule.status == RuleStatus::Met && reason.len() < 20 {
            problem(format!("it is {standing} on {name}, but no reason is given"));
        }
    }
    if rule.status == RuleStatus::Met && !is_met {
        problem("it is met on no provider".to_owned());
    }
}

/// Every id in the code is a rule's, in a file that the rule names; every file that a rule names
/// carries its id.
fn ids(specifications: &[Specification], sources: &RustSources, problems: &mut Vec<String>) {
    let prefixes: Vec<&str> =
        specifications.iter().map(|specification| specification.prefix.as_str()).collect();
    let mut carried: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (id, file) in sources.ids(&prefixes) {
        carried.entry(id).or_default().insert(file);
    }
    for rule in specifications.iter().flat_map(|specification| &specification.rule) {
        let mut files = carried.remove(&rule.id).unwrap_or_default();
        for file in rule.code.iter().filter(|file| sources.text(file).is_some()) {
            if !files.remove(file.as_str()) {
                problems.push(format!("{}: no comment in {file} carries [{}]", rule.id, rule.id));
            }
        }
        let is_tested_in = |file: &str| {
            rule.tests.iter().any(|test| test.rsplit_once("::").is_some_and(|(at, _)| at == file))
        };
        for file in files.into_iter().filter(|file| !is_tested_in(file)) {
            problems.push(format!(
                "{}: {file} carries its id, but the rule does not name that file",
                rule.id
            ));
        }
    }
    for (id, files) in carried {
        problems.push(format!(
            "{id}: no rule has this id, which stands in {}",
            Vec::from_iter(files).join(", ")
        ));
    }
}
