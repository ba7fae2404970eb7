//! Callers of a store, and the data that they pass to it or lend it memory for.

use crate::{Failed, FileAttributes, ListedEntry};

use stag_engine::PeerAddress;
use stag_pools::{Buf, Extent};
use stag_protocol::{
    nfs::v3::{DeviceNumber, FileKind},
    rpc::{Gids, gss::GssService},
};

/// Octets of the largest READ and WRITE.
pub const TRANSFER_MAX: u32 = 1 << 20;

/// User and address of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user that the caller claims to be.
    pub user: User,
    /// The caller's address.
    pub address: PeerAddress,
    /// True if the caller is proven to be root of its host, or no proof is required.
    pub is_proven: bool,
    /// The security of the call.
    pub security: Security,
}

impl Caller {
    /// A caller that claims to be this user, and of whom no proof is required.
    pub const fn trusted(user: User, address: PeerAddress) -> Self {
        Self { user, address, is_proven: true, security: Security::Sys }
    }
}

/// Security of a call: how it proves its user, and how its arguments and results are protected (RFC
/// 2623 §2, RFC 5403 §2: pseudo-flavors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// No user (AUTH_NONE).
    None,
    /// A user that the caller claims (AUTH_SYS).
    #[default]
    Sys,
    /// A ticket of Kerberos proves the user. Headers are signed.
    Krb5,
    /// Arguments and results are signed, too.
    Krb5i,
    /// Arguments and results are encrypted.
    Krb5p,
}

impl From<GssService> for Security {
    fn from(service: GssService) -> Self {
        match service {
            GssService::None => Self::Krb5,
            GssService::Integrity => Self::Krb5i,
            GssService::Privacy => Self::Krb5p,
        }
    }
}

/// The user that a caller claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// No particular user (AUTH_NONE).
    Anyone,
    /// A user with groups (AUTH_SYS).
    Unix {
        /// The user.
        uid: u32,
        /// The user's primary group.
        gid: u32,
        /// The user's other groups.
        gids: Gids,
    },
}

impl User {
    /// The number of the user, or the anonymous one.
    pub const fn uid(&self) -> u32 {
        match self {
            Self::Anyone => 65_534,
            Self::Unix { uid, .. } => *uid,
        }
    }
}

/// Lends an empty buffer for at least this number of bytes from the shard's memory; None when it
/// has none.
pub type Lender<'a> = dyn Fn(usize) -> Option<Buf> + 'a;

/// Takes an entry and returns true if it fitted; not called again after the first that did not.
pub type Visitor<'a> = dyn FnMut(&ListedEntry<'_>) -> bool + 'a;

/// The bytes of a WRITE.
#[derive(Debug)]
pub struct WritePayload<'a> {
    /// The octets.
    pub octets: &'a [u8],
    /// The same bytes in memory that can be kept, if they were pulled from the caller. Only bytes
    /// in a buffer of [`Store::sink`](crate::Store::sink) may be kept for long.
    pub shared: Option<Extent>,
}

impl<'a> From<&'a [u8]> for WritePayload<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, shared: None }
    }
}

/// The bytes that a READ requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpan {
    /// The offset of the first byte in the file.
    pub offset: u64,
    /// Octets, at most [`TRANSFER_MAX`].
    pub count: u32,
}

/// A special file to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// The kind of the file.
    pub kind: FileKind,
    /// The device, if the kind has one.
    pub device: DeviceNumber,
}

impl From<FileKind> for DeviceNode {
    /// A special file that is no device.
    fn from(kind: FileKind) -> Self {
        Self { kind, device: DeviceNumber::default() }
    }
}

/// A name in a directory (RFC 1813 §2.5, diropargs3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameIn<'a, D> {
    /// The directory.
    pub directory: D,
    /// The name.
    pub name: &'a [u8],
}

impl<'a, D> NameIn<'a, D> {
    /// The name `name` in `directory`.
    pub const fn new(directory: D, name: &'a [u8]) -> Self {
        Self { directory, name }
    }
}

/// The result of an operation: a failure carries the known attributes of the objects.
pub type StoreResult<T, About = Option<FileAttributes>> = Result<T, Failed<About>>;
