//! Credentials and verifiers (RFC 5531 §8.2, §10, Appendix A).

use core::fmt;

use super::gss::GssService;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, padded, words};

/// The numbers of the flavors (`auth_flavor`, RFC 5531 §8.2).
pub mod flavor {
    /// No identity (AUTH_NONE).
    pub const NONE: u32 = 0;
    /// A UNIX user and its groups, as claimed by the caller (AUTH_SYS).
    pub const SYS: u32 = 1;
    /// Short form that a server issued in place of AUTH_SYS (AUTH_SHORT).
    pub const SHORT: u32 = 2;
    /// Diffie-Hellman (AUTH_DH).
    pub const DH: u32 = 3;
    /// GSS-API (RPCSEC_GSS, RFC 2203).
    pub const GSS: u32 = 6;
    /// Asks for TLS (AUTH_TLS, RFC 9289).
    pub const TLS: u32 = 7;
}

/// A credential or a verifier as it is on the wire (`opaque_auth`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// One of [`flavor`], or another.
    pub flavor: u32,
    /// Body, in the format of the flavor, at most [`Auth::BODY_MAX`] octets.
    pub body: &'a [u8],
}

impl Auth<'_> {
    /// Octets of the longest body (RFC 5531 §8.2).
    pub const BODY_MAX: usize = 400;
    /// AUTH_NONE, with nothing in it.
    // RFC 5531 §10.1 [5531-22]: the body of AUTH_NONE is empty
    pub const NONE: Self = Self { flavor: flavor::NONE, body: &[] };
}

impl<'a> Codec<'a> for Auth<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 5531 §8.2 [5531-18]: a credential or verifier has at most 400 octets
        Ok(Self { flavor: reader.u32()?, body: reader.opaque(Self::BODY_MAX)? })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(
            self.body.len() <= Self::BODY_MAX,
            "an authentication body is at most 400 octets"
        );
        if self.body.is_empty() {
            return writer.words([self.flavor, 0]);
        }
        writer.u32(self.flavor)?;
        writer.opaque(self.body)
    }
}

/// Identity of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// No identity. A body is ignored, for its meaning is undefined (RFC 5531 §10.1).
    None,
    /// A UNIX user.
    Sys(AuthSys<'a>),
    /// Another flavor.
    Other(Auth<'a>),
    /// A user that a context of RPCSEC_GSS proves. The server's end of the context puts it in place
    /// of the credential that the call had: it is never read from a message, nor written to one. By
    /// reference, as headers of all calls are copied, and most of them have another credential.
    Proven(&'a ProvenUser<'a>),
}

/// A user that a context of RPCSEC_GSS proves (RFC 2203).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenUser<'a> {
    /// Stands for the principal.
    pub identity: PrincipalId,
    /// The principal, as in `alice@REALM`; empty where only its identity was kept.
    pub principal: &'a str,
    /// Protection of this call.
    pub service: GssService,
    /// The user of the server's host that the principal maps to; `None` if it maps to none.
    pub unix: Option<UnixUser>,
}

/// Stands for a principal: the same for the same name, on every host and after every restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrincipalId(pub [u8; 16]);

impl PrincipalId {
    /// 64 bits of it that are none of [`PrincipalId::short`], never all zero.
    pub fn mark(self) -> u64 {
        let [_, _, _, _, a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) | 1 << 63
    }

    /// An identity of which only the first 32 bits are known: it is no principal's.
    pub const fn from_short(bits: u32) -> Self {
        let [a, b, c, d] = bits.to_be_bytes();
        Self([a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    /// Its first 32 bits.
    pub const fn short(self) -> u32 {
        let Self([a, b, c, d, ..]) = self;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Debug for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrincipalId({:032x})", u128::from_be_bytes(self.0))
    }
}

/// A UNIX user with its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixUser {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// Its other groups, the first 16.
    pub gids: Gids,
}

impl<'a> Codec<'a> for Credential<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let auth = Auth::parse(reader)?;
        match auth.flavor {
            // RFC 5531 §10 [5531-21]: the flavor AUTH_NONE is always available
            flavor::NONE => Ok(Self::None),
            flavor::SYS => {
                let mut body = Reader::new(auth.body);
                let sys = AuthSys::parse(&mut body)?;
                body.finish().map(|()| Self::Sys(sys))
            }
            _ => Ok(Self::Other(auth)),
        }
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::None => Auth::NONE.emit(writer),
            Self::Sys(sys) => {
                writer.words([flavor::SYS, sys.wire_len()])?;
                sys.emit(writer)
            }
            Self::Other(auth) => {
                debug_assert!(
                    !matches!(auth.flavor, flavor::NONE | flavor::SYS),
                    "a flavor has one form"
                );
                auth.emit(writer)
            }
            Self::Proven(_) => {
                debug_assert!(false, "it stands for a credential that was on the wire");
                Err(NoRoom)
            }
        }
    }
}

