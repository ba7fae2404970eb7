//! XDR cursors over the caller's bytes (RFC 4506).
//!
//! [`Reader`] walks a message that may be in several pieces: an RPC message whose DDP-eligible
//! items travelled in Read chunks is inline bytes with chunks inserted (RFC 8166 §3.4.5).
//! [`Writer`] fills one span in place.

mod codec;
mod words;

pub use codec::Codec;
#[cfg(test)]
pub(crate) use codec::survives;
pub(crate) use codec::{enumeration, structure};
use core::fmt;
pub(crate) use words::{boolean, halves, hyper, split_opaque, words};
pub use words::{pad, padded};

/// Why bytes are not the XDR that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The stream ended inside an item.
    Short,
    /// A variable-length item is longer than its type allows.
    TooLong,
    /// A discriminant, an enumeration or a boolean has no such value (RFC 4506 §4.3, §4.4, §4.15).
    BadValue,
    /// Bytes remain after the last item.
    Trailing,
    /// A chunk holds anything but one whole DDP-eligible item (RFC 8166 §3.4.4.4, §6.1).
    Misplaced,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "the message ends inside an item",
            Self::TooLong => "a variable-length item is longer than its type allows",
            Self::BadValue => "a discriminant has no such value",
            Self::Trailing => "octets remain after the last item",
            Self::Misplaced => {
                "a chunk holds something else than one item that may travel in a chunk"
            }
        })
    }
}

impl core::error::Error for Error {}

/// The span given to a [`Writer`] is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message does not fit the room given for it")
    }
}

impl core::error::Error for NoRoom {}

/// One run of octets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Octets that travelled in the XDR stream: every item is padded.
    Inline(&'a [u8]),
    /// The content of one chunk: one item, whose padding may be missing (RFC 8166 §3.4.4.4,
    /// §3.4.5.2).
    Chunk(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// The octets, whichever way they came.
    pub const fn octets(self) -> &'a [u8] {
        match self {
            Self::Inline(octets) | Self::Chunk(octets) => octets,
        }
    }
}

/// Reads items from one or several pieces, in order. No item may straddle two pieces.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    piece: Piece<'a>,
    rest: &'a [Piece<'a>],
}

