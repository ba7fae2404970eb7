//! Arguments and results under protection: `rpc_gss_integ_data`, `rpc_gss_priv_data` and
//! `rpc_gss_data_t` (RFC 2203 §5.3.2).
//!
//! Readers split a body into the octets that the mechanism covers and its checksum. Bodies are
//! written in place by the mechanism (`stag-gss`), which knows the room around its tokens.

use core::fmt;
use core::ops::Range;

use super::CHECKSUM_MAX;
use crate::xdr::{Error, Reader};

/// Octets in front of arguments with integrity: length and sequence number.
pub const INTEGRITY_FRONT: usize = 8;
/// Octets in front of a token with privacy: its length.
pub const PRIVACY_FRONT: usize = 4;

/// Reason for which a protected body is no such body. A server answers each with GARBAGE_ARGS and
/// with a verifier (RFC 2203 §5.3.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GssBodyFault {
    /// The body is not the XDR of its service, or octets follow it.
    Xdr(Error),
    /// The inner sequence number is not that of the credential.
    Sequence,
}

impl fmt::Display for GssBodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xdr(error) => write!(f, "protected body: {error}"),
            Self::Sequence => f.write_str("the sequence numbers of header and body differ"),
        }
    }
}

impl core::error::Error for GssBodyFault {}

impl From<Error> for GssBodyFault {
    fn from(error: Error) -> Self {
        Self::Xdr(error)
    }
}

/// The arguments or results of `data` (`rpc_gss_data_t`), if it has this sequence number.
pub fn split_sequence(data: &[u8], sequence: u32) -> Result<&[u8], GssBodyFault> {
    let (inner, rest) = data.split_first_chunk().ok_or(Error::Short)?;
    // RFC 2203 §5.3.3.1 [2203-19]: inner and outer sequence number are the same
    if u32::from_be_bytes(*inner) != sequence {
        return Err(GssBodyFault::Sequence);
    }
    Ok(rest)
}

/// Arguments or results with integrity (`rpc_gss_integ_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntegrityBody<'a> {
    /// Octets that the checksum covers: sequence number, and arguments or results.
    pub signed: &'a [u8],
    /// Checksum, at most [`CHECKSUM_MAX`] octets.
    pub checksum: &'a [u8],
}

impl<'a> IntegrityBody<'a> {
    /// Splits the body that is all of the unread rest.
    pub fn parse(mut rest: Reader<'a>) -> Result<Self, GssBodyFault> {
        // RFC 2203 §5.3.2.2 [2203-16]: the signed octets and the checksum are two opaque items
        let signed = rest.opaque(u32::MAX as usize)?;
        let checksum = rest.opaque(CHECKSUM_MAX)?;
        rest.finish()?;
        Ok(Self { signed, checksum })
    }

    /// The arguments or results, if the inner sequence number is the given one.
    pub fn arguments(&self, sequence: u32) -> Result<&'a [u8], GssBodyFault> {
        split_sequence(self.signed, sequence)
    }
}

/// Arguments or results with privacy (`rpc_gss_priv_data`): a token that holds `rpc_gss_data_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivacyBody<'a> {
    /// Token of the mechanism.
    pub token: &'a [u8],
}

impl<'a> PrivacyBody<'a> {
    /// Splits the body that is all of the unread rest.
    pub fn parse(mut rest: Reader<'a>) -> Result<Self, GssBodyFault> {
        // RFC 2203 §5.3.2.3 [2203-17]: a private body is one opaque token
        let token = rest.opaque(u32::MAX as usize)?;
        rest.finish()?;
        Ok(Self { token })
    }

    /// Range of the token in `body`, for a mechanism that decrypts in place.
    pub fn range(body: &[u8]) -> Result<Range<usize>, GssBodyFault> {
        let PrivacyBody { token } = PrivacyBody::parse(Reader::new(body))?;
        Ok(PRIVACY_FRONT..PRIVACY_FRONT.saturating_add(token.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::padded;
    use std::vec::Vec;

    fn integrity(arguments: &[u8], checksum: &[u8]) -> Vec<u8> {
        let signed = [&7_u32.to_be_bytes()[..], arguments].concat();
        [signed, checksum.to_vec()].iter().flat_map(|octets| opaque(octets)).collect()
    }

    fn opaque(octets: &[u8]) -> Vec<u8> {
        let mut wire = [&(octets.len() as u32).to_be_bytes()[..], octets].concat();
        wire.resize(padded(wire.len()), 0);
        wire
    }

    #[test]
    fn a_body_with_integrity_has_these_octets() {
        let wire = integrity(b"argument", b"MIC");
        assert_eq!(wire, *b"\0\0\0\x0c\0\0\0\x07argument\0\0\0\x03MIC\0");
        let body = IntegrityBody::parse(Reader::new(&wire)).unwrap();
        assert_eq!((body.signed, body.checksum), (&b"\0\0\0\x07argument"[..], &b"MIC"[..]));
        assert_eq!(body.arguments(7), Ok(&b"argument"[..]));
        assert_eq!(body.arguments(8), Err(GssBodyFault::Sequence));
    }

    #[test]
    fn no_cut_and_no_addition_is_a_body_with_integrity() {
        for len in [0, 4, 8, 100] {
            let mut wire = integrity(&std::vec![1; len], &[2; 28]);
            for cut in 0..wire.len() {
                assert!(IntegrityBody::parse(Reader::new(&wire[..cut])).is_err(), "cut at {cut}");
            }
            wire.push(0);
            let parsed = IntegrityBody::parse(Reader::new(&wire));
            assert_eq!(parsed, Err(GssBodyFault::Xdr(Error::Trailing)));
        }
        let wire = integrity(&[], &[2; 28]);
        for at in [0, 8] {
            for len in [401, u32::MAX - 4, u32::MAX - 3, u32::MAX] {
                let mut changed = wire.clone();
                changed[at..at + 4].copy_from_slice(&len.to_be_bytes());
                assert!(IntegrityBody::parse(Reader::new(&changed)).is_err(), "{len} at {at}");
            }
        }
    }

    #[test]
    fn data_without_a_sequence_number_is_short() {
        for len in 0..4 {
            assert_eq!(split_sequence(&[0; 4][..len], 0), Err(Error::Short.into()));
        }
        assert_eq!(split_sequence(&[0; 4], 0), Ok(&[][..]));
    }

    #[test]
    fn a_body_with_privacy_has_these_octets() {
        let wire = opaque(b"a token of 23 octets...");
        assert_eq!(wire.len(), 28, "padded");
        assert_eq!(PrivacyBody::parse(Reader::new(&wire)).unwrap().token.len(), 23);
        assert_eq!(PrivacyBody::range(&wire), Ok(4..27));
        for cut in 0..wire.len() {
            assert!(PrivacyBody::range(&wire[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [&wire[..], &[0]].concat();
        assert_eq!(PrivacyBody::range(&longer), Err(GssBodyFault::Xdr(Error::Trailing)));
    }
}
