//! Asynchronous reads with `io_uring(7)`, from files to buffers of a shard's pool.
//!
//! The system reads directly to the buffer, which the ring owns meanwhile, and signals an eventfd
//! when there is work. Any copy happens inside the shard's own system calls ([`Ring::next_done`]):
//! no thread takes part, provided that the file system can report that a read would wait. Needs
//! Linux 6.1.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::{EnterFlags, IoUring, opcode, types};
use rustix::io::Errno;
use stag_pools::Buf;

/// Reads of files to buffers, up to a fixed number at a time, each with a value of the caller. It
/// belongs to the thread that made it.
pub struct Ring<T> {
    ring: IoUring,
    /// Indexed by an entry's user data.
    reads: Box<[Option<RingRead<T>>]>,
    free: Vec<usize>,
    /// The system accepts no more entries: one in the queue must never be submitted.
    is_stuck: bool,
}

/// Bytes of a file to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRange {
    /// The offset of the first byte in the file.
    pub offset: u64,
    /// Their number.
    pub len: usize,
}

struct RingRead<T> {
    buf: Buf,
    kept: T,
}

/// A completed read.
#[derive(Debug)]
pub struct Done<T> {
    /// Buffer with the bytes read, after its earlier content.
    pub buf: Buf,
    /// Number of bytes read: less than requested at the end of the file.
    pub outcome: rustix::io::Result<usize>,
    /// Value that was passed with the read.
    pub kept: T,
}

impl<T> core::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Ring({} of {} reads)", self.in_flight(), self.reads.len())
    }
}

impl<T> Ring<T> {
    /// A ring for `reads` reads at a time. The system adds to the eventfd `bell` whenever
    /// [`next_done`](Self::next_done) has work.
    ///
    /// # Errors
    /// The system's error: it has no such ring, or not for this process.
    pub fn new(reads: u16, bell: impl AsFd) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(u32::from(reads))?;
        ring.submitter().register_eventfd(bell.as_fd().as_raw_fd())?;
        let reads = usize::from(reads);
        let slots = core::iter::repeat_with(|| None).take(reads).collect();
        Ok(Self { ring, reads: slots, free: (0..reads).rev().collect(), is_stuck: false })
    }

    /// Number of reads in flight.
    pub fn in_flight(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Reads bytes of `file` to the spare room of `buf`. The system holds the file as long as it
    /// needs it. Returns all arguments when no more reads fit.
    ///
    /// # Panics
    /// When the buffer has no room for the range.
    pub fn read(
        &mut self,
        file: impl AsFd,
        ReadRange { offset, len }: ReadRange,
        buf: Buf,
        kept: T,
    ) -> Result<(), (Buf, T)> {
        assert!(len <= buf.spare_len(), "a read has room in its buffer");
        let (false, Some(number)) = (self.is_stuck, self.free.last().copied()) else {
            return Err((buf, kept));
        };
        let Ok(octets) = u32::try_from(len) else { return Err((buf, kept)) };
        let mut reading = RingRead { buf, kept };
        let at = reading.buf.spare_mut().as_mut_ptr();
        let entry =
            opcode::Read::new(types::Fd(file.as_fd().as_raw_fd()), at, octets).offset(offset);
        let entry = entry.build().user_data(number as u64);
        // SAFETY: the octets at `at` belong to the buffer, which stays in `reads`, untouched, until
        // its completion is here; the descriptor is open, and the system takes the file at the
        // submission below or never.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(
            pushed.is_ok(),
            "there are as many entries as reads, and each is submitted at once"
        );
        let submitted = self.ring.submit();
        // An entry that is still queued was not processed; the completion reports the outcome of
        // any other.
        if pushed.is_err() || !self.ring.submission().is_empty() {
            debug_assert!(
                submitted.is_err() || pushed.is_err(),
                "the system takes one entry or says why not"
            );
            self.is_stuck = true;
            return Err((reading.buf, reading.kept));
        }
        self.free.pop();
        *self.reads.get_mut(number).expect("a free number is in range") = Some(reading);
        Ok(())
    }

    /// The next completed read. Costs at most one load if there is none; one system call, which
    /// copies the bytes, if some have come from the disk.
    pub fn next_done(&mut self) -> Option<Done<T>> {
        if self.in_flight() == 0 {
            return None;
        }
        if self.ring.submission().taskrun() {
            // An error (EINTR, EBUSY) recurs the next time.
            let _ = self.enter(0);
        }
        let entry = self.ring.completion().next()?;
        let number = usize::try_from(entry.user_data()).expect("it was an index");
        let RingRead { mut buf, kept } =
            self.reads.get_mut(number).and_then(Option::take).expect("a read completes once");
        self.free.push(number);
        let outcome = match usize::try_from(entry.result()) {
            Ok(count) => {
                buf.extend(count);
                Ok(count)
            }
            Err(_) => Err(Errno::from_raw_os_error(-entry.result())),
        };
        Some(Done { buf, outcome, kept })
    }

    /// Lets the system do the work left to this thread, until this number of reads has completed.
    /// Submits nothing.
    fn enter(&self, completions: u32) -> io::Result<usize> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: the call has no argument, and no entry is submitted by it.
        unsafe { self.ring.submitter().enter::<()>(0, completions, flags, None) }
    }
}