/// A UNIX user, as claimed by the caller (`authsys_parms`, RFC 5531 Appendix A).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// Anything.
    pub stamp: u32,
    /// The caller's host, at most [`AuthSys::MACHINE_NAME_MAX`] octets.
    pub machine_name: &'a [u8],
    /// The user.
    pub uid: u32,
    /// His first group.
    pub gid: u32,
    /// His other groups.
    pub gids: Gids,
}

impl<'a> AuthSys<'a> {
    /// Octets of the longest machine name (RFC 5531 Appendix A).
    pub const MACHINE_NAME_MAX: usize = 255;

    /// The user if `body` consists of valid parameters; `None` if they break a rule, which
    /// [`Codec::parse`] names.
    #[inline]
    pub(super) fn parse_body(body: &'a [u8]) -> Option<Self> {
        let (front, rest) = body.split_first_chunk::<8>()?;
        let [stamp, name_len] = words(front);
        let name_len = usize::try_from(name_len).ok()?;
        if name_len > Self::MACHINE_NAME_MAX {
            return None;
        }
        let (name, rest) = rest.split_at_checked(padded(name_len))?;
        let (ids, groups) = rest.split_first_chunk::<12>()?;
        let [uid, gid, count] = words(ids);
        let gids = Gids::parse_all(count, groups)?;
        Some(Self { stamp, machine_name: name.get(..name_len)?, uid, gid, gids })
    }

    /// Octets of the body.
    pub fn wire_len(&self) -> u32 {
        let len = 4 + 4 + padded(self.machine_name.len()) + 4 + 4 + 4 + self.gids.list().len() * 4;
        u32::try_from(len).expect("the name is at most 255 octets, the groups are at most 16")
    }
}

impl<'a> Codec<'a> for AuthSys<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self {
            stamp: reader.u32()?,
            machine_name: reader.opaque(Self::MACHINE_NAME_MAX)?,
            uid: reader.u32()?,
            gid: reader.u32()?,
            gids: Gids::parse(reader)?,
        })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(
            self.machine_name.len() <= Self::MACHINE_NAME_MAX,
            "a machine name is at most 255 octets"
        );
        let name_len = u32::try_from(self.machine_name.len()).map_err(|_| NoRoom)?;
        writer.words([self.stamp, name_len])?;
        writer.fixed(self.machine_name)?;
        writer.words([self.uid, self.gid])?;
        self.gids.emit(writer)
    }
}

impl fmt::Debug for AuthSys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.machine_name.escape_ascii();
        write!(
            f,
            "AuthSys(\"{name}\", uid {}, gid {}, gids {:?})",
            self.uid,
            self.gid,
            self.gids.list()
        )
    }
}

/// Up to 16 groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gids {
    len: u8,
    /// Zero past `len`, so that equal lists are equal in memory.
    list: [u32; Self::MAX],
}

impl Gids {
    /// Groups of the longest list (RFC 5531 Appendix A).
    pub const MAX: usize = 16;

    /// These groups; `None` when there are more than [`Gids::MAX`].
    pub fn new(gids: &[u32]) -> Option<Self> {
        let mut all = Self { len: u8::try_from(gids.len()).ok()?, list: [0; Self::MAX] };
        all.list.get_mut(..gids.len())?.copy_from_slice(gids);
        Some(all)
    }

    /// The `count` groups that `octets` are.
    #[inline]
    fn parse_all(count: u32, octets: &[u8]) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        let (groups, rest) = octets.as_chunks();
        if count > Self::MAX || groups.len() != count || !rest.is_empty() {
            return None;
        }
        let mut gids = Self { len: count as u8, ..Self::default() };
        for (gid, octets) in gids.list.iter_mut().zip(groups) {
            *gid = u32::from_be_bytes(*octets);
        }
        Some(gids)
    }

    /// The groups.
    pub fn list(&self) -> &[u32] {
        self.list.get(..usize::from(self.len)).expect("`new` and `parse` check the length")
    }
}

impl Codec<'_> for Gids {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        // RFC 4506 §4.13 [4506-15]: a variable-length array is a count and that many elements
        let len = u8::try_from(reader.u32()?).map_err(|_| Error::TooLong)?;
        let mut gids = Self { len, ..Self::default() };
        // RFC 5531 §A [5531-28]: an AUTH_SYS body has at most 16 groups
        for gid in gids.list.get_mut(..usize::from(gids.len)).ok_or(Error::TooLong)? {
            *gid = reader.u32()?;
        }
        Ok(gids)
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(u32::from(self.len))?;
        self.list().iter().try_for_each(|gid| writer.u32(*gid))
    }
}

