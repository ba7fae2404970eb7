//! A server's shards: each is built on its core, says what it is made of, and runs until it is told
//! to stop.

mod logged;
mod shard;
mod sizes;

pub use shard::{ConnectionShare, ServeShard};
pub use sizes::{CONNECTIONS, STREAMS, ShardSizes, shard_buffers};

use crate::{
    drc,
    state::StartError,
    store::{ceph::CephBackend, files::SharedFiles, memory},
};
use stag_engine::Over;
use stag_fabrics::FabricGroup;
use stag_pools::Budget;
use stag_verbs::FabricFault;
use std::{fmt, io, net::SocketAddr, sync::Arc};

/// The source of a shard's store.
#[derive(Clone, Debug)]
pub enum StoreSource {
    /// Directories, which all shards serve.
    Files(Arc<SharedFiles>),
    /// Directories of a Ceph file system, which all shards serve.
    Ceph(CephBackend),
    /// Memory, which one shard has.
    Memory(memory::MemoryConfig),
}

/// Objects that were copied into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files, directories and links.
    pub objects: u64,
    /// Octets of files.
    pub octets: u64,
    /// Objects that memory cannot hold, of kinds that it does not have.
    pub left_out: u64,
}

/// Facts about a shard that is ready.
#[derive(Debug)]
pub struct Started {
    /// The addresses in use.
    pub fabric: FabricGroup,
    /// The address of NFS and MOUNT over TCP.
    pub tcp: Option<SocketAddr>,
    /// Its two pools.
    pub budgets: [Budget; 2],
    /// RDMA connections at a time.
    pub connections: usize,
    /// Receives.
    pub receives: usize,
    /// Receives that one connection gets, at most.
    pub grant: u32,
    /// TCP connections at a time.
    pub streams: usize,
    /// Its part of the duplicate request cache.
    pub duplicates: drc::ReplyCacheBudget,
    /// Memory of a store in memory.
    pub memory: Option<Budget>,
    /// Objects that a store in memory began with.
    pub copied: Option<Copied>,
    /// The reason for which threads, and no io_uring, bring READs from the disk.
    pub ring_fault: Option<io::Error>,
}

/// Reason for which a shard does not run.
#[derive(Debug)]
pub enum ServeError {
    /// The store cannot be opened.
    Store(StartError),
    /// The system gives no random numbers.
    Random(io::Error),
    /// The addresses cannot be divided among shards.
    Address(String),
    /// An address cannot be listened at.
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

impl From<StartError> for ServeError {
    fn from(error: StartError) -> Self {
        Self::Store(error)
    }
}
