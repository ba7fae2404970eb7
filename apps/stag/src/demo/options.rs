//! Options of `stag demo`.

use clap::Args;

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Smaller streams and shorter measurements: a few seconds
    #[arg(long)]
    pub quick: bool,
}
