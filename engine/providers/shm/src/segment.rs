//! Memory that two processes see: one writes it, the other reads it. Has `unsafe`.
//!
//! Every access is either one aligned 64-bit word, or a copy between private and shared memory. No
//! reference into shared memory exists but to a word, so nothing is judged where the other process
//! can change it. Read-only mappings are loaded by Relaxed words followed by a fence, because other
//! atomic loads of such memory are not defined, and copied by volatile loads ([`crate::copy`]).

use crate::{
    copy::{LINES, SHORT, copy_lines, copy_volatile, store_short},
    ring::{LINE, RING, RingSource, RingTarget, WORD, Word},
};
use rustix::{
    fs::{
        FallocateFlags, FsWord, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals,
        fstat, fstatfs, memfd_create,
    },
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use stag_pools::prefetch;
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering, fence},
};

/// A mapping of a whole memory file.
#[derive(Debug)]
struct SegmentMapping {
    base: NonNull<u8>,
    len: usize,
    /// Whole words in it.
    words: usize,
}

impl SegmentMapping {
    fn new(file: BorrowedFd<'_>, len: usize, access: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        // The file keeps its length: `OwnSegment` seals it, `PeerSegment` looks for the seal.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, len, words: len / WORD })
    }

    /// The address of `count` octets at `at`.
    #[inline]
    fn at(&self, at: usize, count: usize) -> NonNull<u8> {
        if count > self.len || at > self.len - count {
            outside();
        }
        // SAFETY: `at + count <= len` was just checked, so the result is in the mapping or at its
        // end.
        unsafe { self.base.add(at) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(WORD), "words are aligned");
        let number = at / WORD;
        if number >= self.words {
            outside();
        }
        let words: NonNull<AtomicU64> = self.base.cast();
        // SAFETY: the mapping has that many whole words, and more than this number.
        let word = unsafe { words.add(number) };
        // SAFETY: the mapping is page aligned, so its words are aligned, and both processes use
        // words as atomics only or overwrite them with copies whose outcome is not judged before a
        // word says so.
        unsafe { word.as_ref() }
    }

    /// Asks the processor for the line of memory at `at`: a hint.
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        prefetch(self.base.as_ptr().wrapping_add(at));
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        let from = self.at(at, to.len());
        // SAFETY: `at` gave as many octets of the mapping, and `to` is private memory. Only the
        // other process writes meanwhile.
        unsafe { copy_volatile(from.as_ptr(), to) }
    }

    /// Copies the octets after `word`, which is at `at`, and the rest of their last line. False,
    /// and nothing is copied, if `to` has no room for that, or if there are many.
    #[inline(always)]
    fn copy_lines(&self, at: usize, word: Word, to: &mut [u8]) -> bool {
        debug_assert!(at.is_multiple_of(LINE), "records begin at lines");
        let lines = to.get_mut(..word.span() - WORD).filter(|_| word.span() <= LINES * LINE);
        let Some(to) = lines else { return false };
        let from = self.at(at & !(LINE - 1), word.span());
        // SAFETY: `at` gave all lines of the record, and the first one begins at a line since the
        // mapping is page aligned. `to` is private memory, one word less than those lines. Only the
        // other process writes meanwhile.
        unsafe { copy_lines(from.as_ptr(), to) }
        true
    }

    /// Copies octets in, if they are few. False if they are not.
    #[inline(always)]
    fn copy_in_short(&self, at: usize, from: &[u8]) -> bool {
        if !SHORT.contains(&from.len()) {
            return false;
        }
        let to = self.at(at, from.len());
        // SAFETY: as in `copy_in`.
        unsafe { store_short(from, to.as_ptr()) }
        true
    }

    #[inline]
    fn copy_in(&self, at: usize, from: &[u8]) {
        let to = self.at(at, from.len());
        // SAFETY: source and destination are valid for `from.len()` octets and do not overlap:
        // `from` is private memory. The mapping is writable: only `OwnSegment` calls this. No
        // reference to these octets exists, and no other thread or process writes there.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) }
    }
}

#[cold]
#[inline(never)]
fn outside() -> ! {
    panic!("callers keep inside the mapping")
}

impl Drop for SegmentMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference into it
        // outlives a call.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, Ok(()), "a whole mapping can be unmapped");
    }
}

/// The segment that this process writes and the other one reads.
#[derive(Debug)]
pub(crate) struct OwnSegment {
    mapping: SegmentMapping,
    file: OwnedFd,
}

