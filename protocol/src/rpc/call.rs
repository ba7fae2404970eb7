//! The header of a call (`call_body`, RFC 5531 §9).

use super::{
    Accepted, Auth, AuthStatus, Credential, Denied, MessageType, Outcome, ReplyHeader, VERSION, Xid,
};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// What stands in front of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Names the call; its reply has the same.
    pub xid: Xid,
    /// The program called.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential<'a>,
    /// What proves it.
    pub verifier: Auth<'a>,
}

/// What to do with a message that is not a call one can carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing: it is no call, or nobody can be answered.
    Discard,
    /// Answer with this, and nothing behind it.
    Answer(ReplyHeader<'static>),
}

impl<'a> CallHeader<'a> {
    /// Takes the header of a call; `reader` then is at the arguments.
    ///
    /// A wrong version of RPC is refused with RPC_MISMATCH, whatever follows it. A credential that breaks its own rules is
    /// refused with AUTH_BADCRED, a verifier that does with AUTH_BADVERF. A header that ends before either is
    /// refused with GARBAGE_ARGS, as is anything else that cannot be decoded. Whether a program exists and whether a
    /// credential is good enough the server decides.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Refusal> {
        let Ok((xid, MessageType::Call)) = MessageType::peek(reader) else {
            return Err(Refusal::Discard);
        };
        let refuse = |outcome| Refusal::Answer(ReplyHeader { xid, outcome });
        let garbage = |_: Error| refuse(Outcome::accepted(Accepted::GarbageArgs));
        let auth = |status| refuse(Outcome::Denied(Denied::AuthError(status)));
        reader.u64().map_err(garbage)?; // the XID and the type, seen already
        if reader.u32().map_err(garbage)? != VERSION {
            return Err(refuse(Outcome::Denied(Denied::RpcMismatch { low: VERSION, high: VERSION })));
        }
        Ok(Self {
            xid,
            program: reader.u32().map_err(garbage)?,
            version: reader.u32().map_err(garbage)?,
            procedure: reader.u32().map_err(garbage)?,
            credential: Credential::parse(reader).map_err(|_| auth(AuthStatus::BAD_CREDENTIAL))?,
            verifier: Auth::parse(reader).map_err(|_| auth(AuthStatus::BAD_VERIFIER))?,
        })
    }

    /// Writes the header; the arguments come behind it.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.xid.0)?;
        writer.u32(MessageType::Call as u32)?;
        writer.u32(VERSION)?;
        writer.u32(self.program)?;
        writer.u32(self.version)?;
        writer.u32(self.procedure)?;
        self.credential.emit(writer)?;
        self.verifier.emit(writer)
    }

    /// The header of a reply to this call, with AUTH_NONE for a verifier.
    pub const fn reply(&self, status: Accepted) -> ReplyHeader<'static> {
        ReplyHeader { xid: self.xid, outcome: Outcome::accepted(status) }
    }

    /// The header of a reply that denies this call.
    pub const fn deny(&self, denied: Denied) -> ReplyHeader<'static> {
        ReplyHeader { xid: self.xid, outcome: Outcome::Denied(denied) }
    }
}
