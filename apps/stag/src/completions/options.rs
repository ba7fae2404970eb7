//! Options of `stag completions`.

use clap::Args;
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Clone, Debug, Args)]
pub struct CompletionsOptions {
    /// The shell
    pub shell: Shell,
}
