//! Options of `stag ctl`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Arguments of `ctl`.
#[derive(Debug, Args)]
pub struct CtlOptions {
    /// The control socket of the server [default: $STAG_CONTROL, else control.sock in the state
    /// directory]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Request to the server
    #[command(subcommand)]
    pub what: CtlWhat,
}

/// Requests to a server.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlWhat {
    /// Show the version, addresses and state of the server
    Status,
    /// List the exports
    Exports,
    /// Print the mount command and the line for /etc/fstab of each export
    Mounts {
        /// Only mounts by this version
        #[arg(long, value_name = "3|4", value_parser = clap::value_parser!(u8).range(3..=4))]
        nfs: Option<u8>,
    },
    /// Reload the configuration
    Reload,
    /// List the connections: credits, thresholds, calls in progress, octets
    Clients,
    /// List the contexts of Kerberos by principal: hosts, use, ends of tickets
    Contexts,
    /// End connections; the client may connect again
    Drop {
        /// A connection's id, a client's address, or its IP:PORT
        client: String,
    },
    /// List the clients of NFS version 4: lease, sessions, callback path, states
    Clients4,
    /// End a client of version 4: its opens, locks and delegations are freed
    Expire {
        /// Its client ID, as 'clients4' lists it
        client: String,
    },
    /// Show the grace period of version 4: its end, and the awaited clients
    Grace {
        /// End it now: what the awaited clients had before the restart is free for others
        #[arg(long)]
        end: bool,
    },
    /// List the opens of version 4
    Opens(StateOptions),
    /// List the byte-range locks of version 4
    Locks(StateOptions),
    /// List the delegations of version 4
    Delegations(StateOptions),
    /// Finish the calls in progress, end all connections, and accept none until 'resume'
    Drain,
    /// Accept connections again
    Resume,
    /// Show all numbers; docs/metrics.md explains them
    Stats,
    /// Show the times of sampled calls, by procedure and stage
    Hist,
    /// Change the log level; without an argument, show it
    Log {
        /// error, warn, info, debug, trace or off
        filter: Option<String>,
    },
    /// Show the memory in use and its limits
    Memory,
    /// Watch the server on a terminal of 80 columns and 24 lines, or more; q ends it
    Top {
        /// Seconds between updates
        #[arg(long, value_name = "S", default_value_t = 1,
            value_parser = clap::value_parser!(u16).range(1..=3_600))]
        interval: u16,
        /// Print the view once, as text
        #[arg(long)]
        once: bool,
    },
    /// Show the latest sampled calls with their stages
    Trace {
        /// Number of calls
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        last: usize,
    },
}

/// States to list.
#[derive(Clone, Debug, Args)]
pub struct StateOptions {
    /// Only those of the client with this client ID
    #[arg(long, value_name = "ID")]
    pub client: Option<String>,
    /// Only those of the file with this handle
    #[arg(long, value_name = "HANDLE")]
    pub file: Option<String>,
}
