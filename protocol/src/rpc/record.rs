//! Record marking: messages in a byte stream (RFC 5531 §11).
//!
//! A record is one message. It comes in fragments, each preceded by a word that holds its length
//! and a flag for the last one. [`Assembler`] owns no memory: it says which octets go where in the
//! caller's.

use core::fmt;

/// The word in front of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// True for the last fragment of a record.
    pub last: bool,
    len: u32,
}

impl Fragment {
    /// Octets on the wire.
    pub const LEN: usize = 4;
    /// Octets of the longest fragment.
    pub const MAX: u32 = LAST - 1;

    /// A fragment of `len` octets; `None` when there are more than [`Fragment::MAX`].
    pub const fn new(len: u32, last: bool) -> Option<Self> {
        if len > Self::MAX { None } else { Some(Self { last, len }) }
    }

    /// Octets of it, 0 to [`Fragment::MAX`].
    pub const fn octets(self) -> u32 {
        self.len
    }

    /// Reads the word.
    pub const fn parse(octets: [u8; Self::LEN]) -> Self {
        let word = u32::from_be_bytes(octets);
        // RFC 5531 §11 [5531-23]: a fragment has a flag for the last and 31 bits of length
        Self { last: word & LAST != 0, len: word & !LAST }
    }

    /// Writes the word.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let last = if self.last { LAST } else { 0 };
        (last | self.len).to_be_bytes()
    }
}

const LAST: u32 = 1 << 31;

/// Empty fragments that one record may have in front of its last. They are legal and mean nothing:
/// without a limit a peer could send them for ever.
pub const EMPTY_FRAGMENTS_MAX: u8 = 16;

/// Fault of a peer in its record marking. Its stream can no longer be cut into records: close it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A fragment makes its record longer than the limit.
    TooLong,
    /// A record has more than [`EMPTY_FRAGMENTS_MAX`] empty fragments.
    EmptyFragments,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the peer's RPC record is longer than the limit",
            Self::EmptyFragments => "the peer's RPC record has too many empty fragments",
        })
    }
}

impl core::error::Error for Fault {}

/// Next step that [`Assembler::step`] asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The input is used up.
    More,
    /// Copy `octets` into the record at `at`.
    Copy {
        /// At least one, all in the same fragment.
        octets: &'a [u8],
        /// Below the limit, with all of `octets`.
        at: usize,
    },
    /// The record is whole and has this many octets. What the input still holds belongs to the next
    /// one.
    Complete(usize),
}

/// Assembles records from the portions in which a stream arrives.
#[derive(Clone, Debug)]
pub struct Assembler {
    max: usize,
    /// Octets of the record so far.
    at: usize,
    /// Empty fragments of the record so far.
    empty: u8,
    state: RecordState,
}

#[derive(Clone, Copy, Debug)]
enum RecordState {
    /// Awaits the rest of a fragment's word; `have` octets of it have arrived.
    AwaitWord { word: [u8; Fragment::LEN], have: u8 },
    /// Awaits this many octets of a fragment.
    AwaitOctets { left: usize, last: bool },
}

impl Assembler {
    /// Takes records of at most `max` octets.
    pub const fn new(max: usize) -> Self {
        Self { max, at: 0, empty: 0, state: RecordState::START }
    }

    /// Takes octets from the front of `input`, and says what to do with them. Repeat until it is
    /// [`Step::More`]: each other step takes an octet at least, or ends a record. An error is the
    /// end of the stream: there is no next record to find.
    pub fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Fault> {
        loop {
            match self.state {
                // RFC 5531 §11 [5531-24]: a record ends with its last fragment
                RecordState::AwaitOctets { left: 0, last: true } => {
                    let len = core::mem::take(&mut self.at);
                    self.empty = 0;
                    self.state = RecordState::START;
                    return Ok(Step::Complete(len));
                }
                RecordState::AwaitOctets { left: 0, last: false } => {
                    self.state = RecordState::START
                }
                RecordState::AwaitOctets { left, .. } => {
                    let (octets, rest) = input.split_at_checked(left).unwrap_or((input, &[]));
                    if octets.is_empty() {
                        return Ok(Step::More);
                    }
                    *input = rest;
                    let at = self.at;
                    self.placed(octets.len());
                    return Ok(Step::Copy { octets, at });
                }
                RecordState::AwaitWord { mut word, have } => {
                    let Some((octet, rest)) = input.split_first() else {
                        return Ok(Step::More);
                    };
                    let slot =
                        word.get_mut(usize::from(have)).expect("the fourth octet ends the word");
                    *slot = *octet;
                    let next = RecordState::AwaitWord { word, have: have.saturating_add(1) };
                    let whole = usize::from(have) + 1 == Fragment::LEN;
                    self.state = if whole { self.fragment(Fragment::parse(word))? } else { next };
                    *input = rest;
                }
            }
        }
    }

