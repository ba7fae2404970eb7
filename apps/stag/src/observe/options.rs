//! Options of `stag serve` for monitoring.

use crate::trace::LogFormat;
use clap::Args;

/// Heading of flags: a table of the file.
const LOG: &str = "Log";

/// Ways to watch a server.
#[derive(Debug, Args)]
pub struct ObserveOptions {
    /// The address of metrics for Prometheus (GET /metrics), or none [default: 127.0.0.1:9464, or a
    /// free port if the first --listen uses one]
    #[arg(long, value_name = "IP:PORT|none")]
    pub metrics: Option<String>,
    /// The socket of 'stag ctl', or none [default: control.sock in the state directory; none with
    /// --memory]
    #[arg(long, value_name = "PATH|none")]
    pub control: Option<String>,
    /// A group, by name or number, whose members may also use that socket
    #[arg(long, value_name = "GROUP")]
    pub control_group: Option<String>,
    /// Least level to log on standard error: error, warn, info, debug (each refused call), trace
    /// (each call) or off [default: $STAG_LOG, else info]
    #[arg(long, value_name = "LEVEL", help_heading = LOG)]
    pub log: Option<String>,
    /// Format of the log
    #[arg(
        long,
        value_name = "text|json",
        help_heading = LOG,
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub log_format: LogFormat,
}
