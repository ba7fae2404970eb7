//! The command line: what can be asked for.

use crate::{bench::options, manual};
use clap::{Args, Parser, Subcommand};
use stag_engine::Sampling;
use stag_protocol::rpcrdma::{Version2, Versions};
use std::{ffi::OsString, path::PathBuf};

/// The text of `--version`: also the commit and the features that the command was built from.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("STAG_COMMIT"),
    "; features: ",
    cfg_select! {
        feature = "verbs" => "verbs",
        _ => "none",
    },
    ")"
);

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "stag",
    version = VERSION,
    about = "Serve and call NFS over RDMA from user space",
    long_about = manual::ABOUT,
    after_long_help = manual::FOOTER,
    max_term_width = 80,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFS version 3
    #[command(long_about = manual::SERVE, after_long_help = manual::SERVE_FOOTER)]
    Serve(Serve),
    /// Show everything on this host: no root, no device, no configuration
    #[command(long_about = manual::DEMO, after_long_help = manual::DEMO_FOOTER)]
    Demo(Demo),
    /// Call any NFS version 3 server: look, get, put, remove
    #[command(long_about = manual::CALL, after_long_help = manual::CALL_FOOTER, arg_required_else_help = false)]
    Call(Call),
    /// Run the functional test against a server
    #[command(long_about = manual::LOAD, after_long_help = manual::LOAD_FOOTER)]
    Load(Load),
    /// Say which fabrics work here, and what the host offers them
    #[command(long_about = manual::PROBE, after_long_help = manual::PROBE_FOOTER)]
    Probe(Probe),
    /// Measure a server: rates and round trips, in closed and open loops
    #[command(long_about = manual::BENCH, after_long_help = manual::BENCH_FOOTER)]
    Bench(Box<options::Bench>),
    /// Serve the echo program, for something to measure
    #[command(long_about = manual::ECHO, after_long_help = manual::ECHO_FOOTER)]
    Echo(options::Echo),
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// A directory to export as /NAME, its last component; with :ro every change is refused
    #[arg(required_unless_present = "memory", value_name = "DIR[:ro]")]
    pub directories: Vec<OsString>,
    /// Keep files in memory, at most SIZE octets (K, M, G, T behind the number); auto: an eighth of the host's, at most 1G
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// An address to take RDMA connections at; may be given several times. Port 0 takes a free one
    #[arg(long, value_name = "URL", default_value = "iwarp://127.0.0.1:20049")]
    pub listen: Vec<String>,
    /// The address of MOUNT and NFS over TCP, or none: Linux cannot mount then [default: port 2049 of the first --listen]
    #[arg(long, value_name = "IP:PORT")]
    pub tcp: Option<String>,
    /// Networks that may connect, and no other; needed unless all addresses are loopback ones [default: this host by loopback]
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Take callers from any port, though any user of their host could then act as any other (see WHO MAY CONNECT)
    #[arg(long)]
    pub insecure: bool,
    /// Cores to use, each by a thread of its own with its own memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: u16,
    /// Users whose processes may connect by shm://, beside this process's own and root
    #[arg(long, value_name = "UID,…", value_delimiter = ',')]
    pub shm_allow: Vec<u32>,
    /// Whether callers act as themselves (see WHO CALLERS ARE) [default: auto]
    #[arg(long, value_name = "auto|privileged|unprivileged")]
    pub mode: Option<Mode>,
    /// Callers that act as the anonymous user, in privileged mode [default: root; none where only root of this host can say
    /// that it is root]
    #[arg(long, value_name = "root|none|all")]
    pub squash: Option<Squash>,
    /// The anonymous user's number [default: 65534]
    #[arg(long, value_name = "N")]
    pub anonuid: Option<u32>,
    /// The anonymous user's group [default: 65534]
    #[arg(long, value_name = "N")]
    pub anongid: Option<u32>,
    /// The name of the export instead of the last component; for a single DIR
    #[arg(long)]
    pub name: Option<String>,
    /// Where to keep what must survive a restart (see FILES in --help)
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Whether clients are told while they connect what they may send (RFC 8797); no: 1,024 octets inline and version 1, like an old server
    #[arg(long, value_name = "yes|no", default_value = "yes", action = clap::ArgAction::Set, value_parser = yes_or_no)]
    pub private_data: bool,
    /// Versions of RPC-over-RDMA to serve: 1, 2, or 1-2 for both at the same addresses
    #[arg(long, value_name = "1|2|1-2", default_value = "1-2", value_parser = versions)]
    pub rdma_version: Versions,
    /// Watch 1 call in N from stage to stage (see STATISTICS in --help); 0: none
    #[arg(long, value_name = "N", default_value_t = Sampling::EVERY)]
    pub sample: u32,
    /// Let clients ask how long calls take in each stage, as 'stag bench --stages' does
    #[arg(long)]
    pub stages: bool,
    /// Stop when standard input ends: for whoever starts this command as a child
    #[arg(long, hide = true)]
    pub while_stdin: bool,
    /// Write statistics to this file, at the end and on SIGUSR1
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

/// Versions of RPC-over-RDMA, as they are asked for.
pub fn versions(text: &str) -> Result<Versions, &'static str> {
    match text {
        "1" => Ok(Versions::One),
        "2" => Ok(Versions::Two(Version2::Directed)),
        "1-2" => Ok(Versions::Both(Version2::Directed)),
        _ => Err("write 1, 2 or 1-2"),
    }
}

