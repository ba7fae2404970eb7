//! Settings of a server: the flags of its command line, and those of a file in TOML that the
//! command line overrides.
//!
//! A key of the file is a flag's long name, and its value is read as the flag's: the file accepts
//! everything that the command line accepts, with the same error sentences. Flags that `--help`
//! lists under a heading are in the table of that name, `--credits` under Limits as `credits` in
//! `[limits]`. Where the table says it already, the key is shorter, `level` in `[log]` for `--log`.
//! Only listeners and exports have tables of their own ([`exports`]).

mod exports;
mod file;
mod origin;
mod value;

pub use exports::{ClientPlace, DelegationRule, ExportEntry, ListenEntry, OwnDelegations};
pub use origin::{Origins, ValueOrigin, key_of, section_of};

use crate::{Error, args::plain_numbers};
use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind};
use file::{FileWord, LineFault};
use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

/// Settings as a whole: the options, and the tables that only a file has.
#[derive(Debug)]
pub struct Merged<A> {
    /// The options, those of the file included.
    pub options: A,
    /// The options as clap has them, to be shown.
    pub matches: ArgMatches,
    /// Listeners with options of their own; none if the command line has `--listen`.
    pub listen: Vec<ListenEntry>,
    /// Exports of the file; none if the command line names directories.
    pub exports: Vec<ExportEntry>,
    /// The place that each value comes from.
    pub origins: Origins,
}

/// Reads `words`, the command line after the name of the subcommand, and `file`, if there is one.
///
/// # Errors
/// A sentence about what is wrong, with the file's name and line where it is there; one line for
/// each wrong key and value of the file.
pub fn merge<A: Args + FromArgMatches>(
    words: &[OsString],
    file: Option<&Path>,
) -> Result<Merged<A>, Error> {
    let command = A::augment_args(Command::new("stag"));
    let given = parse(&command, words, &Origins::default())?;
    let mut origins = Origins::of(&command, &given);
    let Some(path) = file else {
        return finish(given, Vec::new(), Vec::new(), origins);
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::usage(format!(
            "cannot read {}: {}; 'stag config example' prints a file to begin with",
            path.display(),
            crate::plain(&error)
        ))
    })?;
    let mut faults = Vec::new();
    let found = file::read(path, &text, &command, &mut faults)?;
    origins.add_file(path, &found.words);
    faults.extend(wrong_values(&command, &found.words, &origins));
    if !faults.is_empty() {
        faults.sort_by_key(|fault| fault.line);
        let all: Vec<_> = faults.into_iter().map(|fault| fault.sentence).collect();
        return Err(Error::usage(all.join("\n")));
    }
    let delegations = found.exports.iter().filter_map(|export| export.delegations);
    delegations.for_each(|it| origins.add_key_of_table("delegations", it.line));
    let overridden = |flag: &str| origins.of_flag(flag) == ValueOrigin::Flag;
    let listen = if overridden("listen") { Vec::new() } else { found.listen };
    let exports = if overridden("directories") { Vec::new() } else { found.exports };
    // Options of the file's listeners are dropped together with the listeners.
    let is_over = |word: &FileWord| {
        overridden(&word.flag) || word.flag == "unprotected" && overridden("listen")
    };
    // The command line comes last, as it may contain `--`, past which nothing is a flag.
    let from_file = found.words.iter().filter(|word| !is_over(word)).map(|word| word.text.clone());
    let all: Vec<_> = from_file.chain(words.iter().cloned()).collect();
    let matches = parse(&command, &all, &origins)?;
    finish(matches, listen, exports, origins)
}

fn finish<A: FromArgMatches>(
    matches: ArgMatches,
    listen: Vec<ListenEntry>,
    exports: Vec<ExportEntry>,
    origins: Origins,
) -> Result<Merged<A>, Error> {
    let options = A::from_arg_matches(&matches);
    let options = options.map_err(|error| Error::usage(error.to_string()))?;
    Ok(Merged { options, matches, listen, exports, origins })
}

fn parse(command: &Command, words: &[OsString], origins: &Origins) -> Result<ArgMatches, Error> {
    let name = OsStr::new("stag").to_owned();
    let matches = command.clone().try_get_matches_from([name].into_iter().chain(words.to_vec()));
    matches.map_err(|error| Error::usage(origins.place(&one_line(&error))))
}

/// The values of the file that their flags refuse, each by itself.
fn wrong_values(command: &Command, words: &[FileWord], origins: &Origins) -> Vec<LineFault> {
    let fault = |word: &FileWord| {
        if origins.of_flag(&word.flag) == ValueOrigin::Flag {
            return None; // The command line has another value.
        }
        let alone = [OsString::from("stag"), word.text.clone()];
        let error = command.clone().try_get_matches_from(alone).err()?;
        let is_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
        let sentence = is_value.then(|| one_line(&error))?;
        Some(LineFault {
            line: word.line,
            sentence: format!("{}: {sentence}", origins.at(word.line)),
        })
    };
    words.iter().filter_map(fault).collect()
}

/// The first sentence of clap's text: the fault, and the allowed values.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For "));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    plain_numbers(lines.join("; ").trim_start_matches("error: "))
}
