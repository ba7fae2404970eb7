//! The persistent index: which names a file has, so that a handle leads to a path after a restart. For unprivileged mode, and
//! for exports whose file system has no handles of its own.
//!
//! Without privilege an inode cannot be opened by number. The index keeps, for every file a handle was issued for, up to
//! [`NAMES_MAX`] pairs of directory inode and name. They are hints: whoever opens one compares what he finds with the handle, so
//! an outdated hint costs a lookup, never a wrong file.
//!
//! **On disk**: `index.base`, and one append-only `index.N.log` per shard. A shard writes only its own log, once per pass
//! ([`Index::flush`]), and reads the others' on a miss ([`Index::catch_up`]): no lock anywhere. A start merges all logs into
//! the base. Records are checksummed; a torn one ends its log.
//!
//! A log is not synced: after a power cut the handles first issued in the last half minute or so may be stale. After the end of the
//! server, however sudden, none is.
//!
//! **In memory**: the base is read once and shared by all shards; a shard adds what it saw since. An entry takes 130 to 200
//! octets with a short name. It grows with the number of distinct files that clients look at, and is the only
//! thing here that allocates after the start: on first sight of a name, not per call. Files removed behind the server's back
//! stay in the index.

mod record;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};

use crate::handle::{Birth, FileId, Identity};
use crate::state::{StartError, State, cannot};
use record::{Record, RecordKey, What};

/// Names kept of one file; beyond that the one seen longest ago is forgotten.
pub const NAMES_MAX: usize = 8;

/// Octets of records that may wait for [`Index::flush`].
const PENDING_MAX: usize = 256 << 10;
/// Octets read at once from another shard's log.
const READ_LEN: usize = 64 << 10;
const _: () = assert!(READ_LEN >= Record::MAX && PENDING_MAX >= Record::MAX);

/// A name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Inode of the directory that holds the name.
    pub parent: u64,
    /// The name, 1 to 255 octets.
    pub name: Box<[u8]>,
    stamp: u64,
}

/// What is known about an inode.
#[derive(Clone, Debug, Default)]
struct Known {
    birth: Birth,
    names: Names,
}

/// Nearly every file has one name: no vector for it.
#[derive(Clone, Debug, Default)]
enum Names {
    #[default]
    None,
    One(Location),
    /// The one seen last comes first.
    Many(Vec<Location>),
}

impl Names {
    fn as_slice(&self) -> &[Location] {
        match self {
            Self::None => &[],
            Self::One(one) => core::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    fn put_first(&mut self, location: Location) {
        *self = match core::mem::take(self) {
            Self::None => Self::One(location),
            Self::One(one) => Self::Many(vec![location, one]),
            Self::Many(mut many) => {
                many.truncate(NAMES_MAX - 1);
                many.insert(0, location);
                Self::Many(many)
            }
        };
    }

    fn remove(&mut self, at: impl Fn(&Location) -> bool) {
        match self {
            Self::None => {}
            Self::One(one) => {
                if at(one) {
                    *self = Self::None;
                }
            }
            Self::Many(many) => many.retain(|location| !at(location)),
        }
    }
}

type Map = HashMap<FileId, Known>;

impl Known {
    fn apply(&mut self, record: &Record<'_>) {
        let same = |location: &Location| location.parent == record.parent && *location.name == *record.name;
        let latest = self.names.as_slice().iter().map(|location| location.stamp).max().unwrap_or(0);
        if self.birth != record.identity.birth {
            if record.what == What::Gone || record.stamp < latest {
                return; // About a file that had this inode number before.
            }
            *self = Self { birth: record.identity.birth, names: Names::None };
        }
        match record.what {
            What::Here => {
                self.names.remove(same);
                let name = record.name.into();
                self.names.put_first(Location { parent: record.parent, name, stamp: record.stamp });
            }
            What::Gone => self.names.remove(|location| same(location) && location.stamp <= record.stamp),
        }
    }
}

/// What all shards start from; see [`Base::open`].
#[derive(Clone, Debug)]
pub struct Base {
    map: Arc<Map>,
    logs: Vec<PathBuf>,
    key: RecordKey,
    torn: u64,
}

impl Base {
    /// Merges the logs of earlier runs into the base and makes an empty log for each shard.
    ///
    /// # Errors
    /// A sentence when a file of the index cannot be read or written.
    pub fn open(state: &State, shards: usize) -> Result<Self, StartError> {
        let key = RecordKey(state.record_key());
        let base = state.path().join("index.base");
        let mut map = Map::new();
        let mut torn = replay(&base, &key, &mut map)?;
        let old = logs_in(state.path())?;
        for log in &old {
            torn += replay(log, &key, &mut map)?;
        }
        map.retain(|_, known| !known.names.as_slice().is_empty());
        state.replace("index.base", &serialize(&map, &key))?;
        // From here on the logs say nothing that the base does not; replaying them twice would do no harm.
        for log in &old {
            fs::remove_file(log).map_err(cannot("remove", log))?;
        }
        let logs: Vec<_> = (0..shards).map(|shard| state.path().join(format!("index.{shard}.log"))).collect();
        for log in &logs {
            let mut options = OpenOptions::new();
            options.append(true).create_new(true).mode(0o600).open(log).map_err(cannot("make", log))?;
        }
        Ok(Self { map: Arc::new(map), logs, key, torn })
    }

    /// Octets of torn or damaged records that the start left out: what a crash cut off.
    pub fn torn_octets(&self) -> u64 {
        self.torn
    }

    /// Files known from earlier runs.
    pub fn files(&self) -> usize {
        self.map.len()
    }
}

fn logs_in(directory: &Path) -> Result<Vec<PathBuf>, StartError> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut logs = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.strip_prefix("index.").is_some_and(|rest| rest.ends_with(".log")) {
                logs.push(entry.path());
            }
        }
        logs.sort();
        Ok(logs)
    };
    read().map_err(cannot("list", directory))
}