/// How they are asked for.
pub const fn written(versions: Versions) -> &'static str {
    match versions {
        Versions::One => "1",
        Versions::Two(_) => "2",
        Versions::Both(_) => "1-2",
    }
}

fn yes_or_no(text: &str) -> Result<bool, &'static str> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no"),
    }
}

/// Whether callers act as themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// If this process can see to it.
    Auto,
    /// Yes.
    Privileged,
    /// No: they act as the user of this process.
    Unprivileged,
}

/// Which callers act as the anonymous user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Squash {
    /// Those that say they are root.
    Root,
    /// None.
    None,
    /// All.
    All,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub json: bool,
    /// Smaller streams and shorter measurements: a few seconds
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct Probe {
    /// Fabrics that have to work: iwarp, shm, rdma [default: iwarp]
    #[arg(value_name = "SCHEME")]
    pub schemes: Vec<String>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `call`.
#[derive(Debug, Args)]
pub struct Call {
    /// What to call: iwarp://HOST:PORT/EXPORT[/PATH] or tcp://HOST:PORT/EXPORT[/PATH], then ?mountport=N if MOUNT has its own;
    /// tcp://HOST/EXPORT[/PATH] where a port mapper says which; or shm://SOCKET:/EXPORT[/PATH]
    pub url: String,
    /// Print one JSON value instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// READs or WRITEs outstanding at a time
    #[arg(long, global = true, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub depth: u16,
    /// Seconds that a call may take, reconnections included
    #[arg(long, global = true, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3_600))]
    pub timeout: u16,
    /// Versions of RPC-over-RDMA to call by: 1, 2, or 1-2 for the later one that the server has
    #[arg(long, global = true, value_name = "1|2|1-2", default_value = "1", value_parser = versions)]
    pub rdma_version: Versions,
    /// What to do
    #[command(subcommand)]
    pub what: What,
}

/// What `call` does.
#[derive(Debug, Subcommand)]
pub enum What {
    /// Call NULL, and say how long it took
    Null {
        /// How often
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// Ask how the server is: calls in progress, credits, its time; needs --rdma-version 2 and a server that is Stag
    Health,
    /// Show the export's handle, and what else is exported
    Mount,
    /// List a directory, or show a file
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
        /// Directories too
        #[arg(short)]
        recursive: bool,
        /// Read what was stored, and compare
        #[arg(long)]
        verify: bool,
        /// A directory to get it into, or another name for it [default: this directory]
        to: Option<PathBuf>,
    },
    /// Put files, or with -r directories; prints checksums as sha256sum does
    Put {
        /// Directories too
        #[arg(short)]
        recursive: bool,
        /// Read them back from the server, and compare
        #[arg(long)]
        verify: bool,
        /// What to put: into the URL's directory, or one of them under the URL's name
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

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct Load {
    /// The server and its export: iwarp://HOST:PORT/NAME or tcp://HOST:PORT/NAME, then ?mountport=N if MOUNT has its own;
    /// tcp://HOST/NAME where a port mapper says which; or shm://SOCKET:/NAME
    pub url: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Decides contents and places; a run is repeated by its seed [default: another one each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Versions of RPC-over-RDMA to call by: 1, 2, or 1-2 for the later one that the server has
    #[arg(long, value_name = "1|2|1-2", default_value = "1", value_parser = versions)]
    pub rdma_version: Versions,
    /// Entries of the large directory
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=99_999))]
    pub entries: u32,
}

/// Puts clap's complaint about `words` in one sentence that names the help of their subcommand.
pub fn sentence(error: &clap::Error, command: &clap::Command, words: &[OsString]) -> String {
    let help = helping(command, words);
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        return format!("a command is missing: {}; see '{help} --help'", known.join(" or "));
    }
    let text = error.render().to_string();
    let parts = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let parts = parts.filter(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut sentence = String::new();
    for part in parts {
        let part = part.strip_prefix("error: ").unwrap_or(part);
        let joint = match sentence.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        sentence.push_str(joint);
        sentence.push_str(part.strip_prefix("tip: ").unwrap_or(part));
    }
    format!("{sentence}; see '{help} --help'")
}

/// The command that `words` lead to.
fn helping(command: &clap::Command, words: &[OsString]) -> String {
    let (mut found, mut name) = (command, command.get_name().to_owned());
    for word in words.iter().skip(1) {
        if let Some(within) = word.to_str().and_then(|word| found.find_subcommand(word)) {
            name = format!("{name} {}", within.get_name());
            found = within;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    #[test]
    fn versions_are_written_as_they_are_read() {
        for text in ["1", "2", "1-2"] {
            assert_eq!(versions(text).map(written), Ok(text));
        }
        assert!(versions("3").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence() {
        let wrong = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            let words: Vec<_> = arguments.iter().map(OsString::from).collect();
            sentence(&error, &Cli::command(), &words)
        };
        assert_eq!(
            wrong(&["stag", "serve"]),
            "the following required arguments were not provided: <DIR[:ro]>...; see 'stag serve --help'"
        );
        for (arguments, help) in [
            (&["stag"][..], "stag"),
            (&["stag", "serve", "/", "--cores", "0"], "stag serve"),
            (&["stag", "server"], "stag"),
            (&["stag", "bench", "compare"], "stag bench compare"),
            (&["stag", "call", "tcp://h:1/x", "put"], "stag call put"),
        ] {
            let sentence = wrong(arguments);
            let end = format!("; see '{help} --help'");
            assert!(!sentence.contains('\n') && sentence.ends_with(&end), "{sentence}");
        }
    }
}
