//! A provider over any fabric, chosen at run time. Servers, whose time counts, are made for one
//! fabric each.

/// Makes `AnyProvider` from the lines of a table.
#[doc(hidden)]
#[macro_export]
macro_rules! any_provider {
    ($( $(#[cfg($when:meta)])? $name:ident = $provider:ty; )+) => {
        /// A provider of one of the fabrics of the table, which it looks up on every call.
        #[derive(Debug)]
        pub enum AnyProvider {
            $(
                $(#[cfg($when)])?
                #[doc = concat!("A `", stringify!($provider), "`.")]
                $name(Box<$provider>),
            )+
        }

        impl AnyProvider {
            /// A provider that connects to `to`; of the first fabric of the table for calls over
            /// TCP streams only.
            ///
            /// # Errors
            /// As the fabric's memory and descriptors fail, and when the fabric cannot lend memory
            /// to a peer.
            #[allow(unreachable_code)]
            pub fn for_connecting(
                settings: $crate::Settings,
                to: Option<&FabricAddress>,
            ) -> ::std::io::Result<Self> {
                match to {
                    $(
                        $(#[cfg($when)])?
                        Some(FabricAddress::$name(to)) => {
                            let fabric =
                                <$provider as $crate::Open>::for_connecting(settings, Some(to))?;
                            Ok(Self::$name(Box::new(fabric)))
                        }
                    )+
                    None => {
                        $(
                            $(#[cfg($when)])?
                            {
                                let fabric =
                                    <$provider as $crate::Open>::for_connecting(settings, None)?;
                                return Ok(Self::$name(Box::new(fabric)));
                            }
                        )+
                    }
                }
            }
        }

        impl AnyProvider {
            /// Windows that a peer can use.
            pub fn windows_bound(&self) -> usize {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.windows_bound(),
                    )+
                }
            }
        }

        impl $crate::verbs::Provider for AnyProvider {
            type Address = FabricAddress;

            const SCHEME: &'static str = "fabric";

            fn counts(&self) -> $crate::verbs::Count {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.counts(), )+ }
            }

            fn limits(&self) -> &$crate::verbs::Limits {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.limits(), )+ }
            }

            fn device_name(&self) -> Option<&str> {
                match self {
                    $( $(#[cfg($when)])? Self::$name(fabric) => fabric.device_name(), )+
                }
            }

            fn notices(&self) -> Vec<String> {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.notices(), )+ }
            }

            fn wants_shared_pools(&self) -> bool {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.wants_shared_pools(),
                    )+
                }
            }

            fn register(&mut self, pool: &$crate::pools::Pool) -> ::std::io::Result<()> {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.register(pool), )+ }
            }

            fn listen(
                &mut self,
                at: &FabricAddress,
            ) -> Result<FabricAddress, $crate::verbs::FabricFault> {
                match (self, at) {
                    $(
                        $(#[cfg($when)])?
                        (Self::$name(fabric), FabricAddress::$name(at)) => {
                            fabric.listen(at).map(FabricAddress::$name)
                        }
                    )+
                    #[allow(unreachable_patterns)]
                    _ => Err($crate::verbs::FabricFault::BadAddress),
                }
            }

            fn stop_listening(&mut self) {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.stop_listening(),
                    )+
                }
            }

            fn connect(
                &mut self,
                to: &FabricAddress,
                private_data: &[u8],
            ) -> Result<$crate::verbs::Qp, $crate::verbs::FabricFault> {
                match (self, to) {
                    $(
                        $(#[cfg($when)])?
                        (Self::$name(fabric), FabricAddress::$name(to)) => {
                            fabric.connect(to, private_data)
                        }
                    )+
                    #[allow(unreachable_patterns)]
                    _ => Err($crate::verbs::FabricFault::BadAddress),
                }
            }

            fn accept(
                &mut self,
                qp: $crate::verbs::Qp,
                private_data: &[u8],
            ) -> Result<(), $crate::verbs::Refusal> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.accept(qp, private_data),
                    )+
                }
            }

            fn reject(&mut self, qp: $crate::verbs::Qp, private_data: &[u8]) {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.reject(qp, private_data),
                    )+
                }
            }

            fn disconnect(&mut self, qp: $crate::verbs::Qp) {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.disconnect(qp), )+ }
            }

            fn private_data(&self, qp: $crate::verbs::Qp) -> &[u8] {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.private_data(qp),
                    )+
                }
            }

            fn peer_address(&self, qp: $crate::verbs::Qp) -> Option<$crate::verbs::PeerAddress> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.peer_address(qp),
                    )+
                }
            }

            fn post_receive(&mut self, buf: $crate::pools::Buf) -> Result<(), $crate::pools::Buf> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.post_receive(buf),
                    )+
                }
            }

            fn receives_posted(&self) -> usize {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.receives_posted(),
                    )+
                }
            }

            fn bind(
                &mut self,
                qp: $crate::verbs::Qp,
                buf: $crate::pools::Buf,
                span: ::std::ops::Range<usize>,
                access: $crate::pools::Access,
            ) -> Result<$crate::pools::Window, $crate::verbs::Refused<$crate::pools::Buf>> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.bind(qp, buf, span, access),
                    )+
                }
            }

            fn post_send(
                &mut self,
                qp: $crate::verbs::Qp,
                tag: $crate::verbs::Tag,
                message: $crate::pools::Buf,
                invalidate: Option<$crate::pools::RemoteKey>,
            ) -> Result<(), $crate::verbs::Refused<$crate::pools::Buf>> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.post_send(qp, tag, message, invalidate),
                    )+
                }
            }

            fn send_inline(
                &mut self,
                qp: $crate::verbs::Qp,
                message: &[u8],
                invalidate: Option<$crate::pools::RemoteKey>,
            ) -> bool {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.send_inline(qp, message, invalidate),
                    )+
                }
            }

            fn post_write(
                &mut self,
                qp: $crate::verbs::Qp,
                tag: $crate::verbs::Tag,
                source: $crate::pools::Extent,
                to: $crate::verbs::RemoteSpan,
            ) -> Result<(), $crate::verbs::Refused<$crate::pools::Extent>> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.post_write(qp, tag, source, to),
                    )+
                }
            }

            fn post_read(
                &mut self,
                qp: $crate::verbs::Qp,
                tag: $crate::verbs::Tag,
                sink: $crate::pools::Buf,
                at: usize,
                from: &[$crate::verbs::RemoteSpan],
            ) -> Result<(), $crate::verbs::Refused<$crate::pools::Buf>> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.post_read(qp, tag, sink, at, from),
                    )+
                }
            }

            fn post_local_invalidate(
                &mut self,
                qp: $crate::verbs::Qp,
                tag: $crate::verbs::Tag,
                key: $crate::pools::RemoteKey,
            ) -> Result<(), $crate::verbs::Refusal> {
                match self {
                    $(
                        $(#[cfg($when)])?
                        Self::$name(fabric) => fabric.post_local_invalidate(qp, tag, key),
                    )+
                }
            }

            fn send_room(&self, qp: $crate::verbs::Qp) -> usize {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.send_room(qp), )+ }
            }

            fn ring(&mut self) {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.ring(), )+ }
            }

            fn poll(&mut self, now: $crate::verbs::Time) -> Option<$crate::verbs::Event> {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.poll(now), )+ }
            }

            fn arm(&mut self) -> bool {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.arm(), )+ }
            }

            fn wait_fd(&self) -> Option<::std::os::fd::BorrowedFd<'_>> {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.wait_fd(), )+ }
            }

            fn wake_at(&self) -> Option<$crate::verbs::Time> {
                match self { $( $(#[cfg($when)])? Self::$name(fabric) => fabric.wake_at(), )+ }
            }

            fn take_moved(&mut self, each: &mut dyn FnMut($crate::verbs::Qp, u64)) {
                match self {
                    $( $(#[cfg($when)])? Self::$name(fabric) => fabric.take_moved(each), )+
                }
            }
        }
    };
}
