//! Options of `stag serve`.

use super::observe_options::ObserveOptions;
use crate::{
    args::{cidr, versions},
    kerberos::ServeKerberosOptions,
    tls::ServeTlsOptions,
};
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use stag_engine::{Sampling, Spin};
use stag_nfs_store::{Security, helpers};
use stag_protocol::rpcrdma::Versions;
use stag_verbs::LinkSettings;
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeOptions {
    /// A directory to export as /NAME, or ceph:/PATH; without NAME=, NAME is the last component;
    /// with :ro every change is refused
    #[arg(required_unless_present_any = ["memory", "config"], value_name = "[NAME=]DIR[:ro]")]
    pub directories: Vec<OsString>,
    /// A configuration file in TOML; flags override it, and SIGHUP reloads it (see SETTINGS)
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check all arguments and the configuration file without starting a server
    #[arg(long)]
    pub check: bool,
    /// Keep files in memory, at most SIZE bytes (with suffix K, M, G or T); auto: an eighth of the
    /// host's memory, at most 1G
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// An address to accept RDMA connections at; may be given several times. Port 0 uses a free one
    #[arg(long, value_name = "URL", default_value = "iwarp://127.0.0.1:20049")]
    pub listen: Vec<String>,
    /// The address of MOUNT and NFS over TCP, or none, with which Linux cannot mount [default: port
    /// 2049 of the first --listen, or a free port if that uses one]
    #[arg(long, value_name = "IP:PORT")]
    pub tcp: Option<String>,
    /// The only networks that may connect; needed unless all addresses are loopback addresses
    /// [default: this host by loopback]
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    pub clients: Vec<String>,
    /// Accept callers from any port; any user of their host can then act as any other (see WHO MAY
    /// CONNECT)
    #[arg(long)]
    pub insecure: bool,
    /// Security flavors that exports accept, the preferred one first: krb5p, krb5i, krb5 and sys;
    /// an export in a file may have its own (see SECURITY FLAVORS) [default: sys]
    #[arg(long, value_name = "FLAVOR,…", value_delimiter = ',', value_parser = flavor)]
    pub sec: Vec<Security>,
    /// Number of cores to use, each with its own thread and memory
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: u16,
    /// Assignment of connections over IP to cores: connection, each one separately, or address, all
    /// connections of a host to the same core (see CORES)
    #[arg(long, value_name = "connection|address", default_value = "connection")]
    pub steer: SteerOption,
    /// Threads that wait for file systems, so that no core does
    #[arg(long, value_name = "N", default_value_t = helpers::THREADS as u16,
        value_parser = clap::value_parser!(u16).range(1..=helpers::THREADS_MAX as i64))]
    pub helpers: u16,
    /// Exports for which these threads make all calls, or all, in addition to exports on FUSE, NFS,
    /// CephFS, Lustre and similar file systems (see FILE SYSTEMS THAT WAIT)
    #[arg(long, value_name = "NAME,…|all", value_delimiter = ',', conflicts_with = "memory")]
    pub slow: Vec<String>,
    /// Users whose processes may connect by shm://, in addition to this process's user and root
    #[arg(long, value_name = "UID,…", value_delimiter = ',')]
    pub shm_allow: Vec<u32>,
    /// Let callers act as themselves (see WHO CALLERS ARE) [default: auto]
    #[arg(long, value_name = "auto|privileged|unprivileged")]
    pub mode: Option<ModeOption>,
    /// Callers that act as the anonymous user in privileged mode: root, none or all; with CIDR=
    /// before it, for one network or address [default: root; none if only root of this host can
    /// claim to be root]
    #[arg(long, value_name = "[CIDR=]WHO,…", value_delimiter = ',', value_parser = squash)]
    pub squash: Vec<SquashRule>,
    /// The anonymous user's number [default: 65534]
    #[arg(long, value_name = "N")]
    pub anonuid: Option<u32>,
    /// The anonymous user's group [default: 65534]
    #[arg(long, value_name = "N")]
    pub anongid: Option<u32>,
    /// The source of callers' groups in privileged mode: the client, whose AUTH_SYS has at most 16
    /// and the primary group, or this host's name service [default: client]
    #[arg(long, value_name = "client|host")]
    pub groups: Option<GroupsOption>,
    /// Prevent this process from opening anything but its exports, its state and the system's own
    /// files, and from executing anything (see CONFINEMENT)
    #[arg(long)]
    pub confine: bool,
    /// The name of the export instead of the last component; for a single DIR
    #[arg(long)]
    pub name: Option<String>,
    /// The file of the cluster whose gateways serve the same files (see 'stag cluster')
    #[arg(long, value_name = "FILE", conflicts_with = "memory")]
    pub cluster: Option<PathBuf>,
    /// Directory of the state that must survive a restart (see FILES in --help) and of the control
    /// socket; with --memory only of the socket
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Send clients the inline thresholds and options during connection setup (RFC 8797); no: 1,024
    /// bytes inline and version 1, like an old server
    #[arg(long, value_name = "yes|no", default_value = "yes", action = clap::ArgAction::Set,
        value_parser = yes_or_no)]
    pub private_data: bool,
    /// Versions of RPC-over-RDMA to serve: 1, 2, or 1-2 for both at the same addresses;
    /// 2-directed or 1-2-directed for draft 001's words with clients that do not announce them
    #[arg(long, value_name = "1|2|1-2|…", default_value = "1-2", value_parser = versions)]
    pub rdma_version: Versions,
    #[command(flatten)]
    pub link: LinkOptions,
    /// Versions of NFS to serve: 4 (which is 4.1 and 4.2), 3, or 3,4 (see VERSION 4)
    #[arg(long, value_name = "3|4|3,4", value_delimiter = ',', default_value = "3,4",
        value_parser = clap::value_parser!(u8).range(3..=4))]
    pub nfs: Vec<u8>,
    /// Seconds for which version 4 keeps the opens and locks of a client that sends nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 90,
        value_parser = clap::value_parser!(u16).range(10..=3600))]
    pub lease: u16,
    /// NAME=exclusive: only this server changes that export, so version 4 grants delegations of its
    /// files; NAME=watched: programs of this host also change it, so version 4 grants delegations
    /// to readers and watches these files (see VERSION 4); NAME=none: no delegations
    #[arg(long, value_name = "NAME=exclusive|watched|none,…", value_delimiter = ',')]
    pub delegations: Vec<String>,
    /// The domain of owners (NAME@DOMAIN) in version 4, or none: owners are numbers (see OWNERS)
    /// [default: with Kerberos, the domain of this host's name, else the realm in lower case]
    #[arg(long, value_name = "DOMAIN|none")]
    pub id_domain: Option<String>,
    /// Callers that are sent names of owners: kerberos, or always, all of version 4
    #[arg(long, value_name = "kerberos|always", default_value = "kerberos")]
    pub id_names: IdNamesOption,
    /// Sample the stages of 1 call in N (see STATISTICS in --help); 0: none
    #[arg(long, value_name = "N", default_value_t = Sampling::EVERY)]
    pub sample: u32,
    /// Let clients query the time that calls take in each stage, as 'stag bench --stages' does
    #[arg(long)]
    pub stages: bool,
    /// Stop when standard input ends: for programs that start this command as a child
    #[arg(long, hide = true)]
    pub while_stdin: bool,
    /// Also write the READY block to this file once ready; the file is removed at the end
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Stop, as SIGTERM does, when the process PID ends: a job's shell, for example
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub exit_with: Option<i32>,
    /// Register MOUNT and NFS with this host's rpcbind until the server ends, so that clients need
    /// no ports and showmount works
    #[arg(long)]
    pub rpcbind: bool,
    /// Wait a random time of up to SECONDS before anything is opened: for servers that start at the
    /// same time on many nodes and use one metadata server or cluster
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(..=3600))]
    pub start_jitter: Option<u32>,
    /// Write statistics to this file, at the end and on SIGUSR1
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    #[command(flatten)]
    pub tls: ServeTlsOptions,
    #[command(flatten)]
    pub kerberos: ServeKerberosOptions,
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// Sizes of each core, and what all cores share.
    #[command(flatten)]
    pub limits: LimitOptions,
}

