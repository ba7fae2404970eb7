//! Options of `stag call`.

use crate::{cli::versions, tls::CallTlsOptions};
use clap::{Args, Subcommand};
use stag_protocol::rpcrdma::Versions;
use std::path::PathBuf;

/// Arguments of `call`.
#[derive(Debug, Args)]
pub struct CallOptions {
    /// URL to call: iwarp://HOST:PORT/EXPORT[/PATH] or tcp://HOST:PORT/EXPORT[/PATH], then
    /// ?mountport=N if MOUNT has its own; tcp://HOST/EXPORT[/PATH] where a port mapper says which;
    /// or shm://SOCKET:/EXPORT[/PATH]
    pub url: String,
    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// READs or WRITEs outstanding at a time
    #[arg(long, global = true, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub depth: u16,
    /// Seconds that a call may take, reconnections included
    #[arg(long, global = true, value_name = "S", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub timeout: u16,
    /// Versions of RPC-over-RDMA to call by: 1, 2, or 1-2 for the later one that the server has;
    /// 2-directed or 1-2-directed for draft 001's words with a server that does not announce them
    #[arg(long, global = true, value_name = "1|2|1-2|…", default_value = "1",
        value_parser = versions)]
    pub rdma_version: Versions,
    #[command(flatten)]
    pub tls: CallTlsOptions,
    /// Operation to carry out
    #[command(subcommand)]
    pub what: CallWhat,
}

/// Actions of `call`.
#[derive(Debug, Subcommand)]
pub enum CallWhat {
    /// Call NULL, and say how long it took
    Null {
        /// Number of calls
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Ask how the server is: calls in progress, credits, its time; needs --rdma-version 2 and a
    /// server that is Stag
    Health,
    /// Show the export's handle, and what else is exported
    Mount,
    /// List a directory, or show a file; of a URL without an export, list the exports
    Ls {
        /// With mode, owner, size and time
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
        /// A directory to get it into, or another name for it; - writes a file to standard output
        /// [default: this directory]
        to: Option<PathBuf>,
    },
    /// Put files, or with -r directories; prints checksums as sha256sum does
    Put {
        /// Choices for moving.
        #[command(flatten)]
        way: TransferOptions,
        /// Files or directories to put: into the URL's directory, or one of them under the URL's
        /// name; - puts standard input there
        #[arg(required = true)]
        from: Vec<PathBuf>,
    },
    /// Remove a file, or with -r a directory and all in it
    Rm {
        /// Directories too
        #[arg(short)]
        recursive: bool,
    },
    /// Make a directory
    Mkdir {
        /// Also those above it; none is an error if it is there
        #[arg(short)]
        parents: bool,
    },
    /// Show how full the file system is
    Df,
}

/// Choices for moving files and trees.
#[derive(Clone, Debug, Args)]
pub struct TransferOptions {
    /// Directories too; an entry that fails does not stop the others
    #[arg(short)]
    pub recursive: bool,
    /// Read what was stored, and compare
    #[arg(long)]
    pub verify: bool,
    /// Keep times of modification, and the modes of directories
    #[arg(short, long)]
    pub preserve: bool,
    /// Go on with what an earlier run left unfinished: files that are there and not older are left,
    /// and one that was cut off is continued
    #[arg(long)]
    pub resume: bool,
    /// Write files under their own names from the beginning on, for directories in which no names
    /// can be made
    #[arg(long, conflicts_with = "resume")]
    pub in_place: bool,
    /// Do not wait until files that were got, and their names, are on the disk: faster for many
    /// small ones, and a crash of this host may lose them
    #[arg(long)]
    pub no_sync: bool,
    /// Files moved at a time, each over a connection of its own
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u16).range(1..=32))]
    pub files: u16,
}
