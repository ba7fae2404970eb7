//! The rows of `rows.toml`: every name in them exists, and no row is missing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use serde::Deserialize;
use stag_hostile::{defects, requester};
use stag_requirements::{RustSources, sources::FoundFunction};
use std::collections::BTreeSet;

#[derive(Deserialize)]
struct Rows {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    about: String,
    #[serde(default)]
    by: Vec<String>,
    #[serde(rename = "not")]
    why_not: Option<String>,
}

fn rows() -> Vec<Row> {
    toml::from_str::<Rows>(include_str!("../rows.toml")).unwrap().row
}

#[test]
fn every_row_names_defects_and_tests_that_exist_or_says_why_there_are_none() {
    let sources = RustSources::read(&stag_requirements::root()).unwrap();
    let clients = defects::all().into_iter().map(|defect| defect.name);
    let names: BTreeSet<_> =
        clients.chain(requester::all().into_iter().map(|defect| defect.name)).collect();
    let exists = |name: &str| match name.split_once("::") {
        Some((path, test)) => sources.test(path, test) == FoundFunction::Test,
        None => names.contains(name),
    };
    let mut wrong = Vec::new();
    for row in rows() {
        if row.by.is_empty() != row.why_not.is_some() || row.about.is_empty() {
            wrong.push(format!("{}: either names or a reason", row.id));
        }
        wrong.extend(
            row.by
                .iter()
                .filter(|name| !exists(name))
                .map(|name| format!("{}: there is no {name}", row.id)),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_96_faults_are_there_and_at_least_45_weaknesses_of_others_have_a_test() {
    let rows = rows();
    let ids: BTreeSet<_> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids.len(), rows.len(), "an id is used once");
    for number in 1..=96 {
        assert!(ids.contains(format!("F{number:02}").as_str()), "F{number:02} is missing");
    }
    let is_shown = |row: &&Row| row.why_not.is_none();
    let others = rows.iter().filter(|row| !row.id.starts_with('F')).filter(is_shown).count();
    assert!(others >= 45, "{others}");
    let faults = rows.iter().filter(|row| row.id.starts_with('F')).filter(is_shown).count();
    println!("{faults} of 96 faults and {others} weaknesses of others have tests");
}
