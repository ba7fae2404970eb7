//! Macros for an app's own XDR types: structures and enumerations.

/// Defines a structure with an XDR form: its fields, in order (RFC 4506 §4.14).
///
/// Without a lifetime each field is a value of its own. With one, each field is named by its
/// [`XdrType`](crate::codec::XdrType) and borrows from the message; the structure's own type is
/// then `Name<'static>`.
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
