//! The header of a reply (`reply_body`, RFC 5531 §9).

use super::{Auth, AuthStatus, MessageType, Xid, flavor};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Header of an RPC reply, in front of the results or in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// The call's.
    pub xid: Xid,
    /// Outcome of the call.
    pub outcome: Outcome<'a>,
}

/// Outcome of a call as RPC reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The server believes the caller (MSG_ACCEPTED).
    Accepted {
        /// Verifier that proves the server's identity.
        verifier: Auth<'a>,
        /// Status of the accepted call.
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

/// Status of an accepted call (`accept_stat`).
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
    /// Octets of the longest reply without results, when its verifier is AUTH_NONE: one with
    /// PROG_MISMATCH.
    pub const REFUSAL_LEN_MAX: usize = 32;

    /// Takes the header of a reply; `reader` then is at the results. A call is [`Error::BadValue`].
    #[inline]
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        match Self::parse_success(reader) {
            Some(header) => Ok(header),
            None => Self::parse_any(reader),
        }
    }

    /// The same for the header of nearly all replies, in one piece: accepted, verifier AUTH_NONE,
    /// success. Nothing is taken of any other reply.
    #[inline(always)]
    pub fn parse_success(reader: &mut Reader<'a>) -> Option<Self> {
        let [xid, ..] = reader.words_if(|[_, kind, rest @ ..]: &[u32; 6]| {
            (*kind, *rest) == (MessageType::Reply as u32, [0; 4])
        })?;
        Some(Self { xid: Xid(xid), outcome: Outcome::accepted(Accepted::Success) })
    }

    #[inline(never)]
    fn parse_any(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let [xid, message_type] = reader.words()?;
        if message_type != MessageType::Reply as u32 {
            return Err(Error::BadValue);
        }
        let outcome = match reader.u32()? {
            0 => Outcome::Accepted {
                verifier: Auth::parse(reader)?,
                status: Accepted::parse(reader)?,
            },
            1 => Outcome::Denied(Denied::parse(reader)?),
            _ => return Err(Error::BadValue),
        };
        Ok(Self { xid: Xid(xid), outcome })
    }

    /// Writes the header; the results of a success follow it.
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        // RFC 8167 §5.2 [8167-7]: a reverse reply says REPLY
        // draft 002 §5.2 [bidir-7]: a reverse reply says REPLY
        let reply = MessageType::Reply as u32;
        match &self.outcome {
            Outcome::Accepted {
                verifier: Auth { flavor: flavor::NONE, body: [] },
                status: Accepted::Success,
            } => writer.words([self.xid.0, reply, 0, 0, 0, 0]),
            _ => self.emit_any(writer),
        }
    }

    #[inline(never)]
    fn emit_any(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let reply = MessageType::Reply as u32;
        match &self.outcome {
            Outcome::Accepted { verifier, status } => {
                writer.words([self.xid.0, reply, 0])?;
                verifier.emit(writer)?;
                status.emit(writer)
            }
            Outcome::Denied(denied) => {
                writer.words([self.xid.0, reply, 1])?;
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
            // RFC 5531 §9 [5531-15]: statuses have the numbers of the RFC
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn replies() -> Vec<ReplyHeader<'static>> {
        let verifiers =
            [Auth::NONE, Auth { flavor: 6, body: b"abcde" }, Auth { flavor: 6, body: &[1; 400] }];
        let accepted = [
            Accepted::Success,
            Accepted::ProgUnavail,
            Accepted::ProgMismatch { low: 3, high: 4 },
            Accepted::ProcUnavail,
            Accepted::GarbageArgs,
            Accepted::SystemErr,
        ];
        let denied = [
            Denied::RpcMismatch { low: 2, high: 2 },
            Denied::AuthError(AuthStatus::TOO_WEAK),
            Denied::AuthError(AuthStatus(99)),
        ];
        let accepted = accepted.iter().flat_map(|status| {
            verifiers.map(|verifier| Outcome::Accepted { verifier, status: *status })
        });
        let outcomes = accepted.chain(denied.map(Outcome::Denied));
        outcomes.map(|outcome| ReplyHeader { xid: Xid(0x0102_0304), outcome }).collect()
    }

    fn wire(reply: &ReplyHeader<'_>) -> Vec<u8> {
        let mut out = std::vec![0xee; 512];
        let mut writer = Writer::new(&mut out);
        reply.emit(&mut writer).unwrap();
        let len = writer.len();
        out.truncate(len);
        out
    }

    #[test]
    fn every_reply_survives_a_round_trip_and_no_cut_does() {
        for reply in replies() {
            let octets = wire(&reply);
            let mut reader = Reader::new(&octets);
            assert_eq!(ReplyHeader::parse(&mut reader), Ok(reply));
            assert_eq!(reader.finish(), Ok(()));
            for cut in 0..octets.len() {
                assert_eq!(
                    ReplyHeader::parse(&mut Reader::new(&octets[..cut])),
                    Err(Error::Short),
                    "cut at {cut}"
                );
                assert_eq!(
                    reply.emit(&mut Writer::new(&mut octets.clone()[..cut])),
                    Err(NoRoom),
                    "room for {cut}"
                );
            }
        }
    }

    #[test]
    fn replies_have_these_octets_and_lengths() {
        let reply = |outcome| wire(&ReplyHeader { xid: Xid(0x0102_0304), outcome });
        let success = reply(Outcome::accepted(Accepted::Success));
        assert_eq!(
            success,
            [1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(success.len(), ReplyHeader::LEN);
        let mismatch = reply(Outcome::accepted(Accepted::ProgMismatch { low: 3, high: 4 }));
        assert_eq!(mismatch[..20], success[..20]);
        assert_eq!(mismatch[20..], [0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!(mismatch.len(), ReplyHeader::REFUSAL_LEN_MAX);
        let weak = reply(Outcome::Denied(Denied::AuthError(AuthStatus::TOO_WEAK)));
        assert_eq!(weak, [1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]);
    }

    #[test]
    fn accept_statuses_have_the_numbers_of_the_text() {
        use Accepted::{GarbageArgs, ProcUnavail, ProgMismatch, ProgUnavail, Success, SystemErr};
        let mismatch = ProgMismatch { low: 0, high: 0 };
        let all = [Success, ProgUnavail, mismatch, ProcUnavail, GarbageArgs, SystemErr];
        for (number, status) in (0..).zip(all) {
            let octets = wire(&ReplyHeader { xid: Xid(1), outcome: Outcome::accepted(status) });
            assert_eq!(octets[20..24], u32::to_be_bytes(number), "{status:?}");
            let parsed = ReplyHeader::parse(&mut Reader::new(&octets)).unwrap();
            assert_eq!(parsed.outcome, Outcome::accepted(status), "{number}");
        }
    }

    #[test]
    fn values_that_do_not_exist_are_refused() {
        let accepted =
            wire(&ReplyHeader { xid: Xid(1), outcome: Outcome::accepted(Accepted::Success) });
        // The message type, the reply's and the acceptance's discriminant.
        for (at, value) in [(4, 0), (4, 2), (8, 2), (20, 6), (20, u32::MAX)] {
            let mut octets = accepted.clone();
            octets[at..at + 4].copy_from_slice(&value.to_be_bytes());
            assert_eq!(
                ReplyHeader::parse(&mut Reader::new(&octets)),
                Err(Error::BadValue),
                "{value} at {at}"
            );
        }
        let denied = [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        assert_eq!(ReplyHeader::parse(&mut Reader::new(&denied)), Err(Error::BadValue));
    }

    #[test]
    fn a_peek_tells_calls_from_replies() {
        for (kind, expected) in
            [(0, Ok(MessageType::Call)), (1, Ok(MessageType::Reply)), (2, Err(Error::BadValue))]
        {
            let octets = [0, 0, 0, 9, 0, 0, 0, kind];
            assert_eq!(
                MessageType::peek(&Reader::new(&octets)),
                expected.map(|kind| (Xid(9), kind))
            );
            assert_eq!(MessageType::peek(&Reader::new(&octets[..7])), Err(Error::Short));
        }
    }
}
