//! XDR types of variable length with a maximum: text, opaque data, items, arrays.

use super::{Decoder, Encoder, Octets, XdrType};
use stag_protocol::xdr::{Error, NoRoom, padded};

/// `string<MAX>` in UTF-8 (RFC 4506 §4.11), read as a `&str`.
#[derive(Debug)]
pub enum Text<const MAX: usize> {}

/// `opaque<MAX>` (RFC 4506 §4.10), read as a `&[u8]`. It always travels inline.
#[derive(Debug)]
pub enum Opaque<const MAX: usize> {}

/// `opaque<MAX>` that is DDP-eligible (RFC 8166 §3.4.2): read and written as [`Octets`]. Long
/// values travel in a chunk, by RDMA Read or Write, if the transport has them.
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
        // Grows with the elements that are present, not with the count that a peer claims.
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