    /// Returns the place in the record for the next octets of the stream, and their number, if they
    /// belong to the record for certain. The caller can then read them from a socket straight to
    /// their place, and reports the number that arrived to [`Assembler::placed`].
    pub const fn direct(&self) -> Option<(usize, usize)> {
        match self.state {
            RecordState::AwaitOctets { left, .. } if left > 0 => Some((self.at, left)),
            _ => None,
        }
    }

    /// Counts `len` octets as read and placed; no more than [`Assembler::direct`] returned.
    pub fn placed(&mut self, len: usize) {
        let RecordState::AwaitOctets { left, .. } = &mut self.state else {
            debug_assert!(len == 0, "octets were placed that no fragment announced");
            return;
        };
        debug_assert!(len <= *left, "more octets were placed than the fragment has");
        let len = len.min(*left);
        *left -= len;
        self.at = self.at.saturating_add(len);
    }

    /// Returns true if the stream is between two records: the only place at which a peer may close
    /// it.
    pub const fn is_between_records(&self) -> bool {
        self.at == 0
            && self.empty == 0
            && matches!(self.state, RecordState::AwaitWord { have: 0, .. })
    }

    fn fragment(&mut self, fragment: Fragment) -> Result<RecordState, Fault> {
        let left = usize::try_from(fragment.octets()).map_err(|_| Fault::TooLong)?;
        if self.at.checked_add(left).is_none_or(|end| end > self.max) {
            return Err(Fault::TooLong);
        }
        if left == 0 && !fragment.last {
            if self.empty == EMPTY_FRAGMENTS_MAX {
                return Err(Fault::EmptyFragments);
            }
            self.empty += 1;
        }
        Ok(RecordState::AwaitOctets { left, last: fragment.last })
    }
}

impl RecordState {
    const START: Self = Self::AwaitWord { word: [0; Fragment::LEN], have: 0 };
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::vec::Vec;

    const MAX: usize = 64;

    fn fragment(octets: &[u8], last: bool) -> Vec<u8> {
        let len = u32::try_from(octets.len()).unwrap();
        let mut wire = Fragment::new(len, last).unwrap().emit().to_vec();
        wire.extend(octets);
        wire
    }

