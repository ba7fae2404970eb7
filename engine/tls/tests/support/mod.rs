//! A test's own certification authority, with its files in a temporary directory.
#![allow(dead_code)] // Each test takes what it needs.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use stag_tls::{ClientFiles, ServerFiles, TlsIdentity};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};
use tempfile::TempDir;

/// An authority, and the files of the certificates that it issued.
pub struct Authority {
    pub directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Some verifiers take a certificate for self-signed if its subject equals its issuer's.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { directory, issuer };
        fs::write(authority.certificate(), pem("CERTIFICATE", authority.issuer.der())).unwrap();
        authority
    }

    /// The file with its certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("authority.pem")
    }

    /// Issues a certificate for `names` (hosts and addresses), in the files `file`.
    pub fn certify(&self, file: &str, names: &[&str]) -> TlsIdentity {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let signed = params.signed_by(&pair, &self.issuer).unwrap();
        let path = |end: &str| self.directory.path().join(format!("{file}.{end}"));
        let (certificate, key) = (path("crt"), path("key"));
        fs::write(&certificate, pem("CERTIFICATE", signed.der())).unwrap();
        fs::write(&key, pem("PRIVATE KEY", &pair.serialize_der())).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        TlsIdentity { certificate, key }
    }

    /// A server on 127.0.0.1, also called `host.test`.
    pub fn server(&self) -> ServerFiles {
        let identity = self.certify("server", &["127.0.0.1", "host.test"]);
        ServerFiles { identity, client_authorities: None }
    }

    /// A client that trusts this authority and presents no certificate.
    pub fn client(&self) -> ClientFiles {
        ClientFiles { authorities: self.certificate(), identity: None, server_name: None }
    }
}

/// A file of one object (RFC 7468).
fn pem(label: &str, octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in octets.chunks(48) {
        for group in line.chunks(3) {
            let word = group.iter().fold(0_usize, |word, octet| word << 8 | usize::from(*octet));
            let word = word << (8 * (3 - group.len()));
            for place in 0..4 {
                let digit = DIGITS[word >> (18 - 6 * place) & 63];
                text.push(if place <= group.len() { digit as char } else { '=' });
            }
        }
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
