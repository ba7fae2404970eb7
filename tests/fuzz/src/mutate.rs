//! Changes to an input that keep most of its structure, so that the checks after a changed field
//! are still reached.

use crate::random::{EDGES, FuzzRandom};

/// Octets of the longest input that is made.
pub const INPUT_MAX: usize = 16 << 10;

/// Unit that an input is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    /// Words of XDR.
    Words,
    /// Parts, each after its length in two octets.
    Parts,
}

/// Changes `input`, which is of this shape, one to four times. Pieces of `other`, an input of the
/// same target, may come into it.
pub fn mutate(random: &mut FuzzRandom, shape: InputShape, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(4) {
        match shape {
            InputShape::Words => mutate_words(random, input, other),
            // Without regard to the lengths once in a while.
            InputShape::Parts if random.one_in(8) => mutate_words(random, input, other),
            InputShape::Parts => mutate_parts(random, input, other),
        }
    }
    input.truncate(INPUT_MAX);
}

/// The parts of an input; the last one may be cut.
pub fn parts(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = input.split_first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len)).min(rest.len());
        let (part, rest) = rest.split_at(len);
        input = rest;
        Some(part)
    })
}

/// Adds a part.
pub fn push_part(input: &mut Vec<u8>, part: &[u8]) {
    let len = u16::try_from(part.len()).unwrap_or(u16::MAX);
    input.extend(len.to_be_bytes());
    input.extend(&part[..usize::from(len)]);
}

fn mutate_parts(random: &mut FuzzRandom, input: &mut Vec<u8>, other: &[u8]) {
    let mut all: Vec<_> = parts(input).map(<[u8]>::to_vec).collect();
    let others: Vec<_> = parts(other).collect();
    let at = random.below(all.len());
    match random.below(8) {
        0 if !all.is_empty() => drop(all.remove(at)),
        1 if !all.is_empty() => all.insert(random.below(all.len()), all[at].clone()),
        2 if !all.is_empty() => {
            let with = random.below(all.len());
            all.swap(at, with);
        }
        3 if !others.is_empty() => all.insert(at, random.pick(&others).to_vec()),
        4 if !others.is_empty() => {
            all.truncate(at);
            all.extend(others[random.below(others.len())..].iter().map(|part| part.to_vec()));
        }
        _ if all.is_empty() => all.push(random.octets(16)),
        _ => {
            let with = if others.is_empty() { &[][..] } else { random.pick(&others) };
            mutate_words(random, &mut all[at], with);
        }
    }
    input.clear();
    all.iter().for_each(|part| push_part(input, part));
}

/// Picks a place at which a word may begin: fields are aligned to four octets, fields after
/// an FPDU's length to two.
fn place(random: &mut FuzzRandom, len: usize) -> usize {
    let at = random.below(len.saturating_add(1));
    match random.below(8) {
        0 => at,
        1 => at & !1,
        _ => at & !3,
    }
}

fn mutate_words(random: &mut FuzzRandom, input: &mut Vec<u8>, other: &[u8]) {
    let at = place(random, input.len());
    match random.below(16) {
        0 | 1 => change_bit(random, input),
        2 => {
            let octet = random.u8();
            input.get_mut(at).into_iter().for_each(|place| *place = octet);
        }
        3..=6 => change_word(random, input, at),
        7 => change_long(random, input, at),
        8 => input.truncate(at),
        9 => {
            let more = random.below(64);
            let octets = random.octets(more);
            input.extend(octets);
        }
        10 => input.resize((input.len() + random.below(64)).next_multiple_of(4), 0),
        11 => {
            let words = (0..1 + random.below(6)).flat_map(|_| random.word().to_be_bytes());
            let words: Vec<u8> = words.collect();
            drop(input.splice(at..at, words));
        }
        12 => {
            let end = (at + 4 * (1 + random.below(6))).min(input.len());
            drop(input.drain(at..end));
        }
        13 => repeat(random, input, at),
        14 => splice(random, input, at, other),
        _ => {
            let from = place(random, other.len());
            let take = (4 * random.below(16)).min(other.len() - from).min(input.len() - at);
            input[at..at + take].copy_from_slice(&other[from..from + take]);
        }
    }
}

fn change_bit(random: &mut FuzzRandom, input: &mut [u8]) {
    let at = random.below(input.len());
    let bit = random.below(8);
    input.get_mut(at).into_iter().for_each(|octet| *octet ^= 1 << bit);
}

/// A count, a discriminant or a length gets another value: an edge, one near the old, or one that
/// fits the input.
fn change_word(random: &mut FuzzRandom, input: &mut [u8], at: usize) {
    let left = input.len().saturating_sub(at + 4) as u32;
    let Some(word) = input.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { return };
    let old = u32::from_be_bytes(*word);
    let near = random.below(9) as u32;
    *word = match random.below(5) {
        0 => random.pick(&EDGES),
        1 => old.wrapping_add(near).wrapping_sub(4),
        2 => left.wrapping_add(near).wrapping_sub(4),
        3 => random.word(),
        _ => old.rotate_left(random.below(32) as u32),
    }
    .to_be_bytes();
}

/// Offsets are near the end of the address space.
fn change_long(random: &mut FuzzRandom, input: &mut [u8], at: usize) {
    let Some(long) = input.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { return };
    let old = u64::from_be_bytes(*long);
    let edge = u64::from(random.pick(&EDGES));
    *long = match random.below(3) {
        0 => u64::MAX - edge,
        1 => old.wrapping_add(edge),
        _ => edge,
    }
    .to_be_bytes();
}

/// Some words come once more: segments, list items, groups.
fn repeat(random: &mut FuzzRandom, input: &mut Vec<u8>, at: usize) {
    let len = random.pick(&[4, 8, 16, 24, 32, 64]).min(input.len() - at);
    let piece = input[at..at + len].repeat(1 + random.pick(&[1, 1, 1, 2, 4, 16, 64]));
    drop(input.splice(at..at + len, piece));
}

/// The front of one and the back of the other.
fn splice(random: &mut FuzzRandom, input: &mut Vec<u8>, at: usize, other: &[u8]) {
    let from = place(random, other.len());
    input.truncate(at);
    input.extend(&other[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_they_were_pushed_and_a_cut_one_is_short() {
        let mut input = Vec::new();
        let pushed: [&[u8]; 4] = [b"one", b"", b"three", &[7; 300]];
        pushed.iter().for_each(|part| push_part(&mut input, part));
        assert!(parts(&input).eq(pushed));
        for cut in 0..input.len() {
            let cut: Vec<_> = parts(&input[..cut]).collect();
            assert!(cut.iter().zip(pushed).all(|(cut, whole)| whole.starts_with(cut)));
        }
    }

    #[test]
    fn every_input_stays_within_its_limit_and_a_seed_is_one_sequence() {
        for shape in [InputShape::Words, InputShape::Parts] {
            let run = || {
                let mut random = FuzzRandom::new(3);
                let (mut input, other) = (vec![1; 100], vec![0; 64]);
                for _ in 0..20_000 {
                    mutate(&mut random, shape, &mut input, &other);
                    assert!(input.len() <= INPUT_MAX);
                }
                input
            };
            assert_eq!(run(), run());
        }
    }
}
