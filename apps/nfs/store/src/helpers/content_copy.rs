//! Copying between two open files of one file system (COPY, RFC 7862 §15.2). The kernel moves the
//! data and holes are preserved. Used by shards for short copies and by helpers for long ones.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, fstat, seek},
    io::{Errno, pwrite},
};
use stag_nfs_os::writeback;

/// Bytes per system call at most: the time limit is checked in between.
const STEP: u64 = 4 << 20;

/// A span of one file and its position in another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySpan {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) len: u64,
}

/// Limits of one COPY; the client requests the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyBudget {
    /// Bytes of data, holes excluded.
    octets: u64,
    /// Pieces of data and holes.
    pieces: u32,
    time: Duration,
    /// Starts writeback of copied data early, because a COMMIT follows.
    is_written_back: bool,
}

impl CopyBudget {
    /// For a shard, whose other clients wait meanwhile.
    pub(crate) const SHARD: Self = Self {
        octets: 1 << 20,
        pieces: 64,
        time: Duration::from_millis(20),
        is_written_back: false,
    };
    /// For a helper. A Linux client commits after each COPY, so long ones save syncs.
    pub(crate) const HELPER: Self = Self {
        octets: 256 << 20,
        pieces: 4_096,
        time: Duration::from_secs(1),
        is_written_back: true,
    };
}

/// Copies bytes from the front of a span and returns their number, holes included.
///
/// # Errors
/// Of the first system call, if it failed before anything was copied.
pub(crate) fn copy_span(
    source: impl AsFd,
    target: impl AsFd,
    span: CopySpan,
    budget: CopyBudget,
) -> rustix::io::Result<u64> {
    let pair = CopyPair { source: source.as_fd(), target: target.as_fd() };
    let (began, mut octets, mut done) = (Instant::now(), budget.octets, 0);
    for _ in 0..budget.pieces {
        if done >= span.len || octets == 0 || (done > 0 && began.elapsed() >= budget.time) {
            break;
        }
        let rest = CopySpan { from: span.from + done, to: span.to + done, len: span.len - done };
        let (piece, copied) = match pair.next_piece(rest) {
            Ok(piece @ CopyPiece::Hole(len)) => {
                (piece, pair.leave_hole(rest.to, len).map(|()| len))
            }
            Ok(piece @ CopyPiece::Data(len)) => {
                (piece, pair.copy_data(CopySpan { len: len.min(octets).min(STEP), ..rest }))
            }
            Err(error) => (CopyPiece::Data(0), Err(error)),
        };
        match copied {
            // The source was truncated meanwhile.
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        if let (CopyPiece::Data(_), Ok(count)) = (piece, copied) {
            octets = octets.saturating_sub(count);
            if budget.is_written_back {
                // If writeback cannot be started, the COMMIT does all of it.
                let _ = writeback::begin(pair.target, rest.to, count);
            }
        }
    }
    Ok(done)
}

/// Bytes of the source, stored or not.
#[derive(Clone, Copy)]
enum CopyPiece {
    Data(u64),
    Hole(u64),
}

struct CopyPair<'a> {
    source: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
}

