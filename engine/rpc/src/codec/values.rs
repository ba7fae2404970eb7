//! XDR types of fixed length (numbers, booleans, opaque data), optional values, and tuples of
//! arguments.

use super::{Decoder, Encoder, XdrType};
use stag_protocol::xdr::{Codec, Error, NoRoom};

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

/// Types that are their own value, encoded by their [`Codec`] or through another type's.
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

/// Arguments, one after the other.
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

            fn encode<'a>(
                value: &Self::Of<'a>,
                encoder: &mut Encoder<'_, 'a>,
            ) -> Result<(), NoRoom> {
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
