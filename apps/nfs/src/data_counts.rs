//! Bytes and operations of READ and WRITE, counted for each version.

use serde::Serialize;

/// Amount of data moved by version 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DataCounts {
    /// Bytes that READ returned.
    pub octets_read: u64,
    /// Bytes that WRITE took.
    pub octets_written: u64,
    /// WRITEs answered with UNSTABLE.
    pub unstable_writes: u64,
    /// COMMITs that succeeded.
    pub commits: u64,
    /// READs served from memory.
    pub reads_cached: u64,
    /// READs deferred until a helper had fetched missing bytes.
    pub reads_warmed: u64,
    /// READs deferred until io_uring had read missing bytes directly to the buffer that is sent.
    pub reads_brought: u64,
    /// READs that a helper executed, on a file system whose calls may block.
    pub reads_helped: u64,
    /// READs that blocked the shard: the ring and the helpers were busy, or memory was short.
    pub reads_blocking: u64,
    /// READs from a file system that does not report whether a read waits, such as tmpfs.
    pub reads_direct: u64,
    /// READs truncated for lack of a buffer for all requested bytes, and READs refused
    /// (NFS3ERR_JUKEBOX).
    pub short_of_memory: u64,
}

/// Amount of data moved by version 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nfs4DataCounts {
    /// Bytes that READ returned.
    pub octets_read: u64,
    /// Bytes that WRITE took.
    pub octets_written: u64,
    /// WRITEs answered with UNSTABLE4.
    pub unstable_writes: u64,
    /// COMMITs that succeeded.
    pub commits: u64,
    /// READs truncated for lack of a buffer for all requested bytes.
    pub short_of_memory: u64,
}
