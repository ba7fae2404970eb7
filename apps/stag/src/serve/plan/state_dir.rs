//! State directory of a server: finds it, and makes sure that no client can read it.

use super::{PlanPurpose, exports::Exported};
use crate::{Error, plain, system::default_state_dir};
use rustix::fs::Access;
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Finds or makes the state directory. A directory under an export is not made.
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
    let made = match purpose {
        PlanPurpose::Start => DirBuilder::new().recursive(true).mode(0o700).create(&directory),
        PlanPurpose::Check => could_be_made(&directory, existing.as_deref()),
        PlanPurpose::Reload => Ok(()),
    };
    made.map_err(|error| {
        Error::usage(format!(
            "cannot make the state directory {}: {}; choose another with --state-dir",
            directory.display(),
            plain(&error)
        ))
    })?;
    Ok(directory)
}

/// Checks that a directory could be made; `existing` is the nearest one that is there.
fn could_be_made(directory: &Path, existing: Option<&Path>) -> io::Result<()> {
    if let Ok(found) = fs::metadata(directory) {
        let is_directory = found.is_dir();
        return if is_directory { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) };
    }
    let Some(existing) = existing else { return Ok(()) };
    if !existing.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(rustix::fs::access(existing, Access::WRITE_OK | Access::EXEC_OK)?)
}
