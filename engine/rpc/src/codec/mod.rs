//! Types with an XDR form (RFC 4506), and the two ends of a message: [`Encoder`] and [`Decoder`].
//!
//! A *type* here is the name of an XDR type, such as [`Text<255>`](Text). Its value borrows from
//! the message where possible, without allocation or copy: a `Text<255>` is read as a `&str`.
//! Numbers, booleans and structures of them are their own values.

#[macro_use]
mod macros;
mod octets;
mod sized;
#[cfg(test)]
mod tests;
mod values;

pub use octets::Octets;
pub use sized::{Bulk, List, Opaque, Text};

use stag_protocol::xdr::{Error, NoRoom, Reader, Writer, pad};

/// An XDR type: its values, the maximum length, and its encoding.
///
/// [`structure!`](crate::structure) and [`enumeration!`](crate::enumeration) define more of them.
pub trait XdrType {
    /// A value; it may borrow from the message that it was read from.
    type Of<'a>;
    /// Octets of the longest value, without an item.
    const LEN_MAX: usize;
    /// Octets of the longest item in it; zero without one.
    const ITEM_MAX: usize = 0;
    /// Items in it that may travel in a chunk. A message has room for one.
    const ITEMS: usize = 0;

    /// Decodes a value from the front of `decoder`.
    ///
    /// # Errors
    /// If the octets do not encode this type.
    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Self::Of<'a>, Error>;

    /// Encodes a value after the content of `encoder`.
    ///
    /// # Errors
    /// If the value is longer than its type allows, or than the room left.
    fn encode<'a>(value: &Self::Of<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom>;
}

/// Encodes a message in place, and records the position of its item.
#[derive(Debug)]
pub struct Encoder<'b, 'a> {
    writer: Writer<'b>,
    item: Option<(usize, Octets<'a>)>,
}

impl<'b, 'a> Encoder<'b, 'a> {
    pub(crate) const fn new(room: &'b mut [u8]) -> Self {
        Self { writer: Writer::new(room), item: None }
    }

    /// The same, after the content of `writer`, for values without an item.
    pub(crate) fn behind(
        writer: &mut Writer<'b>,
        write: impl FnOnce(&mut Self) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let taken = std::mem::replace(writer, Writer::new(&mut []));
        let mut encoder = Self { writer: taken, item: None };
        let written = write(&mut encoder);
        *writer = encoder.writer;
        written
    }

    /// The number of octets written, and the item with its position in them.
    pub(crate) fn finish(self) -> (usize, Option<(usize, Octets<'a>)>) {
        (self.writer.len(), self.item)
    }

    /// Writes a value of type `T`.
    ///
    /// # Errors
    /// As [`XdrType::encode`].
    pub fn put<T: XdrType>(&mut self, value: &T::Of<'a>) -> Result<(), NoRoom> {
        T::encode(value, self)
    }

    /// Adds an item that may travel in a chunk. Only its length is written: the octets follow once
    /// the transport has decided how they travel.
    ///
    /// # Errors
    /// If the message has an item already, or no room for a length.
    pub fn item(&mut self, octets: Octets<'a>) -> Result<(), NoRoom> {
        if self.item.is_some() {
            return Err(NoRoom);
        }
        self.writer.u32(u32::try_from(octets.len()).map_err(|_| NoRoom)?)?;
        self.item = Some((self.writer.len(), octets));
        Ok(())
    }

    /// The underlying writer, for encodings without an [`XdrType`].
    pub const fn writer(&mut self) -> &mut Writer<'b> {
        &mut self.writer
    }
}

/// Decodes a message, whether its item came inline or in a chunk.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    reader: Reader<'a>,
    /// The unread content of a Write chunk.
    chunk: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Decodes the remaining octets of `reader`.
    pub const fn new(reader: Reader<'a>) -> Self {
        Self { reader, chunk: &[] }
    }

    /// Decodes `message`, whose item is `chunk` unless that is empty.
    pub const fn with_chunk(message: &'a [u8], chunk: &'a [u8]) -> Self {
        Self { reader: Reader::new(message), chunk }
    }

    /// Decodes a value of type `T`.
    ///
    /// # Errors
    /// As [`XdrType::decode`].
    pub fn take<T: XdrType>(&mut self) -> Result<T::Of<'a>, Error> {
        T::decode(self)
    }

    /// Takes an item of at most `max` octets, from the chunk if it came in one.
    ///
    /// # Errors
    /// If it is longer, the message is truncated, or the chunk has other content.
    pub fn item(&mut self, max: usize) -> Result<&'a [u8], Error> {
        if self.chunk.is_empty() {
            return self.reader.item(max);
        }
        let len = usize::try_from(self.reader.u32()?).map_err(|_| Error::TooLong)?;
        if len > max {
            return Err(Error::TooLong);
        }
        let (item, padding) = self.chunk.split_at_checked(len).ok_or(Error::Short)?;
        if !padding.is_empty() && padding.len() != pad(len) {
            return Err(Error::Misplaced);
        }
        self.chunk = &[];
        Ok(item)
    }

    /// The underlying reader, for encodings without an [`XdrType`].
    pub const fn reader(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }

    /// Ends decoding.
    ///
    /// # Errors
    /// If octets remain.
    pub fn finish(self) -> Result<(), Error> {
        if self.chunk.is_empty() { self.reader.finish() } else { Err(Error::Misplaced) }
    }
}
