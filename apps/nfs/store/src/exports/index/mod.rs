//! The persistent index of files' names, which leads from a handle to a path after a restart. For
//! unprivileged mode, and for exports whose file system has no handles of its own.
//!
//! Without privilege an inode cannot be opened by number. The index stores, for every file with an
//! issued handle, up to [`NAMES_MAX`] pairs of directory inode and name. They are hints: the opened
//! file is compared with the handle, so an outdated hint costs a lookup, never a wrong file.
//!
//! **On disk**: `index.base`, and an append-only log per shard, in segments (`log`): `index.N.log`,
//! then `index.N.M.log`. A shard writes only its own log, once for each reply with new handles
//! ([`Index::flush`]), and reads the others' on a miss ([`Index::catch_up`]): a call takes no lock.
//! A start merges all logs into the base. While the server runs, a thread merges closed segments
//! (`compact`), so that logs and base together take little more than twice the size of the base, or
//! a megabyte. Records are checksummed; a torn one ends its log.
//!
//! A log is not synced: after a power cut the handles first issued in the last half minute or so
//! may be stale. After any end of the server process, none is.
//!
//! **In memory**: the base is shared by all shards; a shard adds the changes since. An entry takes
//! 130 to 200 bytes with a short name. The index grows with the number of distinct files that
//! clients look up, and is the only part here that allocates after the start: on first sight of a
//! name, not per call. Files removed by local programs stay in the index; files removed through the
//! server leave with the next base.

mod compact;
mod log;
mod record;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, mpsc::Sender},
};

use rustix::time::{ClockId, clock_gettime};

use super::{
    handle::{Birth, FileId, Identity},
    state_dir::{StateDirectory, cannot},
};
use crate::start_error::StartError;
use compact::{Common, Compactor, CompactorMessage, Generation};
use log::{LogScan, LogSegment, Tail, each_record};
use record::{IndexRecord, RecordKey, RecordKind};

/// Names stored per file; beyond that the least recently seen is forgotten.
pub const NAMES_MAX: usize = 8;

/// Bytes of records that may wait for [`Index::flush`].
const PENDING_MAX: usize = 256 << 10;
/// Bytes read at once from another shard's log.
const READ_LEN: usize = 64 << 10;
const _: () = assert!(READ_LEN >= IndexRecord::MAX && PENDING_MAX >= IndexRecord::MAX);

/// A name of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Inode of the directory that holds the name.
    pub parent: u64,
    /// The name, 1 to 255 octets.
    pub name: Box<[u8]>,
    stamp: u64,
}

/// Facts about an inode.
#[derive(Clone, Debug, Default)]
struct KnownInode {
    birth: Birth,
    names: InodeNames,
}

/// Nearly every file has one name, and needs no vector for it.
#[derive(Clone, Debug, Default)]
enum InodeNames {
    #[default]
    None,
    One(Location),
    /// The most recently seen comes first.
    Many(Vec<Location>),
}

impl InodeNames {
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

type Map = HashMap<FileId, KnownInode>;

impl KnownInode {
    fn apply(&mut self, record: &IndexRecord<'_>) {
        let same = |location: &Location| {
            location.parent == record.parent && *location.name == *record.name
        };
        let latest = self.names.as_slice().iter().map(|location| location.stamp).max().unwrap_or(0);
        if self.birth != record.identity.birth {
            if record.what == RecordKind::Gone || record.stamp < latest {
                return; // About a file that had this inode number before.
            }
            *self = Self { birth: record.identity.birth, names: InodeNames::None };
        }
        match record.what {
            // A log that is read again must not make a name older than it is.
            RecordKind::Here
                if self.names.as_slice().iter().any(|at| same(at) && at.stamp > record.stamp) => {}
            RecordKind::Here => {
                self.names.remove(same);
                let name = record.name.into();
                self.names.put_first(Location { parent: record.parent, name, stamp: record.stamp });
            }
            RecordKind::Gone => {
                self.names.remove(|location| same(location) && location.stamp <= record.stamp)
            }
        }
    }
}

/// The state that all shards start from; see [`Base::open`]. Its thread ends with it.
#[derive(Debug)]
pub struct Base {
    common: Arc<Common>,
    compactor: Compactor,
    torn: u64,
}

impl Base {
    /// Merges the logs of earlier runs into the base and makes an empty log for each shard.
    ///
    /// # Errors
    /// A sentence when a file of the index cannot be read or written.
    pub fn open(state: &StateDirectory, shards: usize) -> Result<Self, StartError> {
        let key = RecordKey(state.record_key());
        let mut map = Map::new();
        let old = logs_in(state.path())?;
        let base = read(&state.path().join("index.base"))?;
        let mut torn = compact::apply_in_order(&[base], &key, &mut map);
        let contents: Vec<_> = old.iter().map(|log| read(log)).collect::<Result<_, _>>()?;
        torn += compact::apply_in_order(&contents, &key, &mut map);
        map.retain(|_, known| !known.names.as_slice().is_empty());
        let base = serialize(&map, &key);
        state.replace("index.base", &base)?;
        // From here on the logs add nothing to the base; replaying them twice would do no harm.
        for log in &old {
            fs::remove_file(log).map_err(cannot("remove", log))?;
        }
        let make = |shard| {
            LogSegment::first(state.path(), shard).map_err(cannot("make a log in", state.path()))
        };
        let firsts = (0..shards).map(make).collect::<Result<_, _>>()?;
        let base_len = base.len() as u64;
        let common = Arc::new(Common::new(key, state.path().to_owned(), map, firsts, base_len));
        let compactor = Compactor::start(&common, base_len)?;
        Ok(Self { common, compactor, torn })
    }

