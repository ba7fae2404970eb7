//! The header of a call (`call_body`, RFC 5531 §9).

use super::{
    Accepted, Auth, AuthStatus, AuthSys, Credential, Denied, MessageType, Outcome, ReplyHeader,
    VERSION, Xid, flavor,
};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, words};

/// Header of an RPC call, in front of the arguments.
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
    /// Identity of the caller.
    pub credential: Credential<'a>,
    /// Verifier that proves the credential.
    pub verifier: Auth<'a>,
}

/// Header of a call of procedure 0 without an identity (AUTH_NONE twice): the parts in which such
/// headers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullHeader {
    /// Names the call; its reply has the same.
    pub xid: Xid,
    /// The program called.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

impl NullHeader {
    /// The header at the start of `message`, if that is such a call. Octets after it are ignored
    /// (RFC 5531 §12.1).
    #[inline(always)]
    pub fn of(message: &[u8]) -> Option<Self> {
        let is_it = |[_, kind, rpc_version, _, _, procedure, auth @ ..]: &[u32; 10]| {
            (*procedure, *kind, *rpc_version, *auth)
                == (0, MessageType::Call as u32, VERSION, [0; 4])
        };
        let [xid, _, _, program, version, ..] = Reader::new(message).words_if(is_it)?;
        Some(Self { xid: Xid(xid), program, version })
    }

    /// The header of its reply: success.
    #[inline(always)]
    pub fn reply(self) -> ReplyHeader<'static> {
        ReplyHeader { xid: self.xid, outcome: Outcome::accepted(Accepted::Success) }
    }
}

/// Response to a message that is not a call, or is a call that cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Send nothing: the message is no call, or it names no call to answer.
    Discard,
    /// Answer with this header alone.
    Answer(ReplyHeader<'static>),
}

impl<'a> CallHeader<'a> {
    /// Takes the header of a call; `reader` then is at the arguments.
    ///
    /// A wrong version of RPC is refused with RPC_MISMATCH, regardless of the rest. A credential
    /// that breaks its own rules is refused with AUTH_BADCRED, a verifier that does with
    /// AUTH_BADVERF. A header that ends before either is refused with GARBAGE_ARGS, as is anything
    /// else that cannot be decoded. The server decides if a program exists and if a credential is
    /// good enough.
    #[inline]
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, Refusal> {
        match Self::parse_usual(reader) {
            Some(header) => Ok(header),
            None => Self::parse_any(reader),
        }
    }

    /// The same for the two forms that nearly all calls have, in one piece: AUTH_NONE twice, or
    /// AUTH_SYS followed by AUTH_NONE. Nothing is taken of any other call.
    #[inline]
    pub fn parse_usual(reader: &mut Reader<'a>) -> Option<Self> {
        Self::parse_nobody(reader).or_else(|| Self::parse_user(reader))
    }

    /// The header of a call without an identity: AUTH_NONE twice, in one piece. Nothing is taken of
    /// any other call.
    #[inline(always)]
    pub fn parse_nobody(reader: &mut Reader<'a>) -> Option<Self> {
        let nobody = reader.words_if(|[_, kind, rpc_version, _, _, _, auth @ ..]: &[u32; 10]| {
            (*kind, *rpc_version, *auth) == (MessageType::Call as u32, VERSION, [0; 4])
        });
        let [xid, _, _, program, version, procedure, ..] = nobody?;
        let (credential, verifier) = (Credential::None, Auth::NONE);
        Some(Self { xid: Xid(xid), program, version, procedure, credential, verifier })
    }

    /// The header of a UNIX user's call. Each part is split off the octets in front of it with one
    /// check. The general way finds the fault of a header that this one rejects. Nothing is taken
    /// of any other call.
    #[inline(never)]
    pub fn parse_user(reader: &mut Reader<'a>) -> Option<Self> {
        let (front, rest) = reader.here().split_first_chunk::<32>()?;
        let [xid, kind, rpc_version, program, version, procedure, flavor, len] = words(front);
        if (kind, rpc_version, flavor) != (MessageType::Call as u32, VERSION, flavor::SYS) {
            return None;
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= Auth::BODY_MAX)?;
        let (body, rest) = rest.split_at_checked(len)?;
        // Without padding, the length of a body follows from its number of groups and is a multiple
        // of four.
        let (verifier, arguments) = rest.split_first_chunk::<8>()?;
        if *verifier != [0; 8] {
            return None;
        }
        let credential = Credential::Sys(AuthSys::parse_body(body)?);
        reader.go_on(arguments);
        let (xid, verifier) = (Xid(xid), Auth::NONE);
        Some(Self { xid, program, version, procedure, credential, verifier })
    }

