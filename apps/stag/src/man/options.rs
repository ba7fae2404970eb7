//! Options of `stag man`.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `man`.
#[derive(Clone, Debug, Args)]
pub struct ManOptions {
    /// An existing directory for the pages
    pub directory: PathBuf,
}
