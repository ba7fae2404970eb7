//! Copies out of memory that another process may be writing meanwhile. Has `unsafe`.
//!
//! Every load is volatile, and of one aligned unit: the compiler makes each once, and draws no
//! conclusion from what it brings. The promise is about octets: each octet of a copy is one that
//! was there at some moment during the copy, and an aligned word comes whole where the processor
//! loads words whole. Nothing is promised of neighbours. A copy is judged afterwards, where the
//! other process cannot reach it. Callers that need to know that nothing changed meanwhile ask the
//! ring ([`crate::ring::Consumer::is_still`]).

use crate::ring::{LINE, WORD};
use std::ops::RangeInclusive;

/// Octets of a record in its first line.
const FIRST: usize = LINE - WORD;
/// Octets from which on the lines of a copy are worth a loop of their own.
const BULK: usize = 256;
/// Octets of the longest unit that every processor has.
const VECTOR: usize = 16;
/// Octets of the longest unit of most processors.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 32;
/// Octets of one turn of a long copy.
const BLOCK: usize = 2 * LINE;
/// Octets of a word of XDR, as messages are made of.
const XDR: usize = 4;

/// Copies `to.len()` octets at `from`.
///
/// # Safety
/// `from` is valid for reads of as many octets, and `to` does not overlap them. Others may write to
/// them: only other processes, or this one by atomics.
#[inline]
pub(crate) unsafe fn copy_volatile(from: *const u8, to: &mut [u8]) {
    if to.len() >= BULK || !from.addr().is_multiple_of(8) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the caller's promise; the processor has it.
            return unsafe { copy_wide(from, to) };
        }
        // SAFETY: the caller's promise.
        return unsafe { copy_long(from, to) };
    }
    // SAFETY: the caller's promise; it begins at a word.
    unsafe { copy_short(from, to) };
}

/// Copies the lines of a record at `from`, [`LINES`] at most, without its word. Octets past the
/// record's end are copied, too: whole lines are copied soonest.
///
/// # Safety
/// `from` is aligned to a line and valid for reads of a word and `to.len()` octets, which are whole
/// lines together, and `to` does not overlap them. Others may write to them: only other processes,
/// or this one by atomics.
#[inline(always)]
pub(crate) unsafe fn copy_lines(from: *const u8, to: &mut [u8]) {
    let Some((first, rest)) = to.split_first_chunk_mut::<FIRST>() else { return };
    let (word, vectors) = first.split_at_mut(WORD);
    // SAFETY: the caller promises the first line, whose second word this is.
    unsafe { copy_words(from.wrapping_add(WORD), word.as_chunks_mut().0) };
    // SAFETY: the caller promises the first line, whose second vector begins here.
    unsafe { copy_vectors(from.wrapping_add(VECTOR), vectors.as_chunks_mut().0) };
    let (mut from, mut rest) = (from.wrapping_add(LINE), rest);
    // A loop of known length becomes none.
    for _ in 1..LINES {
        let Some(line) = rest.split_off_mut(..LINE) else { return };
        // SAFETY: the caller promises this line.
        unsafe { copy_vectors(from, line.as_chunks_mut().0) };
        from = from.wrapping_add(LINE);
    }
}

/// Lines of the longest record that [`copy_lines`] copies.
pub(crate) const LINES: usize = 4;
/// Lengths that [`store_short`] copies.
pub(crate) const SHORT: RangeInclusive<usize> = VECTOR..=16 * VECTOR;

/// Copies a few octets to `to` without a call: whole words as words, others by those at the
/// beginning and those at the end, which are more than half of them and overlap.
///
/// A message was written by its words a moment ago. A load of several of them waits until those
/// stores have left the core, after all that were made before; and the latest of these is to a line
/// of the ring that the other core has. A load of one word gets it at once.
///
/// # Safety
/// `to` is valid for writes of `from.len()` octets, does not overlap `from`, and no reference names
/// it.
#[inline(always)]
pub(crate) unsafe fn store_short(from: &[u8], to: *mut u8) {
    debug_assert!(SHORT.contains(&from.len()), "others are copied otherwise");
    if (from.as_ptr().addr() | from.len()).is_multiple_of(XDR) {
        // SAFETY: the caller's promise; they are whole words.
        return unsafe { store_words(from, to) };
    }
    match from.len() {
        // SAFETY: the caller's promise.
        0..=32 => unsafe { store_ends::<16>(from, to) },
        // SAFETY: the caller's promise.
        33..=64 => unsafe { store_ends::<32>(from, to) },
        // SAFETY: the caller's promise.
        65..=128 => unsafe { store_ends::<64>(from, to) },
        // SAFETY: the caller's promise.
        _ => unsafe { store_ends::<128>(from, to) },
    }
}

