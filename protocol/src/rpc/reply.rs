//! The header of a reply (`reply_body`, RFC 5531 §9).

use super::{Auth, AuthStatus, MessageType, Xid};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// What stands in front of a reply's results, or instead of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// The call's.
    pub xid: Xid,
    /// How the call ended.
    pub outcome: Outcome<'a>,
}

/// How a call ended, as far as RPC knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The server believes the caller (MSG_ACCEPTED).
    Accepted {
        /// What proves that the server answers.
        verifier: Auth<'a>,
        /// Whether the procedure ran.
        status: Accepted,
    },
    /// It does not (MSG_DENIED).
    Denied(Denied),
}

impl Outcome<'static> {
    /// An accepted call, with AUTH_NONE for a verifier.
    pub const fn accepted(status: Accepted) -> Self {
        Self::Accepted { verifier: Auth::NONE, status }
    }
}

/// What became of an accepted call (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The procedure ran; its results follow.
    Success,
    /// The server has no such program.
    ProgUnavail,
    /// The server has the program, but in other versions.
    ProgMismatch {
        /// Lowest of them.
        low: u32,
        /// Highest of them.
        high: u32,
    },
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments cannot be decoded.
    GarbageArgs,
    /// The server failed.
    SystemErr,
}

/// Why a call was denied (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The server speaks other versions of RPC.
    RpcMismatch {
        /// Lowest of them.
        low: u32,
        /// Highest of them.
        high: u32,
    },
    /// The server does not believe the caller.
    AuthError(AuthStatus),
}

impl<'a> ReplyHeader<'a> {
    /// Octets of a successful reply's header whose verifier is AUTH_NONE.
    pub const LEN: usize = 24;
    /// Octets of the longest reply without results, when its verifier is AUTH_NONE: one with PROG_MISMATCH.
    pub const REFUSAL_LEN_MAX: usize = 32;

    /// Takes the header of a reply; `reader` then is at the results. A call is [`Error::BadValue`].
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let xid = Xid(reader.u32()?);
        if reader.u32()? != MessageType::Reply as u32 {
            return Err(Error::BadValue);
        }
        let outcome = match reader.u32()? {
            0 => Outcome::Accepted { verifier: Auth::parse(reader)?, status: Accepted::parse(reader)? },
            1 => Outcome::Denied(Denied::parse(reader)?),
            _ => return Err(Error::BadValue),
        };
        Ok(Self { xid, outcome })
    }

    /// Writes the header; the results of a success come behind it.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.xid.0)?;
        writer.u32(MessageType::Reply as u32)?;
        match &self.outcome {
            Outcome::Accepted { verifier, status } => {
                writer.u32(0)?;
                verifier.emit(writer)?;
                status.emit(writer)
            }
            Outcome::Denied(denied) => {
                writer.u32(1)?;
                denied.emit(writer)
            }
        }
    }
}

impl Codec<'_> for Accepted {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match reader.u32()? {
            0 => Self::Success,
            1 => Self::ProgUnavail,
            2 => Self::ProgMismatch { low: reader.u32()?, high: reader.u32()? },
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            _ => return Err(Error::BadValue),
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Success => writer.u32(0),
            Self::ProgUnavail => writer.u32(1),
            Self::ProgMismatch { low, high } => {
                writer.u32(2)?;
                writer.u32(*low)?;
                writer.u32(*high)
            }
            Self::ProcUnavail => writer.u32(3),
            Self::GarbageArgs => writer.u32(4),
            Self::SystemErr => writer.u32(5),
        }
    }
}

impl Codec<'_> for Denied {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u32()? {
            0 => Ok(Self::RpcMismatch { low: reader.u32()?, high: reader.u32()? }),
            1 => reader.u32().map(AuthStatus).map(Self::AuthError),
            _ => Err(Error::BadValue),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::RpcMismatch { low, high } => {
                writer.u32(0)?;
                writer.u32(*low)?;
                writer.u32(*high)
            }
            Self::AuthError(AuthStatus(status)) => {
                writer.u32(1)?;
                writer.u32(*status)
            }
        }
    }
}
