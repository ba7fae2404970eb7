//! Settings file: TOML whose keys are flags.

use super::{
    exports::{self, ExportEntry, ListenEntry},
    origin::{Place, key_of, name_of, section_of},
    value::{self, FileFault, Placed},
};
use crate::Error;
use clap::{Arg, Command};
use std::{ffi::OsString, ops::Range, path::Path};
use toml::de::{DeTable, DeValue};

/// A value of the file as a word of the command line.
#[derive(Debug)]
pub struct FileWord {
    /// The flag's long name.
    pub flag: String,
    pub text: OsString,
    pub line: usize,
}

/// Content of a file.
#[derive(Debug, Default)]
pub struct FileContent {
    pub words: Vec<FileWord>,
    pub listen: Vec<ListenEntry>,
    pub exports: Vec<ExportEntry>,
}

/// Flags that no file can hold.
const NOT_IN_FILES: [&str; 6] = ["config", "check", "help", "version", "name", "json"];

/// A sentence about a line of a file, with its place.
#[derive(Debug)]
pub struct LineFault {
    pub line: usize,
    pub sentence: String,
}

/// Reads a file whose keys are flags of `command`. Adds all faults that it finds to `faults`.
///
/// # Errors
/// A sentence with the file's name and line, if it is no TOML.
pub fn read(
    path: &Path,
    text: &str,
    command: &Command,
    faults: &mut Vec<LineFault>,
) -> Result<FileContent, Error> {
    let name = path.display().to_string();
    let said = |fault: FileFault| {
        let line = line_of(text, &fault.span);
        let sentence = format!("{}: {}", Place { file: &name, line }, fault.why);
        LineFault { line, sentence }
    };
    let parsed = DeTable::parse(text).map_err(|error| {
        let why = error.message().replace('\n', "; ");
        Error::usage(said(FileFault::new(error.span().unwrap_or(0..0), why)).sentence)
    })?;
    let mut reader =
        SettingsReader { text, command, content: FileContent::default(), faults: Vec::new() };
    reader.top(parsed.get_ref());
    faults.extend(reader.faults.into_iter().map(said));
    Ok(reader.content)
}

/// The line of an octet, counted from 1.
pub(super) fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.get(..span.start).unwrap_or(text).split('\n').count()
}

struct SettingsReader<'a> {
    text: &'a str,
    command: &'a Command,
    content: FileContent,
    faults: Vec<FileFault>,
}

impl SettingsReader<'_> {
    fn top(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let read = match (key.get_ref().as_ref(), value.get_ref()) {
                ("listen", DeValue::Array(items))
                    if items.iter().any(|it| it.get_ref().is_table()) =>
                {
                    self.listeners(value)
                }
                ("export", _) => self.exports(value),
                (name, DeValue::Table(section)) if self.has_section(name) => {
                    for (key, value) in section {
                        let read = self.setting(key.get_ref(), key.span(), value, Some(name));
                        self.faults.extend(read.err());
                    }
                    Ok(())
                }
                (name, _) => self.setting(name, key.span(), value, None),
            };
            self.faults.extend(read.err());
        }
    }

    fn has_section(&self, name: &str) -> bool {
        self.flags().any(|flag| section_of(flag).as_deref() == Some(name))
    }

    /// Flags that a file can hold.
    fn flags(&self) -> impl Iterator<Item = &Arg> {
        let is_held = |flag: &&Arg| {
            flag.get_long().is_some_and(|name| !NOT_IN_FILES.contains(&name)) && !flag.is_hide_set()
        };
        self.command.get_arguments().filter(is_held)
    }

    /// One flag.
    fn setting(
        &mut self,
        key: &str,
        span: Range<usize>,
        value: &Placed<'_>,
        section: Option<&str>,
    ) -> Result<(), FileFault> {
        let flag =
            self.flags().find(|flag| key_of(flag) == key && section_of(flag).as_deref() == section);
        let Some(flag) = flag else {
            return Err(FileFault::new(span, self.stranger(key, section)));
        };
        let name = name_of(flag);
        let takes_value = flag.get_action().takes_values();
        let takes_list = matches!(flag.get_action(), clap::ArgAction::Append);
        let bad = |why: &str| FileFault::new(value.span(), format!("{key} has to be {why}"));
        let texts = match value.get_ref() {
            DeValue::Boolean(is_set) if !takes_value => {
                if *is_set {
                    vec![format!("--{name}")]
                } else {
                    Vec::new()
                }
            }
            DeValue::Boolean(is_set) if takes_value => {
                // `private-data = true` is `--private-data yes`.
                vec![format!("--{name}={}", if *is_set { "yes" } else { "no" })]
            }
            _ if !takes_value => return Err(bad("true or false")),
            DeValue::Array(items) if takes_list => {
                let words = items.iter().map(|item| value::word(item.get_ref()));
                let words = words.collect::<Option<Vec<_>>>();
                let words = words.ok_or_else(|| bad("a list of texts or numbers"))?;
                words.iter().map(|word| format!("--{name}={word}")).collect()
            }
            other => {
                let kinds = if takes_list {
                    "a text, a number or a list of them"
                } else {
                    "a text or a number"
                };
                vec![format!("--{name}={}", value::word(other).ok_or_else(|| bad(kinds))?)]
            }
        };
        let line = line_of(self.text, &span);
        let words =
            texts.into_iter().map(|text| FileWord { flag: name.clone(), text: text.into(), line });
        self.content.words.extend(words);
        Ok(())
    }

    /// The sentence about a key that is no flag, or one of another table.
    fn stranger(&self, key: &str, section: Option<&str>) -> String {
        if let Some(flag) = self.flags().find(|flag| flag.get_long() == Some(key)) {
            return match section_of(flag) {
                Some(table) if key_of(flag) != key => {
                    format!("{key} stands in the table [{table}], as {}", key_of(flag))
                }
                Some(table) => format!("{key} stands in the table [{table}]"),
                None => format!("{key} stands at the top of the file, before all tables"),
            };
        }
        let is_near = |flag: &&Arg| section_of(flag).as_deref() == section;
        let mut known: Vec<_> = self.flags().filter(is_near).map(key_of).collect();
        if section.is_none() {
            let mut sections: Vec<_> = self.flags().filter_map(section_of).collect();
            sections.sort();
            sections.dedup();
            known.push("export".to_owned());
            known.extend(sections);
        }
        value::unknown(key, &known)
    }

    fn listeners(&mut self, value: &Placed<'_>) -> Result<(), FileFault> {
        for item in value::list(value, "listen")? {
            let line = line_of(self.text, &item.span());
            let entry = exports::listener(item, line)?;
            let text = format!("--listen={}", entry.url).into();
            self.content.words.push(FileWord { flag: "listen".to_owned(), text, line });
            if entry.is_unprotected {
                let text = format!("--unprotected={}", entry.url).into();
                self.content.words.push(FileWord { flag: "unprotected".to_owned(), text, line });
            }
            self.content.listen.push(entry);
        }
        Ok(())
    }

    fn exports(&mut self, value: &Placed<'_>) -> Result<(), FileFault> {
        let items = value.get_ref().as_array().ok_or_else(|| {
            FileFault::new(value.span(), "write each export as a table of its own, [[export]]")
        })?;
        for item in items {
            match exports::export(item, self.text) {
                Ok(export) => self.content.exports.push(export),
                Err(fault) => self.faults.push(fault),
            }
        }
        Ok(())
    }
}