impl<'a> Reader<'a> {
    /// Reads one contiguous message.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { piece: Piece::Inline(octets), rest: &[] }
    }

    /// Reads a message that consists of `pieces`.
    pub const fn over(pieces: &'a [Piece<'a>]) -> Self {
        match pieces {
            [piece, rest @ ..] => Self { piece: *piece, rest },
            [] => Self::new(&[]),
        }
    }

    /// Octets not read yet.
    pub fn remaining(&self) -> usize {
        self.rest
            .iter()
            .fold(self.piece.octets().len(), |sum, piece| sum.saturating_add(piece.octets().len()))
    }

    /// Octets not read yet, where each piece has its padding.
    #[inline]
    pub fn padded_remaining(&self) -> usize {
        let here = padded(self.piece.octets().len());
        let others = self.rest.iter().map(|piece| padded(piece.octets().len()));
        others.fold(here, usize::saturating_add)
    }

    /// The pieces of the unread rest, in order; the first may be empty.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + use<'a> {
        core::iter::once(self.piece).chain(self.rest.iter().copied())
    }

    /// The item that is all that remains.
    #[inline]
    pub fn whole<T: Codec<'a>>(mut self) -> Result<T, Error> {
        let item = T::parse(&mut self)?;
        self.finish().map(|()| item)
    }

    /// Ends reading: [`Error::Trailing`] when octets remain.
    pub fn finish(mut self) -> Result<(), Error> {
        self.skip_empty();
        if self.piece.octets().is_empty() { Ok(()) } else { Err(Error::Trailing) }
    }

    /// An unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Error> {
        // RFC 4506 §4.2 [4506-5]: an unsigned integer has 32 bits, big-endian
        self.array().map(u32::from_be_bytes)
    }

    /// An unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Error> {
        // RFC 4506 §4.5 [4506-8]: an unsigned hyper has 64 bits, big-endian
        self.array().map(u64::from_be_bytes)
    }

    /// Several unsigned integers: at once when they are in one piece, as nearly always.
    #[inline]
    pub fn words<const N: usize>(&mut self) -> Result<[u32; N], Error> {
        match self.words_if(|_| true) {
            Some(words) => Ok(words),
            None => self.words_apart(),
        }
    }

    #[cold]
    fn words_apart<const N: usize>(&mut self) -> Result<[u32; N], Error> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.u32()?;
        }
        Ok(words)
    }

    /// Returns true if what is unread is in one piece and ends with these words.
    #[inline]
    pub fn ends_with<const N: usize>(&self, words: [u32; N]) -> bool {
        let Piece::Inline(octets) = self.piece else { return false };
        let last = octets.len().checked_sub(4 * N).and_then(|at| octets.get(at..));
        let last = last.unwrap_or_default().as_chunks().0;
        self.rest.is_empty() && last.iter().eq(words.map(u32::to_be_bytes).iter())
    }

    /// The next words, if they are in one piece and `is_it` says yes to them; else nothing is
    /// taken. For forms that are nearly always the same.
    #[inline(always)]
    pub fn words_if<const N: usize>(
        &mut self,
        is_it: impl FnOnce(&[u32; N]) -> bool,
    ) -> Option<[u32; N]> {
        let Piece::Inline(octets) = self.piece else { return None };
        let (here, rest) = octets.split_at_checked(4 * N)?;
        let mut words = [0; N];
        // An RPC message follows a header of seven words. So its first word shares eight octets
        // with the last one of that, and the words after it are read in pairs (`short.rs` of
        // RPC-over-RDMA says why).
        if let (Some((word, behind)), Some((first, octets))) =
            (words.split_first_mut(), here.split_first_chunk())
        {
            *word = u32::from_be_bytes(*first);
            let (pairs, last) = octets.as_chunks();
            let (words, odd) = behind.as_chunks_mut::<2>();
            for (words, pair) in words.iter_mut().zip(pairs) {
                let pair = u64::from_be_bytes(*pair);
                *words = [(pair >> 32) as u32, pair as u32];
            }
            for (word, octets) in odd.iter_mut().zip(last.as_chunks().0) {
                *word = u32::from_be_bytes(*octets);
            }
        }
        if !is_it(&words) {
            return None;
        }
        self.piece = Piece::Inline(rest);
        Some(words)
    }

    /// The octets in front of the reader that are in one piece of the stream; none of a chunk.
    #[inline]
    pub(crate) fn here(&mut self) -> &'a [u8] {
        self.skip_empty();
        match self.piece {
            Piece::Inline(octets) => octets,
            Piece::Chunk(_) => &[],
        }
    }

    /// Goes on at `rest`, the end of what is [`here`](Self::here).
    #[inline]
    pub(crate) fn go_on(&mut self, rest: &'a [u8]) {
        debug_assert!(self.here().ends_with(rest), "a reader goes forward");
        self.piece = Piece::Inline(rest);
    }

    /// A boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        self.u32().and_then(boolean)
    }

    /// Fixed-length opaque data of `N` octets, `N` a multiple of four (RFC 4506 §4.9).
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        const { assert!(N.is_multiple_of(4)) };
        // RFC 4506 §4.12 [4506-14]: a fixed-length array is its elements in order
        let (octets, rest) = self.inline()?.split_first_chunk().ok_or(Error::Short)?;
        self.piece = Piece::Inline(rest);
        Ok(*octets)
    }

    /// Fixed-length opaque data of `len` octets and its padding (RFC 4506 §4.9).
    #[inline]
    pub fn fixed(&mut self, len: usize) -> Result<&'a [u8], Error> {
        // RFC 4506 §4.9 [4506-10]: fixed-length opaque data has padding and no length
        let from = if len > 0 { self.inline()? } else { &[] };
        // RFC 4506 §8 [4506-21]: no length leads a read past the end of the input
        let (octets, rest) = from.split_at_checked(len).ok_or(Error::Short)?;
        if len > 0 {
            // RFC 4506 §3 [4506-3]: padding is not checked on receipt
            self.piece = Piece::Inline(rest.get(pad(len)..).ok_or(Error::Short)?);
        }
        Ok(octets)
    }

    /// Variable-length opaque data or a string of at most `max` octets (RFC 4506 §4.10, §4.11).
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Error> {
        // Nearly always it is in one piece, which is looked at once.
        if let Piece::Inline(octets) = self.piece
            && let Some((item, rest)) = split_opaque(octets, max)
        {
            self.piece = Piece::Inline(rest);
            return Ok(item);
        }
        self.opaque_apart(max)
    }

    /// The same of one whose parts are in several pieces, or that is not valid.
    #[cold]
    fn opaque_apart(&mut self, max: usize) -> Result<&'a [u8], Error> {
        // RFC 4506 §4.10 [4506-11]: variable-length opaque data is length, octets, padding
        let len = self.length(max)?;
        self.fixed(len)
    }

    /// A DDP-eligible item: as [`opaque`](Self::opaque), or all of a chunk after the length word.
    pub fn item(&mut self, max: usize) -> Result<&'a [u8], Error> {
        let len = self.length(max)?;
        self.item_of(len)
    }

    /// A DDP-eligible item of `len` octets, whose length word was read.
    #[inline]
    pub(crate) fn item_of(&mut self, len: usize) -> Result<&'a [u8], Error> {
        if len > 0 {
            self.skip_empty();
        }
        match self.piece {
            Piece::Chunk(octets) if len > 0 => {
                // RFC 8166 §3.4.4.4 [8166-14]: a chunk holds exactly one item
                // draft 004 §3.2.1 [exp-5]: a chunk of eligible data is exactly one whole item
                let (item, padding) = octets.split_at_checked(len).ok_or(Error::Short)?;
                // RFC 8166 §3.4.5.2 [8166-19]: a Read chunk may be as long as item and padding
                // RFC 8166 §3.4.5.2 [8166-20]: a Read chunk without padding is as long as its item
                if !padding.is_empty() && padding.len() != pad(len) {
                    return Err(Error::Misplaced);
                }
                self.piece = Piece::Inline(&[]);
                Ok(item)
            }
            Piece::Inline(_) | Piece::Chunk(_) => self.fixed(len),
        }
    }

    #[inline]
    fn length(&mut self, max: usize) -> Result<usize, Error> {
        let len = usize::try_from(self.u32()?).map_err(|_| Error::TooLong)?;
        // RFC 4506 §4.10 [4506-12]: a length above the maximum of its type is an error
        if len > max { Err(Error::TooLong) } else { Ok(len) }
    }

    /// The octets of the stream here: only a DDP-eligible item may be in a chunk.
    #[inline]
    fn inline(&mut self) -> Result<&'a [u8], Error> {
        self.skip_empty();
        match self.piece {
            Piece::Inline(octets) => Ok(octets),
            Piece::Chunk([]) => Ok(&[]),
            // RFC 8166 §6.1 [8166-53]: arguments that cannot be parsed get GARBAGE_ARGS
            // RFC 8166 §6.1 [8166-62]: a call that reduces an ineligible item is not executed
            // RFC 8166 §6.1 [8166-63]: a reply that reduces an ineligible item ends its call
            // RFC 8166 §6.1 [8166-68]: the RPC header is never taken from a chunk
            // draft 004 §6.4.1 [exp-38]: arguments that cannot be parsed get GARBAGE_ARGS
            // draft 004 §6.4.1 [exp-37]: a chunk where no eligible item belongs is an error
            Piece::Chunk(_) => Err(Error::Misplaced),
        }
    }

    #[inline]
    fn skip_empty(&mut self) {
        while self.piece.octets().is_empty()
            && let Some((next, rest)) = self.rest.split_first()
        {
            self.piece = *next;
            self.rest = rest;
        }
    }
}

