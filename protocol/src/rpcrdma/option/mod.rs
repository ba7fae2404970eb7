//! OPTIONAL: messages other than calls and replies (draft 000 §3).
//!
//! An option is one file here and one line in the registry below. The file defines its two types
//! (`REQUEST`, `REPLY`: an RDMA_OPTIONAL has no direction, so each has its own), whether an RPC
//! payload follows them (`PAYLOAD_FOLLOWS`), the content of both (`Request`, `Reply`), and the
//! reply of a connection to a request (`answer`). Each option has a `Lane` of its own in every
//! connection. Its documentation, as draft 000 §3.2 asks for, is `docs/options/<option>.md`.

use super::{Connection, Credits, PeerFault, Xid, v2, wire};
use crate::xdr::{Codec, NoRoom, Reader};

pub mod health;
mod lane;

pub(super) use lane::Lanes;
pub use lane::NoOption;

/// A request, or the answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange<Q, A> {
    /// The request.
    Request(Q),
    /// Its answer, with the same XID.
    Reply(A),
}

macro_rules! registry {
    ($($(#[$doc:meta])* $name:ident($file:ident)),+ $(,)?) => {
        /// An option that we use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptionName {
            $($(#[$doc])* $name),+
        }

        impl OptionName {
            /// All options, in the order of their lanes.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }

        /// A message of an option that we use.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Message {
            $($(#[$doc])* $name(Exchange<$file::Request, $file::Reply>)),+
        }

        impl Message {
            /// The option that this message belongs to.
            pub const fn option(&self) -> OptionName {
                match self {
                    $(Self::$name(_) => OptionName::$name),+
                }
            }

            /// Returns true for a request, false for a reply.
            pub const fn is_request(&self) -> bool {
                match self {
                    $(Self::$name(exchange) => matches!(exchange, Exchange::Request(_))),+
                }
            }

            /// The reply of `connection` to this request; none to a reply.
            pub(super) fn answer(&self, connection: &Connection) -> Option<Self> {
                match self {
                    $(Self::$name(Exchange::Request(request)) => {
                        Some(Self::$name(Exchange::Reply($file::answer(request, connection))))
                    }
                    Self::$name(Exchange::Reply(_)) => None,)+
                }
            }
        }

        /// All types that we know: requests and replies in turn.
        const TYPES: &[u32] = &[$($file::REQUEST, $file::REPLY),+];

        /// The meaning of an RDMA_OPTIONAL with this type and content, followed by `payload_len`
        /// octets.
        pub fn parse(opttype: u32, info: &[u8], payload_len: usize) -> Result<Message, PeerFault> {
            let bad = PeerFault::BadOption(opttype);
            match opttype {
                // draft 000 §3.2 [v2-4]: each option says if a payload follows
                $($file::REQUEST | $file::REPLY
                    if (payload_len > 0) != $file::PAYLOAD_FOLLOWS =>
                {
                    Err(bad)
                }
                $file::REQUEST => {
                    whole(info).map(|it| Message::$name(Exchange::Request(it))).ok_or(bad)
                }
                $file::REPLY => {
                    whole(info).map(|it| Message::$name(Exchange::Reply(it))).ok_or(bad)
                })+
                other => Err(PeerFault::UnknownOption(other)),
            }
        }

        /// Writes the header of an RDMA_OPTIONAL and its content, and returns their length.
        pub fn emit(
            xid: Xid,
            credits: Credits,
            message: &Message,
            out: &mut [u8],
        ) -> Result<usize, NoRoom> {
            // Both dialects have the same options.
            match message {
                $(Message::$name(Exchange::Request(it)) => {
                    let emit = |writer: &mut $crate::xdr::Writer<'_>| it.emit(writer);
                    wire::emit_option::<v2::Undirected>(xid, credits, $file::REQUEST, out, emit)
                }
                Message::$name(Exchange::Reply(it)) => {
                    let emit = |writer: &mut $crate::xdr::Writer<'_>| it.emit(writer);
                    wire::emit_option::<v2::Undirected>(xid, credits, $file::REPLY, out, emit)
                })+
            }
        }
    };
}

registry! {
    /// Health of the peer.
    Health(health),
}

// No type has two meanings.
const _: () = {
    let mut types = TYPES;
    while let [first, rest @ ..] = types {
        let mut others = rest;
        while let [other, behind @ ..] = others {
            assert!(*first != *other, "two options share a type");
            others = behind;
        }
        types = rest;
    }
};

/// Returns true for a type of an option that we use.
pub(super) fn is_known(opttype: u32) -> bool {
    TYPES.contains(&opttype)
}

/// Returns true if `opttype` is that of a reply: nothing in a reply is answered.
pub(super) fn is_reply(opttype: u32) -> bool {
    TYPES.iter().skip(1).step_by(2).any(|reply| *reply == opttype)
}

/// A value that fills `info` exactly.
fn whole<T: for<'a> Codec<'a>>(info: &[u8]) -> Option<T> {
    let mut reader = Reader::new(info);
    let value = T::parse(&mut reader).ok()?;
    reader.finish().ok().map(|()| value)
}
