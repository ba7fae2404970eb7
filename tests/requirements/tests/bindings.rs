//! Every program of ours has its binding (RFC 8166 §6), with the numbers that the sources have.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use std::{collections::BTreeMap, fs};

/// Sources that define a program, with the heading of its binding.
const PROGRAMS: [(&str, &str); 3] = [
    ("engine/src/stages/service.rs", "Stages"),
    ("apps/echo/src/lib.rs", "Echo"),
    ("apps/stag/src/accept/program.rs", "Accept"),
];

/// Numbers that local administration gives (RFC 5531 §8.3).
const LOCAL: std::ops::RangeInclusive<u32> = 0x2000_0000..=0x3fff_ffff;

/// The 32-bit constants of a source: name and value.
fn constants(source: &str) -> BTreeMap<String, u32> {
    let number = |text: &str| {
        let digits = text.trim().trim_end_matches(';').replace('_', "");
        digits
            .strip_prefix("0x")
            .map_or_else(|| digits.parse().ok(), |hex| u32::from_str_radix(hex, 16).ok())
    };
    let declared =
        source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": u32 = "));
    declared.filter_map(|(name, value)| Some((name.to_owned(), number(value)?))).collect()
}

fn part<'a>(page: &'a str, heading: &str) -> &'a str {
    let behind = page.split_once(&format!("\n## {heading}\n")).map(|(_, behind)| behind);
    let behind = behind.unwrap_or_else(|| panic!("docs/bindings.md has no part '{heading}'"));
    behind.split("\n## ").next().unwrap()
}

#[test]
fn every_program_of_ours_has_its_binding() {
    let page = fs::read_to_string(stag_requirements::root().join("docs/bindings.md")).unwrap();
    for (file, heading) in PROGRAMS {
        let mut constants =
            constants(&fs::read_to_string(stag_requirements::root().join(file)).unwrap());
        let (program, version) =
            (constants.remove("PROGRAM").unwrap(), constants.remove("VERSION").unwrap());
        assert!(LOCAL.contains(&program), "{heading}: nobody assigned {program:#x}");
        assert_ne!(version, 0, "{heading}: no version is zero (RFC 5531 §8.1)");
        let part = part(&page, heading);
        assert!(
            part.contains(&format!("| program, version | {program:#x}, {version} |")),
            "{heading}"
        );
        assert!(
            part.contains(&format!("`{file}`")),
            "{heading}: the page does not name its source"
        );
        constants.remove("UNCHECKED");
        assert_eq!(constants.get("NULL"), Some(&0), "{heading}: procedure zero is NULL");
        for (name, number) in &constants {
            let row =
                part.lines().find(|line| line.starts_with(&format!("| {name} | {number} | ")));
            let row =
                row.unwrap_or_else(|| panic!("{heading}: the page does not have {name}, {number}"));
            assert_eq!(
                row.split(" | ").count(),
                5,
                "{heading}: {name} says what is eligible, and how long"
            );
        }
        let rows = part
            .lines()
            .filter(|line| line.split(" | ").nth(1).is_some_and(|n| n.parse::<u32>().is_ok()));
        assert_eq!(
            rows.count(),
            constants.len(),
            "{heading}: a procedure that the source does not have"
        );
    }
}

#[test]
fn no_other_source_defines_a_program() {
    let sources = stag_requirements::RustSources::read(&stag_requirements::root()).unwrap();
    let defining = sources.files_with("const PROGRAM: u32 = 0x20");
    let local =
        defining.filter(|file| !file.starts_with("tests/requirements/")).collect::<Vec<_>>();
    let mut known = PROGRAMS.map(|(file, _)| file).to_vec();
    known.sort_unstable();
    assert_eq!(local, known, "a program needs a binding");
}
