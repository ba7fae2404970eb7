//! The server's side of TLS: its certificate, and the requirement of client certificates (RFC 9289
//! §4.2).

use crate::{
    Current, KernelTls, PROTOCOL, TlsError, TlsIdentity, TlsSession, VERSIONS, cryptography,
    files::authorities,
};
use rustls::{
    CipherSuite, ServerConfig, ServerConnection,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use std::{path::PathBuf, sync::Arc};

/// The files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate and its key.
    pub identity: TlsIdentity,
    /// Authorities whose certificates clients have to present; none: clients present no
    /// certificate.
    pub client_authorities: Option<PathBuf>,
}

/// TLS as offered by a server, for all of its shards.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    is_required: bool,
    kernel: Option<&'static dyn KernelTls>,
    config: Current<ServerConfig>,
}

impl ServerTls {
    /// Makes the configuration from these files. With `is_required`, all calls without TLS are
    /// refused.
    ///
    /// # Errors
    /// If a file cannot be read, or is invalid.
    pub fn open(files: ServerFiles, is_required: bool) -> Result<Self, TlsError> {
        Self::open_with(files, is_required, None)
    }

    /// The same; `kernel` takes over established sessions.
    ///
    /// # Errors
    /// As [`ServerTls::open`].
    pub fn open_with(
        files: ServerFiles,
        is_required: bool,
        kernel: Option<&'static dyn KernelTls>,
    ) -> Result<Self, TlsError> {
        let config = Current::new(config(&files, kernel.is_some())?);
        Ok(Self { files, is_required, kernel, config })
    }

    /// Reads the files again for later sessions; established ones continue. Nothing changes if a
    /// file is invalid.
    ///
    /// # Errors
    /// As [`ServerTls::open`].
    pub fn reload(&self) -> Result<(), TlsError> {
        self.config.replace(Arc::new(config(&self.files, self.kernel.is_some())?));
        Ok(())
    }

    /// Uses the configuration of `other` for later sessions; established ones continue. Both have
    /// to agree on whether TLS is required, whether clients present a certificate, and whether the
    /// kernel takes over sessions, because these were reported at the start.
    pub fn follow(&self, other: &Self) {
        debug_assert!(
            self.is_required == other.is_required
                && self.asks_for_certificates() == other.asks_for_certificates()
                && self.kernel.is_some() == other.kernel.is_some(),
            "what is told of it stays true"
        );
        self.config.replace(other.config.get());
    }

    /// Returns true if calls without TLS are refused.
    pub const fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns true if clients have to present a certificate.
    pub const fn asks_for_certificates(&self) -> bool {
        self.files.client_authorities.is_some()
    }

    /// A session that waits for its client.
    ///
    /// # Errors
    /// As `rustls` reports; none is known.
    pub fn session(&self) -> Result<TlsSession, TlsError> {
        let session = TlsSession::new(ServerConnection::new(self.config.get())?.into());
        Ok(if self.kernel.is_some() { session.by_record() } else { session })
    }

    /// The kernel, if it takes over sessions.
    pub const fn kernel(&self) -> Option<&'static dyn KernelTls> {
        self.kernel
    }
}

fn config(files: &ServerFiles, for_kernel: bool) -> Result<ServerConfig, TlsError> {
    let (certificates, key) = files.identity.read()?;
    let mut provider = cryptography();
    if for_kernel {
        // The ciphers that every kernel with TLS has.
        let gcm = [CipherSuite::TLS13_AES_256_GCM_SHA384, CipherSuite::TLS13_AES_128_GCM_SHA256];
        Arc::make_mut(&mut provider).cipher_suites.retain(|suite| gcm.contains(&suite.suite()));
    }
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(VERSIONS)?;
    let builder = match &files.client_authorities {
        Some(path) => {
            let roots = Arc::new(authorities(path)?);
            // RFC 9289 §5.2.1 [9289-29]: the client's chain is verified as RFC 5280 says
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, cryptography())
                .build()
                .map_err(|error| TlsError::new(format!("{}: {error}", path.display())))?;
            // RFC 9289 §5 [9289-20]: both sides can prove themselves by certificates
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(certificates, key)
        .map_err(|error| files.identity.mismatch(&error))?;
    // RFC 9289 §5 [9289-23]: the answer names sunrpc alone
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // No tickets: a kernel that took over the session does not handle handshake messages, and a
    // resumed session would keep the authorities that were valid when it began.
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = for_kernel;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // RFC 9289 §6 [9289-33]: no 0-RTT data
    config.max_early_data_size = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::authority::Authority;

    /// Early data would come with a ticket, and there are none: from outside nothing differs.
    #[test]
    fn no_early_data_are_taken() {
        let config = config(&Authority::new().server(), false).unwrap();
        assert_eq!((config.max_early_data_size, config.send_tls13_tickets), (0, 0));
    }
}
