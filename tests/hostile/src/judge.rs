//! Classification of the messages that come back.

use crate::{
    answer::AnswerPattern,
    peer::ExposedMemory,
    wire::{ERROR, MSG, NOMSG, RawSegment, hyper_at, word_at},
};

/// Family of the results after SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Nothing that is judged.
    Rpc,
    /// A status of NFS.
    Nfs,
    /// A status of MOUNT.
    Mount,
}

/// Classifies an RPC message as answer to the call `xid` (RFC 5531 §9).
pub fn rpc(reply: &[u8], xid: u32, family: Family) -> AnswerPattern {
    let word = |at| word_at(reply, at);
    if reply.len() < 16 || word(0) != xid || word(4) != 1 {
        return AnswerPattern::Nonsense;
    }
    match (word(8), word(12)) {
        (1, 0) => return AnswerPattern::RpcMismatch(word(16), word(20)),
        (1, 1) => return AnswerPattern::AuthError(word(16)),
        (0, _) => {}
        _ => return AnswerPattern::Nonsense,
    }
    let behind = 20 + word(16).min(400).next_multiple_of(4) as usize;
    if reply.len() < behind + 4 {
        return AnswerPattern::Nonsense;
    }
    match word(behind) {
        0 => match (family, word(behind + 4)) {
            (Family::Rpc, _) | (_, 0) => AnswerPattern::Ok,
            (Family::Nfs, status) => AnswerPattern::Nfs(status),
            (Family::Mount, status) => AnswerPattern::Mount(status),
        },
        1 => AnswerPattern::ProgUnavail,
        2 => AnswerPattern::ProgMismatch(word(behind + 4), word(behind + 8)),
        3 => AnswerPattern::ProcUnavail,
        4 => AnswerPattern::GarbageArgs,
        5 => AnswerPattern::SystemErr,
        _ => AnswerPattern::Nonsense,
    }
}

/// The three lists of a header, and where they end.
#[derive(Clone, Debug, Default)]
pub struct ChunkCounts {
    /// The Read list: positions and segments.
    pub reads: Vec<(u32, RawSegment)>,
    /// The Write list.
    pub writes: Vec<Vec<RawSegment>>,
    /// The Reply chunk.
    pub reply: Option<Vec<RawSegment>>,
    /// Octets of the header.
    pub end: usize,
}

/// Reads the lists after the four fixed words. None when they cannot be read.
pub fn lists(message: &[u8]) -> Option<ChunkCounts> {
    lists_at(message, 16)
}

/// The same of a header that has more words before its lists.
pub fn lists_at(message: &[u8], mut at: usize) -> Option<ChunkCounts> {
    let next = |at: &mut usize| {
        let four = message.get(*at..)?.first_chunk::<4>()?;
        *at += 4;
        Some(u32::from_be_bytes(*four))
    };
    let segment = |at: &mut usize| {
        message.get(*at..*at + 16)?;
        let (handle, length) = (word_at(message, *at), word_at(message, *at + 4));
        let offset = hyper_at(message, *at + 8);
        *at += 16;
        Some(RawSegment { handle, length, offset })
    };
    let chunk = |at: &mut usize| {
        let mut segments = Vec::new();
        for _ in 0..next(at)? {
            segments.push(segment(at)?);
        }
        Some(segments)
    };
    let mut reads = Vec::new();
    while next(&mut at)? == 1 {
        reads.push((next(&mut at)?, segment(&mut at)?));
    }
    let mut writes = Vec::new();
    while next(&mut at)? == 1 {
        writes.push(chunk(&mut at)?);
    }
    let reply = if next(&mut at)? == 1 { Some(chunk(&mut at)?) } else { None };
    Some(ChunkCounts { reads, writes, reply, end: at })
}

/// Returns true if a returned chunk is the one that was offered, with lengths that are no longer
/// (RFC 8166 §3.4.6).
fn is_returned(offered: &[RawSegment], returned: &[RawSegment]) -> bool {
    let same = |(one, other): (&RawSegment, &RawSegment)| {
        one.handle == other.handle && one.offset == other.offset && other.length <= one.length
    };
    offered.len() == returned.len() && offered.iter().zip(returned).all(same)
}

/// Classifies a message of RPC-over-RDMA as answer to `sent`.
pub fn message(sent: &[u8], back: &[u8], memory: &ExposedMemory, family: Family) -> AnswerPattern {
    let xid = word_at(sent, 0);
    if back.len() < 20 || word_at(back, 0) != xid || word_at(back, 8) == 0 {
        return AnswerPattern::Nonsense; // RFC 8166 §3.3.1: no grant is zero
    }
    if word_at(back, 12) == ERROR {
        let same_version = word_at(back, 4) == word_at(sent, 4);
        return match word_at(back, 16) {
            1 if back.len() == 28 && same_version => {
                AnswerPattern::ErrVers(word_at(back, 20), word_at(back, 24))
            }
            2 if back.len() == 20 && same_version => AnswerPattern::ErrChunk,
            1 | 2 => AnswerPattern::Nonsense,
            other => AnswerPattern::ErrOther(other),
        };
    }
    let (Some(offered), Some(returned)) = (lists(sent), lists(back)) else {
        return AnswerPattern::Nonsense;
    };
    let writes = offered.writes.len() == returned.writes.len()
        && offered.writes.iter().zip(&returned.writes).all(|(one, other)| is_returned(one, other));
    let reply = match (&offered.reply, &returned.reply) {
        (None, None) => true,
        (Some(one), Some(other)) => is_returned(one, other),
        _ => false,
    };
    if !returned.reads.is_empty() || !writes || !reply {
        return AnswerPattern::Trespass;
    }
    match (word_at(back, 12), returned.reply) {
        (MSG, _) => rpc(back.get(returned.end..).unwrap_or_default(), xid, family),
        (NOMSG, Some(chunk)) => {
            let octets: Vec<u8> = chunk
                .iter()
                .flat_map(|segment| memory.octets(*segment).unwrap_or_default())
                .copied()
                .collect();
            rpc(&octets, xid, family)
        }
        _ => AnswerPattern::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{RawHeader, success};

    #[test]
    fn replies_are_told_apart() {
        let offered = [RawSegment { handle: 1, length: 8, offset: 64 }];
        let sent = RawHeader::msg(7).write(&offered).with(b"");
        let memory = ExposedMemory::default();
        let judge = |back: &[u8]| message(&sent, back, &memory, Family::Nfs);
        let back = RawHeader::msg(7).write(&[offered[0].of_len(4)]);
        assert_eq!(judge(&back.with(&success(7).u32(70).0)), AnswerPattern::Nfs(70));
        assert_eq!(judge(&back.with(&success(7).u32(0).0)), AnswerPattern::Ok);
        assert_eq!(judge(&RawHeader::msg(7).with(&success(7).u32(0).0)), AnswerPattern::Trespass);
        assert_eq!(
            judge(&RawHeader::msg(7).write(&[offered[0].of_len(9)]).with(&success(7).0)),
            AnswerPattern::Trespass
        );
        assert_eq!(judge(&back.with(&success(8).u32(0).0)), AnswerPattern::Nonsense);
        let error = |words: &[u32]| {
            judge(&RawHeader { procedure: ERROR, ..RawHeader::msg(7) }.fixed().words(words).0)
        };
        assert_eq!(error(&[2]), AnswerPattern::ErrChunk);
        assert_eq!(error(&[1, 1, 3]), AnswerPattern::ErrVers(1, 3));
        assert_eq!(error(&[9]), AnswerPattern::ErrOther(9));
        assert_eq!(error(&[2, 0]), AnswerPattern::Nonsense);
    }
}
