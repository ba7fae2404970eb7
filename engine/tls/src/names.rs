//! Names in a certificate (RFC 5280 §4.1): subject and alternative names, which identify a peer
//! even after its certificate is renewed. Called for certificates that were verified.

use sha2::{Digest, Sha256};

/// A hash of the names in a certificate.
pub type NamesHash = [u8; 32];

const SEQUENCE: u8 = 0x30;
const OBJECT_ID: u8 = 0x06;
const OCTETS: u8 = 0x04;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// The OID of subject alternative names: 2.5.29.17.
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 0x11];

/// The hash of a certificate's names; of the whole certificate if it cannot be parsed.
pub fn hash_of(certificate: &[u8]) -> NamesHash {
    let (subject, others) = names(certificate).unwrap_or((certificate, &[]));
    let mut hash = Sha256::new();
    hash.update((subject.len() as u64).to_be_bytes());
    hash.update(subject);
    hash.update(others);
    hash.finalize().into()
}

/// The encoded subject and alternative names.
fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut outer = Elements(certificate);
    let mut signed = Elements(Elements(outer.take(SEQUENCE)?).take(SEQUENCE)?);
    if signed.tag() == Some(VERSION) {
        signed.next()?;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        signed.next()?;
    }
    let subject = signed.take(SEQUENCE)?;
    let others = loop {
        match signed.next() {
            Some((EXTENSIONS, all)) => break alternative_names(all).unwrap_or_default(),
            Some(_) => {}
            None => break &[][..],
        }
    };
    // Without any name, the certificate itself is used.
    (!subject.is_empty() || !others.is_empty()).then_some((subject, others))
}

fn alternative_names(extensions: &[u8]) -> Option<&[u8]> {
    let mut all = Elements(Elements(extensions).take(SEQUENCE)?);
    loop {
        let mut extension = Elements(all.take(SEQUENCE)?);
        let id = extension.take(OBJECT_ID)?;
        while extension.tag()? != OCTETS {
            extension.next()?;
        }
        if id == ALTERNATIVE_NAMES {
            return extension.take(OCTETS);
        }
    }
}

/// Elements of DER, one after the other (X.690 §8.1).
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    fn tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element: its tag and its content.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let len = len.iter().fold(0, |sum, octet| sum << 8 | usize::from(*octet));
                (len, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn certificate(subject: &str, name: &str) -> Vec<u8> {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if !subject.is_empty() {
            params.distinguished_name.push(DnType::CommonName, subject);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_renewed_certificate_has_the_same_hash_and_one_of_other_names_another() {
        let first = certificate("host", "host.test");
        let renewed = certificate("host", "host.test");
        assert_ne!(first, renewed);
        assert_eq!(hash_of(&first), hash_of(&renewed));
        assert_ne!(hash_of(&first), hash_of(&certificate("other", "host.test")));
        assert_ne!(hash_of(&first), hash_of(&certificate("host", "other.test")));
        assert_eq!(
            hash_of(&certificate("", "host.test")),
            hash_of(&certificate("", "host.test")),
            "an alternative name will do"
        );
    }

    #[test]
    fn a_certificate_that_is_cut_anywhere_is_hashed_whole() {
        let whole = certificate("host", "host.test");
        for len in 0..whole.len() {
            let cut = whole.get(..len).unwrap();
            assert_eq!(names(cut), None, "{len}");
            assert_ne!(hash_of(cut), hash_of(&whole));
        }
    }
}
