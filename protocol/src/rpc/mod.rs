//! ONC RPC version 2: headers of calls and replies (RFC 5531).
//!
//! [`CallHeader`] and [`ReplyHeader`] precede arguments and results. [`CallHeader::parse`] fails
//! with the answer to send to the caller. [`gss`] has the octets of RPCSEC_GSS, [`record`] cuts a
//! byte stream into messages, [`portmap`] says where a program listens.

mod auth;
mod call;
pub mod gss;
pub mod portmap;
pub mod record;
mod reply;

pub use crate::rpcrdma::Xid;
pub use auth::{
    Auth, AuthStatus, AuthSys, Credential, Gids, PrincipalId, ProvenUser, UnixUser, flavor,
};
pub use call::{CallHeader, NullHeader, Refusal};
pub use reply::{Accepted, Denied, Outcome, ReplyHeader};

use crate::xdr::{Error, Reader};

/// The version of RPC (RFC 5531 §9).
// RFC 5531 §9 [5531-16]: a call names version 2 of RPC
pub const VERSION: u32 = 2;

/// Type of an RPC message (`msg_type`, RFC 5531 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MessageType {
    /// A call.
    Call = 0,
    /// A reply.
    Reply = 1,
}

impl MessageType {
    /// The XID and type of a message, without a look at the rest. A message for which this is an
    /// error has to be discarded: there is no call to answer.
    pub fn peek(message: &Reader<'_>) -> Result<(Xid, Self), Error> {
        let mut reader = message.clone();
        let [xid, message_type] = reader.words()?;
        match message_type {
            0 => Ok((Xid(xid), Self::Call)),
            1 => Ok((Xid(xid), Self::Reply)),
            _ => Err(Error::BadValue),
        }
    }
}