    /// Bytes of torn or damaged records skipped at the start, after a crash.
    pub fn torn_octets(&self) -> u64 {
        self.torn
    }

    /// Files in the latest base.
    pub fn files(&self) -> usize {
        self.common.generation().map.len()
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

/// A file's content; empty if it does not exist.
fn read(path: &Path) -> Result<Vec<u8>, StartError> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        outcome => outcome.map_err(cannot("read", path)),
    }
}

fn serialize(map: &Map, key: &RecordKey) -> Vec<u8> {
    let mut octets = Vec::new();
    for (file, known) in map {
        for location in known.names.as_slice().iter().rev() {
            let identity = Identity { file: *file, birth: known.birth };
            let Location { parent, ref name, stamp } = *location;
            IndexRecord { what: RecordKind::Here, identity, parent, stamp, name }
                .emit(key, &mut octets);
        }
    }
    octets
}

/// One shard's view of the index, and its log.
#[derive(Debug)]
pub struct Index {
    common: Arc<Common>,
    compactor: Sender<CompactorMessage>,
    shard: usize,
    /// Number of this base, counted from the first one.
    generation: u64,
    base: Arc<Map>,
    /// Changes since that base; an entry here hides the base's.
    since: Map,
    log: File,
    /// Bytes of `log` that are whole records.
    written: u64,
    /// Size of it from which on another segment is requested.
    full_at: u64,
    segment_len: u64,
    /// True if the log ends with part of a record, to be removed before the next write.
    is_torn: bool,
    pending: Vec<u8>,
    others: Vec<Tail>,
    buffer: Box<[u8]>,
    stamp: u64,
    /// Number of times that records of other shards were read.
    news: u64,
}

impl Index {
    /// The index of shard number `shard`. To be opened once for each shard at a time.
    ///
    /// # Errors
    /// A sentence when the shard's log cannot be opened.
    pub fn open(base: &Base, shard: usize) -> Result<Self, StartError> {
        let common = Arc::clone(&base.common);
        let latest = common.generation();
        let path = common.written(shard).path.clone();
        let log =
            OpenOptions::new().append(true).open(&path).map_err(cannot("append to", &path))?;
        let written = log.metadata().map_err(cannot("look at", &path))?.len();
        let mut index = Self {
            common,
            compactor: base.compactor.messages.clone(),
            shard,
            generation: latest.number,
            base: Arc::clone(&latest.map),
            since: Map::new(),
            log,
            written,
            full_at: latest.segment_len,
            segment_len: latest.segment_len,
            is_torn: false,
            pending: Vec::with_capacity(PENDING_MAX),
            others: Vec::with_capacity(latest.firsts.len()),
            buffer: vec![0; READ_LEN].into_boxed_slice(),
            stamp: 0,
            news: 0,
        };
        index.begin(&latest);
        Ok(index)
    }

    /// The names of a file, the most recently seen first; none when it is unknown or lost all of
    /// them.
    pub fn names(&self, file: FileId) -> &[Location] {
        self.known(file).map_or(&[], |known| known.names.as_slice())
    }

    /// Returns true if a handle may have been issued for exactly this file, here or on other
    /// shards, as far as their records were read.
    pub fn has_met(&self, identity: Identity) -> bool {
        self.known(identity.file).is_some_and(|known| known.birth == identity.birth)
    }

    /// Records a file's name. Does nothing, and does not allocate, when it is known.
    ///
    /// # Errors
    /// When too many records are pending and cannot be written.
    pub fn record(&mut self, identity: Identity, parent: u64, name: &[u8]) -> std::io::Result<()> {
        let is_known = self.known(identity.file).is_some_and(|known| {
            let mut names = known.names.as_slice().iter();
            known.birth == identity.birth
                && names.any(|at| at.parent == parent && *at.name == *name)
        });
        if is_known { Ok(()) } else { self.append(RecordKind::Here, identity, parent, name) }
    }

