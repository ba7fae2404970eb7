//! The frame of Kerberos' context tokens (RFC 4121 §4.1), and KRB-ERROR (RFC 4120 §5.9.1) as far
//! as its code and its times. The acceptor checks each frame here, before the library sees a token.
#![forbid(unsafe_code)]

use crate::{abi::MECHANISM, time::KerberosTime};

/// Kinds of context tokens (RFC 4121 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Request,
    Reply,
    Error,
}

/// `[APPLICATION 14]`, the tag of an AP-REQ (RFC 4120 §5.5.1).
const AP_REQ: u8 = 0x6e;

/// Returns true if a token has the frame of Kerberos 5, and one whole element in it that may be an
/// AP-REQ: all others are refused by an acceptor at once.
#[must_use]
pub fn is_request(token: &[u8]) -> bool {
    let request = split(token).filter(|(kind, _)| *kind == TokenKind::Request);
    let element = request.and_then(|(_, message)| element(message, AP_REQ));
    element.is_some_and(|(_, rest)| rest.is_empty())
}

/// Splits a token of the Kerberos 5 mechanism into its kind and its message. None for tokens of
/// other mechanisms (SPNEGO, NTLM), without a frame, or of another length than their frame gives.
pub(crate) fn split(token: &[u8]) -> Option<(TokenKind, &[u8])> {
    let (framed, rest) = element(token, 0x60)?;
    let (mechanism, framed) = element(framed, 0x06)?;
    if !rest.is_empty() || mechanism != MECHANISM {
        return None;
    }
    let (kind, message) = framed.split_first_chunk()?;
    let kind = match kind {
        [1, 0] => TokenKind::Request,
        [2, 0] => TokenKind::Reply,
        [3, 0] => TokenKind::Error,
        _ => return None,
    };
    Some((kind, message))
}

/// The parts of a KRB-ERROR that help to find its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KrbError {
    /// The error code (RFC 4120 §7.5.9).
    pub code: u32,
    /// The clock of the server that made it.
    pub server_time: KerberosTime,
    /// The client's clock, if the server repeats it. MIT's acceptor leaves it out.
    pub client_time: Option<KerberosTime>,
}

impl KrbError {
    /// Reads a token with a KRB-ERROR; None if it is anything else.
    #[must_use]
    pub fn parse(token: &[u8]) -> Option<Self> {
        let (TokenKind::Error, message) = split(token)? else { return None };
        let (sequence, _) = element(message, 0x7e)?;
        let (mut fields, _) = element(sequence, 0x30)?;
        let (mut client_time, mut server_time, mut code) = (None, None, None);
        // Tags of context, constructed: [0] to [12], in this order.
        while let Some(tag) = fields.first().copied() {
            let (field, rest) = element(fields, tag)?;
            match tag {
                0xa2 => client_time = Some(KerberosTime::parse(element(field, 0x18)?.0)?),
                0xa4 => server_time = Some(KerberosTime::parse(element(field, 0x18)?.0)?),
                0xa6 => code = Some(small_integer(element(field, 0x02)?.0)?),
                _ => {}
            }
            fields = rest;
        }
        Some(Self { code: code?, server_time: server_time?, client_time })
    }
}

/// A positive integer of at most four octets.
fn small_integer(octets: &[u8]) -> Option<u32> {
    let is_small = matches!(octets.len(), 1..=4) && octets.first()? & 0x80 == 0;
    is_small.then(|| octets.iter().fold(0, |number, octet| number << 8 | u32::from(*octet)))
}

