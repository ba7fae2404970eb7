//! RPC-with-TLS (RFC 9289): certificates from files, and the TLS session of one TCP connection.
//!
//! Only this crate uses `rustls`. It has no socket and no clock: the caller passes [`TlsSession`] a
//! reader and a writer. The engine decides when a session begins, which calls may travel without
//! one, and how long a handshake may take (`engine/src/stream/tls.rs`).
//!
//! | file | content |
//! |---|---|
//! | `server.rs` | [`ServerTls`]: a server's certificate, and the authorities of its clients |
//! | `client.rs` | [`ClientTls`]: a client's trusted authorities, and its certificate |
//! | `session.rs` | [`TlsSession`]: octets in and out |
//! | `names.rs` | names in a certificate, which stay the same when it is renewed |
//! | `kernel.rs` | [`KernelTls`]: sessions that the kernel takes over |
//! | `files.rs` | PEM files |
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod authority;
// The name by which tests outside of this crate know it.
#[cfg(test)]
extern crate self as stag_tls;

mod client;
mod files;
mod kernel;
mod names;
mod server;
mod session;

pub use client::{ClientFiles, ClientTls, TlsProbe};
pub use files::TlsIdentity;
pub use kernel::{ALERT, CLOSE_NOTIFY, DirectionKey, KernelTls, SessionKeys};
pub use names::NamesHash;
pub use server::{ServerFiles, ServerTls};
pub use session::{HANDSHAKE_MAX, Intake, SEALED_MAX, Secured, TlsSession};

use rustls::crypto::CryptoProvider;
use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// The ALPN identifier of RPC (RFC 9289 §7.2).
pub const PROTOCOL: &[u8] = b"sunrpc";

/// A failure of TLS set-up or of a session: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl TlsError {
    /// An error with this sentence.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

impl From<&'static str> for TlsError {
    fn from(sentence: &'static str) -> Self {
        Self(sentence.to_owned())
    }
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self(error.to_string())
    }
}

/// The cryptography of all sessions.
fn cryptography() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Versions of TLS.
// RFC 9289 §5 [9289-19]: no version of TLS before 1.3
const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The configuration of new sessions, which can be replaced.
#[derive(Debug)]
struct Current<C>(RwLock<Arc<C>>);

impl<C> Current<C> {
    fn new(config: C) -> Self {
        Self(RwLock::new(Arc::new(config)))
    }

    fn get(&self) -> Arc<C> {
        // A panic elsewhere leaves a valid configuration, which is replaced in one step.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, config: Arc<C>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}
