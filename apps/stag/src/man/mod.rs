//! `stag man`: manual pages from the texts of `--help`, for packages.

pub mod options;

use crate::Error;
use clap::CommandFactory;
use options::ManOptions;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Writes all pages.
///
/// # Errors
/// A sentence when the directory takes no page.
pub fn run(options: &ManOptions) -> Result<(), Error> {
    clap_mangen::generate_to(crate::cli::Cli::command(), &options.directory).map_err(|error| {
        Error::failure(format!(
            "cannot write pages to {}: {}; make the directory",
            options.directory.display(),
            crate::plain(&error)
        ))
    })
}
