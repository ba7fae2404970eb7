//! CRC32c by the instructions of x86-64.
//!
//! A CRC is a remainder. The remainder of octets that `n` others follow is multiplied by x^8n, so
//! parts can be computed in parallel and combined by carry-less products. In the reflected bit
//! order such a product is one bit short, and a CRC instruction multiplies by x^32 more: the factor
//! for a distance of `n` bits is x^(n-33).

use crate::copy_octets;
use std::arch::x86_64::{
    __m128i, __m512i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64,
    _mm_cvtsi32_si128, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x,
    _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32,
    _mm512_loadu_si512, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_ternarylogic_epi64,
    _mm512_xor_si512, _mm512_zextsi128_si512,
};

/// Length from which wide products are faster than one chain.
const LONG: usize = 256;
/// Octets of one chain of three.
const CHAIN: usize = 336;
/// Octets of one vector.
const VECTOR: usize = 64;
/// Octets of the vectors that are folded in parallel.
const VECTORS: usize = 4 * VECTOR;

/// Proof that the processor has the CRC instruction (SSE 4.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct HasCrc(());

impl HasCrc {
    #[inline]
    pub(super) fn ask() -> Option<Self> {
        is_x86_feature_detected!("sse4.2").then_some(Self(()))
    }

    #[inline]
    pub(super) fn update(self, state: u32, octets: &[u8]) -> u32 {
        if octets.len() >= LONG {
            return self.long::<false>(state, octets, &mut []);
        }
        // SAFETY: the processor has SSE 4.2: `self` is the proof.
        unsafe { chain(state, octets) }
    }

    /// The state after all `parts`, of which the one in the middle is copied.
    #[inline]
    pub(super) fn copied(self, state: u32, parts: [&[u8]; 3], copy: &mut [u8]) -> u32 {
        let [head, body, pad] = parts;
        let state = self.long::<true>(self.update(state, head), body, copy);
        self.update(state, pad)
    }

    #[inline(never)]
    fn long<const COPIES: bool>(self, state: u32, from: &[u8], to: &mut [u8]) -> u32 {
        if has_wide() {
            // SAFETY: the processor has what `wide` uses, as it was just asked.
            return unsafe { wide::<COPIES>(state, from, to) };
        }
        if from.len() >= 3 * CHAIN && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has PCLMULQDQ, as it was just asked; `self` is the proof of
            // SSE 4.2.
            return unsafe { three::<COPIES>(state, from, to) };
        }
        // SAFETY: the processor has SSE 4.2: `self` is the proof.
        unsafe { chain_copied::<COPIES>(state, from, to) }
    }
}

/// Returns true if the processor multiplies 64 octets at a time.
#[inline]
fn has_wide() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
}

/// x^n modulo the polynomial, the highest bit being that of x^0.
const fn power(n: usize) -> u32 {
    let (mut power, mut left) = (1 << 31, n);
    while left > 0 {
        power = power >> 1 ^ if power & 1 == 1 { 0x82F6_3B78 } else { 0 };
        left -= 1;
    }
    power
}

/// The factors of the two halves of 16 octets that `distance` bits follow: the first half is
/// followed by 64 bits more.
const fn factors(distance: usize) -> [i64; 2] {
    [power(distance + 64 - 33) as i64, power(distance - 33) as i64]
}

/// One chain of CRC instructions, octet after octet.
// By powers of two: most inputs are FPDUs with a short message, on which a loop would spend more
// time counting than on the CRC.
#[inline]
#[target_feature(enable = "sse4.2")]
fn chain(state: u32, octets: &[u8]) -> u32 {
    let (longs, mut rest) = octets.as_chunks::<64>();
    let mut crc = u64::from(state);
    for long in longs {
        crc = eights(crc, long);
    }
    if let Some((front, behind)) = rest.split_first_chunk::<32>() {
        (crc, rest) = (eights(crc, front), behind);
    }
    if let Some((front, behind)) = rest.split_first_chunk::<16>() {
        (crc, rest) = (eights(crc, front), behind);
    }
    if let Some((front, behind)) = rest.split_first_chunk::<8>() {
        (crc, rest) = (eights(crc, front), behind);
    }
    let mut crc = crc as u32; // the instruction leaves the upper half zero
    if let Some((front, behind)) = rest.split_first_chunk::<4>() {
        (crc, rest) = (_mm_crc32_u32(crc, u32::from_le_bytes(*front)), behind);
    }
    for octet in rest {
        crc = _mm_crc32_u8(crc, *octet);
    }
    crc
}

