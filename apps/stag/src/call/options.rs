//! Options of `stag call`.

use crate::{args::versions, ticket::CallSecOptions, tls::CallTlsOptions};
use clap::{Args, Subcommand};
use stag_protocol::rpcrdma::Versions;
use std::path::PathBuf;

/// Arguments of `call`.
#[derive(Debug, Args)]
pub struct CallOptions {
    /// URL to call: iwarp://HOST:PORT/EXPORT[/PATH] or tcp://HOST:PORT/EXPORT[/PATH], then
    /// ?mountport=N if MOUNT has its own; tcp://HOST/EXPORT[/PATH] to ask its port mapper; or
    /// shm://SOCKET:/EXPORT[/PATH]
    pub url: String,
    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// READs or WRITEs outstanding at a time
    #[arg(long, global = true, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub depth: u16,
    /// Seconds that a call may take, including reconnections
    #[arg(long, global = true, value_name = "S", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub timeout: u16,
    /// Versions of RPC-over-RDMA to use: 1, 2, or 1-2 for the later one that the server supports;
    /// 2-directed or 1-2-directed for draft 001's words with a server that does not announce them
    #[arg(long, global = true, value_name = "1|2|1-2|…", default_value = "1",
        value_parser = versions)]
    pub rdma_version: Versions,
    #[command(flatten)]
    pub sec: CallSecOptions,
    #[command(flatten)]
    pub tls: CallTlsOptions,
    /// Operation to carry out
    #[command(subcommand)]
    pub what: CallWhat,
}

/// Actions of `call`.
#[derive(Debug, Subcommand)]
pub enum CallWhat {
    /// Call NULL, and show the round-trip time
    Null {
        /// Number of calls
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Show the state of the server: calls in progress, credits, its time; needs --rdma-version 2
    /// and a Stag server
    Health,
    /// Show the handle of the export, and all other exports
    Mount,
    /// List a directory, or show a file; for a URL without an export, list the exports
    Ls {
        /// Show mode, owner, size and time
        #[arg(short)]
        long: bool,
    },
    /// Write a file to standard output
    Cat,
    /// Show all attributes
    Stat,
    /// Get a file, or with -r a directory; prints checksums as sha256sum does
    Get {
        /// Choices for moving.
        #[command(flatten)]
        way: TransferOptions,
        /// The target directory, or another name for the file or directory; - writes a file to
        /// standard output [default: this directory]
        to: Option<PathBuf>,
    },
    /// Put files, or with -r directories; prints checksums as sha256sum does
    Put {
        /// Choices for moving.
        #[command(flatten)]
        way: TransferOptions,
        /// Files or directories to put into the URL's directory, or a single one to put under the
        /// URL's name; - puts standard input there
        #[arg(required = true)]
        from: Vec<PathBuf>,
    },
    /// Remove a file, or with -r a directory and all in it
    Rm {
        /// Remove directories too
        #[arg(short)]
        recursive: bool,
    },
    /// Make a directory
    Mkdir {
        /// Make missing parent directories too; an existing directory is not an error
        #[arg(short)]
        parents: bool,
    },
    /// Show the total and free space of the file system
    Df,
}

/// Choices for moving files and trees.
#[derive(Clone, Debug, Args)]
pub struct TransferOptions {
    /// Transfer directories too; an entry that fails does not stop the others
    #[arg(short)]
    pub recursive: bool,
    /// Read the stored copy back, and compare
    #[arg(long)]
    pub verify: bool,
    /// Keep times of modification, and the modes of directories
    #[arg(short, long)]
    pub preserve: bool,
    /// Continue an earlier, unfinished run: skip files that exist and are not older, and continue
    /// partial ones
    #[arg(long)]
    pub resume: bool,
    /// Write files under their final names from the start, for directories in which no other names
    /// can be created
    #[arg(long, conflicts_with = "resume")]
    pub in_place: bool,
    /// Do not wait until received files and their names are on the disk: faster for many small
    /// files, but a crash of this host may lose them
    #[arg(long)]
    pub no_sync: bool,
    /// Files transferred at a time, each over its own connection
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=32))]
    pub files: u16,
}
