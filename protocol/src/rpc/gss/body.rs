//! Arguments and results under protection: `rpc_gss_integ_data`, `rpc_gss_priv_data` and
//! `rpc_gss_data_t` (RFC 2203 §5.3.2).
//!
//! Readers split a body into the octets that the mechanism covers and its checksum. Frames write a
//! body in place: room in front, then arguments or results by the caller, then the end.

use core::fmt;
use core::ops::Range;

use super::CHECKSUM_MAX;
use crate::xdr::{Error, NoRoom, Reader, Writer, padded};

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

/// A body with integrity that is being written.
#[derive(Debug)]
#[must_use = "a body is whole after `finish`"]
pub struct IntegrityFrame {
    at: usize,
}

impl IntegrityFrame {
    /// Leaves room for the length, and writes the sequence number. Arguments or results follow.
    pub fn begin(writer: &mut Writer<'_>, sequence: u32) -> Result<Self, NoRoom> {
        let at = writer.len();
        writer.words([0, sequence])?;
        Ok(Self { at })
    }

    /// The octets to sign that `writer` has.
    pub fn signed<'w>(&self, writer: &'w Writer<'_>) -> &'w [u8] {
        writer.written().get(self.at.saturating_add(4)..).unwrap_or_default()
    }

    /// Writes the length and the checksum. `elsewhere` octets of the signed part are not in
    /// `writer`: data that goes out from another buffer, between head and checksum.
    pub fn finish(
        self,
        writer: &mut Writer<'_>,
        elsewhere: usize,
        checksum: &[u8],
    ) -> Result<(), NoRoom> {
        debug_assert!(checksum.len() <= CHECKSUM_MAX, "a checksum is as short as a verifier");
        let signed = self.signed(writer).len().saturating_add(elsewhere);
        debug_assert!(signed.is_multiple_of(4), "XDR has words");
        // RFC 2203 §5.3.2.2 [2203-16]: the signed octets and the checksum are two opaque items
        writer.patch_u32(self.at, u32::try_from(signed).map_err(|_| NoRoom)?)?;
        writer.opaque(checksum)
    }
}

/// A body with privacy that is being written.
#[derive(Debug)]
#[must_use = "a body is whole after `finish`"]
pub struct PrivacyFrame {
    at: usize,
}

impl PrivacyFrame {
    /// Leaves room for the length and for the `front` octets of a token that come before its
    /// plaintext, and writes the sequence number. Arguments or results follow.
    pub fn begin(writer: &mut Writer<'_>, front: usize, sequence: u32) -> Result<Self, NoRoom> {
        debug_assert!(front.is_multiple_of(4), "the sequence number is a word");
        let at = writer.len();
        if writer.room() < PRIVACY_FRONT.saturating_add(front).saturating_add(4) {
            return Err(NoRoom);
        }
        writer.u32(0)?;
        writer.advance(front)?;
        writer.u32(sequence)?;
        Ok(Self { at })
    }

    /// Writes the length, and leaves room for the `back` octets of the token that follow its
    /// plaintext. Returns where the token is among the written octets, for sealing in place.
    pub fn finish(self, writer: &mut Writer<'_>, back: usize) -> Result<Range<usize>, NoRoom> {
        let start = self.at.saturating_add(PRIVACY_FRONT);
        let end = writer.len().checked_add(back).ok_or(NoRoom)?;
        let len = end.checked_sub(start).ok_or(NoRoom)?;
        if padded(back) > writer.room() {
            return Err(NoRoom);
        }
        writer.advance(back)?;
        // RFC 2203 §5.3.2.3 [2203-17]: a private body is one opaque token
        writer.patch_u32(self.at, u32::try_from(len).map_err(|_| NoRoom)?)?;
        Ok(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn integrity(arguments: &[u8], checksum: &[u8]) -> Vec<u8> {
        let mut out = std::vec![0xee; 1024];
        let mut writer = Writer::new(&mut out);
        let frame = IntegrityFrame::begin(&mut writer, 7).unwrap();
        writer.fixed(arguments).unwrap();
        assert_eq!(frame.signed(&writer)[..4], [0, 0, 0, 7]);
        frame.finish(&mut writer, 0, checksum).unwrap();
        writer.written().to_vec()
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
    fn data_in_another_buffer_counts() {
        let mut out = [0; 64];
        let mut writer = Writer::new(&mut out);
        let frame = IntegrityFrame::begin(&mut writer, 1).unwrap();
        frame.finish(&mut writer, 4096, &[]).unwrap();
        assert_eq!(writer.written(), [0, 0, 16, 4, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_body_with_privacy_leaves_room_around_its_plaintext() {
        let mut out = [0xee; 64];
        let mut writer = Writer::new(&mut out);
        let frame = PrivacyFrame::begin(&mut writer, 8, 9).unwrap();
        writer.fixed(b"data").unwrap();
        let token = frame.finish(&mut writer, 7).unwrap();
        assert_eq!(token, 4..4 + 8 + 8 + 7);
        let wire = writer.written();
        assert_eq!(wire[..4], [0, 0, 0, 23]);
        assert_eq!(wire[12..20], *b"\0\0\0\x09data");
        assert_eq!(wire.len(), 28, "padded");
        assert_eq!(PrivacyBody::parse(Reader::new(wire)).unwrap().token.len(), 23);
        assert_eq!(PrivacyBody::range(wire), Ok(token));
        for cut in 0..wire.len() {
            assert!(PrivacyBody::range(&wire[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [wire, &[0]].concat();
        assert_eq!(PrivacyBody::range(&longer), Err(GssBodyFault::Xdr(Error::Trailing)));
    }

    #[test]
    fn too_little_room_is_an_error_and_not_a_panic() {
        for room in 0..28 {
            let mut out = [0; 28];
            let mut writer = Writer::new(&mut out[..room]);
            let done = PrivacyFrame::begin(&mut writer, 8, 9).and_then(|frame| {
                writer.fixed(b"data").and_then(|()| frame.finish(&mut writer, 7))
            });
            assert_eq!(done, Err(NoRoom), "{room}");
            let mut writer = Writer::new(&mut out[..room.min(15)]);
            let done = IntegrityFrame::begin(&mut writer, 9)
                .and_then(|frame| frame.finish(&mut writer, 0, &[1; 4]));
            assert_eq!(done, Err(NoRoom), "{room}");
        }
    }
}
