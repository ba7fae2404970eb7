//! Options of `stag cluster`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `cluster`.
#[derive(Debug, Args)]
pub struct ClusterOptions {
    /// Operation to carry out
    #[command(subcommand)]
    pub what: ClusterWhat,
}

/// Operations on a cluster file.
#[derive(Debug, Subcommand)]
pub enum ClusterWhat {
    /// Make the file of a new cluster; one that exists is not replaced
    Init {
        /// The file to make
        file: PathBuf,
        /// The name of the cluster: letters, digits, dots, hyphens, underscores
        #[arg(long)]
        name: String,
        /// The exports that its gateways may serve, by their names
        #[arg(required = true, value_name = "EXPORT")]
        exports: Vec<String>,
    },
    /// Add exports to the file; then copy it to all gateways
    Add {
        /// The file
        file: PathBuf,
        /// The exports to add, by their names
        #[arg(required = true, value_name = "EXPORT")]
        exports: Vec<String>,
    },
    /// End the session of the gateway NAME with a Ceph cluster before another gateway takes over
    /// its address: its clients' files are free at once, and it can never write again
    Takeover {
        /// The gateway, as named by its node=NAME
        name: String,
        /// The configuration of the Ceph cluster [default: where Ceph looks]
        #[arg(long, value_name = "FILE")]
        conf: Option<PathBuf>,
        /// The Ceph user [default: admin]
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The file system [default: the cluster's default one]
        #[arg(long, value_name = "NAME")]
        fs: Option<String>,
    },
    /// Show the contents of the file except the key, and a digest of the whole file, which is equal
    /// on hosts with the same copy
    Show {
        /// The file
        file: PathBuf,
        /// Print one JSON value instead of text
        #[arg(long)]
        json: bool,
    },
}
