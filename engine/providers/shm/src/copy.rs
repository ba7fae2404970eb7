//! Copies out of memory that another process may be writing meanwhile. Has `unsafe`.
//!
//! Every load is volatile, and of one aligned unit: the compiler makes each once, and draws no conclusion from what it brings. The
//! promise is about octets: each octet of a copy is one that stood there at some moment during the copy, and an aligned word comes
//! whole where the processor loads words whole. Nothing is promised of neighbours. A copy is judged afterwards, where the other process
//! cannot reach it; whoever has to know that nothing changed meanwhile asks the ring ([`crate::ring::Consumer::is_still`]).

/// Octets from which on vectors are worth it.
const BULK: usize = 256;
/// Octets of a turn of both loops: a line.
const LINE: usize = crate::ring::LINE;

/// Copies `to.len()` octets at `from`.
///
/// # Safety
/// `from` is valid for reads of as many octets, and `to` does not overlap them. Others may write to them: only other processes,
/// or this one by atomics.
#[inline]
pub(crate) unsafe fn copy_volatile(from: *const u8, to: &mut [u8]) {
    let first = from.align_offset(align_of::<u64>()).min(to.len());
    let (unaligned, mut rest) = to.split_at_mut(first);
    // SAFETY: the caller promises all octets; these are the first of them.
    unsafe { copy_octets(from, unaligned) };
    let mut from = from.wrapping_add(first);
    if rest.len() >= BULK {
        // SAFETY: the caller promises the rest; it begins at a word.
        let done = unsafe { vectors::copy(from, rest) };
        (from, rest) = (from.wrapping_add(done), rest.split_at_mut(done).1);
    }
    let (lines, rest) = rest.as_chunks_mut::<LINE>();
    for line in lines {
        // SAFETY: the caller promises these octets, which begin at a word.
        unsafe { copy_words(from, line.as_chunks_mut().0) };
        from = from.wrapping_add(LINE);
    }
    let (words, last) = rest.as_chunks_mut();
    // SAFETY: the caller promises these octets, which begin at a word.
    unsafe { copy_words(from, words) };
    from = from.wrapping_add(words.len() * 8);
    let (halves, last) = last.as_chunks_mut();
    for half in halves {
        // SAFETY: the caller promises these four octets, which begin at a word.
        *half = unsafe { load::<u32>(from) }.to_ne_bytes();
        from = from.wrapping_add(4);
    }
    // SAFETY: the caller promises these octets.
    unsafe { copy_octets(from, last) };
}

/// One load.
///
/// # Safety
/// `from` is aligned for a `T` and valid for reading one; any octets are a `T`.
#[inline(always)]
unsafe fn load<T: Copy>(from: *const u8) -> T {
    let from: *const T = from.cast();
    debug_assert!(from.is_aligned(), "units are aligned");
    // SAFETY: the caller promises an aligned `T`; what another process does to it meanwhile is no access of this program, and a
    // volatile load makes no assumption about it.
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

/// Long copies, at the speed of memcpy.
#[cfg(target_arch = "x86_64")]
mod vectors {
    use super::{LINE, copy_words, load};
    use std::arch::x86_64::__m128i;

    /// Copies whole lines from the first aligned vector on, and the word in front of it. How many octets.
    ///
    /// # Safety
    /// As [`super::copy_volatile`], and `from` is aligned to a word.
    pub(super) unsafe fn copy(from: *const u8, to: &mut [u8]) -> usize {
        const VECTOR: usize = size_of::<__m128i>();
        let first = from.align_offset(VECTOR).min(to.len());
        let (word, rest) = to.split_at_mut(first);
        // SAFETY: the caller promises these octets: none, or one word.
        unsafe { copy_words(from, word.as_chunks_mut().0) };
        let mut at = from.wrapping_add(first);
        for line in rest.as_chunks_mut::<LINE>().0 {
            // All loads of a line go ahead of its stores.
            let vectors: [__m128i; LINE / VECTOR] = std::array::from_fn(|place| {
                // SAFETY: the caller promises the line, which begins at a vector.
                unsafe { load(at.wrapping_add(place * VECTOR)) }
            });
            // SAFETY: a line is as long as its vectors, and any octets are octets.
            *line = unsafe { std::mem::transmute::<[__m128i; LINE / VECTOR], [u8; LINE]>(vectors) };
            at = at.wrapping_add(LINE);
        }
        first + rest.len() / LINE * LINE
    }
}

/// Where words are what the processor has.
#[cfg(not(target_arch = "x86_64"))]
mod vectors {
    pub(super) unsafe fn copy(_from: *const u8, _to: &mut [u8]) -> usize {
        0
    }
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
                    let is_kept = to[..lead].iter().chain(&to[lead + len..]).all(|octet| *octet == 0xee);
                    assert!(is_kept, "{len} octets at {offset}");
                }
            }
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
                // SAFETY: the octets lie in `words`, which the other thread writes by atomics.
                unsafe { copy_volatile(words.as_ptr().cast::<u8>().wrapping_add(from), &mut to[..len]) };
                for word in to[..len].as_chunks::<8>().0 {
                    assert_eq!(word, &[word[0]; 8], "a word is torn");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
