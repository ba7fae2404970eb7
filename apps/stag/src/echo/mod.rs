//! `stag echo`: serves the echo program, for measurements.

pub mod options;

use crate::{Error, args::address, caller::aside, one_shard::OneShard, stage_table};
use stag_echo::Driver;

/// The texts of its `--help`.
pub const HELP: &str = include_str!("help.txt");

/// Serves until a signal comes.
pub fn run(arguments: &options::EchoOptions) -> Result<(), Error> {
    let server = OneShard {
        at: address::listen(&arguments.listen)?,
        flag: "--listen",
        tcp: arguments.tcp.as_deref(),
        clients: &arguments.clients,
        sample: arguments.sample,
        app: Box::new(|_| Driver::default()),
        open: |_, _, _| {},
        ready: |_| {},
    };
    aside(stage_table::served(&server.serve()?));
    Ok(())
}
