//! Kernel TLS: the kernel takes over an established session and reads and writes its records. The
//! socket is then used like one without TLS.

use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use std::{fmt, io, os::fd::BorrowedFd};

/// The type of a record that is an alert (RFC 8446 §5.1).
pub const ALERT: u8 = 21;
/// The alert that ends a session (RFC 8446 §6.1): a warning, of number 0.
pub const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// The kernel's TLS. Its calls do not wait.
pub trait KernelTls: fmt::Debug + Send + Sync {
    /// Makes the kernel use `keys` on `socket`.
    ///
    /// # Errors
    /// If the system refuses it: the connection is then unusable.
    fn take_over(&self, socket: BorrowedFd<'_>, keys: &SessionKeys) -> io::Result<()>;

    /// Receives the control record at which a read of `socket` failed with `EIO`; returns its type
    /// and its length.
    ///
    /// # Errors
    /// As the system reports.
    fn receive(&self, socket: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<(u8, usize)>;

    /// Sends a control record of type `kind`.
    ///
    /// # Errors
    /// As the system reports.
    fn send(&self, socket: BorrowedFd<'_>, kind: u8, octets: &[u8]) -> io::Result<()>;

    /// Octets that one key may protect, with 32 octets added for each record. Beyond it, AES-GCM
    /// reveals information to an observer (RFC 8446 §5.5: 2^24.5 full records; this is the power of
    /// two below).
    fn octets_max(&self) -> u64 {
        1 << 38
    }
}

/// The keys of both directions of a session.
pub struct SessionKeys {
    secrets: ExtractedSecrets,
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKeys")
    }
}

/// The AES-GCM key of one direction.
#[derive(Clone, Copy)]
pub struct DirectionKey<'a> {
    /// 16 or 32 octets.
    pub key: &'a [u8],
    /// The initialisation vector (RFC 8446 §5.3).
    pub nonce: &'a [u8; 12],
    /// The sequence number of the next record.
    pub sequence: u64,
}

impl fmt::Debug for DirectionKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectionKey").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl SessionKeys {
    pub(crate) const fn new(secrets: ExtractedSecrets) -> Self {
        Self { secrets }
    }

    /// The key for sending; none for a cipher other than AES-GCM.
    pub fn sent(&self) -> Option<DirectionKey<'_>> {
        direction(self.secrets.tx.0, &self.secrets.tx.1)
    }

    /// The key for receiving; none for a cipher other than AES-GCM.
    pub fn received(&self) -> Option<DirectionKey<'_>> {
        direction(self.secrets.rx.0, &self.secrets.rx.1)
    }
}

fn direction(sequence: u64, secrets: &ConnectionTrafficSecrets) -> Option<DirectionKey<'_>> {
    let (key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (key, iv),
        _ => return None,
    };
    let nonce = iv.as_ref().try_into().ok()?;
    Some(DirectionKey { key: key.as_ref(), nonce, sequence })
}
