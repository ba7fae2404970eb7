//! Tests of READs by a ring, while their file changes.

use std::{
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{Advice, fadvise},
};
use stag_pools::{Class, Pool};

use super::*;
use crate::{Origin, Procedures as _, ReadSpan, Store};

const LEN: usize = 50_000;
/// Time limits for evicting a file before it is read: at first, where a file system may never evict
/// it, and later. On a busy machine pages just written or read ahead stay for a while.
const FIRST_TRY: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(2);

/// A store with a ring, and memory for its READs.
pub(super) struct Ringed {
    pub lab: Lab,
    pool: Pool,
    pub content: Vec<u8>,
    pub file: FileHandle,
}

impl Ringed {
    /// None if the system has no ring, or never evicts a file.
    pub(super) fn new(mut lab: Lab) -> Option<Self> {
        let ring = match Ring::new(4, eventfd(0, EventfdFlags::NONBLOCK).unwrap()) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("skipped: no io_uring here ({error})");
                return None;
            }
        };
        lab.files.ring = Some(ring);
        let content: Vec<u8> = (0..=255).cycle().take(LEN).collect();
        let file = lab.file("f", &content);
        let pool = Pool::new(&[Class { slot_len: 1 << 17, count: 4 }]).unwrap();
        let mut ringed = Self { lab, pool, content, file };
        if ringed.try_begin_on_disk(LEN, FIRST_TRY).is_some() {
            return Some(ringed);
        }
        eprintln!("skipped: the temporary directory keeps its files in memory");
        None
    }

    /// A READ of bytes that are not in memory. Readahead in flight restores pages after an
    /// eviction, and a READ that does not wait starts readahead: then it is answered at once, and
    /// repeated.
    pub(super) fn begin_on_disk(&mut self, count: usize) -> Fetched {
        self.try_begin_on_disk(count, PATIENCE)
            .expect("the file can be out of memory: it was before")
    }

    fn try_begin_on_disk(&mut self, count: usize, patience: Duration) -> Option<Fetched> {
        let began = Instant::now();
        loop {
            self.evict();
            let fetched = self.begin(count).1;
            if fetched.is_some() || began.elapsed() > patience {
                return fetched;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn evict(&self) {
        let file = fs::File::open(self.lab.path("f")).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }

    /// A READ at the beginning of the file; returns its immediate answer, or its fetched bytes.
    fn begin(&mut self, count: usize) -> (Option<crate::ReadDone>, Option<Fetched>) {
        let pool = &self.pool;
        let ticket = ReadTicket::all().next().unwrap();
        let files = &mut self.lab.files;
        let done = files
            .begin_read(
                &|len| pool.take(len),
                &self.file,
                ReadSpan { offset: 0, count: count as u32 },
                ticket,
            )
            .unwrap();
        if done.is_some() {
            return (done, None);
        }
        let began = Instant::now();
        loop {
            if let Some(fetched) = Store::next_fetched(files) {
                assert_eq!(fetched.ticket, ticket);
                return (None, Some(fetched));
            }
            assert!(began.elapsed() < Duration::from_secs(20), "nothing is brought");
            std::thread::yield_now();
        }
    }

    pub(super) fn end(
        &mut self,
        count: usize,
        fetched: Fetched,
    ) -> Result<crate::ReadDone, Status> {
        let pool = &self.pool;
        let done = self.lab.files.end_read(
            &|len| pool.take(len),
            &self.file,
            ReadSpan { offset: 0, count: count as u32 },
            fetched.brought,
        );
        done.map_err(|failed| failed.status)
    }
}

fn octets(done: &crate::ReadDone) -> Vec<u8> {
    done.data.iter().flat_map(|part| part.to_vec()).collect()
}

#[test]
fn what_a_ring_brought_is_what_is_answered() {
    let Some(mut ringed) = Ringed::new(Lab::new()) else { return };
    for (count, expected, eof) in [(LEN, LEN, true), (100, 100, false), (LEN + 5_000, LEN, true)] {
        let fetched = ringed.begin_on_disk(count);
        assert!(fetched.brought.is_some());
        let done = ringed.end(count, fetched).unwrap();
        assert_eq!((done.origin, done.eof, done.is_cut), (Origin::Ring, eof, false));
        assert!(octets(&done) == ringed.content[..expected]);
    }
    assert_eq!(ringed.pool.taken(), 0);
}

#[test]
fn a_file_that_changed_after_a_ring_read_it_is_read_again() {
    let Some(mut ringed) = Ringed::new(Lab::new()) else { return };
    for round in 1..10_u8 {
        let fetched = ringed.begin_on_disk(LEN);
        // Until the time stamp differs.
        std::thread::sleep(Duration::from_millis(20));
        let file = fs::File::options().write(true).open(ringed.lab.path("f")).unwrap();
        file.write_all_at(&[round; 10], 20_000).unwrap();
        ringed.content[20_000..20_010].fill(round);
        let done = ringed.end(LEN, fetched).unwrap();
        assert!(octets(&done) == ringed.content, "the octets are those of the attributes");
        // From any source, but not the bytes read by the ring.
        assert!(
            done.origin != Origin::Ring && done.attributes.attributes().size == LEN as u64,
            "{:?}",
            done.origin
        );
    }
}

#[test]
fn a_buffer_whose_caller_is_gone_is_given_back() {
    let Some(mut ringed) = Ringed::new(Lab::new()) else { return };
    for _ in 0..10 {
        assert!(ringed.begin_on_disk(LEN).brought.is_some());
        assert_eq!(ringed.pool.taken(), 0);
    }
}