    #[inline(never)]
    fn parse_any(reader: &mut Reader<'a>) -> Result<Self, Refusal> {
        let Ok((xid, MessageType::Call)) = MessageType::peek(reader) else {
            // RFC 5531 §9 [5531-17]: a message too short, or not a call, gets no answer
            return Err(Refusal::Discard);
        };
        let refuse = |outcome| Refusal::Answer(ReplyHeader { xid, outcome });
        let garbage = |_: Error| refuse(Outcome::accepted(Accepted::GarbageArgs));
        let auth = |status| refuse(Outcome::Denied(Denied::AuthError(status)));
        let [_, _, rpc_version] = reader.words().map_err(garbage)?;
        // RFC 5531 §8.1 [5531-7]: another RPC version gets RPC_MISMATCH
        if rpc_version != VERSION {
            return Err(refuse(Outcome::Denied(Denied::RpcMismatch {
                low: VERSION,
                high: VERSION,
            })));
        }
        let [program, version, procedure] = reader.words().map_err(garbage)?;
        Ok(Self {
            xid,
            program,
            version,
            procedure,
            // RFC 5531 §9 [5531-19]: a malformed credential gets AUTH_BADCRED
            credential: Credential::parse(reader).map_err(|_| auth(AuthStatus::BAD_CREDENTIAL))?,
            verifier: Auth::parse(reader).map_err(|_| auth(AuthStatus::BAD_VERIFIER))?,
        })
    }

