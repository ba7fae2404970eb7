//! The state directory of a server: where it is, and that no client can read it.

use super::{exports::Exported, plan::PlanPurpose};
use crate::{Error, plain};
use rustix::process::geteuid;
use std::{
    env, fs,
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Finds or makes the state directory. What would lie under an export is not made.
pub fn state_dir(
    given: Option<&Path>,
    exports: &[Exported],
    purpose: PlanPurpose,
) -> Result<PathBuf, Error> {
    let directory = match given {
        Some(given) => given.to_owned(),
        None => default_state_dir()?,
    };
    let directory = std::path::absolute(&directory).map_err(|error| {
        Error::usage(format!("cannot use the state directory {directory:?}: {error}"))
    })?;
    let existing = directory.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let is_under = |path: &&PathBuf| existing.as_ref().is_some_and(|above| above.starts_with(path));
    if let Some(path) = exports.iter().filter_map(|export| export.path.as_ref()).find(is_under) {
        return Err(Error::usage(format!(
            "the state directory {} lies under {}, so that clients could read the key of the file \
             handles: choose another with --state-dir",
            directory.display(),
            path.display()
        )));
    }
    if purpose == PlanPurpose::Check {
        return Ok(directory);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        Error::usage(format!(
            "cannot make the state directory {}: {}; choose another with --state-dir",
            directory.display(),
            plain(&error)
        ))
    })?;
    Ok(directory)
}

fn default_state_dir() -> Result<PathBuf, Error> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(given) = env::var_os("STAG_STATE_DIR").filter(|given| !given.is_empty()) {
        return Ok(PathBuf::from(given));
    }
    if geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/stag"));
    }
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    let base = absolute("XDG_STATE_HOME").or_else(home);
    base.map(|base| base.join("stag")).ok_or_else(|| {
        Error::usage(
            "no state directory is known, because HOME is not set: give one with --state-dir",
        )
    })
}
