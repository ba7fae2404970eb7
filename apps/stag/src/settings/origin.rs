//! The place that a value comes from: the command line, a line of the file, or nowhere, which is
//! the default.

use super::file::FileWord;
use clap::{Arg, ArgMatches, Command, parser::ValueSource};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

/// The place that a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nobody said it.
    Default,
    /// The command line.
    Flag,
    /// This line of the file, counted from 1.
    Line(usize),
}

/// The places that all values come from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Name of the file, as it was given.
    file: String,
    flags: BTreeSet<String>,
    lines: BTreeMap<String, usize>,
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
            self.lines.entry(word.flag.clone()).or_insert(word.line);
        }
    }

    /// The place of a flag's value, by the flag's long name.
    pub fn of_flag(&self, flag: &str) -> ValueOrigin {
        match self.lines.get(flag) {
            _ if self.flags.contains(flag) => ValueOrigin::Flag,
            Some(line) => ValueOrigin::Line(*line),
            None => ValueOrigin::Default,
        }
    }

    /// Name of the file; empty without one.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Puts the file and line before a sentence about a flag whose value stands there.
    pub fn place(&self, sentence: &str) -> String {
        let flags = sentence.split("--").skip(1);
        let names = flags.map(|rest| {
            let is_end = |c: char| !(c.is_ascii_lowercase() || c == '-');
            rest.split(is_end).next().unwrap_or_default()
        });
        let mut lines = names.filter_map(|name| match self.of_flag(name) {
            ValueOrigin::Line(line) => Some(line),
            _ => None,
        });
        match lines.next() {
            Some(line) => format!("{}: {sentence}", Place { file: &self.file, line }),
            None => sentence.to_owned(),
        }
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

/// Keys of flags that the name of their table says already.
const KEYS: [(&str, &str); 2] = [("log", "level"), ("log-format", "format")];

/// The key of a flag in its table.
pub fn key_of(flag: &Arg) -> String {
    let name = name_of(flag);
    let key = KEYS.iter().find(|(long, _)| *long == name);
    key.map_or(name, |(_, key)| (*key).to_owned())
}

/// The table of the file in which a flag stands; none at its top.
pub fn section_of(flag: &Arg) -> Option<String> {
    flag.get_help_heading().map(str::to_lowercase)
}
