//! Codec: types with one XDR form each, and macros that derive it for structures and enumerations.

use super::{Error, NoRoom, Reader, Writer};

/// A type with one XDR form. `'a` is the life of the octets that a parsed value may borrow.
pub trait Codec<'a>: Sized {
    /// Takes a value from the front of `reader`.
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error>;
    /// Writes the value after what `writer` holds.
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom>;
}

impl Codec<'_> for () {
    // RFC 4506 §4.16 [4506-18]: a void takes no octets
    fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(())
    }
    fn emit(&self, _: &mut Writer<'_>) -> Result<(), NoRoom> {
        Ok(())
    }
}

impl Codec<'_> for u32 {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.u32()
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(*self)
    }
}

impl Codec<'_> for u64 {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.u64()
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u64(*self)
    }
}

impl Codec<'_> for bool {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.bool()
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.bool(*self)
    }
}

impl<const N: usize> Codec<'_> for [u8; N] {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.array()
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.fixed(self)
    }
}

/// Optional data: a boolean, and the value after TRUE (RFC 4506 §4.19).
impl<'a, T: Codec<'a>> Codec<'a> for Option<T> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 1813 §3.1 [1813-14]: optional attributes may be present or absent
        // RFC 4506 §4.19 [4506-19]: optional data is a boolean, then the value if TRUE
        if reader.bool()? { T::parse(reader).map(Some) } else { Ok(None) }
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        // RFC 4506 §4.19 [4506-19]: optional data is a boolean, then the value if TRUE
        writer.bool(self.is_some())?;
        self.as_ref().map_or(Ok(()), |value| value.emit(writer))
    }
}

/// Implements [`Codec`] for a structure (RFC 4506 §4.14): its fields in the order of the wire.
macro_rules! structure {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        $crate::xdr::structure!(@ 'a, $name, $($field),+);
    };
    ($name:ident <$life:lifetime> { $($field:ident),+ $(,)? }) => {
        $crate::xdr::structure!(@ $life, $name<$life>, $($field),+);
    };
    (@ $life:lifetime, $name:ty, $($field:ident),+) => {
        impl<$life> $crate::xdr::Codec<$life> for $name {
            fn parse(reader: &mut $crate::xdr::Reader<$life>) -> Result<Self, $crate::xdr::Error> {
                // RFC 4506 §4.14 [4506-16]: a structure is its fields in order of declaration
                Ok(Self { $($field: $crate::xdr::Codec::parse(reader)?),+ })
            }
            fn emit(
                &self,
                writer: &mut $crate::xdr::Writer<'_>,
            ) -> Result<(), $crate::xdr::NoRoom> {
                $($crate::xdr::Codec::emit(&self.$field, writer)?;)+
                Ok(())
            }
        }
    };
}

/// Implements [`Codec`] for an enumeration whose variants carry their value on the wire (RFC 4506
/// §4.3).
macro_rules! enumeration {
    ($name:ident { $($variant:ident),+ $(,)? }) => {
        impl $name {
            /// The variant of this value.
            fn new(value: u32) -> Result<Self, $crate::xdr::Error> {
                $(if value == Self::$variant as u32 { return Ok(Self::$variant); })+
                // RFC 4506 §4.3 [4506-6]: a value that an enumeration does not define is an error
                Err($crate::xdr::Error::BadValue)
            }
        }

        impl $crate::xdr::Codec<'_> for $name {
            fn parse(reader: &mut $crate::xdr::Reader<'_>) -> Result<Self, $crate::xdr::Error> {
                reader.u32().and_then(Self::new)
            }
            fn emit(
                &self,
                writer: &mut $crate::xdr::Writer<'_>,
            ) -> Result<(), $crate::xdr::NoRoom> {
                writer.u32(*self as u32)
            }
        }
    };
}

pub(crate) use {enumeration, structure};

/// Emits a value, and checks that it parses back equal and whole, that every cut of it is an error,
/// and that too little room is one too. Returns the bytes.
#[cfg(test)]
macro_rules! survives {
    ($value:expr, $type:ty) => {{
        use $crate::xdr::{Codec, NoRoom, Reader, Writer};
        let value: $type = $value;
        let mut out = std::vec![0xee; 16_384];
        let mut writer = Writer::new(&mut out);
        value.emit(&mut writer).expect("16 KiB are enough for any test");
        let len = writer.len();
        out.truncate(len);
        let mut reader = Reader::new(&out);
        assert_eq!(<$type>::parse(&mut reader).as_ref(), Ok(&value));
        assert_eq!(reader.finish(), Ok(()));
        for cut in 0..len {
            assert!(<$type>::parse(&mut Reader::new(&out[..cut])).is_err(), "{value:?} cut at \
                {cut}");
            assert_eq!(value.emit(&mut Writer::new(&mut std::vec![0; cut])), Err(NoRoom), "room \
                for {cut}");
        }
        out
    }};
}
#[cfg(test)]
pub(crate) use survives;