/// Connections over InfiniBand and RoCE.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct LinkOptions {
    /// Traffic class of packets sent by rdma://, four times the DSCP: 104 is DSCP 26 [default: that
    /// of the client]
    #[arg(long, value_name = "N")]
    pub rdma_tos: Option<u8>,
    /// Time after which rdma:// retransmits unacknowledged packets: 4.096 µs times 2 to the power
    /// of N [default: from the path]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub rdma_ack_timeout: Option<u8>,
    /// Number of such retransmissions before the connection ends [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=7))]
    pub rdma_retry: Option<u8>,
}

impl LinkOptions {
    /// The settings of connections.
    pub const fn settings(self) -> LinkSettings {
        let Self { rdma_tos, rdma_ack_timeout, rdma_retry } = self;
        LinkSettings { traffic_class: rdma_tos, ack_timeout: rdma_ack_timeout, retries: rdma_retry }
    }
}

/// Limits and waiting times.
#[derive(Debug, Default, Args)]
pub struct LimitOptions {
    /// RDMA connections at a time on each core [default: 1024, or as many as descriptors allow]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub connections: Option<usize>,
    /// TCP connections at a time on each core [default: 1024, or as many as descriptors allow]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub tcp_connections: Option<usize>,
    /// Connections of one address at a time, of all kinds and on all cores; 0: no limit [default: a
    /// quarter of the TCP connections of all cores, or of one core with --steer address; at least
    /// 16]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub connections_per_address: Option<u32>,
    /// Calls that one connection may have outstanding: its credits [default: 64]
    #[arg(long, value_name = "N", help_heading = LIMITS,
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub credits: Option<u32>,
    /// Calls in progress at a time on each core [default: 1024 more than receives]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub calls: Option<usize>,
    /// Receives of each core, which its connections share [default: 4 for each connection, at least
    /// 4160]
    #[arg(long, value_name = "N", help_heading = LIMITS)]
    pub receives: Option<usize>,
    /// Longest message that a client may send without chunks, in bytes: the length of each receive.
    /// Linux sends 4K, unless its sysctl rdma_max_inline_write is larger [default: 8K]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub inline: Option<String>,
    /// Bytes of each core's buffers for messages and payload [default: 301M]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub buffers: Option<String>,
    /// Bytes of memory that buffers, receives and files in memory may use on all cores together
    /// [default: the memory of the host or the control group]
    #[arg(long, value_name = "SIZE", help_heading = LIMITS)]
    pub memory_max: Option<String>,
    /// Seconds that calls in progress have to finish when the server stops [default: 3]
    #[arg(long, value_name = "SECONDS", help_heading = TIMEOUTS)]
    pub drain: Option<f64>,
    /// Microseconds that an idle core polls before it sleeps; auto: as long as the gaps between
    /// calls make it worthwhile, at most 4096 (see WAITING) [default: 100]
    #[arg(long, value_name = "MICROSECONDS|auto", help_heading = IDLE, value_parser = spin)]
    pub spin: Option<Spin>,
    /// When to ask the kernel to keep cores out of deep sleep states: busy, until all cores of this
    /// server have slept for 50 ms, or always [default: busy]
    #[arg(long, value_name = "busy|always", help_heading = IDLE)]
    pub awake: Option<AwakeOption>,
}