impl OwnSegment {
    /// `len` octets of zeros in a file that keeps its length and that others can map to read only.
    /// Fails without memory files or memory, and before Linux 5.1.
    pub(crate) fn new(len: usize) -> Result<Self, Errno> {
        let file = memfd_create("stag-shm", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Every page is found here: one that is missing later would be a signal.
        fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let mapping = SegmentMapping::new(file.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let own = Self { mapping, file };
        for at in (0..len).step_by(PAGE) {
            own.set_word(at, 0);
        }
        Ok(own)
    }

    /// Copies octets in, if they are as few as those of a short message. False if they are not.
    #[inline(always)]
    pub(crate) fn copy_in_short(&self, at: usize, from: &[u8]) -> bool {
        self.mapping.copy_in_short(at, from)
    }

    /// Octets of its ring.
    pub(crate) const fn ring_len(&self) -> usize {
        self.mapping.len - RING
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The kind of file system that memory files of huge pages are in (`HUGETLBFS_MAGIC`).
const HUGETLBFS: FsWord = 0x9584_58f6;
/// Octets of the smallest page.
const PAGE: usize = 4096;

impl RingSource for OwnSegment {
    fn word(&self, at: usize) -> u64 {
        self.mapping.word(at).load(Ordering::Acquire)
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.mapping.copy_out(at, to);
    }
}

impl RingTarget for OwnSegment {
    #[inline]
    fn set_word(&self, at: usize, word: u64) {
        self.mapping.word(at).store(word, Ordering::Release);
    }

    #[inline]
    fn copy_in(&self, at: usize, from: &[u8]) {
        self.mapping.copy_in(at, from);
    }
}

/// The segment that the other process writes and this one reads.
#[derive(Debug)]
pub(crate) struct PeerSegment(SegmentMapping);

impl PeerSegment {
    /// Maps a file of the peer, which must be at least `len` octets long, unable to shrink and to
    /// lose pages in the middle: reading what is not there would be a signal. A mapping of huge
    /// pages is as long as they are: only so it can be undone.
    pub(crate) fn new(file: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let seals = fcntl_get_seals(file)?;
        let is_kept = seals.contains(SealFlags::SHRINK)
            && seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
        let system = fstatfs(file)?;
        if system.f_type == HUGETLBFS
            && !len.is_multiple_of(usize::try_from(system.f_bsize).unwrap_or(0))
        {
            return Err(Errno::INVAL);
        }
        let has = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
        if !is_kept || has < len as u64 || len == 0 {
            return Err(Errno::INVAL);
        }
        Ok(Self(SegmentMapping::new(file, len, ProtFlags::READ)?))
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len
    }

    /// Copies the octets after `word`, which is at `at`, and the rest of their last line: whole
    /// lines are copied soonest. False, and nothing is copied, if `to` has no room for that, or if
    /// there are many.
    #[inline(always)]
    pub(crate) fn copy_lines(&self, at: usize, word: Word, to: &mut [u8]) -> bool {
        self.0.copy_lines(at, word, to)
    }

    /// Asks the processor for the line of memory at `at` before it is looked at: a hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: usize) {
        self.0.prefetch(at);
    }

    /// Octets of its ring, if it has one.
    pub(crate) const fn ring_len(&self) -> usize {
        self.0.len.saturating_sub(RING)
    }
}

impl RingSource for PeerSegment {
    #[inline]
    fn word(&self, at: usize) -> u64 {
        // The only atomic loads that read-only memory takes (`std::sync::atomic`). The fence makes
        // it an Acquire.
        let word = self.0.word(at).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        word
    }

    fn copy_out(&self, at: usize, to: &mut [u8]) {
        self.0.copy_out(at, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;

    #[test]
    fn the_reader_sees_what_the_writer_wrote_and_cannot_write() {
        let own = OwnSegment::new(8192).unwrap();
        let theirs = PeerSegment::new(own.file(), 8192).unwrap();
        own.copy_in(4090, b"across pages");
        own.set_word(8, 7);
        let mut octets = [0; 12];
        theirs.copy_out(4090, &mut octets);
        assert_eq!((&octets, theirs.word(8)), (b"across pages", 7));
        let writable = SegmentMapping::new(own.file(), 8192, ProtFlags::READ | ProtFlags::WRITE);
        assert_eq!(writable.unwrap_err(), Errno::PERM);
        assert_eq!(ftruncate(own.file(), 0), Err(Errno::PERM));
        assert_eq!(fallocate(own.file(), FallocateFlags::empty(), 0, 1 << 20), Err(Errno::PERM));
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(own.file(), hole, 0, 4096), Err(Errno::PERM));
    }

    /// A wrong access that the compiler made cannot be seen in a run, so the source is looked at.
    #[test]
    fn what_is_mapped_to_read_is_loaded_relaxed_and_copied_volatile() {
        let (code, _) = include_str!("segment.rs").split_once("#[cfg(test)]").unwrap();
        let theirs = code.split("impl RingSource for PeerSegment").nth(1).unwrap();
        assert!(
            theirs.contains(".load(Ordering::Relaxed)")
                && theirs.contains("fence(Ordering::Acquire)")
        );
        assert!(!theirs.contains(".load(Ordering::Acquire)"));
        let copy_out =
            code.split("fn copy_out").nth(1).and_then(|rest| rest.split("fn ").next()).unwrap();
        assert!(
            copy_out.contains("copy_volatile") && !copy_out.contains("copy_nonoverlapping"),
            "{copy_out}"
        );
    }

    #[test]
    fn files_that_could_shrink_or_are_too_short_are_refused() {
        let file = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        assert_eq!(PeerSegment::new(file.as_fd(), 8192).unwrap_err(), Errno::INVAL);
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        // Its pages could still be taken out.
        assert_eq!(PeerSegment::new(file.as_fd(), 8192).unwrap_err(), Errno::INVAL);
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        assert!(PeerSegment::new(file.as_fd(), 8192).is_ok());
        assert_eq!(PeerSegment::new(file.as_fd(), 8193).unwrap_err(), Errno::INVAL);
        assert_eq!(PeerSegment::new(file.as_fd(), 0).unwrap_err(), Errno::INVAL);
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(PeerSegment::new(null.as_fd(), 1).is_err());
    }

    #[test]
    fn a_part_of_a_huge_page_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC
            | MemfdFlags::ALLOW_SEALING
            | MemfdFlags::HUGETLB
            | MemfdFlags::HUGE_2MB;
        let Ok(file) = memfd_create("huge", flags) else { return };
        ftruncate(&file, 2 << 20).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::FUTURE_WRITE).unwrap();
        assert_eq!(PeerSegment::new(file.as_fd(), 4096 + (64 << 10)).unwrap_err(), Errno::INVAL);
    }

    #[test]
    #[should_panic(expected = "inside the mapping")]
    fn nothing_beyond_the_mapping_is_reached() {
        let own = OwnSegment::new(4096).unwrap();
        own.copy_in(4090, &[0; 7]);
    }
}