impl CopyPair<'_> {
    /// The piece at the front of a span. On file systems without holes all is data.
    fn next_piece(&self, CopySpan { from, len, .. }: CopySpan) -> rustix::io::Result<CopyPiece> {
        let data = match seek(self.source, SeekFrom::Data(from)) {
            Ok(place) => place.max(from),
            // No data up to the end of the file, which may have been truncated.
            Err(Errno::NXIO) => {
                let size = u64::try_from(fstat(self.source)?.st_size).unwrap_or(0);
                return Ok(CopyPiece::Hole(len.min(size.saturating_sub(from))));
            }
            Err(_) => from,
        };
        if data > from {
            return Ok(CopyPiece::Hole(len.min(data - from)));
        }
        let hole = seek(self.source, SeekFrom::Hole(from)).ok().filter(|place| *place > from);
        Ok(CopyPiece::Data(hole.map_or(len, |place| len.min(place - from))))
    }

    fn copy_data(&self, CopySpan { mut from, mut to, len }: CopySpan) -> rustix::io::Result<u64> {
        let wanted = usize::try_from(len).unwrap_or(usize::MAX);
        loop {
            let (from, to) = (Some(&mut from), Some(&mut to));
            match copy_file_range(self.source, from, self.target, to, wanted) {
                Err(Errno::INTR) => {}
                copied => return copied.map(|count| count as u64),
            }
        }
    }

    /// Makes the bytes `at..at + len` of the target read as zeros, without storing them.
    fn leave_hole(&self, at: u64, len: u64) -> rustix::io::Result<()> {
        let size = u64::try_from(fstat(self.target)?.st_size).unwrap_or(0);
        let (end, old) = (at + len, size.saturating_sub(at).min(len));
        if old > 0 {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(self.target, hole, at, old) {
                Err(Errno::OPNOTSUPP) => self.write_zeros(at, old)?,
                punched => punched?,
            }
        }
        // Written rather than truncated to: another client may have extended the file meanwhile.
        if len > 0 && end > size { self.write_zeros(end - 1, 1) } else { Ok(()) }
    }

    fn write_zeros(&self, at: u64, len: u64) -> rustix::io::Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut done = 0;
        while done < len {
            let count = usize::try_from(len - done).unwrap_or(ZEROS.len()).min(ZEROS.len());
            match pwrite(self.target, ZEROS.get(..count).unwrap_or_default(), at + done) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => done += count as u64,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};

    const MIB: u64 = 1 << 20;

    /// Files on a file system with holes.
    fn pair() -> (tempfile::TempDir, File, File) {
        let home = tempfile::tempdir().unwrap();
        let open = |name| {
            let path = home.path().join(name);
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        let (source, target) = (open("source"), open("target"));
        (home, source, target)
    }

    fn read(file: &File) -> Vec<u8> {
        let mut octets = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut octets, 0).unwrap();
        octets
    }

    #[test]
    fn holes_stay_holes_and_take_the_place_of_what_was_there() {
        let (_home, source, target) = pair();
        for at in [MIB, 5 * MIB] {
            source.write_all_at(&vec![7; MIB as usize], at).unwrap();
        }
        source.set_len(9 * MIB).unwrap();
        target.write_all_at(&vec![9; 3 * MIB as usize], 0).unwrap();
        let span = CopySpan { from: 0, to: 0, len: 9 * MIB };
        assert_eq!(copy_span(&source, &target, span, CopyBudget::HELPER), Ok(9 * MIB));
        assert!(read(&source) == read(&target), "the content is the same");
        let stored = |file: &File| file.metadata().unwrap().blocks() * 512;
        assert!(stored(&target) < 3 * MIB, "{} octets are stored", stored(&target));
    }

    #[test]
    fn a_copy_ends_at_each_of_its_limits_and_goes_on_from_there() {
        let (_home, source, target) = pair();
        let octets: Vec<u8> = (0..3 * MIB).map(|at| (at / 1_000) as u8).collect();
        source.write_all_at(&octets, 0).unwrap();
        let whole = CopySpan { from: 5, to: 70, len: 3 * MIB - 5 };
        let budgets = [
            CopyBudget { octets: 100_000, ..CopyBudget::HELPER },
            CopyBudget { time: Duration::ZERO, ..CopyBudget::HELPER },
            CopyBudget { pieces: 1, ..CopyBudget::HELPER },
        ];
        for budget in budgets {
            target.set_len(0).unwrap();
            let mut done = 0;
            while done < whole.len {
                let rest = CopySpan { from: 5 + done, to: 70 + done, len: whole.len - done };
                let count = copy_span(&source, &target, rest, budget).unwrap();
                assert!((1..=budget.octets).contains(&count), "{count} octets");
                done += count;
            }
            assert!(read(&target)[70..] == octets[5..], "{budget:?}");
        }
    }

    #[test]
    fn a_source_that_was_cut_gives_what_it_has() {
        let (_home, source, target) = pair();
        source.write_all_at(b"short", 0).unwrap();
        source.set_len(100).unwrap();
        let span = CopySpan { from: 0, to: 0, len: 1_000 };
        assert_eq!(copy_span(&source, &target, span, CopyBudget::SHARD), Ok(100));
        let behind = CopySpan { from: 200, to: 200, len: 1_000 };
        assert_eq!(copy_span(&source, &target, behind, CopyBudget::SHARD), Ok(0));
        assert_eq!(target.metadata().unwrap().len(), 100);
    }

    #[test]
    fn the_first_error_is_reported_and_a_later_one_ends_the_copy() {
        let (home, source, _) = pair();
        source.write_all_at(b"content", 0).unwrap();
        let closed = File::open(home.path().join("target")).unwrap();
        let span = CopySpan { from: 0, to: 0, len: 7 };
        assert_eq!(copy_span(&source, &closed, span, CopyBudget::SHARD), Err(Errno::BADF));
    }
}
