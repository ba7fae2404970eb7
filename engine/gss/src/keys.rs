//! Keys of one context, expanded once, for both directions (RFC 4121 §2).

use core::fmt;

use crate::{
    cipher::{DecryptKey, EncryptKey},
    derive::KeyPurpose,
    enctype::Enctype,
    mac::Mac,
    role::GssRole,
    token::{HEADER, TokenForm, TokenKind},
};

/// The key of a context, as the mechanism exports it.
#[derive(Clone, Copy)]
pub struct ContextKey<'a> {
    /// Its enctype.
    pub enctype: Enctype,
    /// Its octets: those of the acceptor's subkey if there is one, else of the initiator's subkey,
    /// else of the session key.
    pub octets: &'a [u8],
    /// True if it is the acceptor's subkey.
    pub acceptor_subkey: bool,
}

impl fmt::Debug for ContextKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextKey({:?}, acceptor's: {})", self.enctype, self.acceptor_subkey)
    }
}

/// The length of a key is not that of its enctype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongKeyLen;

impl fmt::Display for WrongKeyLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the length of the context's key is not that of its enctype")
    }
}

impl std::error::Error for WrongKeyLen {}

/// Expanded keys of one context at one of its ends. They are erased when the value is dropped.
/// Nothing allocates after it is made.
pub struct ContextKeys {
    pub(crate) enctype: Enctype,
    role: GssRole,
    acceptor_subkey: bool,
    /// Kc of this end, and of the other.
    pub(crate) sign: Mac,
    pub(crate) verify: Mac,
    /// Ke and Ki of this end.
    pub(crate) encrypt: EncryptKey,
    pub(crate) seal: Mac,
    /// Ke and Ki of the other end.
    pub(crate) decrypt: DecryptKey,
    pub(crate) open: Mac,
}

impl fmt::Debug for ContextKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContextKeys({:?}, {:?})", self.enctype, self.role)
    }
}

impl ContextKeys {
    /// Derives and expands the keys of `key` for the end that has this role.
    pub fn new(key: &ContextKey<'_>, role: GssRole) -> Result<Self, WrongKeyLen> {
        use KeyPurpose::{Checksum, Encryption, Integrity};
        let ContextKey { enctype, octets, acceptor_subkey } = *key;
        if octets.len() != enctype.key_len() {
            return Err(WrongKeyLen);
        }
        let (own_seal, own_sign) = role.usages();
        let (other_seal, other_sign) = role.other().usages();
        let derive = |usage, purpose| enctype.derive(octets, usage, purpose);
        let mac = |usage, purpose| Mac::new(enctype, derive(usage, purpose).octets());
        // RFC 4121 §2 [4121-2]: Kc signs, Ke encrypts, Ki signs what is encrypted
        Ok(Self {
            enctype,
            role,
            acceptor_subkey,
            sign: mac(own_sign, Checksum),
            verify: mac(other_sign, Checksum),
            encrypt: EncryptKey::new(derive(own_seal, Encryption).octets()).ok_or(WrongKeyLen)?,
            seal: mac(own_seal, Integrity),
            decrypt: DecryptKey::new(derive(other_seal, Encryption).octets()).ok_or(WrongKeyLen)?,
            open: mac(other_seal, Integrity),
        })
    }

    /// The enctype.
    pub const fn enctype(&self) -> Enctype {
        self.enctype
    }

    /// The role of this end.
    pub const fn role(&self) -> GssRole {
        self.role
    }

    /// Octets of a checksum token.
    pub const fn mic_len(&self) -> usize {
        HEADER + self.enctype.checksum_len()
    }

    pub(crate) const fn own(&self, kind: TokenKind) -> TokenForm {
        TokenForm { kind, sender: self.role, acceptor_subkey: self.acceptor_subkey }
    }

    pub(crate) const fn others(&self, kind: TokenKind) -> TokenForm {
        TokenForm { kind, sender: self.role.other(), acceptor_subkey: self.acceptor_subkey }
    }
}
