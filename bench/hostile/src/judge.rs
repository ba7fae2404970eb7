//! What a message that came back says.

use crate::{
    answer::Answer,
    peer::Memory,
    wire::{ERROR, MSG, NOMSG, Segment, hyper_at, word_at},
};

/// What stands behind SUCCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Nothing that is judged.
    Rpc,
    /// A status of NFS.
    Nfs,
    /// A status of MOUNT.
    Mount,
}

/// What an RPC message says about the call `xid` (RFC 5531 §9).
pub fn rpc(reply: &[u8], xid: u32, family: Family) -> Answer {
    let word = |at| word_at(reply, at);
    if reply.len() < 16 || word(0) != xid || word(4) != 1 {
        return Answer::Nonsense;
    }
    match (word(8), word(12)) {
        (1, 0) => return Answer::RpcMismatch(word(16), word(20)),
        (1, 1) => return Answer::AuthError(word(16)),
        (0, _) => {}
        _ => return Answer::Nonsense,
    }
    let behind = 20 + word(16).min(400).next_multiple_of(4) as usize;
    if reply.len() < behind + 4 {
        return Answer::Nonsense;
    }
    match word(behind) {
        0 => match (family, word(behind + 4)) {
            (Family::Rpc, _) | (_, 0) => Answer::Ok,
            (Family::Nfs, status) => Answer::Nfs(status),
            (Family::Mount, status) => Answer::Mount(status),
        },
        1 => Answer::ProgUnavail,
        2 => Answer::ProgMismatch(word(behind + 4), word(behind + 8)),
        3 => Answer::ProcUnavail,
        4 => Answer::GarbageArgs,
        5 => Answer::SystemErr,
        _ => Answer::Nonsense,
    }
}

/// The three lists of a header, and where they end.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The Read list: positions and segments.
    pub reads: Vec<(u32, Segment)>,
    /// The Write list.
    pub writes: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub reply: Option<Vec<Segment>>,
    /// Octets of the header.
    pub end: usize,
}

/// Reads the lists behind the four fixed words. None when they cannot be read.
pub fn lists(message: &[u8]) -> Option<Lists> {
    lists_at(message, 16)
}

/// The same of a header that has more words before its lists.
pub fn lists_at(message: &[u8], mut at: usize) -> Option<Lists> {
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
        Some(Segment { handle, length, offset })
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
    Some(Lists { reads, writes, reply, end: at })
}

/// Whether a returned chunk is the one that was offered, with lengths that are no longer (RFC 8166 §3.4.6).
fn is_returned(offered: &[Segment], returned: &[Segment]) -> bool {
    let same = |(one, other): (&Segment, &Segment)| {
        one.handle == other.handle && one.offset == other.offset && other.length <= one.length
    };
    offered.len() == returned.len() && offered.iter().zip(returned).all(same)
}

/// What a message of RPC-over-RDMA says about `sent`.
pub fn message(sent: &[u8], back: &[u8], memory: &Memory, family: Family) -> Answer {
    let xid = word_at(sent, 0);
    if back.len() < 20 || word_at(back, 0) != xid || word_at(back, 8) == 0 {
        return Answer::Nonsense; // RFC 8166 §3.3.1: no grant is zero
    }
    if word_at(back, 12) == ERROR {
        let same_version = word_at(back, 4) == word_at(sent, 4);
        return match word_at(back, 16) {
            1 if back.len() == 28 && same_version => Answer::ErrVers(word_at(back, 20), word_at(back, 24)),
            2 if back.len() == 20 && same_version => Answer::ErrChunk,
            1 | 2 => Answer::Nonsense,
            other => Answer::ErrOther(other),
        };
    }
    let (Some(offered), Some(returned)) = (lists(sent), lists(back)) else { return Answer::Nonsense };
    let writes = offered.writes.len() == returned.writes.len()
        && offered.writes.iter().zip(&returned.writes).all(|(one, other)| is_returned(one, other));
    let reply = match (&offered.reply, &returned.reply) {
        (None, None) => true,
        (Some(one), Some(other)) => is_returned(one, other),
        _ => false,
    };
    if !returned.reads.is_empty() || !writes || !reply {
        return Answer::Trespass;
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
        _ => Answer::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Header, success};

    #[test]
    fn replies_are_told_apart() {
        let offered = [Segment { handle: 1, length: 8, offset: 64 }];
        let sent = Header::msg(7).write(&offered).with(b"");
        let memory = Memory::default();
        let judge = |back: &[u8]| message(&sent, back, &memory, Family::Nfs);
        let back = Header::msg(7).write(&[offered[0].of_len(4)]);
        assert_eq!(judge(&back.with(&success(7).u32(70).0)), Answer::Nfs(70));
        assert_eq!(judge(&back.with(&success(7).u32(0).0)), Answer::Ok);
        assert_eq!(judge(&Header::msg(7).with(&success(7).u32(0).0)), Answer::Trespass);
        assert_eq!(
            judge(&Header::msg(7).write(&[offered[0].of_len(9)]).with(&success(7).0)),
            Answer::Trespass
        );
        assert_eq!(judge(&back.with(&success(8).u32(0).0)), Answer::Nonsense);
        let error =
            |words: &[u32]| judge(&Header { procedure: ERROR, ..Header::msg(7) }.fixed().words(words).0);
        assert_eq!(error(&[2]), Answer::ErrChunk);
        assert_eq!(error(&[1, 1, 3]), Answer::ErrVers(1, 3));
        assert_eq!(error(&[9]), Answer::ErrOther(9));
        assert_eq!(error(&[2, 0]), Answer::Nonsense);
    }
}
