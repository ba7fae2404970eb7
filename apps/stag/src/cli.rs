//! The command line: what can be asked for, and its manual.

use clap::{Args, Parser, Subcommand};
use std::{ffi::OsString, path::PathBuf};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "stag",
    version,
    about = "Serve and call NFS over RDMA from user space",
    long_about = "\
Stag serves and calls ONC RPC over RDMA from user space. It needs no RDMA device: over iwarp:// it is its own software \
RNIC and speaks to the Linux kernel (siw) and to iWARP adapters.",
    after_long_help = FOOTER,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const FOOTER: &str = "\
EXAMPLES
  Serve a directory to this host, and check the server from another terminal:
      stag serve /srv/data
      stag load iwarp://127.0.0.1:20049/data

  Serve two directories, one of them read-only, to a network, on two cores:
      stag serve /srv/data /srv/media:ro --listen iwarp://10.0.0.1:20049 --clients 10.0.0.0/24 --cores 2

ENVIRONMENT
  STAG_LOG        what is logged on standard error, as LEVEL or MODULE=LEVEL,… with error, warn, info, debug
                  or off (default: info). Only connections and refusals are ever logged, never calls.
  STAG_STATE_DIR  default of --state-dir

EXIT CODES
  0  done, or stopped by a signal after everything in progress was finished
  1  something failed while running; 'stag load': a step failed
  2  the command cannot be carried out as given; one sentence on standard error says what to change";

/// What can be asked for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFS version 3
    #[command(long_about = SERVE, after_long_help = SERVE_FOOTER)]
    Serve(Serve),
    /// Run the functional test against a server
    #[command(long_about = LOAD, after_long_help = LOAD_FOOTER)]
    Load(Load),
}

const SERVE: &str = "\
Serves directories over NFS version 3 and MOUNT version 3, on RDMA and on TCP, until a signal stops it.

Every DIR is exported as /NAME, where NAME is its last component. One TCP port answers MOUNT and NFS: Linux asks MOUNT over \
TCP also when it mounts over RDMA. Every caller acts as the user that runs this command, whatever user it says it is. File \
handles survive a restart.

Once ready, it prints on standard output a block from a line READY to a line END: the addresses in use, and for each export \
the mount command and the line for /etc/fstab. Everything else goes to standard error.";

const SERVE_FOOTER: &str = "\
EXAMPLES
  stag serve /srv/data
  stag serve /srv/data:ro --name archive
  stag serve /srv/data --listen iwarp://10.0.0.1:20049 --clients 10.0.0.0/24,fd00::/8 --stats /run/stag.json
  stag serve /srv/data --listen iwarp://127.0.0.1:0 --tcp 127.0.0.1:0     (free ports; the READY block says which)

WHO MAY CONNECT
  A server that listens on loopback addresses only takes every client. Any other address needs --clients; clients
  on a loopback address may always connect. It is decided when a client connects, on RDMA and TCP alike.

FILES
  DIR/key, exports, index.*, lock in the state directory: the key of the file handles, the numbers of the exports, the
  index that finds a file again after a restart. The directory is made with mode 0700, must not lie under an export,
  and is used by one server at a time. Without it, clients have to mount again after a restart.
  Default: $STAG_STATE_DIR, else /var/lib/stag for root and ${XDG_STATE_HOME:-~/.local/state}/stag for others.

STATISTICS (--stats FILE)
  One JSON object, written at the end and on SIGUSR1, always as a whole:
    version, uptime_s   of this server
    shards[]            one object for each core, with the members of total and its core
    total               the sum of all shards; grant and failed_syncs are not summed, but the largest
      engine.connections   fabric, tcp, refused, live
      engine.responder     calls and replies by form (short, chunked, long), errors, chunks and segments offered
                           (read, write, reply), octets pulled and pushed, remote_invalidations, grant (credits)
      engine.requester     the same as a caller, with local_invalidations
      engine.stream        RPC over TCP
      engine.peer_faults   rules that peers broke
      engine.disconnects   how connections ended, by cause
      engine.limits        limits that were met
      engine.passes        turns of the loop, sleeps
      app.nfs3, app.mount3 calls by procedure, and errors by status
      app.data             octets read and written, unstable writes, commits
      iwarp                FPDUs, octets, system calls, CRC errors, Terminates by cause, failed set-ups, disconnects

