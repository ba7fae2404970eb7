//! Types with an XDR form (RFC 4506), and the two ends of a message: [`Encoder`] and [`Decoder`].
//!
//! A *type* here is the name of an XDR type, such as [`Text<255>`](Text); its value borrows from
//! the message where it can, so that nothing is allocated and nothing copied: a `Text<255>` is read
//! as a `&str`. Numbers, booleans and structures of them are their own values.

use stag_pools::Extent;
use stag_protocol::xdr::{Codec, Error, NoRoom, Reader, Writer, pad, padded};
use std::{fmt, ops::Deref};

/// An XDR type: its values, the length of the longest, and how they are read and written.
///
/// [`structure!`](crate::structure) and [`enumeration!`](crate::enumeration) make more of them.
pub trait XdrType {
    /// A value; it may borrow from the message that it was read from.
    type Of<'a>;
    /// Octets of the longest value, without an item.
    const LEN_MAX: usize;
    /// Octets of the longest item in it; zero without one.
    const ITEM_MAX: usize = 0;
    /// Items in it that may travel in a chunk. A message has room for one.
    const ITEMS: usize = 0;

    /// Takes a value from the front of what `decoder` holds.
    ///
    /// # Errors
    /// The octets are not of this type.
    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Self::Of<'a>, Error>;

    /// Writes a value behind what `encoder` holds.
    ///
    /// # Errors
    /// The value is longer than its type allows, or than the room left.
    fn encode<'a>(value: &Self::Of<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom>;
}

/// Writes a message in place, and counts where its item belongs.
#[derive(Debug)]
pub struct Encoder<'b, 'a> {
    writer: Writer<'b>,
    item: Option<(usize, Octets<'a>)>,
}

impl<'b, 'a> Encoder<'b, 'a> {
    pub(crate) const fn new(room: &'b mut [u8]) -> Self {
        Self { writer: Writer::new(room), item: None }
    }

    /// Octets written, and the item with its position among them.
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

    /// Adds an item that may travel in a chunk. Only its length is written: the octets follow when
    /// it is known how they travel.
    ///
    /// # Errors
    /// The message has an item already, or no room for a length.
    pub fn item(&mut self, octets: Octets<'a>) -> Result<(), NoRoom> {
        if self.item.is_some() {
            return Err(NoRoom);
        }
        self.writer.u32(u32::try_from(octets.len()).map_err(|_| NoRoom)?)?;
        self.item = Some((self.writer.len(), octets));
        Ok(())
    }

    /// The writer itself, for forms that have no [`XdrType`].
    pub const fn writer(&mut self) -> &mut Writer<'b> {
        &mut self.writer
    }
}

/// Reads a message, whether its item came inline or in a chunk.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    reader: Reader<'a>,
    /// The content of a Write chunk that has not been read.
    chunk: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Reads what `reader` is at.
    pub const fn new(reader: Reader<'a>) -> Self {
        Self { reader, chunk: &[] }
    }

    /// Reads `message`, whose item is `chunk` unless that is empty.
    pub const fn with_chunk(message: &'a [u8], chunk: &'a [u8]) -> Self {
        Self { reader: Reader::new(message), chunk }
    }

    /// Takes a value of type `T`.
    ///
    /// # Errors
    /// As [`XdrType::decode`].
    pub fn take<T: XdrType>(&mut self) -> Result<T::Of<'a>, Error> {
        T::decode(self)
    }

    /// Takes an item of at most `max` octets, from the chunk if it came in one.
    ///
    /// # Errors
    /// It is longer, the message is cut short, or the chunk holds something else.
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

    /// The reader itself, for forms that have no [`XdrType`].
    pub const fn reader(&mut self) -> &mut Reader<'a> {
        &mut self.reader
    }

    /// Ends reading.
    ///
    /// # Errors
    /// Octets remain.
    pub fn finish(self) -> Result<(), Error> {
        if self.chunk.is_empty() { self.reader.finish() } else { Err(Error::Misplaced) }
    }
}