/// Writes items in place, in order.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the start of `out`.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: 0 }
    }

    /// Octets written so far.
    pub const fn len(&self) -> usize {
        self.at
    }

    /// Returns true if nothing is written yet.
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// The octets written so far.
    pub fn written(&self) -> &[u8] {
        self.out.get(..self.at).unwrap_or_default()
    }

    /// Octets that still fit.
    pub fn room(&self) -> usize {
        self.out.len().saturating_sub(self.at)
    }

    /// Forgets everything written after the first `len` octets.
    pub fn truncate(&mut self, len: usize) {
        self.at = self.at.min(len);
    }

    /// An unsigned integer (RFC 4506 §4.2).
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.words([value])
    }

    /// An unsigned hyper integer (RFC 4506 §4.5).
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        // RFC 4506 §4.5 [4506-8]: an unsigned hyper has 64 bits, big-endian
        self.put(&value.to_be_bytes())
    }

    /// Several unsigned integers, with one check of the room.
    #[inline(always)]
    pub fn words<const N: usize>(&mut self, values: [u32; N]) -> Result<(), NoRoom> {
        let end = self.at.checked_add(4 * N).ok_or(NoRoom)?;
        let room = self.out.get_mut(self.at..end).ok_or(NoRoom)?;
        for (octets, value) in room.as_chunks_mut().0.iter_mut().zip(values) {
            // RFC 4506 §4.2 [4506-5]: an unsigned integer has 32 bits, big-endian
            *octets = value.to_be_bytes();
        }
        self.at = end;
        Ok(())
    }

    /// A boolean (RFC 4506 §4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) -> Result<(), NoRoom> {
        self.u32(u32::from(value))
    }

    /// Fixed-length opaque data of `N` octets, `N` a multiple of four (RFC 4506 §4.9).
    #[inline]
    pub fn array<const N: usize>(&mut self, octets: &[u8; N]) -> Result<(), NoRoom> {
        const { assert!(N.is_multiple_of(4)) };
        let end = self.at.checked_add(N).ok_or(NoRoom)?;
        let room = self.out.get_mut(self.at..end).ok_or(NoRoom)?;
        *room.first_chunk_mut().ok_or(NoRoom)? = *octets;
        self.at = end;
        Ok(())
    }

    /// The first `len` octets of encoded items, a multiple of four. By a copy of fixed length where
    /// there is room for all `N`: the room after the items may be overwritten.
    #[inline]
    pub fn front_of<const N: usize>(&mut self, octets: &[u8; N], len: usize) -> Result<(), NoRoom> {
        debug_assert!(len.is_multiple_of(4), "encoded items are whole words");
        let end = self.at.checked_add(len).ok_or(NoRoom)?;
        let room = self.out.get_mut(self.at..).ok_or(NoRoom)?;
        match room.first_chunk_mut() {
            Some(room) if len <= N => *room = *octets,
            _ => {
                let octets = octets.get(..len).ok_or(NoRoom)?;
                room.get_mut(..len).ok_or(NoRoom)?.copy_from_slice(octets);
            }
        }
        self.at = end;
        Ok(())
    }

    /// Fixed-length opaque data and its padding (RFC 4506 §4.9).
    pub fn fixed(&mut self, octets: &[u8]) -> Result<(), NoRoom> {
        let end = self.at.checked_add(padded(octets.len())).ok_or(NoRoom)?;
        let room = self.out.get_mut(self.at..end).ok_or(NoRoom)?;
        let (here, padding) = room.split_at_mut_checked(octets.len()).ok_or(NoRoom)?;
        here.copy_from_slice(octets);
        for octet in padding {
            // RFC 4506 §3 [4506-2]: padding is sent as zero octets
            *octet = 0;
        }
        self.at = end;
        Ok(())
    }

    /// Variable-length opaque data or a string (RFC 4506 §4.10, §4.11).
    pub fn opaque(&mut self, octets: &[u8]) -> Result<(), NoRoom> {
        let len = u32::try_from(octets.len()).map_err(|_| NoRoom)?;
        if padded(octets.len()).saturating_add(4) > self.room() {
            return Err(NoRoom);
        }
        self.u32(len)?;
        self.fixed(octets)
    }

    /// Overwrites the word at octet `at`, which was written before.
    pub fn patch_u32(&mut self, at: usize, value: u32) -> Result<(), NoRoom> {
        let end = at.checked_add(4).filter(|end| *end <= self.at).ok_or(NoRoom)?;
        self.out.get_mut(at..end).ok_or(NoRoom)?.copy_from_slice(&value.to_be_bytes());
        Ok(())
    }

    /// The room after what is written: octets put there count only after [`Writer::advance`].
    pub fn spare(&mut self) -> &mut [u8] {
        self.out.get_mut(self.at..).unwrap_or_default()
    }

    /// Counts the first `len` octets of [`Writer::spare`] as written, and writes their padding. So
    /// data can be read from a file straight to its place in a message.
    pub fn advance(&mut self, len: usize) -> Result<(), NoRoom> {
        if padded(len) > self.room() {
            return Err(NoRoom);
        }
        let zeros = [0; 3];
        self.at = self.at.saturating_add(len);
        self.put(zeros.get(..pad(len)).unwrap_or_default())
    }

    fn put(&mut self, octets: &[u8]) -> Result<(), NoRoom> {
        let end = self.at.checked_add(octets.len()).ok_or(NoRoom)?;
        self.out.get_mut(self.at..end).ok_or(NoRoom)?.copy_from_slice(octets);
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_one_piece_is_seen_without_reading() {
        let octets = [0, 0, 0, 1, 0, 0, 0, 2];
        let reader = Reader::new(&octets);
        assert!(reader.ends_with([2]) && reader.ends_with([1, 2]) && reader.ends_with([]));
        assert!(!reader.ends_with([1]) && !reader.ends_with([0, 1, 2]));
        let pieces = [Piece::Inline(&octets), Piece::Inline(&octets)];
        assert!(!Reader::over(&pieces).ends_with([2]));
    }

    #[test]
    fn a_void_takes_no_octets() {
        assert!(survives!((), ()).is_empty());
    }

    #[test]
    fn every_item_survives_a_round_trip() {
        let mut out = [0xee; 64];
        let mut writer = Writer::new(&mut out);
        writer.u32(7).unwrap();
        writer.u64(1 << 40).unwrap();
        writer.bool(true).unwrap();
        writer.opaque(b"hello").unwrap();
        writer.fixed(b"abc").unwrap();
        let len = writer.len();
        assert_eq!(len, 4 + 8 + 4 + 12 + 4);
        let mut reader = Reader::new(&out[..len]);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.opaque(5), Ok(&b"hello"[..]));
        assert_eq!(reader.fixed(3), Ok(&b"abc"[..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn every_cut_is_short_and_every_long_item_is_refused() {
        let mut out = [0; 12];
        Writer::new(&mut out).opaque(b"hello").unwrap();
        for cut in 0..12 {
            assert_eq!(Reader::new(&out[..cut]).opaque(5), Err(Error::Short), "cut at {cut}");
        }
        assert_eq!(Reader::new(&out).opaque(4), Err(Error::TooLong));
        assert_eq!(Reader::new(&[0xff; 8]).opaque(usize::MAX), Err(Error::Short));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Error::BadValue));
    }

    #[test]
    fn what_fills_up_an_item_is_not_looked_at() {
        for filler in [0, 1, 0xff] {
            let wire = [0, 0, 0, 1, b'x', filler, filler, filler, 0, 0, 0, 9];
            let mut reader = Reader::new(&wire);
            assert_eq!((reader.opaque(1), reader.u32()), (Ok(&b"x"[..]), Ok(9)));
            let mut reader = Reader::new(&wire[4..]);
            assert_eq!((reader.fixed(1), reader.u32()), (Ok(&b"x"[..]), Ok(9)));
        }
    }

    #[test]
    fn a_chunk_may_end_without_its_padding_and_inline_octets_may_not() {
        for chunk in [&b"hello"[..], b"hello\0\0\0"] {
            let pieces =
                [Piece::Inline(&[0, 0, 0, 5]), Piece::Chunk(chunk), Piece::Inline(&[0, 0, 0, 9])];
            let mut reader = Reader::over(&pieces);
            assert_eq!(reader.item(5), Ok(&b"hello"[..]));
            assert_eq!(reader.u32(), Ok(9));
            assert_eq!(reader.finish(), Ok(()));
        }
        assert_eq!(Reader::new(b"\0\0\0\x05hello").item(5), Err(Error::Short));
        assert_eq!(Reader::new(b"\0\0\0\x05hello\0\0\0").item(5), Ok(&b"hello"[..]));
    }

    #[test]
    fn a_chunk_holds_one_item_and_nothing_less_or_more() {
        for len in 0..16 {
            let chunk = &[7; 16][..len];
            let pieces =
                [Piece::Inline(&[0, 0, 0, 5]), Piece::Chunk(chunk), Piece::Inline(&[0, 0, 0, 9])];
            let mut reader = Reader::over(&pieces);
            let expected = match len {
                5 | 8 => Ok(&chunk[..5]),
                0..5 => Err(Error::Short),
                _ => Err(Error::Misplaced),
            };
            assert_eq!(reader.item(5), expected, "{len} octets");
        }
    }

    #[test]
    fn nothing_but_an_item_is_read_from_a_chunk() {
        let pieces =
            [Piece::Inline(&[0, 0, 0, 4]), Piece::Chunk(&[0, 0, 0, 1]), Piece::Inline(&[0; 8])];
        let mut reader = Reader::over(&pieces);
        assert_eq!(reader.clone().opaque(8), Err(Error::Misplaced));
        assert_eq!(reader.clone().u64(), Err(Error::Short));
        reader.u32().unwrap();
        assert_eq!(reader.clone().u32(), Err(Error::Misplaced));
        assert_eq!(reader.clone().bool(), Err(Error::Misplaced));
        assert_eq!(reader.clone().array::<4>(), Err(Error::Misplaced));
        assert_eq!(reader.clone().fixed(4), Err(Error::Misplaced));
        assert_eq!(reader.finish(), Err(Error::Trailing));
    }

    #[test]
    fn no_item_straddles_two_pieces() {
        let pieces = [Piece::Inline(&[0, 0]), Piece::Inline(&[0, 1])];
        assert_eq!(Reader::over(&pieces).u32(), Err(Error::Short));
    }

    #[test]
    fn what_does_not_fit_writes_nothing() {
        for room in 0..12 {
            let mut out = [0xee; 12];
            let mut writer = Writer::new(&mut out[..room]);
            assert_eq!(writer.opaque(b"hello"), Err(NoRoom));
            assert_eq!(writer.len(), 0);
        }
    }

    #[test]
    fn optional_data_is_there_or_not_and_nothing_else() {
        assert_eq!(survives!(Some(7), Option<u32>), [0, 0, 0, 1, 0, 0, 0, 7]);
        assert_eq!(survives!(None, Option<u32>), [0; 4]);
        assert_eq!(
            Option::<u32>::parse(&mut Reader::new(&[0, 0, 0, 2, 0, 0, 0, 7])),
            Err(Error::BadValue)
        );
    }

    #[test]
    fn octets_put_in_the_spare_room_count_when_they_are_advanced_over() {
        for len in 0..9 {
            let mut out = [0xee; 8];
            let mut writer = Writer::new(&mut out);
            assert_eq!(writer.spare().len(), 8);
            let fits = writer.advance(len);
            assert_eq!(fits.is_ok(), len <= 8);
            assert_eq!(writer.len(), if fits.is_ok() { padded(len) } else { 0 });
            assert!(out.iter().take(len).all(|octet| *octet == 0xee), "data stays");
            assert!(
                out.iter().take(padded(len)).skip(len).all(|octet| *octet == 0),
                "padding is zero"
            );
        }
    }

    #[test]
    fn words_are_the_same_at_once_and_one_by_one() {
        let octets: std::vec::Vec<u8> = (0..16).collect();
        let expected = [0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f];
        assert_eq!(Reader::new(&octets).words(), Ok(expected));
        for at in (0..=16).step_by(4) {
            let (front, back) = octets.split_at(at);
            let pieces = [Piece::Inline(front), Piece::Chunk(&[]), Piece::Inline(back)];
            assert_eq!(Reader::over(&pieces).words(), Ok(expected), "in two pieces at {at}");
        }
        for len in 0..16 {
            assert_eq!(Reader::new(&octets[..len]).words::<4>(), Err(Error::Short), "{len} octets");
            let mut room = [0; 16];
            assert_eq!(
                Writer::new(&mut room[..len]).words(expected),
                Err(NoRoom),
                "room for {len} octets"
            );
        }
        let mut room = [0; 16];
        let mut writer = Writer::new(&mut room);
        assert_eq!((writer.words(expected), writer.len()), (Ok(()), 16));
        assert_eq!(&room[..], octets);
    }
}
