//! Layouts and constants of the declarations, each stated once: the compiler checks the layouts
//! against the declarations, a test with the feature `compare` both against rdma-sys.

/// States the size of a structure and the offset of each of its fields, for 64-bit targets.
///
/// `whole` structures have the size that they have in C. A `first` part is followed by fields that
/// are not declared. `as` is followed by the path by which rdma-sys reaches the field. Of a field
/// marked `(first)` only the beginning is declared; an `(unused)` one fills a gap.
macro_rules! layout {
    ($extent:ident $name:ident: $size:literal {
        $($offset:literal $field:ident $(as $($path:ident).+)? $(($part:ident))?,)+
    }) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(std::mem::offset_of!($name, $field) == $offset);)+
        };
        // Does not compile when a field is missing in the list.
        const _: fn(&$name) = |$name { $($field: _,)+ }| ();

        #[cfg(all(test, feature = "compare"))]
        #[test]
        fn $name() {
            let (ours, theirs) = (size_of::<$name>(), size_of::<rdma_sys::$name>());
            match stringify!($extent) {
                "whole" => assert_eq!(ours, theirs, "size"),
                "first" => assert!(ours < theirs, "a part of {ours} bytes of {theirs}"),
                extent => unreachable!("{extent}: no extent of a declaration"),
            }
            assert_eq!(align_of::<$name>(), align_of::<rdma_sys::$name>(), "alignment");
            $(compare_field!($name $field $(as $($path).+)? $(($part))?);)+
        }
    };
}

/// Compares offset and size of a field with rdma-sys.
#[cfg(all(test, feature = "compare"))]
macro_rules! compare_field {
    ($name:ident $field:ident (unused)) => {};
    ($name:ident $field:ident) => {
        compare_field!($name $field as $field);
    };
    ($name:ident $field:ident (first)) => {
        compare_field!($name $field as $field (first));
    };
    ($name:ident $field:ident as $($path:ident).+) => {
        compare_field!($name $field as $($path).+ (first));
        let ours = $crate::sys::layout::size_of_field(|it: &$name| &it.$field);
        let theirs = $crate::sys::layout::size_of_field(|it: &rdma_sys::$name| &it.$($path).+);
        assert_eq!(ours, theirs, "size of {}", stringify!($field));
    };
    ($name:ident $field:ident as $($path:ident).+ (first)) => {
        let ours = std::mem::offset_of!($name, $field);
        let theirs = std::mem::offset_of!(rdma_sys::$name, $($path).+);
        assert_eq!(ours, theirs, "offset of {}", stringify!($field));
    };
}

/// Size of the field that `of` selects.
#[cfg(all(test, feature = "compare"))]
pub(super) fn size_of_field<T, F>(_of: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Declares constants of one C enumeration: a module with its name.
macro_rules! constants {
    ($(#[$doc:meta])* $name:ident: $type:ty { $($constant:ident = $value:expr,)+ }) => {
        $(#[$doc])*
        pub(crate) mod $name {
            $(pub(crate) const $constant: $type = $value;)+

            #[cfg(all(test, feature = "compare"))]
            #[test]
            fn numbers() {
                use $crate::sys::layout::Number as _;
                $(assert_eq!(
                    i64::from($constant),
                    rdma_sys::$name::$constant.number(),
                    stringify!($constant)
                );)+
            }
        }
    };
}

/// Value of a constant of rdma-sys: a number, a flag, a variant.
#[cfg(all(test, feature = "compare"))]
pub(super) trait Number {
    fn number(self) -> i64;
}

#[cfg(all(test, feature = "compare"))]
mod numbers {
    use super::Number;

    impl Number for u32 {
        fn number(self) -> i64 {
            self.into()
        }
    }

    impl Number for i32 {
        fn number(self) -> i64 {
            self.into()
        }
    }

    impl Number for rdma_sys::ibv_event_type {
        fn number(self) -> i64 {
            self as i64
        }
    }

    macro_rules! flags {
        ($($name:ident)+) => {
            $(impl Number for rdma_sys::$name {
                fn number(self) -> i64 {
                    self.0.into()
                }
            })+
        };
    }

    flags! { ibv_access_flags ibv_device_cap_flags ibv_qp_attr_mask ibv_send_flags ibv_wc_flags }
}
