//! Origin of a value: the command line, a line of the file, or the default.

use super::file::FileWord;
use crate::Error;
use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// The place that a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// It was not given.
    Default,
    /// The command line.
    Flag,
    /// This line of the file, counted from 1.
    Line(usize),
    /// The environment variable of this name.
    Variable(&'static str),
}

/// The places that all values come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Name of the file, as it was given.
    file: String,
    flags: BTreeSet<String>,
    lines: BTreeMap<String, Vec<FileLine>>,
    /// Lines of tables that contain a part of a flag's value.
    tables: BTreeMap<&'static str, usize>,
}

/// A line of the file, with its value.
#[derive(Clone, Debug)]
struct FileLine {
    line: usize,
    /// As a flag takes it; empty for one that takes none.
    value: String,
}

impl Origins {
    /// Values that a command line has.
    pub(super) fn of(command: &Command, given: &ArgMatches) -> Self {
        let is_given = |flag: &&Arg| {
            given.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        let flags = command.get_arguments().filter(is_given).map(name_of).collect();
        Self { flags, ..Self::default() }
    }

    pub(super) fn add_file(&mut self, path: &Path, words: &[FileWord]) {
        self.file = path.display().to_string();
        for word in words {
            let text = word.text.to_string_lossy();
            let value = text.split_once('=').map(|(_, value)| value.to_owned());
            let line = FileLine { line: word.line, value: value.unwrap_or_default() };
            self.lines.entry(word.flag.clone()).or_default().push(line);
        }
    }

    /// Records a line of a table that contains a part of the value of `flag`.
    pub(super) fn add_key_of_table(&mut self, flag: &'static str, line: usize) {
        self.tables.entry(flag).or_insert(line);
    }

    /// Attributes a value of `flag` to the environment variable `name`, unless a flag or line gave
    /// it.
    pub fn of_variable(&self, flag: &str, name: &'static str) -> ValueOrigin {
        match self.of_flag(flag) {
            ValueOrigin::Default => ValueOrigin::Variable(name),
            said => said,
        }
    }

    /// The place of a flag's value, by the flag's long name.
    pub fn of_flag(&self, flag: &str) -> ValueOrigin {
        match self.lines.get(flag).and_then(|lines| lines.first()) {
            _ if self.flags.contains(flag) => ValueOrigin::Flag,
            Some(first) => ValueOrigin::Line(first.line),
            None => ValueOrigin::Default,
        }
    }

    /// The line of a flag's value that `sentence` is about: of several, the one whose value the
    /// sentence names.
    fn line_of(&self, flag: &str, sentence: &str) -> Option<usize> {
        let first = match self.of_flag(flag) {
            ValueOrigin::Line(first) => first,
            ValueOrigin::Default => return self.tables.get(flag).copied(),
            ValueOrigin::Flag | ValueOrigin::Variable(_) => return None,
        };
        let is_named = |at: &&FileLine| !at.value.is_empty() && sentence.contains(&at.value);
        let named = self.lines.get(flag)?.iter().filter(is_named);
        // One value can be the beginning of another one.
        Some(named.max_by_key(|at| at.value.len()).map_or(first, |at| at.line))
    }

    /// Name of the file; empty without one.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Puts the file and line before a sentence about a flag whose value is in the file.
    pub fn place(&self, sentence: &str) -> String {
        let flags = sentence.split("--").skip(1);
        let names = flags.map(|rest| {
            let is_end = |c: char| !(c.is_ascii_lowercase() || c == '-');
            rest.split(is_end).next().unwrap_or_default()
        });
        let mut lines = names.filter_map(|name| self.line_of(name, sentence));
        match lines.next() {
            Some(line) => format!("{}: {sentence}", Place { file: &self.file, line }),
            None => sentence.to_owned(),
        }
    }

    /// Puts the file and line before a settings error that names a flag whose value is there,
    /// unless it has a place already.
    pub fn placed(&self, error: Error) -> Error {
        let placed = |sentence: String| {
            if self.has_place(&sentence) { sentence } else { self.place(&sentence) }
        };
        match error {
            Error::Usage(sentence) => Error::Usage(placed(sentence)),
            Error::Failure(sentence) => Error::Failure(placed(sentence)),
            other => other,
        }
    }

    /// True if a sentence begins with a place in the file.
    fn has_place(&self, sentence: &str) -> bool {
        let rest = sentence.strip_prefix(&*self.file).and_then(|rest| rest.strip_prefix(':'));
        !self.file.is_empty()
            && rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// The place of a line of the file.
    pub fn at(&self, line: usize) -> String {
        Place { file: &self.file, line }.to_string()
    }
}

/// A line of a file, as compilers write it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub file: &'a str,
    pub line: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A flag's long name, or the name of a positional argument.
pub(super) fn name_of(flag: &Arg) -> String {
    flag.get_long().unwrap_or_else(|| flag.get_id().as_str()).to_owned()
}

/// Keys of flags whose name the table contains already.
const KEYS: [(&str, &str); 4] = [
    ("log", "level"),
    ("log-format", "format"),
    ("kerberos-principal", "principal"),
    ("kerberos-map", "map"),
];

/// The key of a flag in its table.
pub fn key_of(flag: &Arg) -> String {
    let name = name_of(flag);
    let key = KEYS.iter().find(|(long, _)| *long == name);
    key.map_or(name, |(_, key)| (*key).to_owned())
}

/// The table of the file for a flag; none at its top.
pub fn section_of(flag: &Arg) -> Option<String> {
    flag.get_help_heading().map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origins() -> Origins {
        let word = |flag: &str, value: &str, line| FileWord {
            flag: flag.to_owned(),
            text: format!("--{flag}={value}").into(),
            line,
        };
        let words =
            [word("listen", "iwarp://1.2.3.4:1", 3), word("listen", "iwarp://1.2.3.4:12", 5)];
        let mut origins = Origins::default();
        origins.add_file(Path::new("a.toml"), &words);
        origins
    }

    #[test]
    fn of_several_values_the_one_that_a_sentence_names_is_its_place() {
        let origins = origins();
        for (sentence, place) in [
            ("--listen iwarp://1.2.3.4:1: no", "a.toml:3: "),
            ("--listen iwarp://1.2.3.4:12: no", "a.toml:5: "),
            ("--listen: no", "a.toml:3: "),
            ("--tcp: no", ""),
        ] {
            assert_eq!(origins.place(sentence), format!("{place}{sentence}"));
        }
    }

    #[test]
    fn a_place_is_given_once() {
        let origins = origins();
        let once = origins.placed(Error::usage("--listen: no"));
        assert_eq!(once, Error::usage("a.toml:3: --listen: no"));
        assert_eq!(origins.placed(once.clone()), once);
    }
}