    /// Writes the header; the arguments follow it.
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        // RFC 8167 §5.1 [8167-4]: a reverse call says CALL
        // draft 002 §5.1 [bidir-4]: a reverse call says CALL
        let call = MessageType::Call as u32;
        let Self { program, version, procedure, .. } = *self;
        if self.credential == Credential::None && self.verifier == Auth::NONE {
            return writer
                .words([self.xid.0, call, VERSION, program, version, procedure, 0, 0, 0, 0]);
        }
        self.emit_any(writer)
    }

    #[inline(never)]
    fn emit_any(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        let call = MessageType::Call as u32;
        let Self { program, version, procedure, .. } = *self;
        writer.words([self.xid.0, call, VERSION, program, version, procedure])?;
        self.credential.emit(writer)?;
        self.verifier.emit(writer)
    }

    /// The header of a reply to this call, with AUTH_NONE for a verifier.
    pub const fn reply(&self, status: Accepted) -> ReplyHeader<'static> {
        // RFC 5531 §9 [5531-13]: a reply has the XID of its call
        ReplyHeader { xid: self.xid, outcome: Outcome::accepted(status) }
    }

    /// The header of a reply that denies this call.
    pub const fn deny(&self, denied: Denied) -> ReplyHeader<'static> {
        ReplyHeader { xid: self.xid, outcome: Outcome::Denied(denied) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Gids;
    use crate::xdr::Piece;
    use std::vec::Vec;

    fn header() -> CallHeader<'static> {
        let gids = Gids::new(&[10, 20]).unwrap();
        CallHeader {
            xid: Xid(0x0102_0304),
            program: 100_003,
            version: 3,
            procedure: 1,
            credential: Credential::Sys(AuthSys {
                stamp: 5,
                machine_name: b"node-7",
                uid: 6,
                gid: 7,
                gids,
            }),
            verifier: Auth::NONE,
        }
    }

    fn wire(header: &CallHeader<'_>) -> Vec<u8> {
        let mut out = std::vec![0xee; 1024];
        let mut writer = Writer::new(&mut out);
        header.emit(&mut writer).unwrap();
        let len = writer.len();
        out.truncate(len);
        out
    }

    /// Reads a header, and shows that the general way returns the same header and rest.
    fn parse(octets: &[u8]) -> Result<CallHeader<'_>, Refusal> {
        let (mut reader, mut general) = (Reader::new(octets), Reader::new(octets));
        let parsed = CallHeader::parse(&mut reader);
        assert_eq!(parsed, CallHeader::parse_any(&mut general), "{octets:?}");
        if parsed.is_ok() {
            assert_eq!(reader.here(), general.here(), "{octets:?}");
        }
        parsed
    }

    fn answer(outcome: Outcome<'static>) -> Result<CallHeader<'static>, Refusal> {
        Err(Refusal::Answer(ReplyHeader { xid: header().xid, outcome }))
    }

    fn denied(status: AuthStatus) -> Result<CallHeader<'static>, Refusal> {
        answer(Outcome::Denied(Denied::AuthError(status)))
    }

    #[test]
    fn a_call_without_credential_has_these_octets() {
        let header = CallHeader { credential: Credential::None, ..header() };
        #[rustfmt::skip]
        let expected = [
            1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 2, // XID, CALL, version 2
            0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 1, // NFS, version 3, GETATTR
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(wire(&header), expected);
        assert_eq!(parse(&expected), Ok(header));
    }

    #[test]
    fn a_call_survives_a_round_trip_and_leaves_its_arguments() {
        let mut octets = wire(&header());
        octets.extend([0, 0, 0, 9]);
        let mut reader = Reader::new(&octets);
        assert_eq!(CallHeader::parse(&mut reader), Ok(header()));
        assert_eq!(reader.u32(), Ok(9));
        assert_eq!(reader.finish(), Ok(()));
        for room in 0..octets.len() - 4 {
            assert_eq!(header().emit(&mut Writer::new(&mut octets.clone()[..room])), Err(NoRoom));
        }
    }

    #[test]
    fn every_cut_gets_the_answer_that_names_what_is_missing() {
        let octets = wire(&header());
        for cut in 0..octets.len() {
            let expected = match cut {
                0..8 => Err(Refusal::Discard),
                8..24 => answer(Outcome::accepted(Accepted::GarbageArgs)),
                _ if cut < octets.len() - 8 => denied(AuthStatus::BAD_CREDENTIAL),
                _ => denied(AuthStatus::BAD_VERIFIER),
            };
            assert_eq!(parse(&octets[..cut]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_a_call_is_discarded() {
        for kind in [1, 2, u32::MAX] {
            let mut octets = wire(&header());
            octets[4..8].copy_from_slice(&kind.to_be_bytes());
            assert_eq!(parse(&octets), Err(Refusal::Discard), "message type {kind}");
        }
    }

    #[test]
    fn another_version_of_rpc_is_a_mismatch_whatever_follows() {
        let mismatch = answer(Outcome::Denied(Denied::RpcMismatch { low: 2, high: 2 }));
        for version in [0, 1, 3, u32::MAX] {
            let mut octets = wire(&header());
            octets[8..12].copy_from_slice(&version.to_be_bytes());
            assert_eq!(parse(&octets), mismatch, "version {version}");
            assert_eq!(parse(&octets[..12]), mismatch, "version {version} and nothing else");
        }
    }

    #[test]
    fn a_credential_that_lies_about_itself_is_bad() {
        let octets = wire(&header());
        let word = |at: usize, value: u32| {
            let mut changed = octets.clone();
            changed[at..at + 4].copy_from_slice(&value.to_be_bytes());
            changed
        };
        // The credential's length, the machine name's length and the number of groups.
        for at in [28, 36, 56] {
            for value in [401, u32::MAX - 1, u32::MAX] {
                assert_eq!(
                    parse(&word(at, value)),
                    denied(AuthStatus::BAD_CREDENTIAL),
                    "{value} at {at}"
                );
            }
        }
        assert_eq!(parse(&word(octets.len() - 4, 401)), denied(AuthStatus::BAD_VERIFIER));
    }

    #[test]
    fn no_change_of_a_bit_does_harm() {
        let octets = wire(&header());
        for bit in 0..octets.len() * 8 {
            let mut changed = octets.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            match parse(&changed) {
                Ok(header) => assert_eq!(parse(&wire(&header)), Ok(header), "bit {bit}"),
                Err(Refusal::Discard) => {
                    assert!((32..64).contains(&bit), "only the message type, not bit {bit}")
                }
                Err(Refusal::Answer(reply)) => assert_eq!(reply.xid, header().xid, "bit {bit}"),
            }
        }
    }

    #[test]
    fn users_of_every_form_are_read_the_usual_way() {
        let (name, gids) = ([b'm'; 255], [9; 16]);
        for (groups, letters) in (0..=16).flat_map(|groups| (0..=255).map(move |n| (groups, n))) {
            let (machine_name, gids) = (&name[..letters], Gids::new(&gids[..groups]).unwrap());
            let user = AuthSys { stamp: 5, machine_name, uid: 6, gid: 7, gids };
            let header = CallHeader { credential: Credential::Sys(user), ..header() };
            let mut octets = wire(&header);
            octets.extend([0, 0, 0, 9]);
            assert_eq!(CallHeader::parse_user(&mut Reader::new(&octets)), Some(header));
            assert_eq!(parse(&octets), Ok(header));
        }
    }

    #[test]
    fn every_octet_of_a_user_is_judged_as_by_the_general_way() {
        let octets = wire(&header());
        for at in 0..octets.len() {
            for value in 0..=255 {
                let mut changed = octets.clone();
                changed[at] = value;
                let _ = parse(&changed); // which compares
            }
        }
    }

    #[test]
    fn a_user_in_several_pieces_is_read_the_general_way() {
        let octets = wire(&header());
        for cut in (0..=octets.len()).step_by(4) {
            let (front, back) = octets.split_at(cut);
            let pieces = [Piece::Inline(front), Piece::Inline(back), Piece::Inline(&[0, 0, 0, 9])];
            let (mut reader, mut general) = (Reader::over(&pieces), Reader::over(&pieces));
            let parsed = CallHeader::parse(&mut reader);
            assert_eq!(parsed, CallHeader::parse_any(&mut general), "cut at {cut}");
            assert_eq!(reader.remaining(), general.remaining(), "cut at {cut}");
            assert!(parsed == Ok(header()) || (0..octets.len()).contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn answers_carry_the_xid_of_the_call() {
        assert_eq!(header().reply(Accepted::Success).xid, header().xid);
        assert_eq!(header().deny(Denied::AuthError(AuthStatus::TOO_WEAK)).xid, header().xid);
    }
}
