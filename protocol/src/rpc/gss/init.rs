//! Creation of a context: arguments and results (RFC 2203 §5.2.2, §5.2.3).

use super::HANDLE_MAX;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// Arguments of INIT and CONTINUE_INIT (`rpc_gss_init_arg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitArguments<'a> {
    /// Token of the mechanism, at most [`InitArguments::TOKEN_MAX`] octets.
    pub token: &'a [u8],
}

impl InitArguments<'_> {
    /// Octets of the longest token. Tickets of directories that list a user's groups have up to 64
    /// KiB.
    pub const TOKEN_MAX: usize = 65_536;
}

impl<'a> Codec<'a> for InitArguments<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 2203 §5.2.2 [2203-5]: a creation request's arguments are one token
        Ok(Self { token: reader.opaque(Self::TOKEN_MAX)? })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(self.token.len() <= Self::TOKEN_MAX, "a token is at most 64 KiB");
        writer.opaque(self.token)
    }
}

/// Major status of a GSS-API call (RFC 2203, Appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MajorStatus(pub u32);

impl MajorStatus {
    /// The context is complete.
    pub const COMPLETE: Self = Self(0);
    /// The peer has to send another token.
    pub const CONTINUE_NEEDED: Self = Self(1);
    /// The call failed for a reason that the minor status names.
    pub const FAILURE: Self = Self(13 << 16);
    /// The acceptor has no credentials.
    pub const NO_CRED: Self = Self(7 << 16);
    /// The token is defective.
    pub const DEFECTIVE_TOKEN: Self = Self(9 << 16);

    /// Returns true if the creation of a context has failed.
    pub const fn is_failure(self) -> bool {
        self.0 > Self::CONTINUE_NEEDED.0
    }
}

/// Results of INIT and CONTINUE_INIT (`rpc_gss_init_res`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitResults<'a> {
    /// Name of the context; of no meaning after a failure, and then sent empty.
    pub handle: &'a [u8],
    /// The acceptor's major status.
    pub major: MajorStatus,
    /// The mechanism's status.
    pub minor: u32,
    /// Sequence numbers that the server remembers.
    pub window: u32,
    /// Token for the initiator, at most [`InitArguments::TOKEN_MAX`] octets.
    pub token: &'a [u8],
}

impl<'a> InitResults<'a> {
    /// Results of a creation that failed. `token` is the mechanism's error message, if there is
    /// one: a client learns of a wrong clock by it. RFC 2203 §5.2.3.1 wants it empty; servers and
    /// clients of Kerberos send it all the same.
    pub const fn failed(major: MajorStatus, minor: u32, token: &'a [u8]) -> Self {
        // RFC 2203 §5.2.3.1 [2203-8]: after a failure there is no handle
        Self { handle: &[], major, minor, window: 0, token }
    }
}

impl<'a> Codec<'a> for InitResults<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        // RFC 2203 §5.2.3.1 [2203-7]: handle, major, minor, window, token
        let handle = reader.opaque(HANDLE_MAX)?;
        let [major, minor, window] = reader.words()?;
        let token = reader.opaque(InitArguments::TOKEN_MAX)?;
        Ok(Self { handle, major: MajorStatus(major), minor, window, token })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        debug_assert!(self.handle.len() <= HANDLE_MAX, "a handle is at most 32");
        writer.opaque(self.handle)?;
        writer.words([self.major.0, self.minor, self.window])?;
        writer.opaque(self.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec;

    #[test]
    fn arguments_are_one_token() {
        let wire = survives!(InitArguments { token: b"abcde" }, InitArguments<'_>);
        assert_eq!(wire, *b"\0\0\0\x05abcde\0\0\0");
        survives!(InitArguments { token: &[] }, InitArguments<'_>);
    }

    #[test]
    fn results_have_these_octets() {
        let results = InitResults {
            handle: &[1, 2],
            major: MajorStatus::COMPLETE,
            minor: 3,
            window: 128,
            token: &[4; 4],
        };
        let wire = survives!(results, InitResults<'_>);
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 128, 0, 0, 0, 4, 4, 4, 4, 4,
        ];
        assert_eq!(wire, expected);
        let failed = InitResults::failed(MajorStatus::FAILURE, 39_756_032, b"KRB-ERROR");
        assert_eq!(survives!(failed, InitResults<'_>)[..8], [0, 0, 0, 0, 0, 0x0d, 0, 0]);
    }

    #[test]
    fn tokens_and_handles_that_are_too_long_are_refused() {
        let mut wire = vec![0; 70_000];
        for len in [65_537_u32, u32::MAX - 3, u32::MAX] {
            wire[..4].copy_from_slice(&len.to_be_bytes());
            let parsed = InitArguments::parse(&mut Reader::new(&wire));
            assert_eq!(parsed, Err(Error::TooLong), "{len}");
            let parsed = InitResults::parse(&mut Reader::new(&wire));
            assert_eq!(parsed, Err(Error::TooLong), "{len}");
        }
        wire[..4].copy_from_slice(&65_536_u32.to_be_bytes());
        assert_eq!(InitArguments::parse(&mut Reader::new(&wire)).unwrap().token.len(), 65_536);
    }

    #[test]
    fn a_status_other_than_complete_and_continue_is_a_failure() {
        assert!(!MajorStatus::COMPLETE.is_failure() && !MajorStatus::CONTINUE_NEEDED.is_failure());
        for status in [MajorStatus::FAILURE, MajorStatus::NO_CRED, MajorStatus::DEFECTIVE_TOKEN] {
            assert!(status.is_failure());
        }
    }
}
