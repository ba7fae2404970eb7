//! A sample workspace whose lines are broken: each verdict comes from a rule that deserves it. Also
//! tests the command itself.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_requirements::{
    RustSources, Specification,
    breaks::{
        plan,
        run::{BreakLimits, Runner},
        table::{BreakRow, BreakVerdict},
        workspace::Workspace,
    },
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

const MANIFEST: &str =
    "[package]\nname = \"sample\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
const LOCK: &str = "version = 4\n\n[[package]]\nname = \"sample\"\nversion = \"0.1.0\"\n";

/// Built with a feature that no test has.
const DEVICE: &str = "pub fn depth() -> u8 {\n    // [1-10]\n    7\n}\n";

const CODE: &str = r#"//! A sample.

#[cfg(any())]
mod device;

// One test looks at the limit, another does not. [1-0] [1-1]
pub const LIMIT: usize = 4;

pub struct Unique;
// [1-2]
pub static NAME: &Unique = &UNIQUE;
static UNIQUE: Unique = Unique;

// [1-3]
pub const WORDS: u32 = 7;
const _: () = assert!(WORDS == 7);

pub fn last(mut left: usize) -> usize {
    while left > LIMIT {
        // [1-4]
        left -= 1;
    }
    left
}

pub fn sum(octets: &[u8]) -> u32 {
    // [1-5] [1-6] [1-7]
    octets.iter().map(|octet| u32::from(*octet)).sum()
}

pub fn greet(name: &str) -> String {
    // [1-8] [1-9]
    let text = format!("Hello {name}");
    text
}
"#;

const TESTS: &str = r#"use sample::*;

#[test]
fn it_ends_at_four() {
    assert_eq!(last(9), 4);
}

#[test]
fn it_looks_elsewhere() {
    assert_eq!(sum(&[]), 0);
}

#[test]
fn it_never_holds() {
    assert_eq!(sum(&[1]), 2);
}

#[test]
fn it_needs_a_device() {
    eprintln!("skipped: no device");
}

#[test]
fn it_fails_every_second_time() {
    let count = concat!(env!("CARGO_MANIFEST_DIR"), "/count");
    let before = std::fs::read_to_string(count).unwrap_or_default();
    std::fs::write(count, format!("{before}.")).unwrap();
    assert_eq!(before.len() % 2, 0);
}

#[test]
fn it_greets() {
    assert_eq!(greet("you"), "Hello you");
}
"#;

/// Rules with the test that each names, and what is to come of it.
const RULES: [(&str, &str, BreakVerdict); 11] = [
    ("1-0", "it_ends_at_four", BreakVerdict::Caught),
    ("1-1", "it_looks_elsewhere", BreakVerdict::Survived),
    ("1-2", "it_looks_elsewhere", BreakVerdict::NothingCompiled),
    ("1-3", "it_looks_elsewhere", BreakVerdict::Refused),
    ("1-4", "it_ends_at_four", BreakVerdict::Hung),
    ("1-5", "it_looks_elsewhere", BreakVerdict::Survived),
    ("1-6", "it_never_holds", BreakVerdict::FailsWhole),
    ("1-7", "it_needs_a_device", BreakVerdict::NotRunHere),
    ("1-8", "it_fails_every_second_time", BreakVerdict::Survived),
    ("1-9", "it_greets", BreakVerdict::Caught),
    ("1-10", "it_ends_at_four", BreakVerdict::NotRunHere),
];

fn specification() -> Specification {
    let mut text =
        "specification = \"S\"\ntitle = \"T\"\nprefix = \"1\"\nwords = \"\"\n".to_owned();
    for (id, test, _) in RULES {
        let file = if id == "1-10" { "device" } else { "lib" };
        text += &format!(
            "[[rule]]\nid = \"{id}\"\nsection = \"1\"\nlevel = \"MUST\"\nrole = \"both\"\ntext \
             = \"T.\"\nstatus = \"met\"\n\
             code = [\"src/{file}.rs\"]\ntests = [\"tests/t.rs::{test}\"]\n"
        );
    }
    // The automatic ways see nothing in a macro's text.
    let greets = "tests = [\"tests/t.rs::it_greets\"]\n";
    let own = "breaks = [{ file = \"src/lib.rs\", from = \"Hello {\", to = \"Hallo {\" }]\n";
    Specification::parse("s", &text.replace(greets, &format!("{greets}{own}"))).unwrap()
}

