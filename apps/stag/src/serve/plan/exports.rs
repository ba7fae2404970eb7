//! Exports to serve: directories of the command line or of the file, each by a name.

use super::options::ServeOptions;
use crate::{
    Error, plain,
    settings::{ExportEntry, Origins, OwnDelegations},
};
use stag_nfs_store::exports::{client_rules::ExportRules, config::path_of_name};
use std::{
    ffi::OsStr,
    fs,
    io::ErrorKind,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The name of an export in memory, unless another is given.
const MEMORY_NAME: &str = "memory";

/// Export to serve.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Without the slash in front.
    pub name: String,
    /// The directory; none for an empty export in memory.
    pub path: Option<PathBuf>,
    pub read_only: bool,
    /// Its clients, and what they may do.
    pub rules: ExportRules,
    /// All its calls are made by threads that may wait.
    pub is_slow: bool,
    /// It is refused while nothing is mounted at its path.
    pub is_mountpoint: bool,
    /// Its line, and its delegations, if it is in the file.
    pub entry: Option<EntryFacts>,
}

/// Facts of an export that stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryFacts {
    pub line: usize,
    /// The rule for delegations, with the line that gives it.
    pub delegations: Option<OwnDelegations>,
}

impl Exported {
    /// An export without rules of its own.
    pub fn new(name: String, path: Option<PathBuf>, read_only: bool) -> Self {
        Self {
            name,
            path,
            read_only,
            rules: ExportRules::default(),
            is_slow: false,
            is_mountpoint: false,
            entry: None,
        }
    }
}

/// Exports of directories of this host, or of memory.
pub fn all(
    arguments: &ServeOptions,
    entries: &[ExportEntry],
    origins: &Origins,
) -> Result<Vec<Exported>, Error> {
    if arguments.name.is_some() && arguments.directories.len() + entries.len() > 1 {
        return Err(Error::usage(
            "--name is for a single DIR: write NAME=DIR for each, or start a server for each",
        ));
    }
    if arguments.directories.is_empty() && entries.is_empty() {
        if arguments.memory.is_none() {
            return Err(Error::usage(format!(
                "{}: there is nothing to serve: add an export, [[export]] with path = \"/DIR\", or \
                 memory = \"1G\"",
                origins.file()
            )));
        }
        let name = arguments.name.as_deref().unwrap_or(MEMORY_NAME);
        return Ok(vec![Exported::new(name.trim_start_matches('/').to_owned(), None, false)]);
    }
    let mut exports: Vec<Exported> = Vec::new();
    let mut add =
        |export: Exported, place: &str| match exports.iter().find(|it| it.name == export.name) {
            Some(other) => Err(Error::usage(format!(
                "{place}{} and {} would both be exported as /{}: give one of them another name, as \
             NAME=DIR or with name = in the file",
                shown(other),
                shown(&export),
                export.name
            ))),
            None => {
                exports.push(export);
                Ok(())
            }
        };
    for directory in &arguments.directories {
        add(given(directory, arguments.name.as_deref())?, "")?;
    }
    for entry in entries {
        let place = format!("{}: ", origins.at(entry.line));
        let name = entry.name.as_deref().or(arguments.name.as_deref());
        let found = export(Path::new(&entry.path), name, entry.read_only);
        let found = found.map_err(|error| Error::usage(format!("{place}{error}")))?;
        let (rules, is_slow) = (entry.rules.clone(), entry.is_slow);
        let is_mountpoint = entry.is_mountpoint;
        let facts = EntryFacts { line: entry.line, delegations: entry.delegations };
        add(Exported { rules, is_slow, is_mountpoint, entry: Some(facts), ..found }, &place)?;
    }
    Ok(exports)
}

/// Formats the location of an export's content.
fn shown(export: &Exported) -> String {
    export.path.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
}

/// An argument of the command line, `[NAME=]DIR[:ro]`. If the whole argument is a directory, it has
/// no name in front.
fn given(argument: &OsStr, name: Option<&str>) -> Result<Exported, Error> {
    let (rest, read_only) = match argument.as_bytes().strip_suffix(b":ro") {
        Some(rest) => (rest, true),
        None => (argument.as_bytes(), false),
    };
    let whole = Path::new(OsStr::from_bytes(rest));
    let (name_in_front, path) = match split_name(rest) {
        Some((name, path)) if !whole.is_dir() => (Some(name), path),
        _ => (None, whole),
    };
    if name_in_front.is_some() && name.is_some() {
        return Err(Error::usage(format!(
            "{} has a name in front of it already: leave --name out",
            whole.display()
        )));
    }
    export(path, name_in_front.or(name), read_only)
}