/// # Safety
/// As [`store_short`], and `from` is aligned to a word of XDR and made of such.
#[inline(always)]
unsafe fn store_words(from: &[u8], to: *mut u8) {
    let (pairs, mut rest) = from.as_chunks::<{ 2 * VECTOR }>();
    let mut to = to;
    for pair in pairs {
        // SAFETY: the caller promises these words.
        to = unsafe { store_few(pair, to) };
    }
    // Less than that is left, so each part of it is there once or not at all.
    if let Some((part, behind)) = rest.split_first_chunk::<VECTOR>() {
        // SAFETY: the caller promises these words.
        (to, rest) = (unsafe { store_few(part, to) }, behind);
    }
    if let Some((part, behind)) = rest.split_first_chunk::<{ 2 * XDR }>() {
        // SAFETY: the caller promises these words.
        (to, rest) = (unsafe { store_few(part, to) }, behind);
    }
    if let Some(last) = rest.first_chunk::<XDR>() {
        // SAFETY: the caller promises this word.
        unsafe { store_few(last, to) };
    }
}

/// Copies `LEN` octets by their words. Returns the end of the copy.
///
/// # Safety
/// As [`store_words`], for the octets of `from`.
#[inline(always)]
unsafe fn store_few<const LEN: usize>(from: &[u8; LEN], to: *mut u8) -> *mut u8 {
    for at in (0..LEN).step_by(XDR) {
        // SAFETY: the caller promises both words.
        unsafe { store_word(from.as_ptr().wrapping_add(at), to.wrapping_add(at)) };
    }
    to.wrapping_add(LEN)
}

/// # Safety
/// `from` is aligned and valid for reading a word of XDR, `to` is valid for writing one.
#[inline(always)]
unsafe fn store_word(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; any octets are a word.
    let word = unsafe { load::<u32>(from) };
    // SAFETY: the caller's promise.
    unsafe { to.cast::<u32>().write_unaligned(word) };
}

/// # Safety
/// As [`store_short`].
#[inline(always)]
unsafe fn store_ends<const LEN: usize>(from: &[u8], to: *mut u8) {
    let (Some(first), Some(last)) = (from.first_chunk::<LEN>(), from.last_chunk::<LEN>()) else {
        return;
    };
    let end = to.wrapping_add(from.len() - LEN);
    // SAFETY: the caller promises all octets, and these are the first ones.
    unsafe { std::ptr::copy_nonoverlapping(first.as_ptr(), to, LEN) };
    // SAFETY: the caller promises all octets, and these are the last ones.
    unsafe { std::ptr::copy_nonoverlapping(last.as_ptr(), end, LEN) };
}

/// # Safety
/// As [`copy_volatile`], and `from` is aligned to a word.
#[inline]
unsafe fn copy_short(mut from: *const u8, to: &mut [u8]) {
    let mut rest = to;
    if !from.addr().is_multiple_of(VECTOR)
        && let Some(word) = rest.split_off_mut(..8)
    {
        // SAFETY: the caller promises this word.
        unsafe { copy_words(from, word.as_chunks_mut().0) };
        from = from.wrapping_add(8);
    }
    while let Some(line) = rest.split_off_mut(..LINE) {
        // SAFETY: the caller promises these octets, which begin at a vector.
        unsafe { copy_vectors(from, line.as_chunks_mut().0) };
        from = from.wrapping_add(LINE);
    }
    // Less than a line is left, so each part of it is there once or not at all.
    for part in [2 * VECTOR, VECTOR] {
        if let Some(vectors) = rest.split_off_mut(..part) {
            // SAFETY: the caller promises these octets, which begin at a vector.
            unsafe { copy_vectors(from, vectors.as_chunks_mut().0) };
            from = from.wrapping_add(part);
        }
    }
    if let Some(word) = rest.split_off_mut(..8) {
        // SAFETY: the caller promises this word.
        unsafe { copy_words(from, word.as_chunks_mut().0) };
        from = from.wrapping_add(8);
    }
    if let Some(half) = rest.split_off_mut(..4) {
        // SAFETY: the caller promises these four octets, which begin at a word.
        half.copy_from_slice(&unsafe { load::<u32>(from) }.to_ne_bytes());
        from = from.wrapping_add(4);
    }
    // SAFETY: the caller promises these octets.
    unsafe { copy_octets(from, rest) };
}

