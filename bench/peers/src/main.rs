//! `stag-peers`: measures Stag and its peers side by side, and prints the table of goals.
#![forbid(unsafe_code)]

use clap::Parser;
use stag_peers::cli::{self, PeersCli, PeersError};
use std::process::ExitCode;

fn main() -> ExitCode {
    let (code, sentence) = match cli::run(PeersCli::parse()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(PeersError::Usage(sentence)) => (2, sentence),
        Err(PeersError::Failure(sentence)) => (1, sentence),
    };
    eprintln!("stag-peers: {sentence}");
    ExitCode::from(code)
}
