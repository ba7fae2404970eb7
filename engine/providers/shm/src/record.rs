//! Layout of records in a ring. All numbers are little-endian: both ends run on one host.

use crate::ring::{Front, RingSource, Word};
use stag_verbs::{Cause, FabricFault, Layer, Terminate};

/// Octets of a short head: key, flags.
pub(crate) const SHORT: usize = 8;
/// Octets of a long head: those of a short one, a length, nothing, and two words.
pub(crate) const LONG: usize = 32;

/// The kinds of records. 0, 254 and 255 belong to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Asks for a connection; `key` is its number at the sender. Private data follows.
    Connect = 1,
    /// Grants it; `key` is its number at the sender. Private data follows.
    Accept,
    /// Refuses it. Private data follows. `flags` 1: the listener is closed.
    Reject,
    /// Ends it: the last record of its sender that names it. `flags` is the reason.
    Close,
    /// A message follows.
    Send,
    /// A part of an RDMA Write follows: `offset` is where it goes, `more` what is left of the Write
    /// with this part.
    Write,
    /// The same, from the sender's pool `flags` at `more`; it is the whole Write.
    WriteFrom,
    /// Asks for `len` octets; `more` names the request.
    Read,
    /// A part of the oldest answer follows.
    Answer,
    /// The rest of the oldest answer, from the sender's pool `flags` at `more`.
    AnswerFrom,
    /// Cancels a Connect that has no answer; `key` is its number at the sender.
    GiveUp,
    /// A message follows, and `key` is invalidated.
    SendInvalidate,
}

impl RecordKind {
    const ALL: [Self; 12] = [
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
        Self::SendInvalidate,
    ];

    pub(crate) const fn octet(self) -> u8 {
        self as u8
    }

    fn parse(octet: u8) -> Option<Self> {
        Self::ALL.get(usize::from(octet).checked_sub(1)?).copied()
    }

    /// Octets of its head.
    #[inline]
    const fn head_len(self) -> usize {
        let short =
            const { Self::bits([Self::Connect, Self::Accept, Self::Reject, Self::SendInvalidate]) };
        match self {
            Self::Send => 0,
            _ if self.is_of(short) => SHORT,
            _ => LONG,
        }
    }

    /// Returns true if a body follows the head.
    #[inline]
    const fn has_body(self) -> bool {
        use RecordKind::{AnswerFrom, Close, GiveUp, Read, WriteFrom};
        !self.is_of(const { Self::bits([Close, WriteFrom, Read, AnswerFrom, GiveUp]) })
    }

    /// A set of kinds: each record that is taken is looked up in two.
    const fn bits<const N: usize>(kinds: [Self; N]) -> u32 {
        let (mut bits, mut rest) = (0, kinds.as_slice());
        while let Some((kind, others)) = rest.split_first() {
            (bits, rest) = (bits | 1 << *kind as u32, others);
        }
        bits
    }

    #[inline]
    const fn is_of(self, bits: u32) -> bool {
        bits >> self as u32 & 1 == 1
    }
}

/// One record without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShmRecord {
    pub(crate) kind: RecordKind,
    /// The connection, by its number at the receiver.
    pub(crate) to: u32,
    /// Octets that follow, or that it is about.
    pub(crate) len: u32,
    pub(crate) key: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) more: u64,
}

/// Octets of a head, and the number of them in use.
pub(crate) struct Head {
    octets: [u8; LONG],
    len: usize,
}

impl Head {
    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.get(..self.len).expect("a head is not longer than the longest")
    }
}

impl ShmRecord {
    /// A record about connection `to`, with nothing else said.
    pub(crate) const fn new(kind: RecordKind, to: u32) -> Self {
        Self { kind, to, len: 0, key: 0, flags: 0, offset: 0, more: 0 }
    }

    pub(crate) fn emit(&self) -> Head {
        let two = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let words = [two(self.key, self.flags), u64::from(self.len), self.offset, self.more];
        let mut octets = [0; LONG];
        for (to, word) in octets.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        Head { octets, len: self.kind.head_len() }
    }

    /// The record in front and the place of its body, from a copy: later changes by the peer do not
    /// matter. `None` when it is no record. The ring has checked that its octets are there.
    pub(crate) fn parse(front: Front, memory: &impl RingSource) -> Option<(Self, usize)> {
        let kind = RecordKind::parse(front.word.kind())?;
        let body = front.word.len().checked_sub(kind.head_len())?;
        let mut octets = [0; LONG];
        memory.copy_out(front.at, octets.get_mut(..kind.head_len())?);
        let [key, flags, len, _, o0, o1, m0, m1] = words(&octets);
        let len = match kind.has_body() {
            true => u32::try_from(body).ok()?,
            false => len,
        };
        let long = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let this = Self {
            kind,
            to: front.word.to(),
            len,
            key,
            flags,
            offset: long(o0, o1),
            more: long(m0, m1),
        };
        (kind.has_body() || body == 0).then_some((this, front.at + kind.head_len()))
    }