/// The octets of an item. Written from a slice they are copied once; from an extent they are sent
/// from where they lie.
#[derive(Clone, Copy)]
pub struct Octets<'a> {
    octets: &'a [u8],
    extent: Option<&'a Extent>,
}

impl<'a> Octets<'a> {
    /// The octets, for as long as the message lives.
    pub const fn as_slice(self) -> &'a [u8] {
        self.octets
    }

    pub(crate) const fn extent(self) -> Option<&'a Extent> {
        self.extent
    }
}

impl<'a> From<&'a [u8]> for Octets<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Octets<'a> {
    fn from(octets: &'a [u8; N]) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Octets<'a> {
    fn from(octets: &'a Vec<u8>) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a> From<&'a Extent> for Octets<'a> {
    fn from(extent: &'a Extent) -> Self {
        Self { octets: extent, extent: Some(extent) }
    }
}

impl Deref for Octets<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets
    }
}

impl PartialEq for Octets<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl fmt::Debug for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets", self.octets.len())
    }
}

/// `string<MAX>` in UTF-8 (RFC 4506 §4.11), read as a `&str`.
#[derive(Debug)]
pub enum Text<const MAX: usize> {}

/// `opaque<MAX>` (RFC 4506 §4.10), read as a `&[u8]`. It always travels inline.
#[derive(Debug)]
pub enum Opaque<const MAX: usize> {}

/// `opaque<MAX>` that is DDP-eligible (RFC 8166 §3.4.2): read and written as [`Octets`]. Long ones
/// travel in a chunk, by RDMA Read or Write, where the transport has such.
#[derive(Debug)]
pub enum Bulk<const MAX: usize> {}

/// `T<MAX>`, an array of at most `MAX` elements (RFC 4506 §4.13), read into a `Vec`.
#[derive(Debug)]
pub struct List<T, const MAX: usize>(std::marker::PhantomData<T>);

impl<const MAX: usize> XdrType for Text<MAX> {
    type Of<'a> = &'a str;
    const LEN_MAX: usize = 4 + padded(MAX);

    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<&'a str, Error> {
        str::from_utf8(decoder.reader.opaque(MAX)?).map_err(|_| Error::BadValue)
    }

    fn encode<'a>(value: &&'a str, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
        Opaque::<MAX>::encode(&value.as_bytes(), encoder)
    }
}

impl<const MAX: usize> XdrType for Opaque<MAX> {
    type Of<'a> = &'a [u8];
    const LEN_MAX: usize = 4 + padded(MAX);

    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<&'a [u8], Error> {
        decoder.reader.opaque(MAX)
    }

    fn encode<'a>(value: &&'a [u8], encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
        if value.len() > MAX { Err(NoRoom) } else { encoder.writer.opaque(value) }
    }
}

impl<const MAX: usize> XdrType for Bulk<MAX> {
    type Of<'a> = Octets<'a>;
    const LEN_MAX: usize = 4;
    const ITEM_MAX: usize = MAX;
    const ITEMS: usize = 1;

    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Octets<'a>, Error> {
        decoder.item(MAX).map(Octets::from)
    }

    fn encode<'a>(value: &Octets<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
        if value.len() > MAX { Err(NoRoom) } else { encoder.item(*value) }
    }
}

impl<T: XdrType, const MAX: usize> XdrType for List<T, MAX> {
    type Of<'a> = Vec<T::Of<'a>>;
    const LEN_MAX: usize = 4 + MAX * T::LEN_MAX;

    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Self::Of<'a>, Error> {
        const { assert!(T::ITEMS == 0, "an array has no item that may travel in a chunk") };
        let len = usize::try_from(decoder.reader.u32()?).map_err(|_| Error::TooLong)?;
        if len > MAX {
            return Err(Error::TooLong);
        }
        // It grows with the elements that are there, not with the number that a peer says.
        let mut elements = Vec::new();
        for _ in 0..len {
            elements.push(T::decode(decoder)?);
        }
        Ok(elements)
    }

    fn encode<'a>(value: &Self::Of<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
        if value.len() > MAX {
            return Err(NoRoom);
        }
        encoder.writer.u32(u32::try_from(value.len()).map_err(|_| NoRoom)?)?;
        value.iter().try_for_each(|element| T::encode(element, encoder))
    }
}

