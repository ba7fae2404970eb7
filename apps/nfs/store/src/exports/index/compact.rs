//! Compaction: a separate thread merges closed segments into a new base while the shards run.
//!
//! The base is replaced as a whole, then published to the shards, and only then are its merged
//! segments removed. A crash in between leaves segments with known content: reading them again does
//! no harm.
//!
//! A shard adopts the new base when it next writes or reads a log, and then reads the records that
//! it lacks; its old maps return here to be dropped. So neither a base of millions of names nor a
//! slow disk ever blocks a core.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use rustix::time::{ClockId, clock_gettime};

use super::{
    Map,
    log::{LogSegment, each_record},
    record::{IndexRecord, RecordKey},
    serialize,
};
use crate::{exports::state_dir::replace, start_error::StartError};

/// Bytes of a segment at least before it is closed.
pub(super) const SEGMENT_MIN: u64 = 128 << 10;
/// Bytes of a segment at most: a shard rereads about as many when it adopts another base.
const SEGMENT_MAX: u64 = 1 << 20;
/// Bytes of closed segments before they are merged into the base: half of the base, within these
/// limits.
pub(super) const MERGE_MIN: u64 = 512 << 10;
const MERGE_MAX: u64 = 64 << 20;
/// Minimum seconds for which a removed file is remembered. A file made later has another birth
/// time, on any file system that records them.
const REMEMBERED_S: i64 = 10;

/// A base, and the positions at which the logs continue after it.
#[derive(Debug)]
pub(super) struct Generation {
    pub number: u64,
    pub map: Arc<Map>,
    /// By shard: the first segment that is not in the base.
    pub firsts: Vec<Arc<LogSegment>>,
    /// Bytes of a segment before it is closed.
    pub segment_len: u64,
}

/// State shared by shards and compactor. A call that needs no new name only loads one number of it.
#[derive(Debug)]
pub(super) struct Common {
    pub key: RecordKey,
    directory: PathBuf,
    /// The number of `generation`.
    latest: AtomicU64,
    generation: Mutex<Arc<Generation>>,
    /// By shard: the segment being written, so that it stays readable when its shard is gone.
    written: Vec<Mutex<Arc<LogSegment>>>,
    /// By shard: the next segment. Made by the compactor, since a shard's thread may act as another
    /// user on files.
    spare: Vec<Mutex<Option<Arc<LogSegment>>>>,
}

/// A message to the compactor.
#[derive(Debug)]
pub(super) enum CompactorMessage {
    /// A shard needs another segment.
    Wanted(usize),
    /// A shard closed a segment.
    Closed(usize, Arc<LogSegment>),
    /// Maps that a shard no longer needs.
    Old(Arc<Map>, Map),
    Stop,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    pub fn new(
        key: RecordKey,
        directory: PathBuf,
        map: Map,
        firsts: Vec<LogSegment>,
        base_len: u64,
    ) -> Self {
        let firsts: Vec<_> = firsts.into_iter().map(Arc::new).collect();
        let segment_len = segment_len(base_len, firsts.len());
        Self {
            key,
            directory,
            latest: AtomicU64::new(0),
            written: firsts.iter().map(|segment| Mutex::new(Arc::clone(segment))).collect(),
            spare: firsts.iter().map(|_| Mutex::new(None)).collect(),
            generation: Mutex::new(Arc::new(Generation {
                number: 0,
                map: Arc::new(map),
                firsts,
                segment_len,
            })),
        }
    }

    /// The latest generation if its number differs from `number`.
    pub fn newer_than(&self, number: u64) -> Option<Arc<Generation>> {
        (self.latest.load(Ordering::Acquire) != number).then(|| self.generation())
    }

    pub fn generation(&self) -> Arc<Generation> {
        Arc::clone(&lock(&self.generation))
    }

    /// The segment that a shard writes.
    pub fn written(&self, shard: usize) -> Arc<LogSegment> {
        Arc::clone(&lock(
            self.written.get(shard).expect("Base::open was told how many shards there are"),
        ))
    }

    /// Switches to the next segment, if there is one; returns the file to append to, and the
    /// segment thereby closed.
    pub fn go_on(&self, shard: usize) -> io::Result<Option<(File, Arc<LogSegment>)>> {
        let (Some(spare), Some(written)) = (self.spare.get(shard), self.written.get(shard)) else {
            return Ok(None);
        };
        let mut spare = lock(spare);
        let Some(next) = &*spare else { return Ok(None) };
        let log = next.file.try_clone()?;
        let closed = std::mem::replace(&mut *lock(written), Arc::clone(next));
        closed.close(next);
        *spare = None;
        Ok(Some((log, closed)))
    }
}

fn segment_len(base_len: u64, shards: usize) -> u64 {
    (base_len / (4 * shards.max(1) as u64)).clamp(SEGMENT_MIN, SEGMENT_MAX)
}

/// The compactor thread.
#[derive(Debug)]
pub(super) struct Compactor {
    pub messages: Sender<CompactorMessage>,
    thread: Option<JoinHandle<()>>,
}

