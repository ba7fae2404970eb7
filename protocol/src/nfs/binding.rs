//! Upper-layer binding of NFS version 3 to RPC-over-RDMA (RFC 8267 §4).

use super::v3::{self, Attributes, Call, FileHandle, PATH_MAX, Procedure};
use crate::xdr::padded;

/// Side of a procedure whose item a chunk may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eligible {
    /// An argument: the caller may offer a Read chunk.
    Argument,
    /// A result: the caller may offer a Write chunk.
    Result,
}

/// The DDP-eligible item of a procedure, if it has one: no procedure of these programs has two (RFC
/// 8267 §4).
pub fn ddp_eligible(program: u32, version: u32, procedure: u32) -> Option<Eligible> {
    if (program, version) != (v3::PROGRAM, v3::VERSION) {
        // draft 004 §6.2.1 [exp-32]: an item that no binding mentions is not DDP-eligible
        return None; // MOUNT, NFSACL, NLM and NSM have none (RFC 8267 §5)
    }
    match Procedure::new(procedure)? {
        // RFC 8166 §3.4.2 [8166-10]: only DDP-eligible items leave the payload
        Procedure::Write | Procedure::Symlink => Some(Eligible::Argument),
        Procedure::Read | Procedure::ReadLink => Some(Eligible::Result),
        _ => None,
    }
}

/// Returns true if that side of a procedure has a DDP-eligible item.
pub fn is_ddp_eligible(side: Eligible, program: u32, version: u32, procedure: u32) -> bool {
    ddp_eligible(program, version, procedure) == Some(side)
}

/// The longest results that a call can have, in octets of XDR. The reply header of RPC is not
/// counted ([`ReplyHeader::LEN`](crate::rpc::ReplyHeader::LEN) with AUTH_NONE for a verifier).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultLen {
    /// Octets without the DDP-eligible item's content; its length word counts here.
    pub inline: usize,
    /// Octets of the DDP-eligible item's content without padding: the size of a Write chunk. 0 when
    /// there is no such item.
    pub item: usize,
}

impl ResultLen {
    /// Octets when no Write chunk takes the item: what a Reply chunk, or a reply inline, has to
    /// hold.
    pub const fn whole(self) -> usize {
        self.inline.saturating_add(padded(self.item))
    }
}

/// Returns the longest results of `call` (RFC 8267 §4.1).
pub fn result_len_max(call: &Call<'_>) -> ResultLen {
    let inline = match call {
        Call::Null => 0,
        Call::GetAttr(_) => STATUS + Attributes::LEN,
        Call::SetAttr(_) | Call::Remove(_) | Call::RmDir(_) => STATUS + WCC_DATA,
        Call::Lookup(_) => STATUS + HANDLE + POST_OP_ATTR + POST_OP_ATTR,
        Call::Access(_) => STATUS + POST_OP_ATTR + 4,
        Call::ReadLink(_) => STATUS + POST_OP_ATTR + 4,
        Call::Read(_) => STATUS + POST_OP_ATTR + 4 + 4 + 4,
        Call::Write(_) => STATUS + WCC_DATA + 4 + 4 + VERIFIER,
        Call::Create(_) | Call::MkDir(_) | Call::Symlink(_) | Call::MkNod(_) => {
            STATUS + 4 + HANDLE + POST_OP_ATTR + WCC_DATA
        }
        Call::Rename(_) => STATUS + WCC_DATA + WCC_DATA,
        Call::Link(_) => STATUS + POST_OP_ATTR + WCC_DATA,
        Call::ReadDir(args) => listing(args.count),
        Call::ReadDirPlus(args) => listing(args.max_count),
        Call::FsStat(_) => STATUS + POST_OP_ATTR + 6 * 8 + 4,
        Call::FsInfo(_) => STATUS + POST_OP_ATTR + 7 * 4 + 8 + 8 + 4,
        Call::PathConf(_) => STATUS + POST_OP_ATTR + 6 * 4,
        Call::Commit(_) => STATUS + WCC_DATA + VERIFIER,
    };
    let item = match call {
        // RFC 8166 §3.4.6 [8166-21]: a Write chunk has room for the longest result
        Call::Read(args) => octets(args.count),
        Call::ReadLink(_) => PATH_MAX,
        _ => 0,
    };
    ResultLen { inline, item }
}

const STATUS: usize = 4;
const HANDLE: usize = 4 + FileHandle::MAX;
const POST_OP_ATTR: usize = 4 + Attributes::LEN;
const WCC_DATA: usize = 4 + 8 + 8 + 8 + POST_OP_ATTR;
const VERIFIER: usize = 8;

/// The count bounds the whole success arm (RFC 1813 §3.3.16, §3.3.17). Linux' server applies it
/// only to the part after the verifier, and Linux' client makes room for that.
fn listing(count: u32) -> usize {
    octets(count).saturating_add(STATUS + POST_OP_ATTR + VERIFIER)
}

fn octets(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
