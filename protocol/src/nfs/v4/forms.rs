//! Structures, enumerations and unions of the protocol description (RFC 5662, RFC 7863), each with
//! its codec from one declaration.

/// Declares a structure and its [`Codec`](crate::xdr::Codec): fields in the order of the wire.
macro_rules! record {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_doc])* pub $field: $type,)+
        }
        $crate::xdr::structure!($name $(<$life>)? { $($field),+ });
    };
}

/// Declares an enumeration and its codec.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$value_doc:meta])* $value:ident = $number:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$value_doc])* $value = $number,)+
        }
        $crate::xdr::enumeration!($name { $($value),+ });
    };
}

/// Declares a discriminated union (RFC 4506 §4.15) and its codec: the number of each arm, its name
/// and its content, if it has any.
macro_rules! union {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$arm_doc:meta])* $number:literal => $arm:ident $(($type:ty))?,)+
    }) => {
        union!(@ '_, $name, { $(#[$doc])* }, {
            $($(#[$arm_doc])* $number => $arm $(($type))?,)+
        });
    };
    ($(#[$doc:meta])* $name:ident <$life:lifetime> {
        $($(#[$arm_doc:meta])* $number:literal => $arm:ident $(($type:ty))?,)+
    }) => {
        union!(@ $life, $name<$life>, { $(#[$doc])* }, {
            $($(#[$arm_doc])* $number => $arm $(($type))?,)+
        });
    };
    (@ $life:lifetime, $name:ident $(<$own:lifetime>)?, { $(#[$doc:meta])* }, {
        $($(#[$arm_doc:meta])* $number:literal => $arm:ident $(($type:ty))?,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name $(<$own>)? {
            $($(#[$arm_doc])* $arm $(($type))?,)+
        }

        impl $(<$own>)? $crate::xdr::Codec<$life> for $name $(<$own>)? {
            fn parse(reader: &mut $crate::xdr::Reader<$life>) -> Result<Self, $crate::xdr::Error> {
                match reader.u32()? {
                    $($number => Ok(Self::$arm $((<$type>::parse(reader)?))?),)+
                    _ => Err($crate::xdr::Error::BadValue),
                }
            }

            fn emit(
                &self,
                writer: &mut $crate::xdr::Writer<'_>,
            ) -> Result<(), $crate::xdr::NoRoom> {
                match self {
                    $(Self::$arm $((union!(@name $type, content)))? => {
                        writer.u32($number)?;
                        $(union!(@name $type, content).emit(writer)?;)?
                    })+
                }
                Ok(())
            }
        }
    };
    (@name $type:ty, $name:ident) => { $name };
}

pub(super) use {numbers, record, union};
