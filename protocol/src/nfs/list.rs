//! Linked lists: a TRUE precedes each item, a FALSE ends the list (optional data that refers to
//! itself, RFC 4506 §4.19).

use core::fmt;
use core::marker::PhantomData;

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// The items of a list that was parsed; an iterator. Nothing is stored: an item is read when it is
/// requested, but parsing has walked over all of them, so that none is malformed.
pub struct List<'a, T> {
    reader: Reader<'a>,
    left: usize,
    item: PhantomData<T>,
}

impl<T> List<'_, T> {
    /// Octets of the FALSE that ends a list.
    pub const END_LEN: usize = 4;
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self { reader: Reader::new(&[]), left: 0, item: PhantomData }
    }
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), left: self.left, item: PhantomData }
    }
}

impl<'a, T: Codec<'a>> Iterator for List<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        self.reader.bool().ok()?;
        T::parse(&mut self.reader).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: Codec<'a>> ExactSizeIterator for List<'a, T> {}

impl<'a, T: Codec<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.clone().eq(other.clone())
    }
}

impl<'a, T: Codec<'a> + Eq> Eq for List<'a, T> {}

impl<'a, T: Codec<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

impl<'a, T: Codec<'a>> Codec<'a> for List<'a, T> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let start = reader.clone();
        let mut left = 0_usize;
        // RFC 4506 §4.19 [4506-20]: a list is TRUE before each item, and FALSE at its end
        while reader.bool()? {
            T::parse(reader)?;
            // RFC 4506 §8 [4506-22]: a list is parsed in a loop, without recursion
            left = left.saturating_add(1); // every item takes octets: the message bounds it
        }
        Ok(Self { reader: start, left, item: PhantomData })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        for item in self.clone() {
            writer.bool(true)?;
            item.emit(writer)?;
        }
        writer.bool(false)
    }
}

/// Writes a list in place, item by item. Room for the data after the items is kept from the start.
#[derive(Debug)]
pub struct ListWriter<'w, 'b> {
    writer: &'w mut Writer<'b>,
    kept: usize,
}

impl<'w, 'b> ListWriter<'w, 'b> {
    /// Begins a list after what `writer` holds, and keeps room for its end and `behind` octets
    /// more.
    pub fn begin(writer: &'w mut Writer<'b>, behind: usize) -> Result<Self, NoRoom> {
        let kept = behind.saturating_add(4);
        if writer.room() < kept { Err(NoRoom) } else { Ok(Self { writer, kept }) }
    }

    /// Adds an item that `emit` writes. One that does not fit leaves no trace, and the list can
    /// still be ended.
    pub fn push(
        &mut self,
        emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let before = self.writer.len();
        let fits = self.writer.bool(true).and_then(|()| emit(self.writer));
        if fits.is_err() || self.writer.room() < self.kept {
            self.writer.truncate(before);
            return Err(NoRoom);
        }
        Ok(())
    }

    /// Octets in the writer so far.
    pub fn len(&self) -> usize {
        self.writer.len()
    }

    /// Octets that items may still take.
    pub fn room(&self) -> usize {
        self.writer.room().saturating_sub(self.kept)
    }

    /// Returns true if the writer holds nothing, not even octets in front of the list.
    pub fn is_empty(&self) -> bool {
        self.writer.is_empty()
    }

    /// Forgets everything written after the first `len` octets.
    pub(super) fn truncate(&mut self, len: usize) {
        self.writer.truncate(len);
    }

    /// Ends the list, and returns the writer for the data that follows.
    pub fn finish(self) -> &'w mut Writer<'b> {
        self.writer.bool(false).expect("`begin` and `push` keep room for the end");
        self.writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec::Vec;

    const WIRE: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0];

    #[test]
    fn a_list_is_read_twice_and_written_again() {
        let mut reader = Reader::new(&WIRE);
        let list = List::<u32>::parse(&mut reader).unwrap();
        assert_eq!(reader.finish(), Ok(()));
        assert_eq!(list.len(), 2);
        assert_eq!(list.clone().collect::<Vec<_>>(), [7, 8]);
        assert_eq!(survives!(list, List<'_, u32>), WIRE);
        assert_eq!(survives!(List::default(), List<'_, u32>), [0; 4]);
    }

    #[test]
    fn an_item_that_does_not_fit_leaves_no_trace() {
        for room in 0..32 {
            let mut out = [0xee; 32];
            let mut writer = Writer::new(&mut out[..room]);
            let Ok(mut list) = ListWriter::begin(&mut writer, 4) else {
                assert!(room < 8);
                continue;
            };
            let fitted =
                (7..).take_while(|item| list.push(|writer| writer.u32(*item)).is_ok()).count();
            assert_eq!(fitted, (room - 8) / 8);
            list.finish().u32(9).unwrap();
            let len = writer.len();
            assert_eq!(len, fitted * 8 + 8);
            let mut reader = Reader::new(&out[..len]);
            assert_eq!(List::<u32>::parse(&mut reader).unwrap().len(), fitted);
            assert_eq!(reader.u32(), Ok(9));
        }
    }

    #[test]
    fn a_list_of_any_length_is_read_without_a_stack() {
        let items = 1_000_000;
        let wire: Vec<u8> =
            [0, 0, 0, 1, 0, 0, 0, 7].repeat(items).into_iter().chain([0; 4]).collect();
        let read = move || List::<u32>::parse(&mut Reader::new(&wire)).map(|list| list.len());
        let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(read).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(items));
    }

    #[test]
    fn a_bad_item_anywhere_spoils_the_list() {
        let mut wire = WIRE;
        wire[11] = 2;
        assert_eq!(List::<u32>::parse(&mut Reader::new(&wire)), Err(Error::BadValue));
    }
}
