//! The Rust sources of the workspace: which ids they carry and which tests they hold.

use crate::Column;
use std::{collections::BTreeMap, fs, io, path::Path};

/// All Rust files of the workspace but files about the ids themselves, by their path in it.
#[derive(Debug, Default)]
pub struct RustSources {
    files: BTreeMap<String, String>,
}

/// Result of the search for a rule's test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundFunction {
    /// A test that runs with `cargo test`.
    Test,
    /// A test that `cargo test` leaves out.
    Ignored,
    /// A function that nothing makes a test of.
    NoTest,
    /// There is no such function.
    Nothing,
}

impl RustSources {
    /// Reads the workspace at `root`.
    ///
    /// # Errors
    ///
    /// A file or folder that cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut sources = Self::default();
        sources.read_folder(root, root)?;
        Ok(sources)
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path
                .strip_prefix(root)
                .expect("a folder's entries lie below it")
                .to_string_lossy()
                .into_owned();
            // The first two speak about ids; the rest is not source.
            let is_skipped = name == "tests/requirements/src"
                || name == "tests/requirements/tests/requirements.rs"
                || name.starts_with('.')
                || name.ends_with("target");
            if is_skipped {
                continue;
            }
            if path.is_dir() {
                self.read_folder(root, &path)?;
            } else if name.ends_with(".rs") {
                self.files.insert(name, fs::read_to_string(&path)?);
            }
        }
        Ok(())
    }

    /// Sources that are given as pairs of path and text.
    #[must_use]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let owned = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { files: owned.collect() }
    }

    /// The text of a file.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The files that hold `text`, by path.
    pub fn files_with(&self, text: &str) -> impl Iterator<Item = &str> {
        self.files
            .iter()
            .filter(move |(_, content)| content.contains(text))
            .map(|(path, _)| path.as_str())
    }

    /// Returns true if a name occurs in some file as a word of its own.
    #[must_use]
    pub fn mention(&self, word: &str) -> bool {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        self.files.values().any(|text| text.split(|c| !is_word(c)).any(|found| found == word))
    }

    /// Every id that a comment carries, with its file: `[8166-12]`, for the given prefixes and for
    /// anything that begins with four digits as an RFC's number does.
    #[must_use]
    pub fn ids(&self, prefixes: &[&str]) -> Vec<(String, &str)> {
        let mut found = Vec::new();
        for (path, text) in &self.files {
            let comments = text.lines().filter_map(|line| Some(line.split_once("//")?.1));
            for id in comments.flat_map(bracketed) {
                let Some((prefix, number)) = id.rsplit_once('-') else { continue };
                let is_rfc =
                    prefix.len() == 4 && prefix.bytes().all(|octet| octet.is_ascii_digit());
                if number.bytes().all(|octet| octet.is_ascii_digit())
                    && (is_rfc || prefixes.contains(&prefix))
                {
                    found.push((id.to_owned(), path.as_str()));
                }
            }
        }
        found
    }

    /// Classifies the function `name` of the file `path`.
    #[must_use]
    pub fn test(&self, path: &str, name: &str) -> FoundFunction {
        let Some(text) = self.text(path) else { return FoundFunction::Nothing };
        let lines: Vec<&str> = text.lines().collect();
        let Some(at) = lines.iter().position(|line| declares(line, name)) else {
            return FoundFunction::Nothing;
        };
        let before = lines.get(..at).unwrap_or_default();
        let is_attached = |line: &&&str| {
            line.trim_start().starts_with("#[") || line.trim_start().starts_with("//")
        };
        let attributes: Vec<&str> =
            before.iter().rev().take_while(is_attached).map(|line| line.trim()).collect();
        if attributes.iter().any(|line| line.starts_with("#[ignore")) {
            FoundFunction::Ignored
        } else if attributes.contains(&"#[test]")
            || is_in_macro(&lines, at)
            || self.is_listed(path, name)
        {
            FoundFunction::Test
        } else {
            FoundFunction::NoTest
        }
    }

    /// True when a provider's run of the conformance suite leaves out a case.
    #[must_use]
    pub fn skips(&self, column: Column, case: &str) -> bool {
        let fixture = format!("engine/providers/{}/tests/conformance.rs", column.name());
        let Some(text) = self.text(&fixture) else { return true };
        text.contains(&format!("\"{case}\" =>")) || text.contains(&format!("case == \"{case}\""))
    }

    /// Says if a list of cases names `module::name` on a line of its own, as the conformance
    /// suite's does.
    fn is_listed(&self, path: &str, name: &str) -> bool {
        self.list(path, name).is_some()
    }

    /// The file of that list: preferably one with a macro, as a fixture may list the cases that it
    /// leaves out.
    fn list(&self, path: &str, name: &str) -> Option<&str> {
        let module =
            path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs")).unwrap_or_default();
        let case = format!("{module}::{name}");
        let is_case = |line: &str| line.trim().trim_end_matches(',') == case;
        let names = |text: &&String| text.contains(&case) && text.lines().any(is_case);
        let lists = || self.files.values().filter(names);
        let of_macro = lists().find(|text| text.contains("macro_rules! "));
        of_macro.or_else(|| lists().next()).map(String::as_str)
    }

    /// The call of the macro whose list of cases names this one: `conformance_tests!(`.
    pub(crate) fn list_of(&self, path: &str, name: &str) -> Option<String> {
        let (_, rest) = self.list(path, name)?.split_once("macro_rules! ")?;
        Some(format!("{}!(", rest.split_whitespace().next()?))
    }
}

/// Every `[…]` without a space in it.
pub(crate) fn bracketed(text: &str) -> impl Iterator<Item = &str> {
    let inner = text.split('[').skip(1).filter_map(|rest| Some(rest.split_once(']')?.0));
    inner.filter(|inner| !inner.is_empty() && !inner.contains(' '))
}

/// Returns true if a line begins the function `name`.
fn declares(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let line =
        line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let rest = line.strip_prefix("fn ").and_then(|rest| rest.strip_prefix(name));
    rest.is_some_and(|rest| rest.starts_with(['(', '<']))
}

/// Returns true if the line at `at` is directly in the braces of a macro that makes a test of it.
fn is_in_macro(lines: &[&str], at: usize) -> bool {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let depth = lines.get(at).map_or(0, |line| indentation(line));
    let before = lines.get(..at).unwrap_or_default();
    let outer =
        before.iter().rev().find(|line| !line.trim().is_empty() && indentation(line) < depth);
    outer.is_some_and(|line| line.trim_end().ends_with("! {"))
}