/// The same of octets that are a multiple of eight, without a loop.
#[inline]
#[target_feature(enable = "sse4.2")]
fn eights<const N: usize>(crc: u64, octets: &[u8; N]) -> u64 {
    let eights = octets.as_chunks::<8>().0.iter();
    eights.fold(crc, |crc, eight| _mm_crc32_u64(crc, u64::from_le_bytes(*eight)))
}

/// The same of octets that are copied.
#[inline]
#[target_feature(enable = "sse4.2")]
fn chain_copied<const COPIES: bool>(state: u32, from: &[u8], to: &mut [u8]) -> u32 {
    if COPIES {
        copy_octets(from, to);
    }
    chain(state, from)
}

/// Three chains in parallel, because one instruction has to wait for the one before it.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three<const COPIES: bool>(state: u32, from: &[u8], to: &mut [u8]) -> u32 {
    const FACTORS: [u32; 2] = [power(2 * 8 * CHAIN - 33), power(8 * CHAIN - 33)];
    let (blocks, rest) = from.as_chunks::<{ 3 * CHAIN }>();
    let (copies, copy_rest) = to.as_chunks_mut::<{ 3 * CHAIN }>();
    let (mut crc, mut copies) = (state, copies.iter_mut());
    for block in blocks {
        if COPIES && let Some(copy) = copies.next() {
            *copy = *block;
        }
        let (first, others) = block.split_at(CHAIN);
        let (second, third) = others.split_at(CHAIN);
        let eights = first.as_chunks::<8>().0.iter().zip(second.as_chunks::<8>().0);
        let (mut a, mut b, mut c) = (u64::from(crc), 0, 0);
        for ((x, y), z) in eights.zip(third.as_chunks::<8>().0) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*x));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*y));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*z));
        }
        let [by_two, by_one] = FACTORS;
        let moved = product(a, by_two) ^ product(b, by_one);
        crc = (c ^ _mm_crc32_u64(0, moved)) as u32;
    }
    chain_copied::<COPIES>(crc, rest, copy_rest)
}

/// The product of two numbers of 32 bits, without carries.
#[inline]
#[target_feature(enable = "pclmulqdq")]
fn product(a: u64, b: u32) -> u64 {
    let (a, b) = (_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(i64::from(b)));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)) as u64
}

/// Vectors of 64 octets, four in parallel; at least [`VECTORS`] octets.
#[target_feature(enable = "sse4.2,avx512f,pclmulqdq,vpclmulqdq")]
fn wide<const COPIES: bool>(state: u32, from: &[u8], to: &mut [u8]) -> u32 {
    let (blocks, rest) = from.as_chunks::<VECTORS>();
    let (copies, copy_rest) = to.as_chunks_mut::<VECTORS>();
    let (vectors, ones) = rest.as_chunks::<VECTOR>();
    let (vector_copies, one_copies) = copy_rest.as_chunks_mut::<VECTOR>();
    let mut copies = copies.iter_mut();
    let Some((block, blocks)) = blocks.split_first() else {
        return chain_copied::<COPIES>(state, from, to);
    };
    let mut folded = load(block);
    if COPIES && let Some(copy) = copies.next() {
        store(folded, copy);
    }
    let [first, ..] = &mut folded;
    *first = _mm512_xor_si512(*first, _mm512_zextsi128_si512(_mm_cvtsi32_si128(state as i32)));
    let by_four = factor(const { factors(8 * VECTORS) });
    for block in blocks {
        let octets = load(block);
        if COPIES && let Some(copy) = copies.next() {
            store(octets, copy);
        }
        let ([a, b, c, d], [w, x, y, z]) = (folded, octets);
        folded =
            [fold(a, by_four, w), fold(b, by_four, x), fold(c, by_four, y), fold(d, by_four, z)];
    }
    let by_one = factor(const { factors(8 * VECTOR) });
    let [a, b, c, d] = folded;
    let mut last = fold(fold(fold(a, by_one, b), by_one, c), by_one, d);
    let mut vector_copies = vector_copies.iter_mut();
    for vector in vectors {
        let octets = load_one(vector);
        if COPIES && let Some(copy) = vector_copies.next() {
            store_one(octets, copy);
        }
        last = fold(last, by_one, octets);
    }
    chain_copied::<COPIES>(reduce(last), ones, one_copies)
}

