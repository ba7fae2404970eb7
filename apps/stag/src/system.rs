//! System paths that several commands use.

use crate::Error;
use rustix::process::geteuid;
use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The state directory of the host's server: of the packages' service, which has a user of its own,
/// or else of root.
pub const OF_HOST: &str = "/var/lib/stag";
/// Root's directory where the first one is that of another user, who could not read root's files
/// there.
const OF_ROOT: &str = "/var/lib/stag-root";

/// The default state directory of a server.
///
/// # Errors
/// A sentence where no home is known.
pub fn default_state_dir() -> Result<PathBuf, Error> {
    usual_state_dir().map(|(directory, _)| directory)
}

/// The same, with the environment variable that names it, if one does.
///
/// # Errors
/// A sentence where no home is known.
pub fn usual_state_dir() -> Result<(PathBuf, Option<&'static str>), Error> {
    const VARIABLE: &str = "STAG_STATE_DIR";
    const BASE: &str = "XDG_STATE_HOME";
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(given) = env::var_os(VARIABLE).filter(|given| !given.is_empty()) {
        return Ok((PathBuf::from(given), Some(VARIABLE)));
    }
    if geteuid().is_root() {
        return Ok((of_root(Path::new(OF_HOST), Path::new(OF_ROOT)).to_owned(), None));
    }
    let home = || absolute("HOME").map(|home| (home.join(".local/state"), None));
    let base = absolute(BASE).map(|base| (base, Some(BASE))).or_else(home);
    base.map(|(base, variable)| (base.join("stag"), variable)).ok_or_else(|| {
        Error::usage(
            "no state directory is known, because HOME is not set: give one with --state-dir",
        )
    })
}

/// The first directory, or the other one where the first is not owned by root and has no key of
/// root's.
fn of_root<'a>(first: &'a Path, other: &'a Path) -> &'a Path {
    let owner = |path: &Path| fs::metadata(path).ok().map(|found| found.uid());
    let is_anothers = owner(first).is_some_and(|owner| owner != 0);
    if is_anothers && owner(&first.join("key")) != Some(0) { other } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_leaves_the_state_directory_of_a_user_alone() {
        let home = tempfile::tempdir().unwrap();
        let (first, other) = (home.path().join("stag"), Path::new("/other"));
        assert_eq!(of_root(&first, other), first, "it is not there");
        if !geteuid().is_root() {
            return eprintln!("skipped: only root gives a directory to another user");
        }
        fs::create_dir(&first).unwrap();
        assert_eq!(of_root(&first, other), first);
        std::os::unix::fs::chown(&first, Some(4_711), None).unwrap();
        assert_eq!(of_root(&first, other), other);
        // An earlier server of root's keeps its directory.
        fs::write(first.join("key"), "").unwrap();
        assert_eq!(of_root(&first, other), first);
    }
}