/// Takes a DER element with this tag of one octet from the front: its content, and the rest.
fn element(octets: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let ([first, len], rest) = octets.split_first_chunk()?;
    if *first != tag {
        return None;
    }
    let (len, rest) = match *len {
        short @ 0..=0x7f => (usize::from(short), rest),
        // Two octets are enough for all tokens that are accepted, three for any of 16 MiB.
        long @ 0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(long - 0x80))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DER element.
    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let len = content.len();
        let mut octets = vec![tag];
        match len {
            0..0x80 => octets.push(len as u8),
            _ => octets.extend([0x82, (len >> 8) as u8, len as u8]),
        }
        octets.extend(content);
        octets
    }

    fn framed(kind: [u8; 2], message: &[u8]) -> Vec<u8> {
        der(0x60, &[&der(0x06, MECHANISM), &kind[..], message].concat())
    }

    fn error(fields: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let fields: Vec<u8> =
            fields.iter().flat_map(|(number, field)| der(0xa0 + number, field)).collect();
        framed([3, 0], &der(0x7e, &der(0x30, &fields)))
    }

    fn skew() -> Vec<u8> {
        error(&[
            (0, der(2, &[5])),
            (1, der(2, &[30])),
            (2, der(0x18, b"20261201120000Z")),
            (4, der(0x18, b"20261201154207Z")),
            (5, der(2, &[1, 2, 3])),
            (6, der(2, &[37])),
            (9, der(0x1b, b"STAG.TEST")),
            (10, der(0x30, &[0; 200])),
        ])
    }

    #[test]
    fn an_error_token_is_read_as_its_code_and_both_clocks() {
        let error = KrbError::parse(&skew()).unwrap();
        assert_eq!(error.code, 37);
        assert_eq!(error.server_time.to_string(), "2026-12-01 15:42:07 UTC");
        assert_eq!(error.client_time.unwrap().to_string(), "2026-12-01 12:00:00 UTC");
        let short =
            super::tests::error(&[(4, der(0x18, b"20261201154207Z")), (6, der(2, &[0, 0x80]))]);
        let short = KrbError::parse(&short).unwrap();
        assert_eq!((short.code, short.client_time), (128, None));
    }

    #[test]
    fn errors_without_a_code_or_a_clock_are_none() {
        for fields in [
            vec![(6, der(2, &[37]))],
            vec![(4, der(0x18, b"20261201154207Z"))],
            vec![(4, der(0x18, b"20261301154207Z")), (6, der(2, &[37]))],
            vec![(4, der(0x18, b"20261201154207Z")), (6, der(2, &[0x80]))],
            vec![(4, der(0x18, b"20261201154207Z")), (6, der(2, &[1; 5]))],
        ] {
            assert_eq!(KrbError::parse(&error(&fields)), None, "{fields:?}");
        }
        assert_eq!(KrbError::parse(&framed([2, 0], b"reply")), None);
    }

    #[test]
    fn every_cut_token_is_none_and_no_changed_octet_panics() {
        let token = skew();
        for len in 0..token.len() {
            assert_eq!(split(&token[..len]), None, "{len}");
            assert_eq!(KrbError::parse(&token[..len]), None, "{len}");
        }
        for at in 0..token.len() {
            for value in 0..=255 {
                let mut changed = token.clone();
                changed[at] = value;
                let _ = KrbError::parse(&changed);
            }
        }
    }

    #[test]
    fn a_request_is_one_element_and_no_more() {
        let request = framed([1, 0], &der(0x6e, &[7; 300]));
        assert!(is_request(&request));
        for len in 0..request.len() {
            assert!(!is_request(&request[..len]), "{len}");
        }
        let more = [&der(0x6e, &[7; 300])[..], &[0]].concat();
        for other in [framed([1, 0], &more), framed([2, 0], &der(0x6e, b"")), framed([1, 0], b"")] {
            assert!(!is_request(&other));
        }
    }

    #[test]
    fn only_frames_of_kerberos_5_are_split() {
        assert_eq!(split(&framed([1, 0], b"ap-req")), Some((TokenKind::Request, &b"ap-req"[..])));
        assert_eq!(split(&framed([2, 0], &[7; 900])), Some((TokenKind::Reply, &[7; 900][..])));
        assert_eq!(split(&framed([1, 1], b"")), None, "no such kind");
        assert_eq!(split(&[&framed([1, 0], b"x")[..], b"y"].concat()), None, "more than the frame");
        let spnego = der(0x60, &[&der(0x06, &[0x2b, 6, 1, 5, 5, 2])[..], b"\x01\x00"].concat());
        assert_eq!(split(&spnego), None);
        assert_eq!(split(b"\x60\x84\xff\xff\xff\xff"), None);
        assert_eq!(split(b"\x60\x80"), None);
    }
}
