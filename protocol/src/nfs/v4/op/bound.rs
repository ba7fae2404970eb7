//! Bounds of the results of each operation, with which a server checks that they fit before it
//! carries the operation out (RFC 8881 §2.10.6.4).

use super::*;
use crate::nfs::v4::types::OPAQUE_LEN_MAX;
use crate::nfs::v4::{Bitmap, attributes_len_max};
use crate::xdr::padded;

/// Bounds that a server sets for results whose length the arguments do not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Octets of a READ at most, whatever it asks for.
    pub read: u32,
    /// Octets of a listing's results at most, regardless of the limits of READDIR or LISTXATTRS.
    pub listing: u32,
    /// Octets of the longest path in a symbolic link.
    pub link: u32,
    /// Octets of the longest value of an extended attribute.
    pub xattr: u32,
    /// Security flavors; those of RPCSEC_GSS are of Kerberos 5.
    pub flavors: u32,
    /// Octets of the longest filehandle.
    pub handle: u32,
    /// Octets of the longest name of a user, in the entry that a delegation comes with.
    pub user: u32,
}

const HEAD: usize = 4 + 4; // number and status
const STATEID: usize = 4 + 12;
const CHANGE: usize = 4 + 8 + 8;
const BITMAP: usize = 4 + 4 * Bitmap::WORDS;
const OPAQUE: usize = 4 + OPAQUE_LEN_MAX;
const DENIED: usize = 8 + 8 + 4 + 8 + OPAQUE;
const CHANNEL: usize = 7 * 4 + 4;
/// But for the name of the user.
const DELEGATION: usize = 4 + STATEID + 4 + (4 + 8) + (4 + 4 + 4);
const IMPLEMENTATION: usize = 4 + 2 * OPAQUE + 12;
const PROTECTION: usize = 4;

impl Request<'_> {
    /// Octets of the longest results, number and status included. A server whose results may be
    /// longer than `limits` violates its own limits.
    pub fn reply_len_max(&self, limits: &ReplyLimits) -> usize {
        // RFC 8881 §2.10.6.4 [8881-21]: a reply that would be too long is refused before
        HEAD.saturating_add(self.body_len_max(limits))
    }

    fn body_len_max(&self, limits: &ReplyLimits) -> usize {
        match self {
            Self::DelegReturn(_) | Self::Lookup(_) | Self::LookupP(()) | Self::NVerify(_) => 0,
            Self::PutFh(_) | Self::PutPubFh(()) | Self::PutRootFh(()) | Self::RestoreFh(()) => 0,
            Self::SaveFh(()) | Self::Verify(_) | Self::BackchannelCtl(_) => 0,
            Self::DestroySession(_) | Self::FreeStateid(_) | Self::DestroyClientid(_) => 0,
            Self::ReclaimComplete(_) | Self::Allocate(_) | Self::Deallocate(_) => 0,
            Self::Clone(_) => 0,
            Self::Access(_) | Self::Commit(_) => 8,
            Self::Close(_) | Self::LockU(_) | Self::OpenDowngrade(_) => STATEID,
            Self::Create(_) => CHANGE + BITMAP,
            Self::GetAttr(asked) => attributes_len_max(asked),
            Self::GetFh(()) => item(limits.handle),
            Self::Link(_) | Self::Remove(_) | Self::SetXattr(_) | Self::RemoveXattr(_) => CHANGE,
            Self::Lock(_) | Self::LockT(_) => DENIED,
            Self::Open(_) => {
                (STATEID + CHANGE + 4 + BITMAP + DELEGATION).saturating_add(item(limits.user))
            }
            Self::Read(arguments) => 4 + item(arguments.count.min(limits.read)),
            Self::ReadDir(arguments) => octets(arguments.max_count.min(limits.listing)),
            Self::ReadLink(()) => item(limits.link),
            Self::Rename(_) => 2 * CHANGE,
            Self::SecInfo(_) | Self::SecInfoNoName(_) => {
                octets(limits.flavors).saturating_mul(GssMechanism::KERBEROS_LEN).saturating_add(4)
            }
            Self::SetAttr(_) | Self::IoAdvise(_) => BITMAP,
            Self::Write(_) => 4 + 4 + 8,
            Self::BindConnToSession(_) => 16 + 4 + 4,
            Self::ExchangeId(_) => 8 + 4 + 4 + PROTECTION + 8 + OPAQUE + OPAQUE + IMPLEMENTATION,
            Self::CreateSession(_) => 16 + 4 + 4 + 2 * CHANNEL,
            Self::Sequence(_) => 16 + 5 * 4,
            Self::TestStateid(stateids) => stateids.len().saturating_mul(4).saturating_add(4),
            Self::Copy(_) => 4 + STATEID + 8 + 4 + 8 + 4 + 4,
            Self::Seek(_) => 4 + 8,
            Self::GetXattr(_) => item(limits.xattr),
            Self::ListXattrs(arguments) => octets(arguments.max_count.min(limits.listing)),
        }
    }
}

fn octets(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn item(count: u32) -> usize {
    padded(octets(count)).saturating_add(4)
}
