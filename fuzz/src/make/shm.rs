//! Inputs of shared memory.

use crate::{
    mutate::push_part,
    random::Random,
    targets::{self, SHM_TRUST, SHM_WE_CONNECT},
};

/// A record: its kind, then connection, length, key and flags, then two words where it has them, then a body.
fn record(kind: u8, short: [u32; 4], long: Option<[u64; 2]>, body: usize) -> Vec<u8> {
    let mut octets = vec![kind];
    octets.extend(short.into_iter().flat_map(u32::to_le_bytes));
    octets.extend(long.into_iter().flatten().flat_map(u64::to_le_bytes));
    octets.resize(octets.len() + body, 0x33);
    octets
}

/// Flags and words, then what a peer says.
pub fn shm(random: &mut Random) -> Vec<u8> {
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
    push_part(&mut input, &record(greeting, [0, 4, 0, 0], None, 4));
    let [write, read] = targets::shm_windows();
    let mut asked = [2048, 16_u32].into_iter();
    for _ in 0..random.below(12) {
        let to = if random.one_in(16) { random.word() } else { 0 };
        let len = random.pick(&[0, 1, 64, 100, 1024, 2048]);
        let window = if random.one_in(8) { read } else { write };
        let at = window.offset + random.pick(&[0, 0, 0, 1, 1024, 2047]);
        let lent = random.pick(&[0, 0, 1, 4096, 62 << 10, 63 << 10]);
        let part = match random.below(12) {
            0..3 => record(5, [to, len, 0, 0], None, len as usize),
            3 => record(5, [to, len, random.pick(&[write.key.0, read.key.0]), 1], None, len as usize),
            4 => record(6, [to, len, window.key.0, 0], Some([at, u64::from(len)]), len as usize),
            5 => record(7, [to, len, window.key.0, 0], Some([at, lent]), 0),
            6 => record(8, [to, len, read.key.0, 0], Some([read.offset, u64::from(random.word())]), 0),
            7 | 8 => {
                let len = asked.next().unwrap_or(len);
                record(9, [to, len, 0, 0], Some([0, 0]), len as usize)
            }
            9 => record(10, [to, asked.next().unwrap_or(len), 0, 0], Some([0, lent]), 0),
            10 => {
                record(random.pick(&[1, 4, 11, 0xff]), [to, 0, 1, random.pick(&[0, 1, 2])], Some([0, 0]), 0)
            }
            _ => record(random.u8(), [to, len, random.word(), 0], Some([at, 0]), len as usize),
        };
        push_part(&mut input, &part);
    }
    input
}
