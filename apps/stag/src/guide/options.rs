//! Options of `stag help`.

use clap::Args;

/// Arguments of `help`.
#[derive(Clone, Debug, Args)]
pub struct HelpOptions {
    /// A topic or a command; without it, list the topics
    pub topic: Option<String>,
    /// Show only the sections that contain all of these words
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}
