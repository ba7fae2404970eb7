//! HMAC of the enctypes: expanded keys, and one message's state.

use hmac::{Hmac, KeyInit, Mac as _};
use sha1::Sha1;
use sha2::{Sha256, Sha384};
use zeroize::Zeroize;

use crate::enctype::Enctype;

/// An expanded key, or the state of a message: a copy of the key is the state of an empty message.
#[derive(Clone)]
pub(crate) enum Mac {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
}

/// Evaluates an expression for the one hash that there is.
macro_rules! with {
    ($mac:expr, $state:ident => $do:expr) => {
        match $mac {
            Mac::Sha1($state) => $do,
            Mac::Sha256($state) => $do,
            Mac::Sha384($state) => $do,
        }
    };
}

impl Mac {
    /// Expands a key of any length.
    pub(crate) fn new(enctype: Enctype, key: &[u8]) -> Self {
        const ANY: &str = "HMAC takes keys of any length";
        match enctype {
            Enctype::Aes128Sha1 | Enctype::Aes256Sha1 => {
                Self::Sha1(Hmac::new_from_slice(key).expect(ANY))
            }
            Enctype::Aes128Sha256 => Self::Sha256(Hmac::new_from_slice(key).expect(ANY)),
            Enctype::Aes256Sha384 => Self::Sha384(Hmac::new_from_slice(key).expect(ANY)),
        }
    }

    #[inline]
    pub(crate) fn update(&mut self, octets: &[u8]) {
        with!(self, state => state.update(octets));
    }

    /// Writes the first octets of the result; `out` is no longer than that.
    #[inline]
    pub(crate) fn finish(self, out: &mut [u8]) {
        with!(self, state => {
            let result = state.finalize().into_bytes();
            if let Some(first) = result.get(..out.len()) {
                out.copy_from_slice(first);
            }
        });
    }

    /// As [`Mac::finish`], for a result that is a key: no copy of it stays in memory.
    pub(crate) fn finish_key(self, out: &mut [u8]) {
        with!(self, state => {
            let mut result = state.finalize().into_bytes();
            if let Some(first) = result.get(..out.len()) {
                out.copy_from_slice(first);
            }
            result.as_mut_slice().zeroize();
        });
    }

    /// Returns true if the result begins with `expected`, in a time that does not depend on which
    /// octets differ. An empty `expected` is refused.
    #[inline]
    pub(crate) fn verify(self, expected: &[u8]) -> bool {
        with!(self, state => state.verify_truncated_left(expected).is_ok())
    }
}
