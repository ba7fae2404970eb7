//! The TLS session of one connection (RFC 8446): decrypts octets read from a socket, and encrypts
//! octets to send.

use crate::{
    PROTOCOL, SessionKeys, TlsError,
    names::{self, NamesHash},
};
use rustls::Connection;
use sha2::{Digest, Sha256};
use std::{
    fmt,
    fmt::Write as _,
    io::{self, IoSlice, Read, Write},
};

/// Octets that a peer may send during the handshake: enough for a chain of certificates.
pub const HANDSHAKE_MAX: usize = 128 << 10;
/// Minimum size of a read, even if fewer octets are wanted. The surplus, never more than a record,
/// stays in the session until it is wanted.
const READ_MIN: usize = 4 << 10;

/// Octets in front of a record's content; the last two are its length (RFC 8446 §5.1).
const HEADER_LEN: usize = 5;

/// Maximum of octets that are encrypted before they are sent.
pub const SEALED_MAX: usize = 64 << 10;

/// One session.
pub struct TlsSession {
    connection: Connection,
    /// Octets that the peer may still send during the handshake.
    patience: usize,
    /// Decrypted octets may be left that the caller had no room for.
    may_have_more: bool,
    /// The peer has closed the session, and the caller was notified of that.
    is_over: bool,
    is_end_told: bool,
    /// The handshake is read record by record, so that nothing after it is read.
    records: Option<RecordEnd>,
}

/// The distance to the end of a record.
#[derive(Clone, Copy, Debug, Default)]
struct RecordEnd {
    header: [u8; HEADER_LEN],
    /// Octets of the header that have arrived.
    came: usize,
    /// Octets of the content that are missing, once the header is complete.
    left: usize,
}

impl RecordEnd {
    /// Octets that may be read without reading past a record.
    const fn wanted(self) -> usize {
        if self.left > 0 { self.left } else { HEADER_LEN - self.came }
    }

    /// Counts octets that were read, at most the wanted number.
    fn note(&mut self, octets: &[u8]) {
        if self.left > 0 {
            self.left = self.left.saturating_sub(octets.len());
            return;
        }
        for (place, octet) in self.header.iter_mut().skip(self.came).zip(octets) {
            *place = *octet;
        }
        self.came += octets.len();
        if let ([_, _, _, high, low], HEADER_LEN..) = (self.header, self.came) {
            *self = Self { left: u16::from_be_bytes([high, low]).into(), ..Self::default() };
        }
    }
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("is_handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// The result of one read of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Octets of the peer.
    pub len: usize,
    /// Octets that were read from the socket.
    pub read: usize,
    /// The socket was read and filled the whole request: there may be more.
    pub is_whole: bool,
    /// The peer has closed its side.
    pub is_over: bool,
}

/// Facts about an established session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The cipher suite.
    pub suite: String,
    /// The SHA-256 fingerprint of the peer's certificate, if it showed one.
    pub certificate: Option<String>,
    /// The hash of the names in it, which stays the same when it is renewed.
    pub names: Option<NamesHash>,
    /// The peer named the protocol (RFC 9289 §5).
    pub names_protocol: bool,
    /// The kernel reads and writes its records.
    pub in_kernel: bool,
}

