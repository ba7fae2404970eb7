//! The checks of the targets, and their common parts.

pub(crate) mod connection;
pub(crate) mod gss;
pub(crate) mod iwarp;
pub(crate) mod kerberos;
pub(crate) mod message;
pub(crate) mod nfs;
pub(crate) mod nfs4;
pub(crate) mod nfs4_state;
pub(crate) mod rpc;
pub(crate) mod rpcrdma;
pub(crate) mod shard;
pub(crate) mod shm;
pub(crate) mod stages;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod xdr;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    mem::discriminant,
};

use stag_protocol::xdr::{NoRoom, Writer};

pub use iwarp::append as append_fpdu;
pub use nfs::HANDLE_KEY;
pub use nfs4_state::STEP as STATE_STEP;
pub use shard::{CACHE_THIS, FILE, ROOT, STAND_INS, TWICE, WHOLE, good_replies};
pub use shm::{TRUST as SHM_TRUST, WE_CONNECT as SHM_WE_CONNECT, windows as shm_windows};
pub use xdr::TYPES;

/// Rounds of loops over files and their state that one message may cost a gateway
/// ([`stag_pools::steps`]): what a compound of the longest input needs many times over.
pub const STEPS_PER_MESSAGE: u64 = 1 << 16;

/// Outcome of an input, as far as a target distinguishes outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputVerdict {
    /// It broke a rule.
    Refused(u64),
    /// It meant something.
    Accepted(u64),
}

impl InputVerdict {
    /// Refused for a reason.
    pub fn refused<T>(reason: &T) -> Self {
        Self::Refused(class(discriminant(reason)))
    }

    /// Accepted, as an outcome that `kind` distinguishes.
    pub fn accepted(kind: impl Hash) -> Self {
        Self::Accepted(class(kind))
    }

    /// The outcome of one of several parsers that share a target.
    fn of(self, which: u64) -> Self {
        match self {
            Self::Refused(reason) => Self::Refused(class((which, reason))),
            Self::Accepted(kind) => Self::Accepted(class((which, kind))),
        }
    }
}

fn class(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Drops what this thread's targets kept: a shard and its store serve many inputs. Afterwards an
/// input has the outcome that it has in a fresh process.
pub fn forget() {
    shard::forget();
    tcp::forget();
}

/// Returns true if `emitted` equals `original` except for padding, which becomes zero.
fn differs_in_padding_only(emitted: &[u8], original: &[u8]) -> bool {
    let (new, old) = (emitted.chunks(4), original.chunks(4));
    emitted.len() == original.len()
        && new.zip(old).all(|(new, old)| {
            let same = new.iter().zip(old).take_while(|(new, old)| new == old).count();
            same == new.len() || same > 0 && new[same..].iter().all(|octet| *octet == 0)
        })
}

/// Returns the octets that `emit` writes into `len` octets; it fills them all, and fails with one
/// less.
fn emitted(len: usize, emit: impl Fn(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut out = vec![0xee; len];
    let mut writer = Writer::new(&mut out);
    assert_eq!(emit(&mut writer), Ok(()), "a value goes where it came from");
    assert_eq!(writer.len(), len, "a value is as long as it was");
    if len > 0 {
        assert_eq!(emit(&mut Writer::new(&mut vec![0; len - 1])), Err(NoRoom));
    }
    out
}

/// parse(emit(x)) == x, and the octets consumed are the octets emitted. A cut never parses.
macro_rules! survives {
    ($octets:expr, $type:ty) => {{
        let octets: &[u8] = $octets;
        let mut reader = Reader::new(octets);
        match <$type as Codec<'_>>::parse(&mut reader) {
            Err(error) => InputVerdict::refused(&error),
            Ok(value) => {
                let consumed = octets.len() - reader.remaining();
                let out = emitted(consumed, |writer| value.emit(writer));
                assert!(differs_in_padding_only(&out, &octets[..consumed]));
                let mut again = Reader::new(&out);
                assert_eq!(<$type as Codec<'_>>::parse(&mut again).as_ref(), Ok(&value));
                assert_eq!(again.finish(), Ok(()));
                if consumed > 0 {
                    assert!(
                        <$type as Codec<'_>>::parse(&mut Reader::new(&out[..consumed - 1]))
                            .is_err()
                    );
                }
                InputVerdict::accepted(consumed.min(64))
            }
        }
    }};
}
use survives;
