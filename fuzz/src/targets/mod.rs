//! The targets, and what they have in common.

mod connection;
mod iwarp;
mod message;
mod nfs;
mod rpc;
mod rpcrdma;
mod shard;
mod shm;
mod stages;
mod stream;
mod tcp;
mod xdr;

use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    mem::discriminant,
};

use stag_protocol::xdr::{NoRoom, Writer};

use crate::{
    make,
    mutate::Shape::{self, Parts, Words},
    random::Random,
};

pub use iwarp::append as append_fpdu;
pub use nfs::HANDLE_KEY;
pub use shard::{FILE, ROOT, good_replies};
pub use shm::{TRUST as SHM_TRUST, WE_CONNECT as SHM_WE_CONNECT, windows as shm_windows};
pub use xdr::TYPES;

/// What became of an input: which outcome, of those that a target tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It broke a rule.
    Refused(u64),
    /// It meant something.
    Accepted(u64),
}

impl Verdict {
    /// Refused for a reason.
    pub fn refused<T>(reason: &T) -> Self {
        Self::Refused(class(discriminant(reason)))
    }

    /// Accepted, as one of those that `kind` tells apart.
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

/// Something that octets of a peer reach, and what has to hold there.
pub struct Target {
    /// Its name: that of its corpus, too.
    pub name: &'static str,
    /// What its inputs are made of.
    pub shape: Shape,
    /// Whether one input takes a system call or a whole connection: then sweeps are coarser.
    pub is_slow: bool,
    /// Takes an input; panics when a property does not hold.
    pub check: fn(&[u8]) -> Verdict,
    /// Makes an input that is valid, or nearly so.
    pub make: fn(&mut Random) -> Vec<u8>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const fn fast(
    name: &'static str,
    shape: Shape,
    check: fn(&[u8]) -> Verdict,
    make: fn(&mut Random) -> Vec<u8>,
) -> Target {
    Target { name, shape, is_slow: false, check, make }
}

const fn slow(
    name: &'static str,
    shape: Shape,
    check: fn(&[u8]) -> Verdict,
    make: fn(&mut Random) -> Vec<u8>,
) -> Target {
    Target { name, shape, is_slow: true, check, make }
}

/// All targets.
pub static TARGETS: [Target; 28] = [
    fast("xdr", Words, xdr::cursor, make::words),
    fast("types", Words, xdr::types, make::typed),
    fast("rpc_call", Words, rpc::call, make::rpc_call),
    fast("rpc_reply", Words, rpc::reply, make::rpc_reply),
    fast("rpc_auth", Words, rpc::auth, make::rpc_auth),
    fast("rpc_record", Words, rpc::record, make::record_stream),
    fast("cm_private", Words, rpcrdma::cm_private, make::private_data),
    fast("rpcrdma_v1", Words, rpcrdma::v1_header, make::v1_message),
    fast("rpcrdma_v2", Words, rpcrdma::v2_header, make::v2_message),
    fast("rpcrdma_plan_call", Words, rpcrdma::plan_call, make::words),
    fast("rpcrdma_responder", Words, rpcrdma::responder, make::responder),
    fast("rpcrdma_requester", Parts, rpcrdma::requester, make::exchange),
    fast("rpcrdma_message", Parts, message::message, make::exchange),
    fast("rpcrdma_connection", Parts, connection::connection, make::connection),
    fast("mpa", Words, iwarp::mpa, make::mpa),
    fast("fpdu", Words, iwarp::fpdu, make::fpdus),
    fast("ddp", Words, iwarp::ddp, make::ulpdu),
    fast("rdmap", Words, iwarp::rdmap, make::terminate),
    fast("iwarp_connection", Parts, stream::connection, make::iwarp_connection),
    fast("mount", Words, nfs::mount, make::mount),
    fast("nfs3_call", Words, nfs::call, make::nfs3_call),
    fast("nfs3_reply", Words, nfs::reply, make::nfs3_reply),
    fast("file_handle", Words, nfs::file_handle, make::file_handle),
    slow("stages", Words, stages::answer, make::stages),
    slow("shard", Parts, shard::gateway, make::shard),
    slow("shard_requester", Parts, shard::requester, make::replies),
    slow("shard_tcp", Words, tcp::gateway, make::tcp),
    slow("shm_link", Parts, shm::link, make::shm),
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Drops what this thread's targets kept: a shard and what is stored behind it serve many inputs. What follows is the same every time.
pub fn forget() {
    shard::forget();
    tcp::forget();
}

/// Whether `emitted` is `original`, but for padding, which becomes zero.
fn differs_in_padding_only(emitted: &[u8], original: &[u8]) -> bool {
    let (new, old) = (emitted.chunks(4), original.chunks(4));
    emitted.len() == original.len()
        && new.zip(old).all(|(new, old)| {
            let same = new.iter().zip(old).take_while(|(new, old)| new == old).count();
            same == new.len() || same > 0 && new[same..].iter().all(|octet| *octet == 0)
        })
}

/// What `emit` writes into `len` octets; it takes them all, and not one less will do.
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

/// parse(emit(x)) == x, and what was consumed is what is emitted. A cut never parses.
macro_rules! survives {
    ($octets:expr, $type:ty) => {{
        let octets: &[u8] = $octets;
        let mut reader = Reader::new(octets);
        match <$type as Codec<'_>>::parse(&mut reader) {
            Err(error) => Verdict::refused(&error),
            Ok(value) => {
                let consumed = octets.len() - reader.remaining();
                let out = emitted(consumed, |writer| value.emit(writer));
                assert!(differs_in_padding_only(&out, &octets[..consumed]));
                let mut again = Reader::new(&out);
                assert_eq!(<$type as Codec<'_>>::parse(&mut again).as_ref(), Ok(&value));
                assert_eq!(again.finish(), Ok(()));
                if consumed > 0 {
                    assert!(<$type as Codec<'_>>::parse(&mut Reader::new(&out[..consumed - 1])).is_err());
                }
                Verdict::accepted(consumed.min(64))
            }
        }
    }};
}
use survives;
