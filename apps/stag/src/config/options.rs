//! Options of `stag config`.

use crate::serve::options::ServeOptions;
use clap::{Args, Subcommand};

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigOptions {
    /// Operation to carry out
    #[command(subcommand)]
    pub what: ConfigWhat,
}

/// Operations on settings.
#[derive(Debug, Subcommand)]
pub enum ConfigWhat {
    /// Print an example file with every setting, its default and its purpose
    Example,
    /// Print the settings that 'stag serve' would use with the same arguments, and the origin of
    /// each: its default, a line of the file, or a flag
    Show(Box<ShowSettings>),
}

/// Arguments of `config show`.
#[derive(Debug, Args)]
pub struct ShowSettings {
    /// The arguments of a server.
    #[command(flatten)]
    pub serve: ServeOptions,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}