/// Headings of flags: tables of the file.
const LIMITS: &str = "Limits";
const TIMEOUTS: &str = "Timeouts";
const IDLE: &str = "Idle";

/// Longest time that a core can be set to look for work, in microseconds.
const SPIN_MAX: u64 = 60_000_000;

fn spin(text: &str) -> Result<Spin, String> {
    if text == "auto" {
        return Ok(Spin::Learned);
    }
    match text.parse() {
        Ok(micros) if micros <= SPIN_MAX => Ok(Spin::For(Duration::from_micros(micros))),
        _ => Err(format!("write microseconds from 0 to {SPIN_MAX}, or auto")),
    }
}

/// Choice of the core that serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SteerOption {
    /// The kernel spreads connections.
    Connection,
    /// The caller's address decides.
    Address,
}

/// Time for which sleep states are shallow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AwakeOption {
    /// While a core works, or slept a moment ago.
    #[default]
    Busy,
    /// As long as the server runs.
    Always,
}

/// Setting for callers to act as themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeOption {
    /// Yes if this process has the rights, else no.
    Auto,
    /// Yes.
    Privileged,
    /// No: they act as the user of this process.
    Unprivileged,
}

/// Callers that are sent names of owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IdNamesOption {
    /// Callers with a ticket of Kerberos.
    Kerberos,
    /// All of version 4.
    Always,
}

/// The groups of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum GroupsOption {
    /// The groups sent by the client.
    Client,
    /// The groups assigned by this host.
    Host,
}

/// Callers that act as the anonymous user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SquashOption {
    /// Callers that claim to be root.
    Root,
    /// None.
    None,
    /// All.
    All,
}

/// A rule of `--squash`: for one network, or for all callers that no other rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SquashRule {
    pub network: Option<IpNet>,
    pub squash: SquashOption,
}

fn squash(text: &str) -> Result<SquashRule, String> {
    let (network, word) = match text.split_once('=') {
        Some((network, word)) => (Some(cidr::parse(network, "--squash")?), word),
        None => (None, text),
    };
    let squash = SquashOption::from_str(word, false)
        .map_err(|_| format!("write root, none or all instead of {word:?}"))?;
    Ok(SquashRule { network, squash })
}

/// A security flavor by its word.
pub fn flavor(word: &str) -> Result<Security, String> {
    Security::of_word(word)
        .ok_or_else(|| format!("write krb5p, krb5i, krb5 or sys instead of {word:?}"))
}

fn yes_or_no(text: &str) -> Result<bool, &'static str> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("write yes or no"),
    }
}
