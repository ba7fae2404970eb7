//! The 22 procedures of NFS version 3 (RFC 1813 §3.3): each passes its arguments to the store and
//! writes the result.
//!
//! Credentials are not checked here: the store knows the caller ([`Procedures::act_as`]) and checks
//! its rights.

mod attributes;
mod create;
mod lookup;
mod read;
pub(crate) mod readdir;
mod remove;
mod system;
mod write;

use stag_engine::{Cx, Pulled};
use stag_protocol::nfs::v3::{
    Attributes, Call, Failure, GetAttrArgs, LinkWcc, Procedure, RenameWcc, Status, WccData,
};

pub(crate) use read::{ReadAttempt, Turn, read};

use crate::{
    data_counts::DataCounts,
    reply::{ReplyWriter, Results},
};
use stag_nfs_store::Procedures;

/// Bytes of results to reserve; all but listings fit any message.
pub(crate) fn results_len(call: &Call<'_>) -> usize {
    match call {
        Call::ReadDir(args) => readdir::results_len(args.count),
        Call::ReadDirPlus(args) => readdir::results_len(args.max_count),
        _ => 0,
    }
}

/// Memory for a reply, and call arguments that came in memory of their own.
pub(crate) struct CallMemory<'a, 'k> {
    /// Lends buffers.
    pub(crate) cx: &'a Cx<'k>,
    /// The arguments that came in Read chunks.
    pub(crate) pulled: Pulled<'a>,
}

/// Returns true if a procedure changes no object, and its results are always short.
pub(crate) const fn is_small(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Null
            | Procedure::GetAttr
            | Procedure::Lookup
            | Procedure::Access
            | Procedure::FsStat
            | Procedure::FsInfo
            | Procedure::PathConf
            | Procedure::Commit
    )
}

/// GETATTR alone, as executed by [`answer_small`].
#[inline]
pub(crate) fn getattr(
    store: &mut impl Procedures,
    args: &GetAttrArgs,
    reply: &mut impl Results,
) -> Status {
    reply.results(&attributes::getattr(store, args))
}

/// Executes a call whose results [are small](is_small), writes them, and returns its status.
pub(crate) fn answer_small(
    store: &mut impl Procedures,
    data: &mut DataCounts,
    call: &Call<'_>,
    reply: &mut impl Results,
) -> Status {
    match call {
        Call::Null => Status::Ok,
        Call::GetAttr(args) => getattr(store, args, reply),
        Call::Lookup(args) => reply.results(&lookup::lookup(store, args)),
        Call::Access(args) => reply.results(&attributes::access(store, args)),
        Call::FsStat(args) => reply.results(&system::fsstat(store, args)),
        Call::FsInfo(args) => reply.results(&system::fsinfo(store, args)),
        Call::PathConf(args) => reply.results(&system::pathconf(store, args)),
        Call::Commit(args) => reply.results(&write::commit(store, data, args)),
        _ => unreachable!("only procedures with small results are carried out so"),
    }
}

/// Executes `call`, writes its results, and returns its status.
pub(crate) fn answer(
    store: &mut impl Procedures,
    data: &mut DataCounts,
    CallMemory { cx, pulled }: CallMemory<'_, '_>,
    call: &Call<'_>,
    reply: &mut ReplyWriter,
) -> Status {
    match call {
        Call::SetAttr(args) => reply.results(&attributes::setattr(store, args)),
        Call::ReadLink(args) => lookup::readlink(store, cx, args, reply),
        Call::Read(args) => {
            read(store, data, cx, ReadAttempt { args, turn: Turn::First(None) }, reply)
                .expect("a READ without a ticket is not put off")
        }
        Call::Write(args) => reply.results(&write::write(store, data, pulled, args)),
        Call::Create(args) => reply.results(&create::create(store, args)),
        Call::MkDir(args) => reply.results(&create::mkdir(store, args)),
        Call::Symlink(args) => reply.results(&create::symlink(store, args)),
        Call::MkNod(args) => reply.results(&create::mknod(store, args)),
        Call::Remove(args) => reply.results(&remove::remove(store, args)),
        Call::RmDir(args) => reply.results(&remove::rmdir(store, args)),
        Call::Rename(args) => reply.results(&remove::rename(store, args)),
        Call::Link(args) => reply.results(&remove::link(store, args)),
        Call::ReadDir(args) => readdir::readdir(store, args, reply),
        Call::ReadDirPlus(args) => readdir::readdirplus(store, args, reply),
        small => answer_small(store, data, small, reply),
    }
}

/// Writes the failure of a procedure without attributes of its objects.
pub(crate) fn refuse(procedure: Procedure, status: Status, reply: &mut ReplyWriter) -> Status {
    match procedure {
        Procedure::Null => Status::Ok,
        Procedure::GetAttr => reply.results(&failed::<()>(status)),
        Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf => reply.results(&failed::<Option<Attributes>>(status)),
        Procedure::SetAttr
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Commit => reply.results(&failed::<WccData>(status)),
        Procedure::Rename => reply.results(&failed::<RenameWcc>(status)),
        Procedure::Link => reply.results(&failed::<LinkWcc>(status)),
    }
}

/// Results of a failure without attributes of the objects.
fn failed<About: Default>(status: Status) -> Result<bool, Failure<About>> {
    Err(Failure { status, attributes: About::default() })
}