impl<T> Drop for Ring<T> {
    /// Waits until the system no longer writes to any buffer.
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            match self.enter(1) {
                Ok(_) => while self.next_done().is_some() {},
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Memory that may still be written to is leaked.
                Err(_) => return core::mem::forget(core::mem::take(&mut self.reads)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::fs::{Advice, fadvise};
    use stag_pools::{Class, Pool};
    use std::fs::File;
    use std::os::fd::OwnedFd;

    const LEN: usize = 70_000;

    fn pattern(place: usize) -> u8 {
        (place % 251) as u8
    }

    struct World {
        ring: Ring<usize>,
        bell: OwnedFd,
        pool: Pool,
        file: File,
    }

    /// None, with a message, if the system has no ring for this process.
    fn world(reads: u16) -> Option<World> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let ring = match Ring::new(reads, &bell) {
            Ok(ring) => ring,
            Err(error) => {
                eprintln!("skipped: no io_uring here ({error})");
                return None;
            }
        };
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        std::fs::write(&path, (0..LEN).map(pattern).collect::<Vec<_>>()).unwrap();
        let pool = Pool::new(&[Class { slot_len: 1 << 17, count: 8 }]).unwrap();
        Some(World { ring, bell, pool, file: File::open(path).unwrap() })
    }

    impl World {
        fn evict(&self) {
            self.file.sync_all().unwrap();
            fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
        }

        /// Sleeps as a shard does.
        fn await_done(&mut self) -> Done<usize> {
            loop {
                if let Some(done) = self.ring.next_done() {
                    return done;
                }
                let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
                let rung =
                    poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&limit)).unwrap();
                assert_eq!(rung, 1, "the bell rings");
                rustix::io::read(&self.bell, &mut [0; 8]).unwrap();
            }
        }
    }

    #[test]
    fn octets_come_behind_what_the_buffer_has_whether_the_disk_or_memory_has_them() {
        let Some(mut world) = world(4) else { return };
        for (round, (offset, len)) in
            [(0, LEN), (1, 1), (4_095, 2), (60_000, 20_000), (LEN, 10), (1 << 40, 10)]
                .into_iter()
                .flat_map(|range| [range; 2])
                .enumerate()
        {
            if round % 2 == 0 {
                world.evict();
            }
            let mut buf = world.pool.take(len + 3).unwrap();
            buf.append(b"abc").unwrap();
            assert!(
                world
                    .ring
                    .read(&world.file, ReadRange { offset: offset as u64, len }, buf, round)
                    .is_ok()
            );
            let done = world.await_done();
            let there = LEN.saturating_sub(offset).min(len);
            assert_eq!((done.outcome, done.kept), (Ok(there), round));
            assert_eq!(done.buf[..3], *b"abc");
            assert!(
                done.buf[3..].iter().copied().eq((offset..offset + there).map(pattern)),
                "round {round}"
            );
        }
        assert_eq!((world.ring.in_flight(), world.pool.taken()), (0, 0));
    }

    #[test]
    fn as_many_reads_as_it_was_made_for_and_no_more() {
        let Some(mut world) = world(4) else { return };
        world.evict();
        for round in 0..3 {
            for number in 0..4 {
                let buf = world.pool.take(9_000).unwrap();
                assert!(
                    world
                        .ring
                        .read(
                            &world.file,
                            ReadRange { offset: number as u64 * 9_000, len: 9_000 },
                            buf,
                            number
                        )
                        .is_ok()
                );
            }
            let buf = world.pool.take(9_000).unwrap();
            let (_, kept) = world
                .ring
                .read(&world.file, ReadRange { offset: 0, len: 9_000 }, buf, 77)
                .unwrap_err();
            assert_eq!((kept, world.ring.in_flight()), (77, 4), "round {round}");
            let mut seen: Vec<_> = (0..4)
                .map(|_| world.await_done())
                .inspect(|done| {
                    let places = done.kept * 9_000..(done.kept + 1) * 9_000;
                    assert!(done.buf.iter().copied().eq(places.map(pattern)));
                })
                .map(|done| done.kept)
                .collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
            assert!(world.ring.next_done().is_none());
        }
    }

    #[test]
    fn a_read_that_fails_gives_the_buffer_back_as_it_was() {
        let Some(mut world) = world(1) else { return };
        let directory = File::open("/").unwrap();
        for (file, error) in
            [(&directory, Errno::ISDIR), (&world.file.try_clone().unwrap(), Errno::INVAL)]
        {
            let offset = if error == Errno::INVAL { 1 << 63 } else { 0 };
            let buf = world.pool.take(10).unwrap();
            assert!(world.ring.read(file, ReadRange { offset, len: 10 }, buf, 5).is_ok());
            let done = world.await_done();
            assert_eq!((done.outcome, done.buf.len(), done.kept), (Err(error), 0, 5));
        }
    }

    #[test]
    fn a_file_may_be_closed_and_a_ring_dropped_while_it_reads() {
        let Some(mut world) = world(8) else { return };
        world.evict();
        for number in 0..4 {
            let buf = world.pool.take(LEN).unwrap();
            let file = world.file.try_clone().unwrap();
            assert!(world.ring.read(&file, ReadRange { offset: 0, len: LEN }, buf, number).is_ok());
        }
        let done = world.await_done();
        assert!(done.buf.iter().copied().eq((0..LEN).map(pattern)));
        let World { ring, pool, .. } = world;
        drop((done, ring));
        assert_eq!(pool.taken(), 0, "nothing is written to any more");
    }

    #[test]
    fn a_system_that_refuses_says_so() {
        let bell = File::open("/").unwrap();
        assert!(Ring::<()>::new(1, &bell).is_err(), "a directory is no eventfd");
    }
}