/// # Safety
/// As [`copy_volatile`].
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: &mut [u8]) {
    let first = from.align_offset(VECTOR).min(to.len());
    let (unaligned, rest) = to.split_at_mut(first);
    // SAFETY: the caller promises all octets; these are the first of them.
    unsafe { copy_front(from, unaligned) };
    let mut from = from.wrapping_add(first);
    let (blocks, rest) = rest.as_chunks_mut::<BLOCK>();
    for block in blocks {
        // SAFETY: the caller promises the block, which begins at a vector.
        unsafe { copy_vectors(from, block.as_chunks_mut().0) };
        from = from.wrapping_add(BLOCK);
    }
    // SAFETY: the caller promises the rest, which begins at a vector.
    unsafe { copy_short(from, rest) };
}

/// Copies a few octets in front of the first vector: aligned words among them as such.
///
/// # Safety
/// As [`copy_volatile`].
#[inline]
unsafe fn copy_front(from: *const u8, to: &mut [u8]) {
    let odd = from.align_offset(8).min(to.len());
    let (odd, rest) = to.split_at_mut(odd);
    // SAFETY: the caller promises these octets.
    unsafe { copy_octets(from, odd) };
    let from = from.wrapping_add(odd.len());
    let (words, rest) = rest.as_chunks_mut();
    // SAFETY: the caller promises these words, the first of which is aligned.
    unsafe { copy_words(from, words) };
    // SAFETY: the caller promises the octets after them.
    unsafe { copy_octets(from.wrapping_add(words.as_flattened().len()), rest) };
}

/// The same by vectors of twice the length.
///
/// # Safety
/// As [`copy_volatile`], and the processor has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline(never)]
unsafe fn copy_wide(from: *const u8, to: &mut [u8]) {
    use std::arch::x86_64::__m256i;
    let first = from.align_offset(WIDE).min(to.len());
    let (unaligned, rest) = to.split_at_mut(first);
    // SAFETY: the caller promises all octets; these are the first of them.
    unsafe { copy_front(from, unaligned) };
    let mut from = from.wrapping_add(first);
    let (blocks, rest) = rest.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for (at, vector) in block.as_chunks_mut::<WIDE>().0.iter_mut().enumerate() {
            // SAFETY: the caller promises the block, which begins at such a vector.
            let octets = unsafe { load::<__m256i>(from.wrapping_add(at * WIDE)) };
            // SAFETY: a vector is made of as many octets, and any octets are octets.
            *vector = unsafe { std::mem::transmute::<__m256i, [u8; WIDE]>(octets) };
        }
        from = from.wrapping_add(BLOCK);
    }
    // SAFETY: the caller promises the rest, which begins at a vector.
    unsafe { copy_short(from, rest) };
}

/// One load.
///
/// # Safety
/// `from` is aligned for a `T` and valid for reading one; any octets are a `T`.
#[inline(always)]
unsafe fn load<T: Copy>(from: *const u8) -> T {
    let from: *const T = from.cast();
    debug_assert!(from.is_aligned(), "units are aligned");
    // SAFETY: the caller promises an aligned `T`; what another process does to it meanwhile is no
    // access of this program, and a volatile load makes no assumption about it.
    unsafe { from.read_volatile() }
}

/// # Safety
/// As [`copy_volatile`].
unsafe fn copy_octets(from: *const u8, to: &mut [u8]) {
    for (at, octet) in to.iter_mut().enumerate() {
        // SAFETY: the caller promises `to.len()` octets; an octet is always aligned.
        *octet = unsafe { load(from.wrapping_add(at)) };
    }
}

/// # Safety
/// As [`copy_volatile`], and `from` is aligned to a word.
#[inline(always)]
unsafe fn copy_words(from: *const u8, to: &mut [[u8; 8]]) {
    for (at, word) in to.iter_mut().enumerate() {
        // SAFETY: the caller promises `to.len()` aligned words.
        *word = unsafe { load::<u64>(from.wrapping_add(at * 8)) }.to_ne_bytes();
    }
}

