//! Completeness of the book under `docs/`: each page has its place, each message of the log leads
//! to an entry of the guide, and `stag help` shows the pages.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(DOCS).join(name)).unwrap()
}

fn pages(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.insert(path.strip_prefix(DOCS).unwrap().display().to_string());
        }
    }
}

/// mdBook renders only pages that SUMMARY.md lists: links to others lead nowhere.
#[test]
fn every_page_has_its_place_in_the_book() {
    let mut all = BTreeSet::new();
    pages(Path::new(DOCS), &mut all);
    let summary = page("SUMMARY.md");
    let listed: Vec<_> = summary.lines().filter_map(|line| line.split_once("](")).collect();
    let listed: BTreeSet<_> =
        listed.iter().map(|(_, file)| file.trim_end_matches(')').to_owned()).collect();
    let lost: Vec<_> = all.difference(&listed).filter(|file| *file != "SUMMARY.md").collect();
    assert!(lost.is_empty(), "add a line to docs/SUMMARY.md for {lost:?}");
    let gone: Vec<_> = listed.difference(&all).collect();
    assert!(gone.is_empty(), "docs/SUMMARY.md has {gone:?}, which is not there");
}

/// The check of links (`stag-tidy`, figure `links`) verifies that the entry exists.
#[test]
fn every_message_of_the_log_leads_to_an_entry_of_the_guide() {
    let errors = page("errors.md");
    // After the messages come reasons, and notices of a start that need no action.
    let (errors, _) = errors.split_once("\n## Why there is no TLS session\n").unwrap();
    let lines = errors.lines().zip(errors.lines().skip(1));
    // Without the heads of tables, and without levels below a warning.
    let rows = lines.filter(|(line, next)| line.starts_with("| `") && !next.starts_with("|---"));
    let is_quiet = |row: &&str| {
        ["info", "debug", "trace"].iter().any(|level| row.contains(&format!("` | {level} |")))
    };
    let rows: Vec<_> = rows.map(|(line, _)| line).filter(|row| !is_quiet(row)).collect();
    assert!(rows.len() > 30, "{}", rows.len());
    let without: Vec<_> = rows.iter().filter(|row| !row.contains("](guide/")).collect();
    assert!(
        without.is_empty(),
        "in docs/errors.md, end each of these with a link to the entry of docs/guide/ that helps, \
         as the other rows do: {without:#?}"
    );
}

fn help(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stag")).arg("help").args(arguments).output().unwrap()
}

fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

#[test]
fn help_lists_the_topics_and_shows_each_of_them_within_80_columns() {
    let list = help(&[]);
    assert!(list.status.success());
    let list = text(&list.stdout);
    let names: Vec<_> =
        list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.contains(&"troubleshooting") && names.contains(&"errors"), "{names:?}");
    for name in names {
        let shown = help(&[name]);
        assert!(shown.status.success(), "{name}");
        let shown = text(&shown.stdout);
        assert!(!shown.contains('\u{1b}'), "a pipe is no terminal: {name}");
        // A word that is longer than a line stays whole, and so do lines of commands.
        let is_long = |line: &&str| {
            line.chars().count() > 80 && !line.starts_with("    ") && line.trim().contains(' ')
        };
        assert_eq!(shown.lines().find(is_long), None, "{name}");
    }
}

#[test]
fn help_finds_a_symptom_by_its_words_and_a_command_by_its_name() {
    let found = help(&["troubleshooting", "access", "DENIED"]);
    let found = text(&found.stdout);
    assert!(found.starts_with("mount says access denied by server\n"), "{found}");
    assert!(!found.contains("Huge pages"), "{found}");
    // Without the name of the page, as a reader of a message types it.
    for (words, heading) in [
        ("Connection refused", "mount says Connection refused\n"),
        ("stale file handle", "mount says Stale file handle\n"),
        ("Protocol not supported", "mount says Protocol not supported\n"),
        ("access denied by server", "mount says access denied by server\n"),
        ("mount hangs", "mount hangs\n"),
    ] {
        let found = text(&help(&words.split(' ').collect::<Vec<_>>()).stdout);
        assert!(found.contains(heading), "{words}: {found}");
    }
    let serve = text(&help(&["serve"]).stdout);
    assert!(serve.contains("Usage: stag serve") && serve.contains("EXIT CODES"), "{serve}");
}

#[test]
fn what_help_does_not_know_is_refused_with_what_it_knows() {
    for (arguments, expected) in [
        (&["tropics"][..], "there is no topic and no command \"tropics\"; the topics are quick-"),
        (&["fabrics", "no such words"], "'stag help fabrics' shows the page"),
    ] {
        let refused = help(arguments);
        assert_eq!(refused.status.code(), Some(2));
        let sentence = text(&refused.stderr);
        assert!(sentence.contains(expected), "{sentence}");
    }
}

#[test]
fn each_command_has_a_manual_page_and_each_shell_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    let stag = || Command::new(env!("CARGO_BIN_EXE_stag"));
    assert!(stag().arg("man").arg(folder.path()).status().unwrap().success());
    for name in ["stag.1", "stag-serve.1", "stag-tune-check.1"] {
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.contains(".SH NAME") && page.contains(".SH"), "{name}");
    }
    let serve = fs::read_to_string(folder.path().join("stag-serve.1")).unwrap();
    assert!(serve.contains("WHO MAY CONNECT"), "the texts of --help are in it");
    for shell in ["bash", "zsh", "fish"] {
        let made = stag().args(["completions", shell]).output().unwrap();
        assert!(made.status.success());
        assert!(text(&made.stdout).contains("ready-file"), "{shell}");
    }
    let gone = stag().arg("man").arg(folder.path().join("gone")).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("make the directory"));
}
