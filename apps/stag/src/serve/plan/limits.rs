//! Limits of a server: its sizes, checked against those of its host (DESIGN D14).

use super::{
    options::{LimitOptions, SteerOption},
    shards::FabricShards,
};
use crate::{
    Error,
    args::size,
    descriptors::{Share, Wanted},
};
use rustix::process::{Resource, getrlimit};
use stag_nfs::serve::ShardSizes;
use stag_nfs_store::files;
use std::{fs, ops::RangeInclusive, time::Duration};

/// Octets of the longest message without chunks that can be asked for.
const INLINE_LENS: RangeInclusive<usize> = 1 << 10..=64 << 10;
/// Longest time that a stop can be asked to wait, in seconds.
const DRAIN_MAX: f64 = 3_600.0;
/// Connections of one mount of Linux at most (`nconnect`, nfs(5)).
const NCONNECT_MAX: usize = 16;
/// CAP_IPC_LOCK, which lifts the limit on locked memory (capabilities(7)).
const IPC_LOCK: u64 = 1 << 14;

/// Sizes of each shard, by the settings.
///
/// # Errors
/// A sentence about a size that no shard can have.
pub fn sizes(limits: &LimitOptions) -> Result<ShardSizes, Error> {
    let mut sizes = ShardSizes::default();
    if let Some(connections) = limits.connections {
        sizes = sizes.for_connections(connections);
    }
    if let Some(receives) = limits.receives {
        sizes = sizes.with_receives(receives);
    }
    if let Some(text) = &limits.inline {
        sizes.receive_len = inline(text)?;
    }
    if let Some(text) = &limits.buffers {
        sizes = sizes.with_buffers(octets("--buffers", text)?);
    }
    sizes.calls = limits.calls.unwrap_or(sizes.calls);
    sizes.streams = limits.tcp_connections.unwrap_or(sizes.streams);
    sizes.credits = limits.credits.unwrap_or(sizes.credits);
    if let Some(seconds) = limits.drain {
        let fits = (0.0..=DRAIN_MAX).contains(&seconds);
        let drain = Duration::try_from_secs_f64(seconds).ok().filter(|_| fits);
        sizes.drain = drain.ok_or_else(|| {
            Error::usage(format!("--drain {seconds} has to be from 0 to {DRAIN_MAX} seconds"))
        })?;
    }
    sizes.spin = limits.spin.unwrap_or(sizes.spin);
    sizes.check().map_err(Error::usage)?;
    Ok(sizes)
}

/// Octets of the longest message without chunks.
fn inline(text: &str) -> Result<usize, Error> {
    let len = octets("--inline", text)?;
    // RFC 8797 §4: sizes are sent in units of 1,024 octets. A ring of shared memory has room for
    // sixteen receives of 64 KiB.
    if !len.is_multiple_of(1 << 10) || !INLINE_LENS.contains(&len) {
        return Err(Error::usage(format!(
            "--inline {text} has to be a multiple of 1K from 1K to 64K"
        )));
    }
    Ok(len)
}

/// Octets that the server may take, if that is set.
///
/// # Errors
/// A sentence about a text that is no size.
pub fn memory_max(limits: &LimitOptions) -> Result<Option<usize>, Error> {
    limits.memory_max.as_ref().map(|text| octets("--memory-max", text)).transpose()
}

fn octets(flag: &str, text: &str) -> Result<usize, Error> {
    size::octets(text).map_err(|why| Error::usage(format!("{flag}: {why}")))
}

/// The limit on connections of one address at a time, if there is one. By default it is a quarter
/// of the connections over TCP, if the server has TCP, that the address could have otherwise: those
/// of all cores, or of a single core when the address decides on the core.
pub fn connections_per_address(
    limits: &LimitOptions,
    steer: SteerOption,
    share: &Share,
    cores: usize,
) -> Option<u32> {
    if let Some(asked) = limits.connections_per_address {
        return (asked > 0).then_some(asked);
    }
    let of_core = if share.streams > 0 { share.streams } else { share.connections };
    let cores = if steer == SteerOption::Address { 1 } else { cores };
    let quarter = (of_core.saturating_mul(cores) / 4).max(NCONNECT_MAX);
    Some(u32::try_from(quarter).unwrap_or(u32::MAX))
}

/// Refuses requested connections for which there are no descriptors.
///
/// # Errors
/// A sentence with the limit, and what it allows.
pub fn check_descriptors(limits: &LimitOptions, share: &Share, limit: usize) -> Result<(), Error> {
    let asked = [
        ("--connections", limits.connections, share.connections),
        ("--tcp-connections", limits.tcp_connections, share.streams),
    ];
    for (flag, asked, possible) in asked {
        if let Some(wanted) = asked.filter(|wanted| *wanted > possible) {
            return Err(Error::usage(format!(
                "{flag} {wanted} is more than the {possible} on each core that {limit} descriptors \
                 allow (RLIMIT_NOFILE): raise the limit (ulimit -Hn, LimitNOFILE= in a systemd \
                 unit), or give {possible} at most"
            )));
        }
    }
    Ok(())
}

/// Refuses a server of RDMA devices whose buffers cannot be locked.
///
/// # Errors
/// A sentence with the limit, and how to raise it.
pub fn check_locked(fabrics: &[FabricShards], sizes: &ShardSizes) -> Result<(), Error> {
    let shards: usize = fabrics
        .iter()
        .filter(|fabric| fabric.group.info().scheme == "rdma")
        .map(|fabric| fabric.cores)
        .sum();
    let limit = getrlimit(Resource::Memlock).current;
    let limit =
        limit.filter(|_| !may_lock(&fs::read_to_string("/proc/self/status").unwrap_or_default()));
    locked(sizes.octets().saturating_mul(shards) as u64, limit)
}

