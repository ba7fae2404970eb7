//! Certificates and keys in PEM files.

use crate::TlsError;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Octets of the longest file accepted: one with thousands of certificates.
const FILE_MAX: u64 = 16 << 20;
/// The read permission of other users.
const READ_BY_OTHERS: u32 = 0o004;

/// The files of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate, followed by its intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl TlsIdentity {
    /// Reads both files.
    pub(crate) fn read(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        Ok((certificates(&self.certificate)?, key(&self.key)?))
    }

    /// The error of a key that does not match its certificate, or is of an unknown kind.
    pub(crate) fn mismatch(&self, error: &rustls::Error) -> TlsError {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        TlsError::new(format!(
            "{certificate} and {key} are no certificate and its key: {error}; give the key that \
             the certificate was made for (RSA, ECDSA or Ed25519)"
        ))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error: std::io::Error| {
        TlsError::new(format!("cannot read {}: {error}; give a PEM file", path.display()))
    };
    let facts = fs::metadata(path).map_err(failed)?;
    if facts.len() > FILE_MAX {
        return Err(TlsError::new(format!(
            "{} has {} octets, and a PEM file has {FILE_MAX} at most",
            path.display(),
            facts.len()
        )));
    }
    fs::read(path).map_err(failed)
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let octets = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&octets).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(TlsError::new(format!(
            "{} has no certificate: give a PEM file with BEGIN CERTIFICATE in it",
            path.display()
        ))),
        Err(error) => Err(TlsError::new(format!(
            "{} is no PEM file with certificates: {error}",
            path.display()
        ))),
    }
}

/// The first key of a file that other users cannot read.
fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let octets = read(path)?;
    let mode = fs::metadata(path).map_or(0, |facts| facts.permissions().mode());
    if mode & READ_BY_OTHERS != 0 {
        return Err(TlsError::new(format!(
            "{0} holds a private key and can be read by every user: chmod 600 {0}",
            path.display()
        )));
    }
    PrivateKeyDer::from_pem_slice(&octets).map_err(|error| {
        TlsError::new(format!(
            "{} has no private key: {error}; give a PEM file with BEGIN PRIVATE KEY in it, \
             without a password",
            path.display()
        ))
    })
}

/// The authorities of a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| {
            TlsError::new(format!(
                "{} has a certificate that cannot be an authority's: {error}",
                path.display()
            ))
        })?;
    }
    Ok(roots)
}