impl TlsSession {
    pub(crate) fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_MAX));
        let (may_have_more, is_over, is_end_told) = (false, false, false);
        let records = None;
        Self { connection, patience: HANDSHAKE_MAX, may_have_more, is_over, is_end_told, records }
    }

    /// The same, but reads nothing past the handshake before that is complete.
    pub(crate) fn by_record(mut self) -> Self {
        self.records = Some(RecordEnd::default());
        self
    }

    /// Ends the session here and returns its keys, so that the kernel can continue it.
    ///
    /// # Errors
    /// If it is not established, or if it is a client's session.
    pub fn into_keys(self) -> Result<SessionKeys, TlsError> {
        match self.connection {
            Connection::Server(connection) => {
                Ok(SessionKeys::new(connection.dangerous_extract_secrets()?))
            }
            Connection::Client(_) => Err(TlsError::from("a client's session stays where it is")),
        }
    }

    /// Returns true until the handshake is complete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Returns true if [`receive`](Self::receive) has a result without reading the socket, for
    /// which no event of the socket comes.
    pub const fn has_more(&self) -> bool {
        self.may_have_more || self.is_over && !self.is_end_told
    }

    /// Reads at most once from a non-blocking socket into `plain`; `cipher` is room for the
    /// ciphertext. Surplus octets of earlier reads are returned first, without a read.
    ///
    /// # Errors
    /// If the peer broke a rule of TLS, failed to authenticate, or sent too much before: the
    /// session is over, and has an alert to send. An error of the socket is inside [`Ok`].
    pub fn receive(
        &mut self,
        socket: &mut impl Read,
        cipher: &mut [u8],
        plain: &mut [u8],
    ) -> Result<io::Result<Intake>, TlsError> {
        let len = self.take_plain(plain);
        if len > 0 || self.is_over {
            return Ok(Ok(self.intake(len)));
        }
        let records = self.records.filter(|_| self.is_handshaking());
        let wanted = plain.len().max(READ_MIN).min(cipher.len());
        let wanted = records.map_or(wanted, |records| wanted.min(records.wanted()));
        let cipher = cipher.split_at_mut(wanted).0;
        let read = match socket.read(cipher) {
            Ok(0) => {
                self.is_over = true;
                return Ok(Ok(self.intake(0)));
            }
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        if self.is_handshaking() {
            self.patience = self
                .patience
                .checked_sub(read)
                .ok_or_else(|| TlsError::new("the peer's handshake is too long"))?;
        }
        if let Some(records) = &mut self.records {
            records.note(cipher.get(..read).unwrap_or_default());
        }
        let len = self.feed(cipher.get(..read).unwrap_or_default(), plain)?;
        Ok(Ok(Intake { read, is_whole: read == wanted, ..self.intake(len) }))
    }

    /// The result of a read of `len` octets. The end is reported after the last of them.
    const fn intake(&mut self, len: usize) -> Intake {
        let is_over = self.is_over && len == 0;
        self.is_end_told |= is_over;
        Intake { len, read: 0, is_whole: false, is_over }
    }

    /// Decrypts `cipher`, and returns what fits in `plain`.
    fn feed(&mut self, mut cipher: &[u8], plain: &mut [u8]) -> Result<usize, TlsError> {
        let mut len = 0;
        while !cipher.is_empty() && !self.is_over {
            let taken = self.connection.read_tls(&mut cipher);
            taken
                .map_err(|error| TlsError::new(format!("octets that cannot be taken: {error}")))?;
            let state = self.connection.process_new_packets()?;
            len += self.take_plain(plain.get_mut(len..).unwrap_or_default());
            self.is_over = state.peer_has_closed();
        }
        Ok(len)
    }

    /// Returns decrypted octets of the peer.
    fn take_plain(&mut self, plain: &mut [u8]) -> usize {
        let mut len = 0;
        self.may_have_more = true;
        while let Some(room) = plain.get_mut(len..).filter(|room| !room.is_empty()) {
            match self.connection.reader().read(room) {
                Ok(0) | Err(_) => {
                    self.may_have_more = false;
                    break;
                }
                Ok(taken) => len += taken,
            }
        }
        len
    }

    /// Encrypts as much of `parts` as fits before octets have to be sent; returns the number of
    /// octets.
    pub fn encrypt(&mut self, parts: &[IoSlice<'_>]) -> usize {
        // Only a finished session accepts none.
        self.connection.writer().write_vectored(parts).unwrap_or(0)
    }

    /// Returns true if there are octets to send.
    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends once; returns the number of octets.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        self.connection.write_tls(socket)
    }

    /// Queues a closure alert for the peer.
    // RFC 9289 §5.1.1 [9289-25]: a closure alert ends the session
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Facts about the session, once it is established.
    pub fn secured(&self) -> Secured {
        let suite = self.connection.negotiated_cipher_suite();
        let suite = suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()));
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        Secured {
            suite,
            certificate: certificate.map(|certificate| fingerprint(certificate)),
            names: certificate.map(|certificate| names::hash_of(certificate)),
            names_protocol: self.connection.alpn_protocol() == Some(PROTOCOL),
            in_kernel: false,
        }
    }
}

/// SHA-256 in hexadecimal digits, as tools print it.
fn fingerprint(octets: &[u8]) -> String {
    let mut text = String::new();
    for octet in Sha256::digest(octets) {
        let _ = write!(text, "{octet:02x}");
    }
    text
}
