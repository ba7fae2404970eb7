//! Headers of per-message tokens (RFC 4121 §4.2.2, §4.2.6).

use core::fmt;

use crate::role::GssRole;

/// Octets of a token's header.
pub(crate) const HEADER: usize = 16;

/// Octets of the filler that a token may have at most: none is needed by these enctypes.
pub const EXTRA_MAX: usize = 16;

/// Kind of a token (TOK_ID).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A checksum apart from its message (GSS_GetMIC).
    Mic,
    /// A message that is encrypted (GSS_Wrap with confidentiality).
    Sealed,
}

/// Flags of a token.
mod flag {
    /// Sent by the acceptor.
    pub(super) const ACCEPTOR: u8 = 1;
    /// Encrypted.
    pub(super) const SEALED: u8 = 2;
    /// Protected by the key that the acceptor chose.
    pub(super) const ACCEPTOR_SUBKEY: u8 = 4;
}

/// Reason for which a token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenFault {
    /// The token is shorter than its parts, or longer than a checksum is.
    Length,
    /// The token is of another kind, or its filler octets differ from those of RFC 4121.
    Kind,
    /// The sender's role is our own: one of our tokens, sent back.
    Direction,
    /// The token names a key other than the context's.
    Subkey,
    /// A wrapped message is not encrypted, or a checksum claims to be.
    Confidentiality,
    /// There is more filler than these enctypes use, or than there is message.
    ExtraCount,
    /// The checksum is wrong.
    Checksum,
    /// The copy of the header inside the encrypted part differs from the header.
    HeaderCopy,
}

impl fmt::Display for TokenFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "a token of the wrong length",
            Self::Kind => "a token of another kind",
            Self::Direction => "a token of the wrong direction",
            Self::Subkey => "a token of another key",
            Self::Confidentiality => "a token with the wrong confidentiality",
            Self::ExtraCount => "a token with too much filler",
            Self::Checksum => "a token with a wrong checksum",
            Self::HeaderCopy => "a token with a wrong copy of its header",
        })
    }
}

impl std::error::Error for TokenFault {}

/// Fields of a header that the two ends have to agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TokenForm {
    pub(crate) kind: TokenKind,
    /// The sender.
    pub(crate) sender: GssRole,
    pub(crate) acceptor_subkey: bool,
}

/// Counts in the header of a sealed token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedCounts {
    /// Octets of filler after the message (EC).
    pub(crate) extra: usize,
    /// Octets by which the rest of the token is rotated right (RRC).
    pub(crate) rotation: usize,
}

impl TokenForm {
    /// The header of a token of this form; a sealed one has no filler and no rotation.
    pub(crate) fn emit(self, sequence: u64) -> [u8; HEADER] {
        // RFC 4121 §4.2.2 [4121-3]: flags are the sender, confidentiality and the acceptor's key
        let mut flags = if self.sender == GssRole::Acceptor { flag::ACCEPTOR } else { 0 };
        if self.acceptor_subkey {
            flags |= flag::ACCEPTOR_SUBKEY;
        }
        // RFC 4121 §4.2.6 [4121-10]: tokens begin with 04 04 or 05 04, and fill with FF
        let front = match self.kind {
            TokenKind::Mic => [4, 4, flags, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
            TokenKind::Sealed => [5, 4, flags | flag::SEALED, 0xFF, 0, 0, 0, 0],
        };
        let mut header = [0; HEADER];
        for (octet, value) in header.iter_mut().zip(front.into_iter().chain(sequence.to_be_bytes()))
        {
            *octet = value;
        }
        header
    }

    /// Checks a header of this form. Its sequence number is not looked at: RPCSEC_GSS has one of
    /// its own, and turns off that of the mechanism (RFC 2203 §5.2.2).
    pub(crate) fn check(self, header: &[u8; HEADER]) -> Result<SealedCounts, TokenFault> {
        let [id_high, id_low, flags, filler, a, b, c, d, ..] = *header;
        let (id, counted) = match self.kind {
            TokenKind::Mic => ([4, 4], [a, b, c, d] == [0xFF; 4]),
            TokenKind::Sealed => ([5, 4], true),
        };
        if [id_high, id_low] != id || filler != 0xFF || !counted {
            return Err(TokenFault::Kind);
        }
        // RFC 4121 §4.2.2 [4121-4]: flags that are not defined are ignored
        let is_set = |bit| flags & bit != 0;
        // RFC 4121 §4.2.2 [4121-5]: a token of the receiver's own direction is refused
        if is_set(flag::ACCEPTOR) != (self.sender == GssRole::Acceptor) {
            return Err(TokenFault::Direction);
        }
        if is_set(flag::ACCEPTOR_SUBKEY) != self.acceptor_subkey {
            return Err(TokenFault::Subkey);
        }
        if is_set(flag::SEALED) != (self.kind == TokenKind::Sealed) {
            return Err(TokenFault::Confidentiality);
        }
        let extra = usize::from(u16::from_be_bytes([a, b]));
        if self.kind == TokenKind::Sealed && extra > EXTRA_MAX {
            return Err(TokenFault::ExtraCount);
        }
        Ok(SealedCounts { extra, rotation: usize::from(u16::from_be_bytes([c, d])) })
    }
}