impl<T: XdrType> XdrType for Option<T> {
    type Of<'a> = Option<T::Of<'a>>;
    const LEN_MAX: usize = 4 + T::LEN_MAX;
    const ITEM_MAX: usize = T::ITEM_MAX;
    const ITEMS: usize = T::ITEMS;

    fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Self::Of<'a>, Error> {
        if decoder.reader.bool()? { T::decode(decoder).map(Some) } else { Ok(None) }
    }

    fn encode<'a>(value: &Self::Of<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
        encoder.writer.bool(value.is_some())?;
        value.as_ref().map_or(Ok(()), |value| T::encode(value, encoder))
    }
}

/// Values that are their own type, by their [`Codec`] or by way of one.
macro_rules! plain_value {
    ($($type:ty as $wire:ty: $len:expr, $from:expr, $into:expr;)+) => {$(
        impl XdrType for $type {
            type Of<'a> = Self;
            const LEN_MAX: usize = $len;

            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, Error> {
                <$wire as Codec>::parse(&mut decoder.reader).map($from)
            }

            fn encode(value: &Self, encoder: &mut Encoder<'_, '_>) -> Result<(), NoRoom> {
                let into: fn($type) -> $wire = $into;
                into(*value).emit(&mut encoder.writer)
            }
        }
    )+};
}

plain_value! {
    () as (): 0, |_| (), |_| ();
    u32 as u32: 4, |value| value, |value| value;
    u64 as u64: 8, |value| value, |value| value;
    bool as bool: 4, |value| value, |value| value;
    i32 as u32: 4, u32::cast_signed, i32::cast_unsigned;
    i64 as u64: 8, u64::cast_signed, i64::cast_unsigned;
    f32 as u32: 4, f32::from_bits, f32::to_bits;
    f64 as u64: 8, f64::from_bits, f64::to_bits;
}

/// Opaque data of a fixed length, a multiple of four.
impl<const N: usize> XdrType for [u8; N] {
    type Of<'a> = Self;
    const LEN_MAX: usize = N;

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, Error> {
        decoder.reader.array()
    }

    fn encode(value: &Self, encoder: &mut Encoder<'_, '_>) -> Result<(), NoRoom> {
        encoder.writer.fixed(value)
    }
}

/// Arguments, one behind the other.
macro_rules! tuple {
    ($($($name:ident.$place:tt)+;)+) => {$(
        impl<$($name: XdrType),+> XdrType for ($($name,)+) {
            type Of<'a> = ($($name::Of<'a>,)+);
            const LEN_MAX: usize = 0 $(+ $name::LEN_MAX)+;
            const ITEM_MAX: usize = 0 $(+ $name::ITEM_MAX)+;
            const ITEMS: usize = 0 $(+ $name::ITEMS)+;

            fn decode<'a>(decoder: &mut Decoder<'a>) -> Result<Self::Of<'a>, Error> {
                Ok(($($name::decode(decoder)?,)+))
            }

            fn encode<'a>(value: &Self::Of<'a>, encoder: &mut Encoder<'_, 'a>) -> Result<(), NoRoom> {
                $($name::encode(&value.$place, encoder)?;)+
                Ok(())
            }
        }
    )+};
}

tuple! {
    A.0;
    A.0 B.1;
    A.0 B.1 C.2;
    A.0 B.1 C.2 D.3;
    A.0 B.1 C.2 D.3 E.4;
    A.0 B.1 C.2 D.3 E.4 F.5;
}

