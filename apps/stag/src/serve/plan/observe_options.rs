//! Options of `stag serve` for monitoring.

use clap::{Args, ValueEnum};
use stag_operate::{observe::MonitorRequest, trace::LogFormat};
use std::path::Path;

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
    pub log_format: LogFormatOption,
}

/// Form of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormatOption {
    /// For people: time, level, sentence, facts.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl From<LogFormatOption> for LogFormat {
    fn from(option: LogFormatOption) -> Self {
        match option {
            LogFormatOption::Text => Self::Text,
            LogFormatOption::Json => Self::Json,
        }
    }
}

impl ObserveOptions {
    /// The sockets that these options ask for; the control socket is in `state_dir` by default.
    pub fn monitors<'a>(&'a self, state_dir: Option<&'a Path>) -> MonitorRequest<'a> {
        MonitorRequest {
            metrics: self.metrics.as_deref(),
            control: self.control.as_deref(),
            control_group: self.control_group.as_deref(),
            state_dir,
        }
    }
}
