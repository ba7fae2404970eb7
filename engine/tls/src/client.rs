//! The client's side of TLS: trusted authorities, and its own certificate (RFC 9289 §5.2.1).

use crate::{
    Current, PROTOCOL, TlsError, TlsIdentity, TlsSession, VERSIONS, cryptography,
    files::authorities,
};
use rustls::{ClientConfig, ClientConnection, client::Resumption, pki_types::ServerName};
use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

/// The files of a client, and the expected name of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities that may have signed the server's certificate.
    pub authorities: PathBuf,
    /// The client's own certificate, for servers that request one.
    pub identity: Option<TlsIdentity>,
    /// The name in the server's certificate; the default is the address that is called.
    pub server_name: Option<String>,
}

/// The program whose NULL procedure probes a server for TLS. The server has to have it, because a
/// reply for an unknown program may come without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsProbe {
    /// Its number.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

/// TLS for a client that requires it: a server without TLS, or without a valid certificate, is not
/// called.
#[derive(Debug)]
pub struct ClientTls {
    config: Current<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    probe: TlsProbe,
    fault: Mutex<Option<TlsError>>,
}

impl ClientTls {
    /// Makes the configuration from these files; sessions are requested by `probe`.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid, or if the name is invalid.
    pub fn open(files: &ClientFiles, probe: TlsProbe) -> Result<Self, TlsError> {
        let name = |name: &String| {
            ServerName::try_from(name.clone())
                .map_err(|_| TlsError::new(format!("{name:?} is no name of a host")))
        };
        let server_name = files.server_name.as_ref().map(name).transpose()?;
        let config = Current::new(config(files)?);
        Ok(Self { config, server_name, probe, fault: Mutex::new(None) })
    }

    /// The call that requests TLS.
    pub const fn probe(&self) -> TlsProbe {
        self.probe
    }

    /// A session with the server at `to`, which has its first octets to send.
    ///
    /// # Errors
    /// As `rustls` reports; none is known.
    pub fn session(&self, to: IpAddr) -> Result<TlsSession, TlsError> {
        // RFC 9289 §5.2.1 [9289-27]: the name or the address that is called is in the certificate
        let name = self.server_name.clone().unwrap_or_else(|| ServerName::from(to.to_canonical()));
        Ok(TlsSession::new(ClientConnection::new(self.config.get(), name)?.into()))
    }

    /// Records the reason why a session failed.
    pub fn note_fault(&self, fault: TlsError) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    /// Takes the reason why the latest session failed.
    pub fn take_fault(&self) -> Option<TlsError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn config(files: &ClientFiles) -> Result<ClientConfig, TlsError> {
    let roots = authorities(&files.authorities)?;
    let builder = ClientConfig::builder_with_provider(cryptography())
        .with_protocol_versions(VERSIONS)?
        .with_root_certificates(roots);
    let mut config = match &files.identity {
        Some(identity) => {
            let (certificates, key) = identity.read()?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| identity.mismatch(&error))?
        }
        None => builder.with_no_client_auth(),
    };
    // RFC 9289 §5 [9289-22]: a ClientHello names the protocol
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(config)
}