    /// The records in `portions`, and the fault that ends them.
    fn assemble<'a>(
        portions: impl IntoIterator<Item = &'a [u8]>,
    ) -> (Vec<Vec<u8>>, Option<Fault>, Assembler) {
        let mut assembler = Assembler::new(MAX);
        let (mut records, mut record) = (Vec::new(), [0; MAX]);
        for mut input in portions {
            loop {
                match assembler.step(&mut input) {
                    Ok(Step::More) => break assert!(input.is_empty()),
                    Ok(Step::Copy { octets, at }) => {
                        record[at..at + octets.len()].copy_from_slice(octets)
                    }
                    Ok(Step::Complete(len)) => records.push(record[..len].to_vec()),
                    Err(fault) => return (records, Some(fault), assembler),
                }
            }
        }
        (records, None, assembler)
    }

    #[test]
    fn the_word_has_31_bits_of_length_and_one_for_the_last() {
        assert_eq!(Fragment::new(0x0102, true).unwrap().emit(), [0x80, 0, 1, 2]);
        assert_eq!(Fragment::new(Fragment::MAX, false).unwrap().emit(), [0x7f, 0xff, 0xff, 0xff]);
        assert_eq!(Fragment::new(Fragment::MAX + 1, false), None);
        for (len, last) in [(0, false), (0, true), (7, false), (Fragment::MAX, true)] {
            let fragment = Fragment::new(len, last).unwrap();
            assert_eq!(Fragment::parse(fragment.emit()), fragment);
            assert_eq!((fragment.octets(), fragment.last), (len, last));
        }
    }

    #[test]
    fn records_are_the_same_however_the_stream_is_cut() {
        let stream = [
            fragment(b"one", true),
            fragment(b"t", false),
            fragment(b"", false),
            fragment(b"wo", true),
            fragment(b"", true),
            fragment(b"thr", false),
            fragment(b"ee", false),
            fragment(b"", true),
            fragment(&[7; MAX], true),
        ]
        .concat();
        let expected = [&b"one"[..], b"two", b"", b"three", &[7; MAX]];
        for portion in 1..=stream.len() {
            let (records, fault, assembler) = assemble(stream.chunks(portion));
            assert_eq!(records, expected, "portions of {portion}");
            assert_eq!(fault, None);
            assert!(assembler.is_between_records());
        }
    }

    #[test]
    fn the_stream_is_between_records_only_there() {
        let stream = [fragment(b"", false), fragment(b"ab", false), fragment(b"c", true)].concat();
        for cut in 1..stream.len() {
            assert!(!assemble([&stream[..cut]]).2.is_between_records(), "cut at {cut}");
        }
        assert!(assemble([&stream[..]]).2.is_between_records());
    }

    #[test]
    fn a_record_that_would_exceed_the_limit_ends_the_stream_before_its_octets_come() {
        let whole = fragment(&[7; MAX + 1], true);
        assert_eq!(assemble([&whole[..4]]).1, Some(Fault::TooLong));
        let parts = [fragment(&[7; MAX], false), fragment(&[7; 1], true)].concat();
        assert_eq!(assemble([&parts[..MAX + 7]]).1, None);
        assert_eq!(assemble([&parts[..MAX + 8]]).1, Some(Fault::TooLong));
        let longest = Fragment::new(Fragment::MAX, false).unwrap().emit();
        assert_eq!(assemble([&longest[..]]).1, Some(Fault::TooLong));
    }

    #[test]
    fn empty_fragments_do_not_go_on_for_ever_and_each_record_has_its_own() {
        let record =
            |empty: usize| [fragment(b"", false).repeat(empty), fragment(b"x", true)].concat();
        let most = usize::from(EMPTY_FRAGMENTS_MAX);
        let (records, fault, _) = assemble([&[record(most), record(most)].concat()[..]]);
        assert_eq!((records.len(), fault), (2, None));
        assert_eq!(assemble([&record(most + 1)[..]]).1, Some(Fault::EmptyFragments));
    }

    #[test]
    fn no_stream_makes_a_record_leave_its_limit() {
        let mut random = Rng::with_seed(1);
        let mut complete = 0;
        for _ in 0..2000 {
            let mut stream = Vec::new();
            for _ in 0..8 {
                let octets = [7; MAX];
                let len = random.usize(..24);
                stream.extend(fragment(&octets[..len], random.bool()));
            }
            let bit = random.usize(..stream.len() * 8);
            stream[bit / 8] ^= 1 << (bit % 8);
            let portion = random.usize(1..=16);
            // Its copies would panic beyond the limit.
            let (records, ..) = assemble(stream.chunks(portion));
            assert!(records.iter().all(|record| record.len() <= MAX));
            complete += records.len();
        }
        assert!(complete > 2000, "most streams have whole records: {complete}");
    }

    #[test]
    fn octets_can_be_read_straight_to_their_place() {
        let mut assembler = Assembler::new(MAX);
        assert_eq!(assembler.direct(), None);
        let wire = fragment(b"hello", true);
        let mut input = &wire[..6];
        assert_eq!(assembler.step(&mut input), Ok(Step::Copy { octets: b"he", at: 0 }));
        assert_eq!(assembler.direct(), Some((2, 3)));
        assembler.placed(2);
        assert_eq!(assembler.direct(), Some((4, 1)));
        assert_eq!(assembler.step(&mut input), Ok(Step::More));
        assembler.placed(1);
        assert_eq!(assembler.direct(), None);
        assert_eq!(assembler.step(&mut input), Ok(Step::Complete(5)));
        assert!(assembler.is_between_records());
    }
}