/// The remainder of 64 octets.
#[inline]
#[target_feature(enable = "sse4.2,avx512f,pclmulqdq")]
fn reduce(octets: __m512i) -> u32 {
    let three = by(_mm512_extracti32x4_epi32::<0>(octets), const { factors(3 * 128) });
    let two = by(_mm512_extracti32x4_epi32::<1>(octets), const { factors(2 * 128) });
    let one = by(_mm512_extracti32x4_epi32::<2>(octets), const { factors(128) });
    let none = _mm512_extracti32x4_epi32::<3>(octets);
    let sum = _mm_xor_si128(_mm_xor_si128(three, two), _mm_xor_si128(one, none));
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(sum) as u64);
    _mm_crc32_u64(crc, _mm_extract_epi64::<1>(sum) as u64) as u32
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn by(octets: __m128i, [first, second]: [i64; 2]) -> __m128i {
    let factors = _mm_set_epi64x(second, first);
    let first = _mm_clmulepi64_si128::<0x00>(octets, factors);
    _mm_xor_si128(first, _mm_clmulepi64_si128::<0x11>(octets, factors))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn factor([first, second]: [i64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(second, first))
}

/// Moves `octets` by the distance of `factor` and adds `next`.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold(octets: __m512i, factor: __m512i, next: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(octets, factor);
    let second = _mm512_clmulepi64_epi128::<0x11>(octets, factor);
    _mm512_ternarylogic_epi64::<0x96>(first, second, next) // the sum of three
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &[u8; VECTORS]) -> [__m512i; 4] {
    let mut vectors = [_mm512_setzero_si512(); 4];
    for (vector, octets) in vectors.iter_mut().zip(block.as_chunks::<VECTOR>().0) {
        *vector = load_one(octets);
    }
    vectors
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(vectors: [__m512i; 4], block: &mut [u8; VECTORS]) {
    for (vector, octets) in vectors.into_iter().zip(block.as_chunks_mut::<VECTOR>().0) {
        store_one(vector, octets);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_one(octets: &[u8; VECTOR]) -> __m512i {
    // SAFETY: 64 octets are there to be read; the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(octets.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_one(vector: __m512i, octets: &mut [u8; VECTOR]) {
    // SAFETY: 64 octets are there to be written; the instruction asks for no alignment.
    unsafe { _mm512_storeu_si512(octets.as_mut_ptr().cast(), vector) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc::tests::{octets, slow};

    type Act = fn(u32, &[u8], &mut [u8]) -> u32;

    /// The methods that this processor supports, with and without a copy.
    fn ways() -> Vec<(&'static str, [Act; 2])> {
        let mut ways: Vec<(_, [Act; 2])> = Vec::new();
        if HasCrc::ask().is_none() {
            return ways;
        }
        // SAFETY: the processor has the CRC instruction, as it was just asked.
        ways.push((
            "chain",
            [
                |s, f, t| unsafe { chain_copied::<false>(s, f, t) },
                |s, f, t| {
                    // SAFETY: as above.
                    unsafe { chain_copied::<true>(s, f, t) }
                },
            ],
        ));
        if is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the processor has carry-less products, too.
            ways.push((
                "three",
                [
                    |s, f, t| unsafe { three::<false>(s, f, t) },
                    |s, f, t| {
                        // SAFETY: as above.
                        unsafe { three::<true>(s, f, t) }
                    },
                ],
            ));
        }
        if has_wide() {
            // SAFETY: the processor has wide ones, too.
            ways.push((
                "wide",
                [
                    |s, f, t| unsafe { wide::<false>(s, f, t) },
                    |s, f, t| {
                        // SAFETY: as above.
                        unsafe { wide::<true>(s, f, t) }
                    },
                ],
            ));
        }
        ways
    }

    #[test]
    fn every_way_agrees_with_the_definition_at_every_length() {
        let octets = octets(2_600);
        for len in 0..octets.len() {
            let (from, state) = (&octets[len % 9..len.max(len % 9)], 0x1234_5678 ^ len as u32);
            let right = slow(state, from);
            for (name, [check, both]) in ways() {
                assert_eq!(check(state, from, &mut []), right, "{name}, {len}");
                let mut to = vec![0; from.len()];
                assert_eq!(both(state, from, &mut to), right, "{name} with a copy, {len}");
                assert_eq!(to, from, "{name}, {len}");
            }
        }
    }
}