/// Applies the file's records to `map`; returns how many octets at its end are no whole record.
fn replay(path: &Path, key: &RecordKey, map: &mut Map) -> Result<u64, StartError> {
    let octets = match fs::read(path) {
        Ok(octets) => octets,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(cannot("read", path)(error)),
    };
    let mut rest = octets.as_slice();
    while let Ok((record, len)) = Record::parse(rest, key) {
        map.entry(record.identity.file).or_default().apply(&record);
        rest = rest.get(len..).expect("parse stays within");
    }
    Ok(rest.len() as u64)
}

fn serialize(map: &Map, key: &RecordKey) -> Vec<u8> {
    let mut octets = Vec::new();
    for (file, known) in map {
        for location in known.names.as_slice().iter().rev() {
            let identity = Identity { file: *file, birth: known.birth };
            let Location { parent, ref name, stamp } = *location;
            Record { what: What::Here, identity, parent, stamp, name }.emit(key, &mut octets);
        }
    }
    octets
}

/// Another shard's log, and how far it was read.
#[derive(Debug)]
struct Tail {
    file: File,
    offset: u64,
}

/// One shard's view of the index, and its log.
#[derive(Debug)]
pub struct Index {
    base: Arc<Map>,
    /// What changed since the start; an entry here hides the one in `base`.
    since: Map,
    key: RecordKey,
    log: File,
    /// Octets of `log` that are whole records.
    written: u64,
    /// Behind them lies part of one that must go before the next write.
    is_torn: bool,
    pending: Vec<u8>,
    others: Vec<Tail>,
    buffer: Box<[u8]>,
    stamp: u64,
}

impl Index {
    /// The index of shard number `shard`. Opened once for each shard.
    ///
    /// # Errors
    /// A sentence when a log cannot be opened.
    pub fn open(base: &Base, shard: usize) -> Result<Self, StartError> {
        let own = base.logs.get(shard).expect("Base::open was told how many shards there are");
        let log = OpenOptions::new().append(true).open(own).map_err(cannot("append to", own))?;
        let mut others = Vec::with_capacity(base.logs.len());
        for path in base.logs.iter().filter(|path| *path != own) {
            others.push(Tail { file: File::open(path).map_err(cannot("read", path))?, offset: 0 });
        }
        Ok(Self {
            base: Arc::clone(&base.map),
            since: Map::new(),
            key: base.key.clone(),
            log,
            written: 0,
            is_torn: false,
            pending: Vec::with_capacity(PENDING_MAX),
            others,
            buffer: vec![0; READ_LEN].into_boxed_slice(),
            stamp: 0,
        })
    }