fn sample(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for (file, text) in [
        ("Cargo.toml", MANIFEST),
        ("Cargo.lock", LOCK),
        ("src/lib.rs", CODE),
        ("src/device.rs", DEVICE),
        ("tests/t.rs", TESTS),
    ] {
        let file = folder.join("sample").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

fn rows(folder: &Path) -> Vec<BreakRow> {
    let source = folder.join("sample");
    let jobs = plan::jobs(&[specification()], &RustSources::read(&source).unwrap()).unwrap();
    let workspace = Workspace::open(&source, &folder.join("copy")).unwrap();
    let limits = BreakLimits { tries: 3, patience: Duration::from_secs(2) };
    let mut runner = Runner::new(workspace, &jobs, limits, "abc").unwrap();
    jobs.iter().flat_map(|job| runner.run(job).unwrap()).collect()
}

#[test]
fn each_rule_of_a_sample_gets_the_verdict_that_it_deserves() {
    let folder = sample("verdicts");
    let mut rows = rows(&folder);
    rows.sort_by_key(|row| row.rule[2..].parse::<u8>().unwrap());
    let found: Vec<_> = rows.iter().map(|row| (row.rule.as_str(), row.verdict)).collect();
    assert_eq!(found, RULES.map(|(id, _, verdict)| (id, verdict)), "{rows:#?}");
    let row = &rows[0];
    assert_eq!(
        (row.text.as_str(), row.nth, row.mutation.as_str()),
        ("pub const LIMIT: usize = 4;", 0, "`4` → `5`")
    );
    assert_eq!(
        (rows[0].test.as_str(), rows[0].commit.as_str()),
        ("tests/t.rs::it_ends_at_four", "abc")
    );
    assert_eq!(rows[9].mutation, "`Hello {` → `Hallo {`");
    // The sample's files have not changed; the copy is whole again.
    for tree in ["sample", "copy/tree"] {
        assert_eq!(
            fs::read_to_string(folder.join(tree).join("src/lib.rs")).unwrap(),
            CODE,
            "{tree}"
        );
    }
}

#[test]
fn a_copy_is_brought_up_to_date_and_used_by_one_run_at_a_time() {
    let folder = sample("copies");
    let open = || Workspace::open(&folder.join("sample"), &folder.join("copy"));
    let first = open().unwrap();
    assert!(open().unwrap_err().to_string().contains("another run uses"));
    let text = |name: &str| fs::read_to_string(first.tree().join(name)).ok();
    {
        let _replaced = first.replace("src/lib.rs", "broken").unwrap();
        assert_eq!(text("src/lib.rs").unwrap(), "broken");
    }
    assert_eq!(text("src/lib.rs").unwrap(), CODE);
    // As a run that was killed leaves it, with a file that is no more in the source.
    fs::write(first.tree().join("src/lib.rs"), "broken").unwrap();
    fs::write(first.tree().join("src/old.rs"), "").unwrap();
    let time =
        |name: &str| fs::metadata(folder.join("copy/tree").join(name)).unwrap().modified().unwrap();
    let before = time("tests/t.rs");
    drop(first);
    // A command that another test starts at that moment may have the lock's descriptor until it is
    // a program of its own.
    let start = Instant::now();
    let again = loop {
        match open() {
            Ok(again) => break again,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(fs::read_to_string(again.tree().join("src/lib.rs")).unwrap(), CODE);
    assert!(!again.tree().join("src/old.rs").exists());
    assert_eq!(time("tests/t.rs"), before, "what did not change is not built again");
}

fn command(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_stag-requirements"))
        .arg("break")
        .args(arguments)
        .output()
        .unwrap();
    let text = |octets: Vec<u8>| String::from_utf8(octets).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn the_command_says_what_is_wrong_with_it() {
    let (code, _, told) = command(&["--rule", "8166-9999"]);
    assert_eq!(
        (code, told.trim()),
        (2, "stag-requirements: no rule 8166-9999 has lines and tests")
    );
    // With `--list`, so that a wrong command that is taken all the same breaks nothing.
    for wrong in
        [&["--seed", "3", "--all"][..], &[], &["--all", "--table"], &["--tries", "0", "--all"]]
    {
        let (code, _, told) = command(&[wrong, &["--list"]].concat());
        assert!(code == 2 && told.contains("error:"), "{wrong:?}: {told}");
    }
    let (code, help, _) = command(&["--help"]);
    assert_eq!(code, 0);
    for word in ["VERDICTS", "EXIT CODES", "--sample", "--resume", "breaks = [{"] {
        assert!(help.contains(word), "{word}");
    }
}

#[test]
fn every_line_that_a_rule_cites_can_be_broken() {
    let (code, told, _) = command(&["--all", "--list"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = told.lines().collect();
    let is_site = |line: &str| !line.starts_with(' ');
    for pair in lines.windows(2).filter(|pair| is_site(pair[0])) {
        assert!(
            !is_site(pair[1]),
            "no change is known for {}; fix: breaks = [{{ … }}] in its rule",
            pair[0]
        );
    }
    assert!(lines.len() > 1000);
}

#[test]
fn a_sample_can_be_drawn_again() {
    let (code, first, told) = command(&["--sample", "5", "--list"]);
    assert_eq!(code, 0);
    let seed = told.split_once("seed ").unwrap().1.split_once(':').unwrap().0;
    let (_, second, _) = command(&["--sample", "5", "--list", "--seed", seed]);
    assert_eq!(first, second);
    assert!(!first.is_empty());
}
