//! Sessions that the kernel takes over once they stand: from then on it writes and reads their
//! records, and the socket is used as one without TLS.

use rustls::{ConnectionTrafficSecrets, ExtractedSecrets};
use std::{fmt, io, os::fd::BorrowedFd};

/// The type of a record that is an alert (RFC 8446 §5.1).
pub const ALERT: u8 = 21;
/// The alert that says that nothing more comes (RFC 8446 §6.1): a warning, of number 0.
pub const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// TLS of the kernel. Its calls do not wait.
pub trait KernelTls: fmt::Debug + Send + Sync {
    /// Has the kernel do what `keys` are for on `socket`.
    ///
    /// # Errors
    /// As the system refuses it: the connection is of no use any more.
    fn take_over(&self, socket: BorrowedFd<'_>, keys: &SessionKeys) -> io::Result<()>;

    /// Takes the record at which a read of `socket` failed by `EIO`, because it is not data;
    /// returns its type and the number of its octets.
    ///
    /// # Errors
    /// As the system has it.
    fn receive(&self, socket: BorrowedFd<'_>, octets: &mut [u8]) -> io::Result<(u8, usize)>;

    /// Sends a record of type `kind`, which is not data.
    ///
    /// # Errors
    /// As the system has it.
    fn send(&self, socket: BorrowedFd<'_>, kind: u8, octets: &[u8]) -> io::Result<()>;

    /// Octets that one key may protect, those of records around them counted as 32 each. After so
    /// many AES-GCM tells an observer something (RFC 8446 §5.5: 2^24.5 whole records; this is the
    /// power of two below).
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

/// The key of one direction, for AES-GCM.
#[derive(Clone, Copy)]
pub struct DirectionKey<'a> {
    /// 16 or 32 octets.
    pub key: &'a [u8],
    /// The initialisation vector (RFC 8446 §5.3).
    pub nonce: &'a [u8; 12],
    /// The number of the next record.
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

    /// The key of what this side sends; none for another cipher than AES-GCM.
    pub fn sent(&self) -> Option<DirectionKey<'_>> {
        direction(self.secrets.tx.0, &self.secrets.tx.1)
    }

    /// The key of what the peer sends; none for another cipher than AES-GCM.
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
