//! Places of the system that several commands look in.

use crate::Error;
use rustix::process::geteuid;
use std::{env, path::PathBuf};

/// The state directory of a server that is given none.
///
/// # Errors
/// A sentence where no home is known.
pub fn default_state_dir() -> Result<PathBuf, Error> {
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
