//! The TLS session of one connection (RFC 8446): ciphertext of a socket becomes octets of the peer,
//! and octets of ours become ciphertext.

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

/// Octets that a peer may send before the handshake is over: a chain of certificates, and more.
pub const HANDSHAKE_MAX: usize = 128 << 10;
/// Octets that are read at least, however few are wanted: what they bring beyond stays inside until
/// it is wanted, which is never more than a record.
const READ_MIN: usize = 4 << 10;

/// Octets in front of a record's content, of which the last two say how long that is (RFC 8446
/// §5.1).
const HEADER_LEN: usize = 5;

/// Octets that are encrypted before they are sent, at most.
pub const SEALED_MAX: usize = 64 << 10;

/// One session.
pub struct TlsSession {
    connection: Connection,
    /// Octets that the peer may still send before the handshake is over.
    patience: usize,
    /// Decrypted octets may be left that nobody had room for.
    may_have_more: bool,
    /// The peer said that nothing more comes, and whether that was told.
    is_over: bool,
    is_end_told: bool,
    /// The handshake is read record by record, so that nothing of what is behind it is.
    records: Option<RecordEnd>,
}

/// The way to the end of a record.
#[derive(Clone, Copy, Debug, Default)]
struct RecordEnd {
    header: [u8; HEADER_LEN],
    /// Octets of the header that came.
    came: usize,
    /// Octets of the content that did not come, once the header did.
    left: usize,
}

impl RecordEnd {
    /// Octets that may be read without reading beyond a record.
    const fn wanted(self) -> usize {
        if self.left > 0 { self.left } else { HEADER_LEN - self.came }
    }

    /// So many octets were read as were wanted at most.
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

/// Octets that a look at a connection brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Intake {
    /// Octets of the peer.
    pub len: usize,
    /// Octets that were read from the socket.
    pub read: usize,
    /// The socket was asked, and had all that was asked for: there may be more.
    pub is_whole: bool,
    /// The peer sends nothing more.
    pub is_over: bool,
}

/// Facts about a session that stands.
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

    /// The same, but reads nothing of what is behind the handshake before that is over.
    pub(crate) fn by_record(mut self) -> Self {
        self.records = Some(RecordEnd::default());
        self
    }

    /// Ends the session here, so that somebody else goes on with it.
    ///
    /// # Errors
    /// It does not stand, or is not one that somebody else may take over.
    pub fn into_keys(self) -> Result<SessionKeys, TlsError> {
        match self.connection {
            Connection::Server(connection) => {
                Ok(SessionKeys::new(connection.dangerous_extract_secrets()?))
            }
            Connection::Client(_) => Err(TlsError::from("a client's session stays where it is")),
        }
    }

    /// True until both sides have proved what they have to.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// True if [`receive`](Self::receive) has something to give without the socket: whoever waits
    /// for the socket alone would never hear of it.
    pub const fn has_more(&self) -> bool {
        self.may_have_more || self.is_over && !self.is_end_told
    }

    /// Reads from a socket that does not block, once at most, into `plain`; `cipher` is room for
    /// what is read. Octets that were read before and not wanted come first, and alone.
    ///
    /// # Errors
    /// The peer broke a rule of TLS, proved nothing, or sent too much before: the session is over,
    /// and has something to send that tells the peer. An error of the socket is [`Ok`] inside.
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

    /// An intake of `len` octets. The end is told behind the last of them.
    const fn intake(&mut self, len: usize) -> Intake {
        let is_over = self.is_over && len == 0;
        self.is_end_told |= is_over;
        Intake { len, read: 0, is_whole: false, is_over }
    }

    /// Decrypts `cipher`, and gives what fits `plain`.
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

    /// Gives octets of the peer that were decrypted.
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

    /// Encrypts as much of `parts` as there is room for before something is sent; returns the
    /// number of octets.
    pub fn encrypt(&mut self, parts: &[IoSlice<'_>]) -> usize {
        // Only a session that is over takes none.
        self.connection.writer().write_vectored(parts).unwrap_or(0)
    }

    /// True if there is something to send.
    pub fn wants_send(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends once; returns the number of octets.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&mut self, socket: &mut impl Write) -> io::Result<usize> {
        self.connection.write_tls(socket)
    }

    /// Has the peer told that nothing more comes.
    // RFC 9289 §5.1.1 [9289-25]: a closure alert ends the session
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Facts about the session, once it stands.
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