    /// The word in front of it in the ring.
    pub(crate) const fn word(&self) -> Word {
        let body = if self.kind.has_body() { self.len as usize } else { 0 };
        Word::new(self.kind.octet(), self.kind.head_len() + body, self.to)
    }
}

fn words(octets: &[u8; LONG]) -> [u32; 8] {
    let mut words = [0; 8];
    for (word, octets) in words.iter_mut().zip(octets.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*octets);
    }
    words
}

/// Why a connection is closed, as [`RecordKind::Close`] carries it in `flags`, `key` and `more`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseReason {
    /// Cause of the end, as the receiver reports it.
    pub(crate) cause: Cause,
    /// The request that broke the rule, when it is a Read.
    pub(crate) read: Option<u64>,
}

impl CloseReason {
    pub(crate) const GONE: Self = Self { cause: Cause::Peer, read: None };

    /// Returns the reason that is sent to a peer that broke a rule.
    pub(crate) const fn told(terminate: Terminate, read: Option<u64>) -> Self {
        Self { cause: Cause::Terminated(terminate), read }
    }

    pub(crate) const fn record(self, to: u32) -> ShmRecord {
        let record = ShmRecord::new(RecordKind::Close, to);
        let Cause::Terminated(Terminate { layer, etype, code }) = self.cause else { return record };
        let key = (layer as u32) << 16 | (etype as u32) << 8 | code as u32;
        let (flags, more) = match self.read {
            Some(read) => (2, read),
            None => (1, 0),
        };
        ShmRecord { key, flags, more, ..record }
    }

    pub(crate) const fn parse(record: &ShmRecord) -> Self {
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

    struct Octets(Vec<u8>);

    impl RingSource for Octets {
        fn word(&self, _: usize) -> u64 {
            unreachable!("records are copied")
        }

        fn copy_out(&self, at: usize, to: &mut [u8]) {
            to.copy_from_slice(&self.0[at..at + to.len()]);
        }
    }

    #[test]
    fn every_record_is_what_was_said() {
        for kind in RecordKind::ALL {
            let full = ShmRecord {
                kind,
                to: 0x0102_0304,
                len: 5,
                key: 0xfeff_0001,
                flags: 7,
                offset: u64::MAX - 1,
                more: 1 << 63 | 9,
            };
            let head = full.emit();
            let expected = match kind.head_len() {
                0 => ShmRecord { key: 0, flags: 0, offset: 0, more: 0, ..full },
                SHORT => ShmRecord { offset: 0, more: 0, ..full },
                _ => full,
            };
            let mut octets = vec![0xaa; 3];
            octets.extend_from_slice(head.octets());
            let memory = Octets(octets);
            let word = full.word();
            assert_eq!((word.kind(), word.to()), (kind.octet(), full.to));
            let front = |len| Front { word: Word::new(kind.octet(), len, full.to), at: 3 };
            assert_eq!(
                ShmRecord::parse(front(word.len()), &memory),
                Some((expected, 3 + kind.head_len()))
            );
            for less in 0..kind.head_len() {
                assert_eq!(ShmRecord::parse(front(less), &memory), None, "{kind:?} in {less}");
            }
            if !kind.has_body() {
                assert_eq!(
                    ShmRecord::parse(front(word.len() + 1), &memory),
                    None,
                    "{kind:?} has no body"
                );
            }
        }
    }

    #[test]
    fn other_kinds_are_nonsense() {
        let memory = Octets(vec![0; LONG]);
        let known: Vec<_> = (0..=255).filter_map(RecordKind::parse).collect();
        assert_eq!(known, RecordKind::ALL);
        let front = Front { word: Word::new(13, LONG, 0), at: 0 };
        assert_eq!(ShmRecord::parse(front, &memory), None);
    }

    #[test]
    fn reasons_keep_their_meaning() {
        let terminate = Terminate { layer: Layer::Ddp, etype: 2, code: 5 };
        for why in [
            CloseReason::GONE,
            CloseReason::told(terminate, None),
            CloseReason::told(terminate, Some(u64::MAX)),
        ] {
            assert_eq!(CloseReason::parse(&why.record(3)), why);
        }
        let llp = Terminate { layer: Layer::Llp, ..terminate };
        assert_eq!(
            CloseReason::parse(&CloseReason::told(llp, None).record(0)).cause,
            Cause::Terminated(llp)
        );
    }
}
