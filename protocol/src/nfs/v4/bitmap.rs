//! Sets of numbers: attributes, operations, hints (`bitmap4`, RFC 8881 §3.2).

use super::Attribute;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// A set of numbers from 0 to 255. Numbers above that are no attribute of any version: all of them
/// together appear as [`Bitmap::UNKNOWN`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bitmap {
    words: [u32; Self::WORDS],
    /// Words on the wire, which may include zeros at the end.
    len: u8,
}

impl Bitmap {
    /// Words of the longest set that is kept.
    pub const WORDS: usize = 8;
    /// Words of the longest set that is parsed.
    pub const WORDS_MAX: u32 = 64;
    /// Stands for every number that is too large to be kept.
    pub const UNKNOWN: u32 = 255;
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; Self::WORDS], len: 0 };

    /// The set of these numbers, in the least number of words. Numbers above 255 count as
    /// [`Bitmap::UNKNOWN`].
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::EMPTY;
        numbers.into_iter().for_each(|number| set.insert(number));
        set
    }

    /// The set of these attributes, in the least number of words.
    pub const fn of_attributes(mut attributes: &[Attribute]) -> Self {
        let mut bits = 0_u128;
        while let [attribute, rest @ ..] = attributes {
            assert!((*attribute as u32) < u128::BITS, "attributes have small numbers");
            bits |= 1 << *attribute as u32;
            attributes = rest;
        }
        let words = [bits as u32, (bits >> 32) as u32, (bits >> 64) as u32, (bits >> 96) as u32];
        let [first, second, third, fourth] = words;
        let len = (u128::BITS - bits.leading_zeros()).div_ceil(32) as u8;
        Self { words: [first, second, third, fourth, 0, 0, 0, 0], len }
    }

    /// Adds a number.
    pub fn insert(&mut self, number: u32) {
        let number = number.min(Self::UNKNOWN);
        let at = (number / 32) as u8;
        if let Some(word) = self.words.get_mut(usize::from(at)) {
            *word |= 1 << (number % 32);
            self.len = self.len.max(at.saturating_add(1));
        }
    }

    /// Takes a number away; the words stay.
    pub fn remove(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut((number / 32) as usize) {
            *word &= !(1 << (number % 32));
        }
    }

    /// Returns true if the number is in the set.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get((number / 32) as usize);
        word.is_some_and(|word| word >> (number % 32) & 1 == 1)
    }

    /// Returns true if no number is in the set.
    pub fn is_empty(&self) -> bool {
        self.words == [0; Self::WORDS]
    }

    /// The numbers that are in both sets, in the least number of words.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = Self::EMPTY;
        let both = self.words.iter().zip(other.words).map(|(word, other)| word & other);
        for ((to, word), len) in set.words.iter_mut().zip(both).zip(1..) {
            *to = word;
            set.len = if word == 0 { set.len } else { len };
        }
        set
    }

    /// The first two words, of the numbers from 0 to 63.
    pub const fn first_words(&self) -> [u32; 2] {
        let [first, second, ..] = self.words;
        [first, second]
    }

    /// Returns true if a number is in both sets.
    #[inline]
    pub fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(other.words).any(|(word, other)| word & other != 0)
    }

    /// Returns true if all numbers of this set are in the other.
    #[inline]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().zip(other.words).all(|(word, other)| word & !other == 0)
    }

    /// Iterates over the numbers, in rising order.
    #[inline]
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let mut words = (0..).step_by(32).zip(self.words);
        let (mut first, mut left) = words.next().unwrap_or((0, 0));
        core::iter::from_fn(move || {
            while left == 0 {
                (first, left) = words.next()?;
            }
            let bit = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            Some(first + bit)
        })
    }

    /// Octets on the wire.
    pub fn wire_len(&self) -> usize {
        usize::from(self.len).saturating_mul(4).saturating_add(4)
    }
}

impl Codec<'_> for Bitmap {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let count = reader.u32()?;
        if count > Self::WORDS_MAX {
            return Err(Error::TooLong);
        }
        let mut set = Self { len: count.min(Self::WORDS as u32) as u8, ..Self::EMPTY };
        for word in set.words.iter_mut().take(count as usize) {
            *word = reader.u32()?;
        }
        for _ in Self::WORDS as u32..count {
            if reader.u32()? != 0 {
                set.insert(Self::UNKNOWN);
            }
        }
        Ok(set)
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(u32::from(self.len))?;
        self.words.iter().take(usize::from(self.len)).try_for_each(|word| writer.u32(*word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec::Vec;

    #[test]
    fn every_number_is_one_bit_at_its_place() {
        for number in 0..256 {
            let set = Bitmap::of([number]);
            let wire = survives!(set, Bitmap);
            assert_eq!(wire.len(), 4 + 4 * (number as usize / 32 + 1));
            assert_eq!(wire.len(), set.wire_len());
            assert_eq!(set.numbers().collect::<Vec<_>>(), [number]);
            assert!((0..300).all(|other| set.contains(other) == (other == number)));
        }
    }

    #[test]
    fn a_set_of_attributes_is_that_of_their_numbers() {
        for count in 0..=Attribute::ALL.len() {
            for attributes in [&Attribute::ALL[..count], &Attribute::ALL[count..]] {
                let numbers = attributes.iter().map(|attribute| *attribute as u32);
                assert_eq!(Bitmap::of_attributes(attributes), Bitmap::of(numbers));
            }
        }
    }

    #[test]
    fn sets_of_any_length_come_out_as_they_came_in() {
        for words in 0..=8_u32 {
            let mut wire = words.to_be_bytes().to_vec();
            wire.resize(4 + 4 * words as usize, 0);
            let set = Bitmap::parse(&mut Reader::new(&wire)).unwrap();
            assert!(set.is_empty());
            assert_eq!(survives!(set, Bitmap), wire, "zeros at the end are kept");
        }
    }

    #[test]
    fn numbers_beyond_all_attributes_are_unknown_and_harmless() {
        let mut wire = 40_u32.to_be_bytes().to_vec();
        wire.resize(4 + 160, 0);
        assert!(Bitmap::parse(&mut Reader::new(&wire)).unwrap().is_empty());
        wire[4 + 4 * 31 + 3] = 1; // number 992
        let set = Bitmap::parse(&mut Reader::new(&wire)).unwrap();
        assert_eq!(set.numbers().collect::<Vec<_>>(), [Bitmap::UNKNOWN]);
        wire[3] = 65;
        wire.resize(4 + 260, 0);
        assert_eq!(Bitmap::parse(&mut Reader::new(&wire)), Err(Error::TooLong));
    }

    #[test]
    fn sets_meet_as_sets_do() {
        let (a, b) = (Bitmap::of([0, 1, 33, 75]), Bitmap::of([1, 33, 34]));
        assert_eq!(a.intersection(&b), Bitmap::of([1, 33]));
        assert!(a.intersection(&b).is_subset(&a) && !a.is_subset(&b));
        assert!(a.meets(&b) && !a.meets(&Bitmap::of([34, 74, 76])) && !a.meets(&Bitmap::EMPTY));
        let mut c = a;
        c.remove(75);
        assert!(!c.contains(75) && c.contains(33) && !c.contains(1000));
    }
}