SIGNALS
  SIGTERM, SIGINT  take no more clients, finish calls in progress, disconnect, write statistics, exit with 0;
                   a second one stops at once, without statistics, and exits with 1
  SIGUSR1          write statistics
  With NOTIFY_SOCKET in the environment, systemd is told when the server is ready and when it stops.

EXIT CODES
  0  stopped by a signal      1  failed while running      2  cannot start as given";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// A directory to export as /NAME, its last component; with :ro every change is refused
    #[arg(required = true, value_name = "DIR[:ro]")]
    pub directories: Vec<OsString>,
    /// An address to take RDMA connections at; may be given several times. Port 0 takes a free one
    #[arg(long, value_name = "URL", default_value = "iwarp://127.0.0.1:20049")]
    pub listen: Vec<String>,
    /// The address of MOUNT and NFS over TCP, or none: Linux cannot mount then [default: port 2049 of the first --listen]
    #[arg(long, value_name = "IP:PORT")]
    pub tcp: Option<String>,
    /// Networks that may connect; needed unless all addresses are loopback ones
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Cores to use, each by a thread of its own with its own memory
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: u16,
    /// The name of the export instead of the last component; for a single DIR
    #[arg(long)]
    pub name: Option<String>,
    /// Where to keep what must survive a restart (see FILES in --help)
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Write statistics to this file, at the end and on SIGUSR1
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
}

const LOAD: &str = "\
Calls an NFS version 3 server over RDMA and checks what it does: every procedure, files of 0 to 3,000,001 octets with every \
octet compared, odd offsets, truncation, names, links, a directory of 2,000 entries, and all that has to fail. It works in a \
directory of its own under the export, and removes it at the end.

Progress and result go to standard output. The server must export something that this user may write to.";

const LOAD_FOOTER: &str = "\
EXAMPLES
  stag load iwarp://127.0.0.1:20049/data
  stag load iwarp://127.0.0.1:20049/data --json | jq '.steps[] | select(.passed | not)'

OUTPUT (--json)
  One object: version, url, export, seed, passed, failed, skipped, calls, octets, elapsed_us; steps[] with name, passed, calls,
  octets, elapsed_us, and failure (what, expected, came, fatal) or null; engine, the counters of the calling side
  as in 'stag serve --stats'.

EXIT CODES
  0  every step passed      1  a step failed, or the connection did      2  cannot start as given";

/// Arguments of `load`.
#[derive(Debug, Args)]
pub struct Load {
    /// The server and its export, as iwarp://HOST:PORT/NAME
    pub url: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Decides contents and places; a run is repeated by its seed [default: another one each time]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Entries of the large directory
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=99_999))]
    pub entries: u32,
}

/// What clap found wrong, as one sentence.
pub fn sentence(error: &clap::Error, command: &clap::Command) -> String {
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let known: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        return format!("a command is missing: {}; see 'stag --help'", known.join(" or "));
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
    format!("{sentence}; see 'stag --help'")
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
    fn what_is_wrong_is_said_in_one_sentence() {
        let wrong = |arguments: &[&str]| {
            let error = Cli::try_parse_from(arguments).unwrap_err();
            sentence(&error, &Cli::command())
        };
        assert_eq!(
            wrong(&["stag", "serve"]),
            "the following required arguments were not provided: <DIR[:ro]>...; see 'stag --help'"
        );
        for arguments in [&["stag"][..], &["stag", "serve", "/", "--cores", "0"], &["stag", "server"]] {
            let sentence = wrong(arguments);
            assert!(!sentence.contains('\n') && sentence.ends_with("; see 'stag --help'"), "{sentence}");
        }
    }
}