/// # Safety
/// As [`copy_volatile`], and `from` is aligned to a vector.
#[inline(always)]
unsafe fn copy_vectors(from: *const u8, to: &mut [[u8; VECTOR]]) {
    for (at, vector) in to.iter_mut().enumerate() {
        // SAFETY: the caller promises `to.len()` aligned vectors.
        *vector = unsafe { load_vector(from.wrapping_add(at * VECTOR)) };
    }
}

/// # Safety
/// `from` is aligned to a vector and valid for reading one.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load_vector(from: *const u8) -> [u8; VECTOR] {
    // SAFETY: the caller's promise; every x86-64 has such vectors.
    let vector = unsafe { load::<std::arch::x86_64::__m128i>(from) };
    // SAFETY: a vector is made of as many octets, and any octets are octets.
    unsafe { std::mem::transmute(vector) }
}

/// # Safety
/// `from` is aligned to a vector and valid for reading one.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn load_vector(from: *const u8) -> [u8; VECTOR] {
    let mut vector = [0; VECTOR];
    // SAFETY: the caller promises both words.
    unsafe { copy_words(from, vector.as_chunks_mut().0) };
    vector
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    #[test]
    fn every_length_at_every_alignment_is_copied_and_nothing_else() {
        #[repr(align(64))]
        struct Lines([u8; 1024]);
        let from = Lines(std::array::from_fn(|at| (at * 7 + at / 256) as u8));
        let from = &from.0;
        for offset in 0..=17 {
            for len in (0..=700).filter(|len| *len < 330 || len % 37 < 2) {
                for lead in [0, 1, 8] {
                    let mut to = [0xee; 1024];
                    let octets = &from[offset..offset + len];
                    // SAFETY: `octets` are as many, elsewhere.
                    unsafe { copy_volatile(octets.as_ptr(), &mut to[lead..lead + len]) };
                    assert_eq!(&to[lead..lead + len], octets, "{len} octets at {offset}");
                    let is_kept =
                        to[..lead].iter().chain(&to[lead + len..]).all(|octet| *octet == 0xee);
                    assert!(is_kept, "{len} octets at {offset}");
                }
            }
        }
    }

    #[test]
    fn every_record_is_copied_and_no_line_behind_it() {
        #[repr(align(64))]
        struct Lines([u8; 1024]);
        let from = Lines(std::array::from_fn(|at| (at * 7 + at / 256) as u8));
        for len in (1..=LINES).map(|lines| lines * LINE) {
            let mut to = [0xee; 1024];
            // SAFETY: `from` has that many lines.
            unsafe { copy_lines(from.0.as_ptr(), &mut to[..len - WORD]) };
            assert_eq!(to[..len - WORD], from.0[WORD..len]);
            assert!(to[len - WORD..].iter().all(|octet| *octet == 0xee), "{len}");
        }
    }

    #[test]
    fn every_short_length_is_stored_and_nothing_else() {
        let from: [u8; 256] = std::array::from_fn(|at| (at * 7) as u8 & 0x7f);
        for (len, offset) in SHORT.flat_map(|len| (0..17).map(move |offset| (len, offset))) {
            let mut to = [0xee; 512];
            // SAFETY: `to` has as many octets after `offset`.
            unsafe { store_short(&from[..len], to.as_mut_ptr().wrapping_add(offset)) };
            assert_eq!(to[offset..offset + len], from[..len]);
            let (before, behind) = (&to[..offset], &to[offset + len..]);
            assert!(before.iter().chain(behind).all(|octet| *octet == 0xee), "{len} at {offset}");
        }
    }

    #[test]
    fn words_that_are_written_meanwhile_come_whole() {
        let words: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for octet in (1..=255_u8).cycle().take(50_000) {
                    let word = u64::from_ne_bytes([octet; 8]);
                    words.iter().for_each(|to| to.store(word, Ordering::Relaxed));
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let mut to = vec![0; 512 * 8];
            for turn in 0..2_000_usize {
                let (from, len) = (turn % 8 * 8, 1_000 + turn % 3_000 / 8 * 8);
                // SAFETY: the octets are inside `words`, which the other thread writes by atomics.
                unsafe {
                    copy_volatile(words.as_ptr().cast::<u8>().wrapping_add(from), &mut to[..len])
                };
                for word in to[..len].as_chunks::<8>().0 {
                    assert_eq!(word, &[word[0]; 8], "a word is torn");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