fn locked(need: u64, limit: Option<u64>) -> Result<(), Error> {
    match limit.filter(|limit| need > *limit) {
        None => Ok(()),
        Some(limit) => Err(Error::usage(format!(
            "rdma:// locks {} MiB of buffers, and this process may lock {} MiB (RLIMIT_MEMLOCK): \
             raise the limit (ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit), or \
             give fewer --buffers or --cores",
            need.div_ceil(1 << 20),
            limit >> 20
        ))),
    }
}

/// True if a process with this `/proc/self/status` locks memory without a limit.
fn may_lock(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    capabilities.is_some_and(|capabilities| capabilities & IPC_LOCK != 0)
}

/// Counts the planned descriptors: connections of each shard, and files that it keeps open.
pub fn wanted(shards: usize, has_tcp: bool, sizes: &ShardSizes, has_files: bool) -> Wanted {
    let files = if has_files { files::OPEN_FILES_MAX } else { 0 };
    let streams = if has_tcp { sizes.streams } else { 0 };
    let connections = sizes.connections;
    Wanted { shards, connections, streams, files, per_file: files::DESCRIPTORS_PER_FILE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_cannot_be_locked_are_told_with_need_limit_and_way_out() {
        assert_eq!((locked(0, Some(0)), locked(9 << 20, None)), (Ok(()), Ok(())));
        let sentence = locked(9 << 20, Some(8 << 20)).unwrap_err().to_string();
        assert!(sentence.contains("locks 9 MiB") && sentence.contains("may lock 8 MiB"));
        assert!(
            may_lock("CapEff:\t000001ffffffffff\n") && !may_lock("CapEff:\t0000000000000000\n")
        );
    }

    #[test]
    fn more_connections_than_descriptors_are_refused_only_when_they_were_asked_for() {
        let share =
            Share { connections: 100, streams: 50, half_open: 1, spare: 1, links: 1, files: 9 };
        let ask = |connections, tcp_connections| {
            let limits = LimitOptions { connections, tcp_connections, ..LimitOptions::default() };
            check_descriptors(&limits, &share, 256)
        };
        assert_eq!((ask(None, None), ask(Some(100), Some(50))), (Ok(()), Ok(())));
        let sentence = ask(Some(101), None).unwrap_err().to_string();
        assert!(sentence.starts_with("--connections 101 is more than the 100"), "{sentence}");
        assert!(ask(None, Some(51)).unwrap_err().to_string().starts_with("--tcp-connections 51"));
    }

    #[test]
    fn one_address_takes_a_quarter_of_what_it_could_have() {
        let share = |connections, streams| Share {
            connections,
            streams,
            half_open: 1,
            spare: 1,
            links: 1,
            files: 9,
        };
        let limit = |share, cores, asked, steer| {
            let limits = LimitOptions { connections_per_address: asked, ..LimitOptions::default() };
            connections_per_address(&limits, steer, &share, cores)
        };
        let (spread, steered) = (SteerOption::Connection, SteerOption::Address);
        assert_eq!(limit(share(1_024, 1_024), 1, None, spread), Some(256));
        assert_eq!(limit(share(1_024, 1_024), 4, None, spread), Some(1_024));
        assert_eq!(limit(share(1_024, 1_024), 4, None, steered), Some(256));
        assert_eq!(limit(share(2_048, 0), 1, None, spread), Some(512), "without TCP");
        assert_eq!(limit(share(2, 8), 1, None, spread), Some(16), "one mount with nconnect=16");
        assert_eq!(limit(share(1_024, 1_024), 1, Some(9_999), spread), Some(9_999));
        assert_eq!(limit(share(1_024, 1_024), 1, Some(0), spread), None);
    }

    #[test]
    fn sizes_follow_the_settings_and_impossible_ones_are_named() {
        let usual = LimitOptions::default();
        assert_eq!(sizes(&usual), Ok(ShardSizes::default()));
        let few =
            LimitOptions { connections: Some(16), drain: Some(0.5), ..LimitOptions::default() };
        let found = sizes(&few).unwrap();
        assert_eq!((found.connections, found.drain), (16, Duration::from_millis(500)));
        let inline =
            |len: &str| LimitOptions { inline: Some(len.to_owned()), ..LimitOptions::default() };
        for (text, len) in [("4K", 4_096), ("8192", 8_192), ("64K", 65_536)] {
            assert_eq!(sizes(&inline(text)).unwrap().receive_len, len);
        }
        let range = "has to be a multiple of 1K from 1K to 64K";
        for (limits, part) in [
            (inline("512"), range),
            (inline("5000"), range),
            (inline("65K"), range),
            (inline("x"), "no size"),
            // Version 2 takes 4,096 octets.
            (inline("1K"), "--inline 1024 is too few: give at least 4096"),
            (
                LimitOptions { buffers: Some("1M".to_owned()), ..LimitOptions::default() },
                "--buffers",
            ),
            (LimitOptions { buffers: Some("x".to_owned()), ..LimitOptions::default() }, "no size"),
            (LimitOptions { drain: Some(-1.0), ..LimitOptions::default() }, "--drain -1 has to be"),
            (LimitOptions { calls: Some(1), ..LimitOptions::default() }, "--calls 1 is less"),
        ] {
            let sentence = sizes(&limits).unwrap_err().to_string();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