    /// Records that a file has lost a name.
    ///
    /// # Errors
    /// When too many records are pending and cannot be written.
    pub fn forget(&mut self, identity: Identity, parent: u64, name: &[u8]) -> std::io::Result<()> {
        if self.known(identity.file).is_none() {
            Ok(())
        } else {
            self.append(RecordKind::Gone, identity, parent, name)
        }
    }

    /// Returns true if records are pending for [`flush`](Self::flush).
    pub const fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes the pending records of [`Index::record`] and [`Index::forget`], with one system call,
    /// or none if there are none. Call it before sending a reply that carries a handle: a handle
    /// that a client has is then found after a restart of the server.
    ///
    /// # Errors
    /// When the log cannot be written, as on a full disk; the records stay pending.
    pub fn flush(&mut self) -> std::io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            // Readers stop before a torn record; cutting it off lets the log continue.
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
        if self.written >= self.full_at {
            self.go_on();
        }
        if self.common.newer_than(self.generation).is_some() {
            self.catch_up();
        }
        Ok(())
    }

    /// Closes the segment if there is another one, else requests one and continues meanwhile. Makes
    /// no file itself.
    fn go_on(&mut self) {
        let message = match self.common.go_on(self.shard) {
            Ok(Some((log, closed))) => {
                (self.log, self.written, self.full_at) = (log, 0, self.segment_len);
                CompactorMessage::Closed(self.shard, closed)
            }
            Ok(None) | Err(_) => {
                self.full_at = self.written + self.segment_len;
                CompactorMessage::Wanted(self.shard)
            }
        };
        // At the server's end there is no receiver.
        let _ = self.compactor.send(message);
    }

    /// Reads records that other shards appended since the last call, and adopts the latest base;
    /// returns true if there was anything.
    pub fn catch_up(&mut self) -> bool {
        let mut any = false;
        loop {
            while let Some(latest) = self.common.newer_than(self.generation) {
                self.begin(&latest);
                any = true;
            }
            let mut has_gap = false;
            for tail in &mut self.others {
                let apply = |record: &IndexRecord<'_>| apply(record, &self.base, &mut self.since);
                let found = tail.read(&mut self.buffer, &self.common.key, apply);
                any |= found != LogScan::Nothing;
                has_gap |= found == LogScan::Gap;
            }
            if !has_gap || self.common.newer_than(self.generation).is_none() {
                self.news = self.news.wrapping_add(any.into());
                return any;
            }
        }
    }

    /// A number that changes whenever [`catch_up`](Self::catch_up) has read something.
    pub const fn news(&self) -> u64 {
        self.news
    }

    /// Starts with another base: rereads this shard's own records that it lacks. The others' logs
    /// are read from there on.
    fn begin(&mut self, latest: &Generation) {
        self.generation = latest.number;
        self.segment_len = latest.segment_len;
        if !Arc::ptr_eq(&self.base, &latest.map) {
            let base = std::mem::replace(&mut self.base, Arc::clone(&latest.map));
            // Dropped elsewhere, as that may take long.
            let _ =
                self.compactor.send(CompactorMessage::Old(base, std::mem::take(&mut self.since)));
        }
        self.others.clear();
        let mut own = None;
        for (shard, first) in latest.firsts.iter().enumerate() {
            let tail = Tail::of(Arc::clone(first));
            if shard == self.shard { own = Some(tail) } else { self.others.push(tail) }
        }
        let apply = |record: &IndexRecord<'_>| apply(record, &self.base, &mut self.since);
        // A gap is closed by an even later base.
        own.map(|mut own| own.read(&mut self.buffer, &self.common.key, apply));
        let apply = |record: &IndexRecord<'_>| self::apply(record, &self.base, &mut self.since);
        each_record(&self.pending, &self.common.key, apply);
    }

    fn known(&self, file: FileId) -> Option<&KnownInode> {
        self.since.get(&file).or_else(|| self.base.get(&file))
    }

    fn append(
        &mut self,
        what: RecordKind,
        identity: Identity,
        parent: u64,
        name: &[u8],
    ) -> std::io::Result<()> {
        if self.pending.len() + IndexRecord::MAX > PENDING_MAX {
            self.flush()?;
        }
        let record = IndexRecord { what, identity, parent, stamp: self.next_stamp(), name };
        record.emit(&self.common.key, &mut self.pending);
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

fn apply(record: &IndexRecord<'_>, base: &Map, since: &mut Map) {
    let file = record.identity.file;
    since.entry(file).or_insert_with(|| base.get(&file).cloned().unwrap_or_default()).apply(record);
}

#[cfg(test)]
mod tests;