/// Defines a structure with an XDR form: its fields, in order (RFC 4506 §4.14).
///
/// Without a lifetime each field is a value of its own. With one, each field is named by its
/// [`XdrType`] and borrows from the message; the structure's own type is then `Name<'static>`.
///
/// ```
/// stag_rpc::structure! {
///     /// A point of the plane.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub struct Point { pub x: i32, pub y: i32 }
/// }
/// stag_rpc::structure! {
///     /// A point that has a name.
///     #[derive(Debug)]
///     pub struct Named<'a> { pub name: stag_rpc::Text<64>, pub at: Point }
/// }
/// let named = Named { name: "origin", at: Point { x: 0, y: 0 } };
/// # let _ = named;
/// ```
#[macro_export]
macro_rules! structure {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type),+ }
        $crate::structure!(@ 'a, $name, $name, $name, $($field: $type),+);
    };
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident<$life:lifetime> {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name<$life> {
            $($(#[$field_meta])* $field_vis $field: <$type as $crate::XdrType>::Of<$life>),+
        }
        $crate::structure!(@ $life, $name, $name<'static>, $name<$life>, $($field: $type),+);
    };
    (@ $life:lifetime, $make:ident, $name:ty, $value:ty, $($field:ident: $type:ty),+) => {
        impl $crate::XdrType for $name {
            type Of<$life> = $value;
            const LEN_MAX: usize = 0 $(+ <$type as $crate::XdrType>::LEN_MAX)+;
            const ITEM_MAX: usize = 0 $(+ <$type as $crate::XdrType>::ITEM_MAX)+;
            const ITEMS: usize = 0 $(+ <$type as $crate::XdrType>::ITEMS)+;

            fn decode<$life>(
                decoder: &mut $crate::Decoder<$life>,
            ) -> ::std::result::Result<Self::Of<$life>, $crate::XdrError> {
                $(let $field = <$type as $crate::XdrType>::decode(decoder)?;)+
                ::std::result::Result::Ok($make { $($field),+ })
            }

            fn encode<$life>(
                value: &Self::Of<$life>,
                encoder: &mut $crate::Encoder<'_, $life>,
            ) -> ::std::result::Result<(), $crate::NoRoom> {
                $(<$type as $crate::XdrType>::encode(&value.$field, encoder)?;)+
                ::std::result::Result::Ok(())
            }
        }
    };
}

/// Defines an enumeration with an XDR form: each variant has its value on the wire (RFC 4506 §4.3).
///
/// ```
/// stag_rpc::enumeration! {
///     /// A state.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum State { Idle = 0, Busy = 1 }
/// }
/// # let _ = State::Idle;
/// ```
#[macro_export]
macro_rules! enumeration {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $value:literal),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$variant_meta])* $variant),+ }

        impl $crate::XdrType for $name {
            type Of<'a> = Self;
            const LEN_MAX: usize = 4;

            fn decode<'a>(
                decoder: &mut $crate::Decoder<'a>,
            ) -> ::std::result::Result<Self, $crate::XdrError> {
                match decoder.reader().u32()? {
                    $($value => ::std::result::Result::Ok(Self::$variant),)+
                    _ => ::std::result::Result::Err($crate::XdrError::BadValue),
                }
            }

            fn encode<'a>(
                value: &Self,
                encoder: &mut $crate::Encoder<'_, 'a>,
            ) -> ::std::result::Result<(), $crate::NoRoom> {
                encoder.writer().u32(match value { $(Self::$variant => $value),+ })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    structure! {
        #[derive(Clone, Copy, Debug, PartialEq)]
        struct Point {
            x: i32,
            y: i64,
        }
    }

    structure! {
        #[derive(Debug, PartialEq)]
        struct Entry<'a> {
            name: Text<8>,
            at: Option<Point>,
            marks: List<u32, 3>,
        }
    }

    enumeration! {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum State {
            Idle = 0,
            Busy = 7,
        }
    }

    fn encoded<'a, T: XdrType>(value: &T::Of<'a>) -> Result<Vec<u8>, NoRoom> {
        let mut room = vec![0xee; T::LEN_MAX];
        let mut encoder = Encoder::new(&mut room);
        T::encode(value, &mut encoder)?;
        let (len, _) = encoder.finish();
        room.truncate(len);
        Ok(room)
    }

    fn decoded<T: XdrType>(octets: &[u8]) -> Result<T::Of<'_>, Error> {
        let mut decoder = Decoder::new(Reader::new(octets));
        let value = T::decode(&mut decoder)?;
        decoder.finish().map(|()| value)
    }

    #[test]
    fn a_structure_survives_a_round_trip_and_no_cut_does() {
        let entry = Entry { name: "héllo", at: Some(Point { x: -1, y: i64::MIN }), marks: vec![1, 2, 3] };
        let octets = encoded::<Entry<'static>>(&entry).unwrap();
        assert_eq!(octets.len(), <Entry<'static>>::LEN_MAX, "every field is as long as it may be");
        assert_eq!(decoded::<Entry<'static>>(&octets), Ok(entry));
        for cut in 0..octets.len() {
            assert!(decoded::<Entry<'static>>(&octets[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_value_longer_than_its_type_is_not_written_and_not_read() {
        assert_eq!(encoded::<Text<4>>(&"hello"), Err(NoRoom));
        assert_eq!(encoded::<Opaque<4>>(&&b"hello"[..]), Err(NoRoom));
        assert_eq!(encoded::<Bulk<4>>(&Octets::from(b"hello")), Err(NoRoom));
        assert_eq!(encoded::<List<u32, 2>>(&vec![1, 2, 3]), Err(NoRoom));
        let hello = b"\0\0\0\x05hello\0\0\0";
        assert_eq!(decoded::<Text<4>>(hello), Err(Error::TooLong));
        assert_eq!(decoded::<Bulk<4>>(hello), Err(Error::TooLong));
        assert_eq!(decoded::<List<u32, 4>>(hello), Err(Error::TooLong));
        assert_eq!(decoded::<Text<5>>(b"\0\0\0\x01\xff\0\0\0"), Err(Error::BadValue));
    }

    #[test]
    fn an_enumeration_has_its_values_and_no_other() {
        assert_eq!(encoded::<State>(&State::Busy).unwrap(), [0, 0, 0, 7]);
        assert_eq!(decoded::<State>(&[0; 4]), Ok(State::Idle));
        assert_eq!(decoded::<State>(&[0, 0, 0, 1]), Err(Error::BadValue));
    }

    #[test]
    fn an_array_that_says_more_than_it_has_takes_no_memory_for_it() {
        let octets = [0xff; 4];
        assert_eq!(decoded::<List<u64, { u32::MAX as usize }>>(&octets), Err(Error::Short));
    }

    #[test]
    fn an_item_counts_its_place_and_is_read_from_either_way() {
        type Found = (u32, Option<Bulk<16>>, u32);
        let octets = b"bulk!".as_slice();
        let mut room = [0xee; Found::LEN_MAX];
        let mut encoder = Encoder::new(&mut room);
        Found::encode(&(1, Some(octets.into()), 2), &mut encoder).unwrap();
        let (len, item) = encoder.finish();
        let (position, item) = item.unwrap();
        assert_eq!((len, position, item.as_slice()), (16, 12, octets));
        assert_eq!((Found::ITEMS, Found::ITEM_MAX), (1, 16));

        let inline = [&room[..position], octets, &[0; 3], &room[position..len]].concat();
        let read = |message, chunk| {
            let mut decoder = Decoder::with_chunk(message, chunk);
            let found = Found::decode(&mut decoder)?;
            decoder.finish().map(|()| found)
        };
        let found = Ok((1, Some(Octets::from(octets)), 2));
        assert_eq!(read(&inline, &[]), found);
        for chunk in [octets, b"bulk!\0\0\0"] {
            assert_eq!(read(&room[..len], chunk), found);
        }
        assert_eq!(read(&room[..len], b"bul"), Err(Error::Short));
        assert_eq!(read(&room[..len], b"bulk!?"), Err(Error::Misplaced));
        let none = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2];
        assert_eq!(read(&none, &[]), Ok((1, None, 2)));
        assert_eq!(read(&none, octets), Err(Error::Misplaced), "a chunk that belongs to nothing");
    }

    #[test]
    fn a_message_takes_one_item() {
        let mut room = [0; 64];
        let mut encoder = Encoder::new(&mut room);
        encoder.item(Octets::from(b"one")).unwrap();
        assert_eq!(encoder.item(Octets::from(b"two")), Err(NoRoom));
    }
}