impl Compactor {
    /// Starts it. It inherits the identity of the calling thread.
    pub fn start(common: &Arc<Common>, base_len: u64) -> Result<Self, StartError> {
        let (messages, inbox) = channel();
        let worker = CompactorWorker {
            common: Arc::clone(common),
            inbox,
            closed: vec![],
            base_len,
            is_failing: false,
        };
        let thread =
            thread::Builder::new().name("stag-index".to_owned()).spawn(move || worker.run());
        let thread =
            thread.map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
        Ok(Self { messages, thread: Some(thread) })
    }
}

impl Drop for Compactor {
    /// The state directory is this server's only as long as it lives: nothing is written there
    /// afterwards.
    fn drop(&mut self) {
        let _ = self.messages.send(CompactorMessage::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct CompactorWorker {
    common: Arc<Common>,
    inbox: Receiver<CompactorMessage>,
    /// In the order in which they were closed.
    closed: Vec<(usize, Arc<LogSegment>)>,
    /// Bytes of the base.
    base_len: u64,
    /// True while attempts fail, which is logged once.
    is_failing: bool,
}

impl CompactorWorker {
    fn run(mut self) {
        while let Ok(message) = self.inbox.recv() {
            let mut message = Some(message);
            while let Some(next) = message {
                if !self.note(next) {
                    return;
                }
                message = self.inbox.try_recv().ok();
            }
            let octets: u64 = self.closed.iter().map(|(_, segment)| len(segment)).sum();
            if octets < (self.base_len / 2).clamp(MERGE_MIN, MERGE_MAX) {
                continue;
            }
            let merged = self.merge();
            if let Err(error) = &merged
                && !self.is_failing
            {
                eprintln!(
                    "stag-nfs: cannot merge the logs of the handle index, which grow \
                         meanwhile: {error}"
                );
            }
            self.is_failing = merged.is_err();
        }
    }

    /// Handles a message; false ends the compactor.
    fn note(&mut self, message: CompactorMessage) -> bool {
        match message {
            CompactorMessage::Wanted(shard) => {
                let next = self.common.written(shard).make_next(&self.common.directory, shard);
                // On failure the log continues in its segment, and asks again later.
                if let (Ok(next), Some(spare)) = (next, self.common.spare.get(shard)) {
                    *lock(spare) = Some(Arc::new(next));
                }
            }
            CompactorMessage::Closed(shard, segment) => self.closed.push((shard, segment)),
            CompactorMessage::Old(base, since) => drop((base, since)),
            CompactorMessage::Stop => return false,
        }
        true
    }

    fn merge(&mut self) -> Result<(), StartError> {
        let old = self.common.generation();
        let mut map = Map::clone(&old.map);
        let contents: Result<Vec<_>, io::Error> =
            self.closed.iter().map(|(_, segment)| segment.content()).collect();
        let contents =
            contents.map_err(|error| StartError(format!("cannot read a log: {error}")))?;
        apply_in_order(&contents, &self.common.key, &mut map);
        let now = now();
        map.retain(|_, known| {
            !known.names.as_slice().is_empty()
                || now.saturating_sub(known.birth.seconds) < REMEMBERED_S
        });
        let base = serialize(&map, &self.common.key);
        replace(&self.common.directory, "index.base", &base)?;
        self.base_len = base.len() as u64;
        self.publish(&old, map);
        for (_, segment) in self.closed.drain(..) {
            // A leftover segment is read again at the next start.
            let _ = fs::remove_file(&segment.path);
        }
        Ok(())
    }

    fn publish(&self, old: &Generation, map: Map) {
        let mut firsts = old.firsts.clone();
        for (shard, segment) in &self.closed {
            let behind = segment.behind().flatten().unwrap_or_else(|| self.common.written(*shard));
            if let Some(first) = firsts.get_mut(*shard) {
                *first = behind;
            }
        }
        let segment_len = segment_len(self.base_len, firsts.len());
        let number = old.number + 1;
        let latest = Generation { number, map: Arc::new(map), firsts, segment_len };
        // Published before the segments are dropped: a reader that misses one finds this.
        *lock(&self.common.generation) = Arc::new(latest);
        self.common.latest.store(number, Ordering::Release);
    }
}

fn len(segment: &LogSegment) -> u64 {
    segment.file.metadata().map_or(0, |found| found.len())
}

/// Seconds of the wall clock.
fn now() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// Applies the records of several logs in the order of writing. Returns the number of bytes at
/// their ends that are not whole records.
pub(super) fn apply_in_order(logs: &[Vec<u8>], key: &RecordKey, map: &mut Map) -> u64 {
    let mut records: Vec<IndexRecord<'_>> = vec![];
    let mut torn = 0;
    for octets in logs {
        torn += octets.len() - each_record(octets, key, |record| records.push(*record));
    }
    records.sort_by_key(|record| record.stamp);
    for record in &records {
        map.entry(record.identity.file).or_default().apply(record);
    }
    torn as u64
}