/// Reason for which a caller was not authenticated (`auth_stat`, RFC 5531 §9). IANA may add more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AuthStatus(pub u32);

impl AuthStatus {
    /// The credential is malformed (AUTH_BADCRED).
    pub const BAD_CREDENTIAL: Self = Self(1);
    /// The caller must begin a new session (AUTH_REJECTEDCRED).
    pub const REJECTED_CREDENTIAL: Self = Self(2);
    /// The verifier is malformed (AUTH_BADVERF).
    pub const BAD_VERIFIER: Self = Self(3);
    /// The verifier is expired or replayed (AUTH_REJECTEDVERF).
    pub const REJECTED_VERIFIER: Self = Self(4);
    /// The flavor is not strong enough, or not supported: the caller may try another
    /// (AUTH_TOOWEAK).
    pub const TOO_WEAK: Self = Self(5);
    /// The reply's verifier is bogus (AUTH_INVALIDRESP).
    pub const INVALID_RESPONSE: Self = Self(6);
    /// Some other reason (AUTH_FAILED).
    pub const FAILED: Self = Self(7);
    /// RPCSEC_GSS has no credentials for the user (RPCSEC_GSS_CREDPROBLEM).
    pub const GSS_CREDENTIAL_PROBLEM: Self = Self(13);
    /// RPCSEC_GSS has a problem with the context (RPCSEC_GSS_CTXPROBLEM).
    pub const GSS_CONTEXT_PROBLEM: Self = Self(14);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec;

    const USER: AuthSys<'static> = AuthSys {
        stamp: 1,
        machine_name: b"host",
        uid: 2,
        gid: 3,
        gids: Gids { len: 0, list: [0; 16] },
    };

    #[test]
    fn a_unix_user_has_these_octets() {
        let user = AuthSys { gids: Gids::new(&[4, 5]).unwrap(), ..USER };
        let wire = survives!(Credential::Sys(user), Credential<'_>);
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 1, 0, 0, 0, 32, // AUTH_SYS, octets of the body
            0, 0, 0, 1, 0, 0, 0, 4, b'h', b'o', b's', b't',
            0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 5,
        ];
        assert_eq!(wire, expected);
    }

    #[test]
    fn every_credential_survives_a_round_trip() {
        assert_eq!(survives!(Credential::None, Credential<'_>), [0; 8]);
        for body in [&b""[..], b"abc", &[7; 400]] {
            survives!(Credential::Other(Auth { flavor: flavor::GSS, body }), Credential<'_>);
        }
        for groups in 0..=16 {
            let gids = Gids::new(&vec![9; groups]).unwrap();
            survives!(
                Credential::Sys(AuthSys { gids, machine_name: &[b'm'; 255], ..USER }),
                Credential<'_>
            );
        }
    }

    #[test]
    fn more_than_16_groups_are_none_of_ours() {
        assert_eq!(Gids::new(&[9; 17]), None);
        for count in [17, 255, 256, u32::MAX] {
            let mut wire = vec![0; 4 * 300];
            wire[..4].copy_from_slice(&count.to_be_bytes());
            assert_eq!(Gids::parse(&mut Reader::new(&wire)), Err(Error::TooLong), "{count} groups");
        }
    }

    #[test]
    fn a_long_name_a_long_body_and_octets_behind_the_groups_are_refused() {
        let mut wire = vec![0; 1024]; // what follows the item in question is fine
        let mut writer = Writer::new(&mut wire);
        writer.u32(flavor::SYS).unwrap();
        writer.opaque(&[0; 24]).unwrap(); // AuthSys takes 20
        assert_eq!(Credential::parse(&mut Reader::new(&wire)), Err(Error::Trailing));

        let mut writer = Writer::new(&mut wire);
        writer.u32(1).unwrap();
        writer.opaque(&[b'm'; 256]).unwrap();
        assert_eq!(AuthSys::parse(&mut Reader::new(&wire)), Err(Error::TooLong));

        let mut writer = Writer::new(&mut wire);
        writer.u32(flavor::GSS).unwrap();
        writer.opaque(&[0; 401]).unwrap();
        assert_eq!(Credential::parse(&mut Reader::new(&wire)), Err(Error::TooLong));
    }

    #[test]
    fn a_body_of_auth_none_means_nothing() {
        let wire = [0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4];
        assert_eq!(Credential::parse(&mut Reader::new(&wire)), Ok(Credential::None));
    }
}
