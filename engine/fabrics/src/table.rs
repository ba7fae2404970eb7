//! The table of fabrics: one line for each, and the types made from the lines.

/// Makes a table of fabrics: `FABRICS`, `FabricAddress`, `Fabric`, `FabricVisitor` and
/// `AnyProvider`, from lines `Name = Provider;`.
///
/// A fabric that some builds lack is marked with `#[cfg(feature = "F")]`. With `#[absent("SCHEME",
/// "NAME", "F")]` after that, the table's `ABSENT` lists it in builds without it.
#[macro_export]
macro_rules! fabrics {
    ($(
        $(#[cfg($when:meta)] $(#[absent($scheme:literal, $people:literal, $feature:literal)])?)?
        $name:ident = $provider:ty;
    )+) => {
        /// Facts about the fabrics of the table, in its order.
        pub const FABRICS: &[$crate::FabricInfo] = &[
            $( $(#[cfg($when)])? $crate::FabricInfo::of::<$provider>(), )+
        ];

        /// Fabrics that this build has not, but could have.
        #[allow(dead_code)]
        pub const ABSENT: &[$crate::Absent] = &[
            $($($(
                #[cfg(not($when))]
                $crate::Absent { scheme: $scheme, name: $people, feature: $feature },
            )?)?)+
        ];

        /// An address on one of the fabrics of the table.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum FabricAddress {
            $(
                $(#[cfg($when)])?
                #[doc = concat!("An address of `", stringify!($provider), "`.")]
                $name(<$provider as $crate::verbs::Provider>::Address),
            )+
        }

        /// A fabric of the table.
        pub trait Fabric: $crate::Open + 'static {
            /// The same address, as one of any fabric.
            fn any(at: Self::Address) -> FabricAddress;

            /// Those of `all` that are addresses of this fabric.
            fn only<'a>(all: impl IntoIterator<Item = &'a FabricAddress>) -> Vec<Self::Address>;
        }

        $(
            $(#[cfg($when)])?
            impl Fabric for $provider {
                fn any(at: Self::Address) -> FabricAddress {
                    FabricAddress::$name(at)
                }

                fn only<'a>(
                    all: impl IntoIterator<Item = &'a FabricAddress>,
                ) -> Vec<Self::Address> {
                    let mut only = Vec::new();
                    for at in all {
                        #[allow(irrefutable_let_patterns)]
                        if let FabricAddress::$name(at) = at {
                            only.push(at.clone());
                        }
                    }
                    only
                }
            }
        )+

        /// Code that is compiled for every fabric of the table, and run for one of them.
        pub trait FabricVisitor {
            /// The result.
            type Output;

            /// Runs for the fabric of `P`, to which the address `at` belongs.
            fn visit<P: Fabric>(self, at: P::Address) -> Self::Output;
        }

        impl FabricAddress {
            /// Reads the URL of an address.
            ///
            /// # Errors
            /// The text is no URL of a fabric in the table.
            pub fn parse(url: &str) -> Result<Self, $crate::UrlError> {
                let Some((scheme, _)) = url.split_once("://") else {
                    return Err($crate::UrlError::NoScheme);
                };
                $(
                    $(#[cfg($when)])?
                    if scheme == <$provider as $crate::verbs::Provider>::SCHEME {
                        let at = url.parse::<<$provider as $crate::verbs::Provider>::Address>();
                        return at.map(Self::$name).map_err(|why| $crate::UrlError::Address {
                            scheme: <$provider as $crate::verbs::Provider>::SCHEME,
                            why: why.to_string(),
                        });
                    }
                )+
                Err($crate::UrlError::unknown(scheme))
            }

            /// An address of this host on the fabric `scheme`, with facts about it. A fabric of
            /// processes has its socket at `socket`, where nothing is yet.
            ///
            /// # Errors
            /// A sentence when the fabric has no address here, or the table has no such fabric.
            pub fn here(
                scheme: &str,
                socket: &::std::path::Path,
            ) -> Result<$crate::Here<Self>, String> {
                $(
                    $(#[cfg($when)])?
                    if scheme == <$provider as $crate::verbs::Provider>::SCHEME {
                        let $crate::Here { at, facts } = <$provider as $crate::Open>::here(socket)?;
                        return Ok($crate::Here { at: Self::$name(at), facts });
                    }
                )+
                Err($crate::UrlError::unknown(scheme).to_string())
            }

            /// Facts about the fabric.
            pub const fn info(&self) -> $crate::FabricInfo {
                match self {
                    $( $(#[cfg($when)])? Self::$name(_) => $crate::FabricInfo::of::<$provider>(), )+
                }
            }

            /// The address on an IP network, if it is on one.
            pub fn ip(&self) -> Option<::std::net::SocketAddr> {
                match self {
                    $( $(#[cfg($when)])? Self::$name(at) => <$provider as $crate::Open>::ip(at), )+
                }
            }

            /// True when peers may map pools of ours, which then have to be shared ones.
            pub fn is_trusting(&self) -> bool {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(at) => <$provider as $crate::Open>::is_trusting(at),
                    )+
                }
            }

            /// The address of shard `index` of a server that listens here.
            ///
            /// # Errors
            /// A sentence when there is no such address.
            pub fn of_shard(&self, index: usize) -> Result<Self, String> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(at) => {
                            <$provider as $crate::Open>::of_shard(at, index).map(Self::$name)
                        }
                    )+
                }
            }

            /// Runs `visitor` for the fabric.
            pub fn visit<V: FabricVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $( $(#[cfg($when)])? Self::$name(at) => visitor.visit::<$provider>(at), )+
                }
            }
        }

        impl ::std::fmt::Display for FabricAddress {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                match self {
                    $( $(#[cfg($when)])? Self::$name(at) => ::std::fmt::Display::fmt(at, f), )+
                }
            }
        }

        $crate::any_provider! { $( $(#[cfg($when)])? $name = $provider; )+ }
    };
}
