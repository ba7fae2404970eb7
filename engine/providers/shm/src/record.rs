//! What records say. All numbers are little-endian: both ends run on one host.

use crate::ring::{Front, Source};
use stag_verbs::{Cause, FabricFault, Layer, Terminate};

/// Octets of a short head: connection, length, key, flags.
pub(crate) const SHORT: usize = 16;
/// Octets of a long head: those, and two words.
pub(crate) const LONG: usize = 32;

/// The kinds of records. 0 and 255 belong to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Asks for a connection; `key` is its number at the sender. Private data follows.
    Connect = 1,
    /// Grants it; `key` is its number at the sender. Private data follows.
    Accept,
    /// Refuses it. Private data follows. `flags` 1: nobody listens any more.
    Reject,
    /// Ends it: the last record of its sender that names it. `flags` is the reason.
    Close,
    /// A message follows. `flags` 1: `key` is invalidated.
    Send,
    /// A part of an RDMA Write follows: `offset` is where it goes, `more` what is left of the Write with this part.
    Write,
    /// The same, from the sender's pool `flags` at `more`; it is the whole Write.
    WriteFrom,
    /// Asks for `len` octets; `more` names the request.
    Read,
    /// A part of the oldest answer follows.
    Answer,
    /// The rest of the oldest answer, from the sender's pool `flags` at `more`.
    AnswerFrom,
    /// Takes a Connect back that has no answer; `key` is its number at the sender.
    GiveUp,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Connect,
        Self::Accept,
        Self::Reject,
        Self::Close,
        Self::Send,
        Self::Write,
        Self::WriteFrom,
        Self::Read,
        Self::Answer,
        Self::AnswerFrom,
        Self::GiveUp,
    ];

    pub(crate) const fn octet(self) -> u8 {
        self as u8
    }

    fn parse(octet: u8) -> Option<Self> {
        Self::ALL.get(usize::from(octet).checked_sub(1)?).copied()
    }

    const fn head_len(self) -> usize {
        match self {
            Self::Connect | Self::Accept | Self::Reject | Self::Send => SHORT,
            _ => LONG,
        }
    }

    /// Whether `len` octets follow the head.
    const fn has_body(self) -> bool {
        !matches!(self, Self::Close | Self::WriteFrom | Self::Read | Self::AnswerFrom | Self::GiveUp)
    }
}

/// One record without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    /// The connection, by its number at the receiver.
    pub(crate) to: u32,
    /// Octets that follow, or that it is about.
    pub(crate) len: u32,
    pub(crate) key: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) more: u64,
}

/// Octets of a head, and how many of them count.
pub(crate) struct Head {
    octets: [u8; LONG],
    len: usize,
}

impl Head {
    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).expect("a head is not longer than the longest")
    }
}

impl Record {
    /// A record about connection `to`, with nothing else said.
    pub(crate) const fn new(kind: Kind, to: u32) -> Self {
        Self { kind, to, len: 0, key: 0, flags: 0, offset: 0, more: 0 }
    }

    pub(crate) fn emit(&self) -> Head {
        let four =
            |words: [u32; 4]| words.into_iter().rev().fold(0, |all, word| all << 32 | u128::from(word));
        let short = four([self.to, self.len, self.key, self.flags]);
        let long = u128::from(self.more) << 64 | u128::from(self.offset);
        let mut octets = [0; LONG];
        let (front, back) = octets.split_at_mut(SHORT);
        front.copy_from_slice(&short.to_le_bytes());
        back.copy_from_slice(&long.to_le_bytes());
        Head { octets, len: self.kind.head_len() }
    }

    /// The record in front and where its body is, from a copy: what the peer changes later does not matter. None when the
    /// peer wrote what is no record.
    pub(crate) fn parse(front: Front, memory: &impl Source) -> Option<(Self, usize)> {
        let kind = Kind::parse(front.kind)?;
        let mut octets = [0; LONG];
        if kind.head_len() > front.room {
            return None;
        }
        // A copy of a length that the compiler knows is no call.
        match octets.first_chunk_mut::<SHORT>() {
            Some(short) if kind.head_len() == SHORT => memory.copy_out(front.at, short),
            _ => memory.copy_out(front.at, &mut octets),
        }
        let [to, len, key, flags, o0, o1, m0, m1] = words(&octets);
        let long = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let this = Self { kind, to, len, key, flags, offset: long(o0, o1), more: long(m0, m1) };
        (this.octets() <= front.room).then_some((this, front.at + kind.head_len()))
    }

