//! Record marking: messages in a byte stream (RFC 5531 §11).
//!
//! A record is one message. It comes in fragments, each behind a word that holds its length and whether it is the last.
//! [`Assembler`] owns no memory: it says which octets go where in the caller's.

use core::fmt;

/// The word in front of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Whether the record ends with it.
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
        Self { last: word & LAST != 0, len: word & !LAST }
    }

    /// Writes the word.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let last = if self.last { LAST } else { 0 };
        (last | self.len).to_be_bytes()
    }
}

const LAST: u32 = 1 << 31;

/// Empty fragments that one record may have in front of its last. They are legal and mean nothing: without a limit a peer
/// could send them for ever, and no record would ever end.
pub const EMPTY_FRAGMENTS_MAX: u8 = 16;

/// What a peer did wrong. Its stream can no longer be cut into records: close it.
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

/// What [`Assembler::step`] asks for.
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
    /// The record is whole and has this many octets. What the input still holds belongs to the next one.
    Complete(usize),
}

/// Puts records together from whatever portions a stream comes in.
#[derive(Clone, Debug)]
pub struct Assembler {
    max: usize,
    /// Octets of the record so far.
    at: usize,
    /// Empty fragments of the record so far.
    empty: u8,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Awaits the rest of a fragment's word; so many octets of it came already.
    AwaitWord { word: [u8; Fragment::LEN], have: u8 },
    /// Awaits this many octets of a fragment.
    AwaitOctets { left: usize, last: bool },
}

impl Assembler {
    /// Takes records of at most `max` octets.
    pub const fn new(max: usize) -> Self {
        Self { max, at: 0, empty: 0, state: State::START }
    }

    /// Takes octets from the front of `input`, and says what to do with them. Repeat until it is [`Step::More`]: each other
    /// step takes an octet at least, or ends a record. An error is the end of the stream: there is no next record to find.
    pub fn step<'a>(&mut self, input: &mut &'a [u8]) -> Result<Step<'a>, Fault> {
        loop {
            match self.state {
                State::AwaitOctets { left: 0, last: true } => {
                    let len = core::mem::take(&mut self.at);
                    self.empty = 0;
                    self.state = State::START;
                    return Ok(Step::Complete(len));
                }
                State::AwaitOctets { left: 0, last: false } => self.state = State::START,
                State::AwaitOctets { left, .. } => {
                    let (octets, rest) = input.split_at_checked(left).unwrap_or((input, &[]));
                    if octets.is_empty() {
                        return Ok(Step::More);
                    }
                    *input = rest;
                    let at = self.at;
                    self.placed(octets.len());
                    return Ok(Step::Copy { octets, at });
                }
                State::AwaitWord { mut word, have } => {
                    let Some((octet, rest)) = input.split_first() else {
                        return Ok(Step::More);
                    };
                    let slot = word.get_mut(usize::from(have)).expect("the fourth octet ends the word");
                    *slot = *octet;
                    let next = State::AwaitWord { word, have: have.saturating_add(1) };
                    let whole = usize::from(have) + 1 == Fragment::LEN;
                    self.state = if whole { self.fragment(Fragment::parse(word))? } else { next };
                    *input = rest;
                }
            }
        }
    }

    /// Where the next octets of the stream go, and how many of them, when they belong into the record for certain: so they can
    /// be read from a socket straight to their place. Then tell [`Assembler::placed`] how many came.
    pub const fn direct(&self) -> Option<(usize, usize)> {
        match self.state {
            State::AwaitOctets { left, .. } if left > 0 => Some((self.at, left)),
            _ => None,
        }
    }

    /// Takes `len` octets for read and in their place; no more than [`Assembler::direct`] said.
    pub fn placed(&mut self, len: usize) {
        let State::AwaitOctets { left, .. } = &mut self.state else {
            debug_assert!(len == 0, "octets were placed that no fragment announced");
            return;
        };
        debug_assert!(len <= *left, "more octets were placed than the fragment has");
        let len = len.min(*left);
        *left -= len;
        self.at = self.at.saturating_add(len);
    }

    /// Whether the stream is between two records: the only place where a peer may close it.
    pub const fn is_between_records(&self) -> bool {
        self.at == 0 && self.empty == 0 && matches!(self.state, State::AwaitWord { have: 0, .. })
    }

    fn fragment(&mut self, fragment: Fragment) -> Result<State, Fault> {
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
        Ok(State::AwaitOctets { left, last: fragment.last })
    }
}

impl State {
    const START: Self = Self::AwaitWord { word: [0; Fragment::LEN], have: 0 };
}
