//! Inputs of shared memory.

use crate::{
    mutate::push_part,
    random::FuzzRandom,
    targets::{self, SHM_TRUST, SHM_WE_CONNECT},
};

/// Head after a record's word.
enum RecordHead {
    None,
    /// Key and flags.
    Short([u32; 2]),
    /// Those, the length of what it is about, and two words.
    Long([u32; 3], [u64; 2]),
}

/// A record: a word of its kind, its length and its connection, then its head, then a body.
fn record(kind: u8, to: u32, head: RecordHead, body: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    match head {
        RecordHead::None => {}
        RecordHead::Short(words) => octets.extend(words.into_iter().flat_map(u32::to_le_bytes)),
        RecordHead::Long([key, flags, len], long) => {
            octets.extend([key, flags, len, 0].into_iter().flat_map(u32::to_le_bytes));
            octets.extend(long.into_iter().flat_map(u64::to_le_bytes));
        }
    }
    octets.resize(octets.len() + body as usize, 0x33);
    let word = u64::from(to) << 32 | (octets.len() as u64) << 8 | u64::from(kind);
    [&word.to_le_bytes()[..], &octets].concat()
}

/// Flags and words, then what a peer says.
pub fn shm(random: &mut FuzzRandom) -> Vec<u8> {
    let we_connect = random.one_in(4);
    let trust = random.one_in(2);
    let flags = if we_connect { SHM_WE_CONNECT } else { 0 } | if trust { SHM_TRUST } else { 0 };
    let mut first = vec![flags];
    // How far it read, which is nowhere as a rule; whether it sleeps.
    first.extend(if random.one_in(8) { u64::from(random.word()) } else { 0 }.to_le_bytes());
    first.extend(u64::from(random.one_in(4)).to_le_bytes());
    let mut input = Vec::new();
    push_part(&mut input, &first);
    let greeting = if we_connect { 2 } else { 1 };
    push_part(&mut input, &record(greeting, 0, RecordHead::Short([0, 0]), 4));
    let [write, read] = targets::shm_windows();
    let mut asked = [2048, 16_u32].into_iter();
    for _ in 0..random.below(12) {
        let to = if random.one_in(16) { random.word() } else { 0 };
        let len = random.pick(&[0, 1, 64, 100, 1024, 2048]);
        let window = if random.one_in(8) { read } else { write };
        let at = window.offset + random.pick(&[0, 0, 0, 1, 1024, 2047]);
        let lent = random.pick(&[0, 0, 1, 4096, 62 << 10, 63 << 10]);
        let mut part = match random.below(12) {
            0..3 => record(5, to, RecordHead::None, len),
            3 => {
                record(12, to, RecordHead::Short([random.pick(&[write.key.0, read.key.0]), 0]), len)
            }
            4 => record(6, to, RecordHead::Long([window.key.0, 0, 0], [at, u64::from(len)]), len),
            5 => record(7, to, RecordHead::Long([window.key.0, 0, len], [at, lent]), 0),
            6 => record(
                8,
                to,
                RecordHead::Long([read.key.0, 0, len], [read.offset, u64::from(random.word())]),
                0,
            ),
            7 | 8 => {
                record(9, to, RecordHead::Long([0, 0, 0], [0, 0]), asked.next().unwrap_or(len))
            }
            9 => {
                record(10, to, RecordHead::Long([0, 0, asked.next().unwrap_or(len)], [0, lent]), 0)
            }
            10 => {
                let kind = random.pick(&[1, 4, 11, 0xff]);
                let head = [1, random.pick(&[0, 1, 2])];
                match kind {
                    1 => record(kind, to, RecordHead::Short(head), 0),
                    _ => record(kind, to, RecordHead::Long([head[0], head[1], 0], [0, 0]), 0),
                }
            }
            _ => record(random.u8(), to, RecordHead::Long([random.word(), 0, len], [at, 0]), len),
        };
        // Now and then a length other than the real one.
        if random.one_in(16) {
            part[1..4].copy_from_slice(&random.word().to_le_bytes()[..3]);
        }
        push_part(&mut input, &part);
    }
    input
}