    /// Octets behind the ring's word.
    pub(crate) const fn octets(&self) -> usize {
        let body = if self.kind.has_body() { self.len as usize } else { 0 };
        self.kind.head_len() + body
    }
}

fn words(octets: &[u8; LONG]) -> [u32; 8] {
    let mut words = [0; 8];
    for (word, octets) in words.iter_mut().zip(octets.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*octets);
    }
    words
}

/// Why a connection is closed, as [`Kind::Close`] carries it in `flags`, `key` and `more`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    /// What the receiver is to know of it.
    pub(crate) cause: Cause,
    /// The request that broke the rule, when it is a Read.
    pub(crate) read: Option<u64>,
}

impl Why {
    pub(crate) const GONE: Self = Self { cause: Cause::Peer, read: None };

    /// What is told to a peer that broke a rule.
    pub(crate) const fn told(terminate: Terminate, read: Option<u64>) -> Self {
        Self { cause: Cause::Terminated(terminate), read }
    }

    pub(crate) const fn record(self, to: u32) -> Record {
        let record = Record::new(Kind::Close, to);
        let Cause::Terminated(Terminate { layer, etype, code }) = self.cause else { return record };
        let key = (layer as u32) << 16 | (etype as u32) << 8 | code as u32;
        let (flags, more) = match self.read {
            Some(read) => (2, read),
            None => (1, 0),
        };
        Record { key, flags, more, ..record }
    }

    pub(crate) const fn parse(record: &Record) -> Self {
        let [_, layer, etype, code] = record.key.to_be_bytes();
        let layer = match layer {
            0 => Layer::Rdmap,
            1 => Layer::Ddp,
            _ => Layer::Llp,
        };
        let cause = Cause::Terminated(Terminate { layer, etype, code });
        match record.flags {
            0 => Self::GONE,
            1 => Self { cause, read: None },
            _ => Self { cause, read: Some(record.more) },
        }
    }
}

/// The peer wrote what no side of this fabric says.
pub(crate) const NONSENSE: Cause = Cause::Fabric(FabricFault::Corrupt);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{LINE, PART};

    struct Octets(Vec<u8>);

    impl Source for Octets {
        fn word(&self, _: usize) -> u64 {
            unreachable!("records are copied")
        }

        fn copy_out(&self, at: usize, to: &mut [u8]) {
            to.copy_from_slice(&self.0[at..at + to.len()]);
        }
    }

    #[test]
    fn every_record_is_what_was_said() {
        for kind in Kind::ALL {
            let full = Record {
                kind,
                to: 0x0102_0304,
                len: 5,
                key: 0xfeff_0001,
                flags: 7,
                offset: u64::MAX - 1,
                more: 1 << 63 | 9,
            };
            let head = full.emit();
            let short = Record { offset: 0, more: 0, ..full };
            let expected = if kind.head_len() == SHORT { short } else { full };
            let mut octets = vec![0xaa; 3];
            octets.extend_from_slice(head.octets());
            let memory = Octets(octets);
            let room = expected.octets();
            let front = Front { kind: kind.octet(), at: 3, room };
            assert_eq!(Record::parse(front, &memory), Some((expected, 3 + kind.head_len())));
            for less in 0..room {
                assert_eq!(Record::parse(Front { room: less, ..front }, &memory), None, "{kind:?} in {less}");
            }
        }
    }

    #[test]
    fn other_kinds_are_nonsense() {
        let memory = Octets(vec![0; LONG]);
        let known: Vec<_> = (0..=255).filter_map(Kind::parse).collect();
        assert_eq!(known, Kind::ALL);
        let front = Front { kind: 12, at: 0, room: LINE * PART };
        assert_eq!(Record::parse(front, &memory), None);
    }

    #[test]
    fn reasons_keep_their_meaning() {
        let terminate = Terminate { layer: Layer::Ddp, etype: 2, code: 5 };
        for why in [Why::GONE, Why::told(terminate, None), Why::told(terminate, Some(u64::MAX))] {
            assert_eq!(Why::parse(&why.record(3)), why);
        }
        let llp = Terminate { layer: Layer::Llp, ..terminate };
        assert_eq!(Why::parse(&Why::told(llp, None).record(0)).cause, Cause::Terminated(llp));
    }
}
