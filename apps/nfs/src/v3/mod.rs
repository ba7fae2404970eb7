//! The 22 procedures of NFS version 3 (RFC 1813 §3.3): each takes its arguments to the store and writes what comes back.
//!
//! A credential says nothing here: the store runs in unprivileged mode, where everybody acts as the server's user.

mod attributes;
mod create;
mod lookup;
mod read;
mod readdir;
mod remove;
mod system;
mod write;

use stag_engine::Cx;
use stag_protocol::{
    nfs::v3::{Call, Failure, Status},
    xdr::Codec,
};

use crate::gateway::Reply;
use crate::report::Data;
use crate::store::{Failed, files::Files};

/// Octets of results to take room for; all but listings fit any message.
pub(crate) fn results_len(call: &Call<'_>) -> usize {
    match call {
        Call::ReadDir(args) => readdir::results_len(args.count),
        Call::ReadDirPlus(args) => readdir::results_len(args.max_count),
        _ => 0,
    }
}

/// Carries out `call`, writes its results, and says how it ended.
pub(crate) fn answer(
    files: &mut Files,
    data: &mut Data,
    cx: &Cx<'_>,
    call: &Call<'_>,
    reply: &mut Reply,
) -> Status {
    match call {
        Call::Null => Status::Ok,
        Call::GetAttr(args) => reply.results(&attributes::getattr(files, args)),
        Call::SetAttr(args) => reply.results(&attributes::setattr(files, args)),
        Call::Lookup(args) => reply.results(&lookup::lookup(files, args)),
        Call::Access(args) => reply.results(&attributes::access(files, args)),
        Call::ReadLink(args) => lookup::readlink(files, cx, args, reply),
        Call::Read(args) => read::read(files, data, cx, args, reply),
        Call::Write(args) => reply.results(&write::write(files, data, args)),
        Call::Create(args) => reply.results(&create::create(files, args)),
        Call::MkDir(args) => reply.results(&create::mkdir(files, args)),
        Call::Symlink(args) => reply.results(&create::symlink(files, args)),
        Call::MkNod(args) => reply.results(&create::mknod(files, args)),
        Call::Remove(args) => reply.results(&remove::remove(files, args)),
        Call::RmDir(args) => reply.results(&remove::rmdir(files, args)),
        Call::Rename(args) => reply.results(&remove::rename(files, args)),
        Call::Link(args) => reply.results(&remove::link(files, args)),
        Call::ReadDir(args) => readdir::readdir(files, args, reply),
        Call::ReadDirPlus(args) => readdir::readdirplus(files, args, reply),
        Call::FsStat(args) => reply.results(&system::fsstat(files, args)),
        Call::FsInfo(args) => reply.results(&system::fsinfo(files, args)),
        Call::PathConf(args) => reply.results(&system::pathconf(files, args)),
        Call::Commit(args) => reply.results(&write::commit(files, data, args)),
    }
}

impl Reply {
    /// Adds the results of a procedure and says how it ended.
    fn results<'a, T: Codec<'a>, About: Codec<'a>>(&mut self, results: &Result<T, Failure<About>>) -> Status {
        self.put(results);
        results.as_ref().err().map_or(Status::Ok, |failure| failure.status)
    }
}

/// A failure of the store, as the wire has it.
fn failure<About>(failed: Failed<About>) -> Failure<About> {
    Failure { status: failed.status, attributes: failed.about }
}
