//! A server's shards: each is built on its core, reports its resources, and runs until it is asked
//! to stop.
//!
//! | file | what |
//! |---|---|
//! | `shard.rs` | one shard on its core, with its store |
//! | `source.rs` | the source of that store: all that a server does by its kind |
//! | `sizes.rs` | a shard's tables, buffers and time limits |
//! | `records.rs` | client records at the start |
//! | `logged.rs` | an app around the gateway that logs connections |
//! | `kernel_tls.rs` | kernel TLS for RPC over TCP |

mod kernel_tls;
mod logged;
mod records;
mod shard;
mod sizes;
mod source;

pub use kernel_tls::LinuxTls;
pub use records::start_records;
pub use shard::{ConnectionShare, NfsVersions, ServeShard};
pub use sizes::{CONNECTIONS, STREAMS, ShardSizes, shard_buffers};
pub use source::StoreSource;
/// Descriptors that a service manager passes to this process.
pub use stag_nfs_os::passed;

use crate::{Nfs4Config, StateDesk, reply_cache};
use rustix::rand::{GetRandomFlags, getrandom};
use stag_engine::Over;
use stag_fabrics::FabricGroup;
use stag_nfs_store::StartError;
use stag_pools::Budget;
use stag_protocol::nfs::{mount, v3, v4};
use stag_verbs::FabricFault;
use std::{
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The name of a procedure in its specification; its number if the gateway does not serve the
/// program.
pub fn procedure_name(program: u32, version: u32, procedure: u32) -> String {
    let name = match (program, version) {
        (v3::PROGRAM, v3::VERSION) => {
            v3::Procedure::ALL.get(procedure as usize).map(|known| format!("{known:?}"))
        }
        (v3::PROGRAM, v4::VERSION) => match procedure {
            0 => Some("NULL".to_owned()),
            v4::COMPOUND => Some("COMPOUND".to_owned()),
            _ => None,
        },
        (mount::PROGRAM, mount::VERSION) => {
            mount::Procedure::ALL.get(procedure as usize).map(|known| format!("{known:?}"))
        }
        _ => None,
    };
    name.map_or_else(|| procedure.to_string(), |name| name.to_uppercase())
}

/// Objects that were copied into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, directories and links.
    pub objects: u64,
    /// Bytes of files.
    pub octets: u64,
    /// Objects of kinds that memory does not support.
    pub left_out: u64,
}

/// Facts about a shard that is ready.
#[derive(Debug)]
pub struct Started {
    /// The addresses in use.
    pub fabric: FabricGroup,
    /// The name of the RDMA device; none on a fabric without one.
    pub device: Option<String>,
    /// Sentences about features that the device lacks.
    pub notices: Vec<String>,
    /// The address of NFS and MOUNT over TCP.
    pub tcp: Option<SocketAddr>,
    /// Its two pools.
    pub budgets: [Budget; 2],
    /// Maximum RDMA connections.
    pub connections: usize,
    /// Receives.
    pub receives: usize,
    /// Maximum receives of one connection.
    pub grant: u32,
    /// Maximum TCP connections.
    pub streams: usize,
    /// Its part of the duplicate request cache.
    pub duplicates: reply_cache::ReplyCacheBudget,
    /// The place for questions about clients and states of version 4. The first shard answers for
    /// all shards.
    pub states: Option<Arc<StateDesk>>,
    /// Memory of an in-memory store.
    pub memory: Option<Budget>,
    /// Objects initially copied to an in-memory store.
    pub copied: Option<Copied>,
    /// The reason why threads, instead of io_uring, read from the disk.
    pub ring_fault: Option<io::Error>,
    /// True if helpers work on the shard's own core, so that it never polls without work.
    pub is_beside_helpers: bool,
}

/// Reason why a shard does not run.
#[derive(Debug)]
pub enum ServeError {
    /// The store cannot be opened.
    Store(StartError),
    /// The system returned no random numbers.
    Random(io::Error),
    /// The addresses cannot be divided among shards.
    Address(String),
    /// Listening at an address failed.
    Listen {
        /// The address.
        at: String,
        /// Over the fabric, or over TCP.
        over: Over,
        /// The fabric's reason.
        fault: FabricFault,
    },
    /// Memory or descriptors are short.
    Memory {
        /// The shard.
        index: usize,
        /// The system's reason.
        error: io::Error,
    },
    /// The shard stopped by itself.
    Stopped {
        /// The shard.
        index: usize,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Random(error) => write!(f, "the system gives no random numbers: {error}"),
            Self::Address(why) => f.write_str(why),
            Self::Listen { at, fault, .. } => write!(f, "cannot listen at {at}: {fault}"),
            Self::Memory { index, error } => {
                write!(f, "shard {index} cannot get its memory and descriptors: {error}")
            }
            Self::Stopped { index, why } => write!(f, "shard {index} stopped: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// The version 4 configuration of a starting server: its identity is that of its file handles, if
/// these outlive it. `boot` is the number of this boot, if boots are counted.
///
/// # Errors
/// When the system returns no random numbers.
pub fn nfs4_config(
    source: &StoreSource,
    lease_seconds: u16,
    boot: Option<u32>,
) -> Result<Nfs4Config, ServeError> {
    let (mut random, mut key) = ([0; 20], [0; 16]);
    for octets in [&mut random[..], &mut key] {
        getrandom(octets, GetRandomFlags::empty())
            .map_err(|error| ServeError::Random(error.into()))?;
    }
    let (epoch, identity) = random.split_at(4);
    let number = |octets: &[u8]| octets.iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet));
    let mut own = [0; 16];
    own.iter_mut().zip(identity).for_each(|(to, from)| *to = *from);
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Nfs4Config {
        lease: Duration::from_secs(lease_seconds.into()),
        epoch: boot.unwrap_or_else(|| number(epoch)),
        identity: source.identity().unwrap_or(own),
        delegations: source.delegations(),
        started: u32::try_from(started.as_secs()).unwrap_or(u32::MAX),
        key,
        cluster: None,
    })
}

impl From<StartError> for ServeError {
    fn from(error: StartError) -> Self {
        Self::Store(error)
    }
}
