//! Support shared by the tests of both versions' headers: lists to send, and a second, naive
//! reading of lists.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_protocol::rpcrdma::chunk::{READS_MAX, SEGMENTS_MAX, WRITES_MAX};
use stag_protocol::rpcrdma::{ChunkLists, Position, Segment};

pub fn segment(number: usize) -> Segment {
    let number = u32::try_from(number).unwrap();
    Segment {
        handle: 0x0100 + number,
        length: 4096 + number,
        offset: (7 << 40) + u64::from(number) * 8192,
    }
}

/// Lists with `reads` segments at position 112, Write chunks of `writes` segments, and a Reply
/// chunk of `reply` segments.
pub fn lists(reads: usize, writes: &[usize], reply: Option<usize>) -> ChunkLists {
    let mut lists = ChunkLists::new();
    for number in 0..reads {
        lists.push_read(Position::new(112).unwrap(), segment(number)).unwrap();
    }
    for count in writes {
        lists.begin_write().unwrap();
        (0..*count).for_each(|number| lists.push_write(segment(100 + number)).unwrap());
    }
    if let Some(count) = reply {
        lists.begin_reply();
        (0..count).for_each(|number| lists.push_reply(segment(200 + number)).unwrap());
    }
    lists
}

pub fn set_word(message: &mut [u8], index: usize, value: u32) {
    message[4 * index..4 * index + 4].copy_from_slice(&value.to_be_bytes());
}

/// Returns the end of the lists that begin at word `at`, in words; true if there is a Read list,
/// and true if there is any other. `None` if the lists are not well-formed, or exceed our limits.
pub fn walk(words: &[u32], mut at: usize) -> Option<(usize, bool, bool)> {
    let (mut positions, mut segments, mut writes) = (std::collections::BTreeSet::new(), 0, 0);
    let plain = |at: usize| {
        let [_, length, high, low] = words.get(at..at + 4)? else { return None };
        let end = (u128::from(*high) << 32) + u128::from(*low) + u128::from(*length);
        (end < 1 << 64).then_some(())
    };
    while present(words, at)? {
        positions.insert(words.get(at + 1).filter(|position| *position % 4 == 0)?);
        plain(at + 2)?;
        (at, segments) = (at + 6, segments + 1);
    }
    at += 1;
    let reads = segments > 0;
    let mut counted = |mut at: usize| {
        let count = *words.get(at)?;
        at += 1;
        for _ in 0..count {
            plain(at)?;
            (at, segments) = (at + 4, segments + 1);
        }
        Some(at)
    };
    while present(words, at)? {
        at = counted(at + 1)?;
        writes += 1;
    }
    at += 1;
    let reply = present(words, at)?;
    at = if reply { counted(at + 1)? } else { at + 1 };
    let within = positions.len() <= READS_MAX && writes <= WRITES_MAX && segments <= SEGMENTS_MAX;
    within.then_some((at, reads, writes > 0 || reply))
}

fn present(words: &[u32], at: usize) -> Option<bool> {
    match words.get(at)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