/// The name and the directory of `NAME=DIR`. A path that begins with `/` or `.` has no name.
fn split_name(text: &[u8]) -> Option<(&str, &Path)> {
    let at = text.iter().position(|octet| *octet == b'=')?;
    let (name, path) = (text.get(..at)?, text.get(at + 1..)?);
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
    let is_path = name.starts_with(['/', '.']);
    (!is_path).then(|| (name, Path::new(OsStr::from_bytes(path))))
}

/// A directory to export by `name`, or by its last component: that of a symbolic link is the
/// link's own.
fn export(given: &Path, name: Option<&str>, read_only: bool) -> Result<Exported, Error> {
    let shown = given.display();
    let found = fs::metadata(given).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::usage(format!(
            "the directory {shown} does not exist: make it, or give another one"
        )),
        _ => Error::usage(format!("cannot look at the directory {shown}: {}", plain(&error))),
    })?;
    if !found.is_dir() {
        return Err(Error::usage(format!(
            "{shown} is not a directory: give the directory that holds it"
        )));
    }
    let path = fs::canonicalize(given).and_then(|path| fs::read_dir(&path).map(|_| path)).map_err(
        |error| Error::usage(format!("cannot read the directory {shown}: {}", plain(&error))),
    )?;
    let name = match name {
        Some(name) => name.trim_start_matches('/').to_owned(),
        None => last_component(given).or_else(|| last_component(&path)).ok_or_else(|| {
            Error::usage(format!(
                "{shown} has no name that it could be exported by: give one, as NAME={shown}"
            ))
        })?,
    };
    Ok(Exported::new(name, Some(path), read_only))
}

fn last_component(path: &Path) -> Option<String> {
    path.file_name().and_then(OsStr::to_str).map(str::to_owned)
}

/// Sentences about nested exports: what one refuses, another one may allow.
pub fn overlaps(exports: &[Exported]) -> Vec<String> {
    let mut sentences = Vec::new();
    for inner in exports {
        for outer in exports.iter().filter(|outer| outer.name != inner.name) {
            let (Some(inside), Some(around)) = (&inner.path, &outer.path) else { continue };
            if inside == around && inner.name > outer.name {
                sentences.push(format!(
                    "/{} and /{} are one directory: what one of them refuses, the other may allow",
                    outer.name, inner.name
                ));
            } else if inside != around && inside.starts_with(around) {
                sentences.push(overlap(inner, outer));
            }
        }
    }
    sentences
}

fn overlap(inner: &Exported, outer: &Exported) -> String {
    let (inside, around) = (&inner.name, &outer.name);
    if inner.read_only && !outer.read_only {
        return format!(
            "/{inside} is read-only and lies in /{around}, through which its files can be changed"
        );
    }
    if inner.rules != outer.rules {
        return format!(
            "/{inside} lies in /{around}: who is refused by one of them may reach the same files \
             through the other"
        );
    }
    format!("/{inside} lies in /{around}: its files have two handles each")
}

/// Checks the names of exports. Only directories of this host have names of several components.
pub fn check_names(exports: &[Exported], is_host: bool, origins: &Origins) -> Result<(), Error> {
    for export in exports {
        let name = &export.name;
        let bad = |why: String| {
            let place = export.entry.map(|entry| format!("{}: ", origins.at(entry.line)));
            Error::usage(format!("{}{why}", place.unwrap_or_default()))
        };
        let fits = path_of_name(name).map_err(|error| bad(error.to_string()))?;
        if fits > 1 && !is_host {
            return Err(bad(format!(
                "{name:?} cannot name an export in memory or on CephFS: leave the slash out"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exported(name: &str, path: &str, read_only: bool) -> Exported {
        Exported::new(name.to_owned(), Some(PathBuf::from(path)), read_only)
    }

    #[test]
    fn exports_that_lie_in_each_other_are_told() {
        let said = |exports: &[Exported]| overlaps(exports).join("\n");
        let outer = exported("srv", "/srv", false);
        let apart = [outer.clone(), exported("srvx", "/srvx", true)];
        assert_eq!(said(&apart), "");
        let inner = exported("a", "/srv/a", true);
        let text = said(&[inner.clone(), outer.clone()]);
        assert_eq!(
            text,
            "/a is read-only and lies in /srv, through which its files can be changed"
        );
        let text = said(&[exported("a", "/srv/a", false), outer.clone()]);
        assert!(text.contains("two handles"), "{text}");
        let text = said(&[exported("b", "/srv", true), outer]);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("/b and /srv are one directory"), "{text}");
    }

    #[test]
    fn a_name_stands_in_front_of_a_directory_unless_that_is_a_path_itself() {
        let split = |text: &'static str| split_name(text.as_bytes());
        assert_eq!(split("a=/srv/b"), Some(("a", Path::new("/srv/b"))));
        assert_eq!(split("p/q=/srv/b=c"), Some(("p/q", Path::new("/srv/b=c"))));
        for text in ["/srv/a=b", "./a=b", "../a=b", "=b", "ab"] {
            assert_eq!(split(text), None, "{text}");
        }
    }
}
