//! File descriptors: the number this process may have, and its division among the shards.

use crate::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of a process other than its shards' and files', with some to spare: standard
/// streams, signals, control, the state directory.
const PROCESS: usize = 20;
/// Of the control socket and of metrics, with their clients.
const WATCHERS: usize = 16;
/// Of a shard other than its connections and files: epolls, eventfds, listeners, memory files,
/// io_uring.
const SHARD: usize = 12;
/// Of the threads that wait for the disk: files in transit.
const HELPERS: usize = stag_nfs_store::helpers::DESCRIPTORS_MAX;
/// Set-ups of an iWARP listener that have not become connections, and refused connections.
const STRANGERS: usize = 72;
/// Processes that one shard accepts over shared memory, and descriptors of each: a socket, and
/// memory files while it connects.
const LINKS: usize = 64;
const PER_LINK: usize = 4;

/// Raises this process's limit on descriptors as far as possible, and returns it.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If that is refused, the limit stays, and the promises follow it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// The parts of a server that take descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub shards: usize,
    /// Connections of one shard over its fabric, and over TCP.
    pub connections: usize,
    pub streams: usize,
    /// Files that one shard may keep open, and descriptors of each.
    pub files: usize,
    pub per_file: usize,
}

/// The part of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub connections: usize,
    pub streams: usize,
    /// Set-ups of an iWARP listener that have not become connections.
    pub half_open: usize,
    /// Peers that are answered while all connections are taken.
    pub spare: usize,
    /// Processes at a time over shared memory.
    pub links: usize,
    pub files: usize,
}

impl Share {
    /// Divides `limit` descriptors. Files take at most half of what is short.
    ///
    /// # Errors
    /// A sentence when there is not even one connection.
    pub fn of(limit: usize, wanted: Wanted) -> Result<Self, Error> {
        let Wanted { shards, connections, streams, files, per_file } = wanted;
        let shards = shards.max(1);
        let helpers = if files > 0 { HELPERS } else { 0 };
        let each =
            (limit.saturating_sub(PROCESS + WATCHERS + helpers) / shards).saturating_sub(SHARD);
        let peers = connections + streams + STRANGERS;
        let left =
            if files > 0 { (each / 2).max(each.saturating_sub(files * per_file)) } else { each };
        let room = peers.min(left);
        // All shrink alike.
        let strangers = (STRANGERS * room / peers).max(2);
        let rest = room.saturating_sub(strangers);
        let fabric = connections * rest / (connections + streams).max(1);
        let share = Self {
            connections: fabric,
            streams: streams.min(rest - fabric),
            half_open: strangers - strangers.div_ceil(9),
            spare: strangers.div_ceil(9),
            links: LINKS.min((room / PER_LINK).max(1)),
            files: files.min((each - room) / per_file.max(1)),
        };
        if share.connections == 0 || (streams > 0 && share.streams == 0) {
            let least = PROCESS + WATCHERS + helpers + shards * (SHARD + 16);
            return Err(Error::usage(format!(
                "{limit} descriptors are too few to serve with (ulimit -n): have at least {least}"
            )));
        }
        Ok(share)
    }

    /// A sentence about the connections that are missing.
    pub fn notice(&self, limit: usize, wanted: Wanted) -> Option<String> {
        let is_short = self.connections < wanted.connections || self.streams < wanted.streams;
        is_short.then(|| {
            let over_tcp = if wanted.streams > 0 {
                format!(
                    " and {} over \
                                                            TCP",
                    self.streams
                )
            } else {
                String::new()
            };
            format!(
                "{limit} descriptors (ulimit -n) allow {} connections{over_tcp} on each core, \
                 instead of {}: raise the limit (LimitNOFILE= in a systemd unit)",
                self.connections, wanted.connections
            )
        })
    }
}

/// Checks that `connections` of ours, over `cores`, have their descriptors.
///
/// # Errors
/// A sentence with the limit and how many connections it allows.
pub fn check_calling(connections: usize, cores: usize) -> Result<(), Error> {
    fits(raise(), connections, cores)
}

fn fits(limit: usize, connections: usize, cores: usize) -> Result<(), Error> {
    // One more is the connection by which files are made.
    let beside = PROCESS + cores * SHARD + 1;
    if connections + beside <= limit {
        return Ok(());
    }
    let most = limit.saturating_sub(beside);
    Err(Error::usage(format!(
        "--connections {connections} need {} descriptors, and this process may have {limit} \
         (ulimit -Hn): raise that limit, or give --connections {most} at most",
        connections + beside
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted =
        Wanted { shards: 1, connections: 1_024, streams: 1_024, files: 16_384, per_file: 2 };

    #[test]
    fn what_is_promised_never_takes_more_than_there_is() {
        for limit in (40..40_000).step_by(7) {
            for wanted in [
                WANTED,
                Wanted { shards: 3, ..WANTED },
                Wanted { files: 0, ..WANTED },
                Wanted { files: 0, streams: 0, ..WANTED },
            ] {
                let Ok(share) = Share::of(limit, wanted) else {
                    assert!(limit < 400, "{limit} is enough for {wanted:?}");
                    continue;
                };
                let each = SHARD
                    + share.connections
                    + share.streams
                    + share.half_open
                    + share.spare
                    + share.files * wanted.per_file;
                assert!(PROCESS + wanted.shards * each <= limit, "{limit}: {share:?}");
                assert!(
                    share.connections > 0 && share.half_open > 0 && share.spare > 0,
                    "{share:?}"
                );
                assert!((share.streams > 0) == (wanted.streams > 0));
            }
        }
    }

    #[test]
    fn where_there_are_enough_everything_is_promised_and_nothing_said() {
        let share = Share::of(1 << 20, WANTED).unwrap();
        let expected = Share {
            connections: 1_024,
            streams: 1_024,
            half_open: 64,
            spare: 8,
            links: 64,
            files: 16_384,
        };
        assert_eq!(share, expected);
        assert_eq!(share.notice(1 << 20, WANTED), None);
        let few = Wanted { files: 0, streams: 0, ..WANTED };
        let notice = Share::of(64, few).unwrap().notice(64, few).unwrap();
        assert!(
            notice.starts_with("64 descriptors (ulimit -n) allow ")
                && notice.contains("instead of 1024"),
            "{notice}"
        );
    }

    #[test]
    fn too_many_connections_of_ours_are_refused_with_the_limit_and_what_it_allows() {
        assert_eq!(fits(1_024, 100, 1), Ok(()));
        let error = fits(64, 100, 1).unwrap_err().to_string();
        assert!(
            error.contains("may have 64 (ulimit -Hn)")
                && error.contains("--connections 31 at most"),
            "{error}"
        );
        assert_eq!(fits(64, 31, 1), Ok(()));
    }
}