    /// The names of a file, the one seen last first; none when it is unknown or lost all of them.
    pub fn names(&self, file: FileId) -> &[Location] {
        self.known(file).map_or(&[], |known| known.names.as_slice())
    }

    /// Whether a handle may have been issued for exactly this file, here or, as far as they were read, on other shards.
    pub fn has_met(&self, identity: Identity) -> bool {
        self.known(identity.file).is_some_and(|known| known.birth == identity.birth)
    }

    /// Notes that a file has a name. Does nothing, and does not allocate, when that is known.
    ///
    /// # Errors
    /// When the records that wait already are too many and cannot be written.
    pub fn record(&mut self, identity: Identity, parent: u64, name: &[u8]) -> std::io::Result<()> {
        let is_known = self.known(identity.file).is_some_and(|known| {
            let mut names = known.names.as_slice().iter();
            known.birth == identity.birth && names.any(|at| at.parent == parent && *at.name == *name)
        });
        if is_known { Ok(()) } else { self.append(What::Here, identity, parent, name) }
    }

    /// Notes that a file has a name no longer.
    ///
    /// # Errors
    /// When the records that wait already are too many and cannot be written.
    pub fn forget(&mut self, identity: Identity, parent: u64, name: &[u8]) -> std::io::Result<()> {
        if self.known(identity.file).is_none() {
            Ok(())
        } else {
            self.append(What::Gone, identity, parent, name)
        }
    }

    /// Writes what [`Index::record`] and [`Index::forget`] noted, with one system call and none when there is nothing. Call
    /// it once per pass, before the replies leave: a handle that a client knows is then found after a restart of the server.
    ///
    /// # Errors
    /// When the log cannot be written, as on a full disk; the records wait for the next call.
    pub fn flush(&mut self) -> std::io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            // Readers stop before a record that is not whole; cutting it off lets the log go on.
            self.log.set_len(self.written)?;
            self.is_torn = false;
        }
        let len = self.pending.len();
        let count = rustix::io::write(&self.log, &self.pending)?;
        if count < len {
            self.is_torn = true;
            return Err(ErrorKind::StorageFull.into());
        }
        self.written += len as u64;
        self.pending.clear();
        Ok(())
    }

    /// Reads what other shards appended since the last call; whether there was anything.
    pub fn catch_up(&mut self) -> bool {
        let mut any = false;
        for tail in &mut self.others {
            while read_on(tail, &mut self.buffer, &self.key, &self.base, &mut self.since) {
                any = true;
            }
        }
        any
    }

    fn known(&self, file: FileId) -> Option<&Known> {
        self.since.get(&file).or_else(|| self.base.get(&file))
    }

    fn append(&mut self, what: What, identity: Identity, parent: u64, name: &[u8]) -> std::io::Result<()> {
        if self.pending.len() + Record::MAX > PENDING_MAX {
            self.flush()?;
        }
        let record = Record { what, identity, parent, stamp: self.next_stamp(), name };
        record.emit(&self.key, &mut self.pending);
        apply(&record, &self.base, &mut self.since);
        Ok(())
    }

    fn next_stamp(&mut self) -> u64 {
        let now = clock_gettime(ClockId::Realtime);
        let nanos = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
        self.stamp = u64::try_from(nanos).unwrap_or(0).max(self.stamp.saturating_add(1));
        self.stamp
    }
}

fn apply(record: &Record<'_>, base: &Map, since: &mut Map) {
    let file = record.identity.file;
    since.entry(file).or_insert_with(|| base.get(&file).cloned().unwrap_or_default()).apply(record);
}

/// Applies one buffer of records; whether there was a whole one.
fn read_on(tail: &mut Tail, buffer: &mut [u8], key: &RecordKey, base: &Map, since: &mut Map) -> bool {
    // An error reads like an empty log: the caller then finds no name, and the handle is stale until the log can be read.
    let count = tail.file.read_at(buffer, tail.offset).unwrap_or(0);
    let mut rest = buffer.get(..count).expect("read_at fills at most the buffer");
    while let Ok((record, len)) = Record::parse(rest, key) {
        apply(&record, base, since);
        rest = rest.get(len..).expect("parse stays within");
    }
    let used = count - rest.len();
    tail.offset += used as u64;
    used > 0
}

#[cfg(test)]
mod tests;
