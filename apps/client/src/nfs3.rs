//! A method of [`NfsClient`] for each procedure of NFS version 3 (RFC 1813 §3).
//!
//! An argument or result that may travel in a chunk is an item of the request. A call with a long
//! reply states its length, so that the engine offers a Reply chunk (RFC 8267 §4).

use crate::{DirEntry, Error, NfsClient, ReadResult, listing::PagedListing};
use stag_protocol::{
    nfs::{
        Bulk, binding,
        v3::{self, *},
    },
    xdr::Reader,
};
use stag_rpc::{FinishedCall, Provider, RawCall, Token};

/// Octets of one page of a directory.
const PAGE_LEN: u32 = 65_536;

/// The server asks for more time.
pub(crate) const JUKEBOX: Error = Error::Nfs(Status::Jukebox);
const TWICE: Error = Error::Nonsense("two replies to one call");

/// A READ or WRITE that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallTicket(Token);

/// The outcome of a READ or WRITE that was begun.
#[derive(Debug)]
pub struct Finished(FinishedCall);

impl Finished {
    /// Returns the ticket of the finished call.
    pub const fn ticket(&self) -> CallTicket {
        CallTicket(self.0.token)
    }
}

/// The success arm of a reply that has to be one of `$name`.
macro_rules! taken {
    ($reply:expr, $name:ident) => {
        match $reply {
            v3::Reply::$name(Ok(value)) => Ok(value),
            v3::Reply::$name(Err(failure)) => Err(Error::Nfs(failure.status)),
            _ => Err(Error::Nonsense("the reply is one of another procedure")),
        }
    };
}

impl<P: Provider> NfsClient<P> {
    /// Makes a call of NFS. A nonempty item is in `item`, and `call` has it as [`Bulk::Apart`].
    fn nfs<T>(
        &mut self,
        call: &v3::Call<'_>,
        item: Option<&[u8]>,
        read: impl FnOnce(v3::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.four.is_some() {
            return self.nfs4(call, item, read);
        }
        let procedure = call.procedure();
        let parts = parts(call, item);
        let mut read = Some(read);
        loop {
            let called = self.call(
                &parts,
                |writer| call.emit(writer),
                |results| {
                    let reply = v3::Reply::parse(procedure, results).map_err(Error::Garbled)?;
                    match reply.status() {
                        Status::Jukebox => Err(JUKEBOX),
                        _ => read.take().map_or(Err(TWICE), |read| read(reply)),
                    }
                },
            );
            match called {
                // RFC 1813 §2.6 [1813-10]: after NFS3ERR_JUKEBOX a client waits, then calls again
                Err(JUKEBOX) if read.is_some() && self.waits() => {}
                called => {
                    self.end_wait();
                    return called;
                }
            }
        }
    }

    /// Calls `procedure` of a program without arguments, and expects no results: for programs that
    /// may not exist.
    ///
    /// # Errors
    /// Here and below: [`Error`] says which.
    pub fn call_empty(&mut self, program: u32, version: u32, procedure: u32) -> Result<(), Error> {
        self.call(
            &RawCall::new(program, version, procedure),
            |_| Ok(()),
            |results: Reader<'_>| results.finish().map_err(Error::Garbled),
        )
    }

    /// NULL of NFS.
    pub fn null(&mut self) -> Result<(), Error> {
        self.nfs(&v3::Call::Null, None, |_| Ok(()))
    }

    /// A file's attributes.
    pub fn getattr(&mut self, object: FileHandle) -> Result<Attributes, Error> {
        self.nfs(&v3::Call::GetAttr(GetAttrArgs { object }), None, |reply| taken!(reply, GetAttr))
    }

    /// Changes attributes; with `guard`, only if that is the file's ctime.
    pub fn setattr(
        &mut self,
        object: FileHandle,
        attributes: SetAttributes,
        guard: Option<Time>,
    ) -> Result<WccData, Error> {
        let call = v3::Call::SetAttr(SetAttrArgs { object, attributes, guard });
        self.nfs(&call, None, |reply| taken!(reply, SetAttr))
    }

    /// Finds a name.
    pub fn lookup(&mut self, dir: FileHandle, name: &[u8]) -> Result<LookupOk, Error> {
        let call = v3::Call::Lookup(LookupArgs { what: place(dir, name) });
        self.nfs(&call, None, |reply| taken!(reply, Lookup))
    }

    /// Asks which of `access` we have.
    pub fn access(&mut self, object: FileHandle, access: Access) -> Result<Access, Error> {
        let call = v3::Call::Access(AccessArgs { object, access });
        self.nfs(&call, None, |reply| taken!(reply, Access).map(|ok| ok.access))
    }

    /// The path in a symbolic link.
    pub fn readlink(&mut self, symlink: FileHandle) -> Result<Vec<u8>, Error> {
        self.nfs(&v3::Call::ReadLink(ReadLinkArgs { symlink }), None, |reply| {
            let path = taken!(reply, ReadLink)?.path;
            Ok(path.octets().unwrap_or_default().to_vec())
        })
    }

    /// Reads into `room` from `offset` on, once: a server may give less.
    pub fn read(
        &mut self,
        file: FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> Result<ReadResult, Error> {
        let count = u32::try_from(room.len()).unwrap_or(u32::MAX);
        self.nfs(&v3::Call::Read(ReadArgs { file, offset, count }), None, |reply| {
            read_into(reply, room)
        })
    }

    /// Begins to read `count` octets. The results come by [`NfsClient::finish`].
    pub fn begin_read(
        &mut self,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<CallTicket, Error> {
        self.begin(&v3::Call::Read(ReadArgs { file, offset, count }), None)
    }

    /// Writes `data` at `offset`, once: a server may take less.
    pub fn write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<WriteOk, Error> {
        let (data, item) = split(data);
        let asked = data.len();
        let call = v3::Call::Write(WriteArgs { file, offset, stable, data });
        self.nfs(&call, item, |reply| wrote(reply, asked, stable))
    }

    /// Begins to write `data` at `offset`. The results come by [`NfsClient::finish`].
    pub fn begin_write(
        &mut self,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result<CallTicket, Error> {
        let (data, item) = split(data);
        self.begin(&v3::Call::Write(WriteArgs { file, offset, stable, data }), item)
    }

    /// Makes a call whose outcome [`NfsClient::finish`] returns.
    fn begin(&mut self, call: &v3::Call<'_>, item: Option<&[u8]>) -> Result<CallTicket, Error> {
        if self.four.is_some() {
            return self.begin4(call, item).map(CallTicket);
        }
        self.send(&parts(call, item), |writer| call.emit(writer)).map(CallTicket)
    }

    /// Waits for the next begun call to end, in any order. Make no other call while one is begun
    /// and not finished: its wait would take the outcome and drop it.
    pub fn finish(&mut self) -> Result<Finished, Error> {
        self.next().map(Finished)
    }

    /// The results of a call that was begun, by whichever version.
    fn conclude_call<T>(
        &mut self,
        procedure: v3::Procedure,
        finished: Finished,
        read: impl FnOnce(v3::Reply<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.four.is_some() {
            return self.conclude_procedure4(procedure, finished.0, read);
        }
        self.conclude(finished.0, |results| {
            v3::Reply::parse(procedure, results).map_err(Error::Garbled).and_then(read)
        })
    }

    /// The results of a READ that was begun; `room` has the requested length.
    pub fn finish_read(
        &mut self,
        finished: Finished,
        room: &mut [u8],
    ) -> Result<ReadResult, Error> {
        self.conclude_call(v3::Procedure::Read, finished, |reply| read_into(reply, room))
    }

    /// The results of a WRITE of `asked` octets that was begun.
    pub fn finish_write(
        &mut self,
        finished: Finished,
        asked: usize,
        stable: StableHow,
    ) -> Result<WriteOk, Error> {
        self.conclude_call(v3::Procedure::Write, finished, |reply| wrote(reply, asked, stable))
    }

    /// Makes a file.
    pub fn create(
        &mut self,
        dir: FileHandle,
        name: &[u8],
        how: CreateHow,
    ) -> Result<CreateOk, Error> {
        let call = v3::Call::Create(CreateArgs { place: place(dir, name), how });
        self.nfs(&call, None, |reply| taken!(reply, Create))
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, dir: FileHandle, name: &[u8], mode: u32) -> Result<CreateOk, Error> {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let call = v3::Call::MkDir(MkDirArgs { place: place(dir, name), attributes });
        self.nfs(&call, None, |reply| taken!(reply, MkDir))
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &mut self,
        dir: FileHandle,
        name: &[u8],
        path: &[u8],
    ) -> Result<CreateOk, Error> {
        // In version 4 attributes follow it: it is no item at the end.
        let (path, item) = match self.four {
            None => split(path),
            Some(_) => (Bulk::Inline(path), None),
        };
        let attributes = SetAttributes::default();
        let call = v3::Call::Symlink(SymlinkArgs { place: place(dir, name), attributes, path });
        self.nfs(&call, item, |reply| taken!(reply, Symlink))
    }

    /// Makes a device, a socket or a pipe.
    pub fn mknod(
        &mut self,
        dir: FileHandle,
        name: &[u8],
        what: NodeKind,
    ) -> Result<CreateOk, Error> {
        let call = v3::Call::MkNod(MkNodArgs { place: place(dir, name), what });
        self.nfs(&call, None, |reply| taken!(reply, MkNod))
    }

    /// Removes a file.
    pub fn remove(&mut self, dir: FileHandle, name: &[u8]) -> Result<WccData, Error> {
        let call = v3::Call::Remove(RemoveArgs { object: place(dir, name) });
        self.nfs(&call, None, |reply| taken!(reply, Remove))
    }

    /// Removes a directory.
    pub fn rmdir(&mut self, dir: FileHandle, name: &[u8]) -> Result<WccData, Error> {
        let call = v3::Call::RmDir(RemoveArgs { object: place(dir, name) });
        self.nfs(&call, None, |reply| taken!(reply, RmDir))
    }

    /// Gives a file another name.
    pub fn rename(
        &mut self,
        from_dir: FileHandle,
        from: &[u8],
        to_dir: FileHandle,
        to: &[u8],
    ) -> Result<RenameWcc, Error> {
        let call =
            v3::Call::Rename(RenameArgs { from: place(from_dir, from), to: place(to_dir, to) });
        self.nfs(&call, None, |reply| taken!(reply, Rename))
    }

    /// Gives a file a further name.
    pub fn link(
        &mut self,
        file: FileHandle,
        dir: FileHandle,
        name: &[u8],
    ) -> Result<LinkWcc, Error> {
        let call = v3::Call::Link(LinkArgs { file, link: place(dir, name) });
        self.nfs(&call, None, |reply| taken!(reply, Link))
    }

    /// A whole directory by READDIR, in pages of at most `count` octets.
    pub fn readdir(&mut self, dir: FileHandle, count: u32) -> Result<Vec<DirEntry>, Error> {
        if self.four.is_some() {
            return self.list4(dir, count);
        }
        let mut verifier = [0; 8];
        let mut listing = PagedListing::default();
        loop {
            let cookie = listing.cookie();
            let call = v3::Call::ReadDir(ReadDirArgs { dir, cookie, verifier, count });
            let (eof, page) = self.nfs(&call, None, |reply| {
                let page = taken!(reply, ReadDir)?;
                // RFC 1813 §3.3.16 [1813-86]: a client continues from the last cookie and its
                // verifier
                verifier = page.verifier;
                Ok((page.eof, page.entries.map(|entry| DirEntry::new(&entry)).collect::<Vec<_>>()))
            })?;
            if listing.turn(page, eof)? {
                return Ok(listing.into_entries());
            }
        }
    }

    /// A whole directory by READDIRPLUS, in pages of at most 64 KiB: their replies go into Reply
    /// chunks.
    pub fn readdirplus(&mut self, dir: FileHandle) -> Result<Vec<DirEntry>, Error> {
        if self.four.is_some() {
            return self.list4(dir, PAGE_LEN);
        }
        let mut verifier = [0; 8];
        let mut listing = PagedListing::default();
        loop {
            let cookie = listing.cookie();
            let args =
                ReadDirPlusArgs { dir, cookie, verifier, dir_count: PAGE_LEN, max_count: PAGE_LEN };
            let (eof, page) = self.nfs(&v3::Call::ReadDirPlus(args), None, |reply| {
                let page = taken!(reply, ReadDirPlus)?;
                verifier = page.verifier;
                let entries = page.entries.map(|plus| DirEntry {
                    attributes: plus.attributes,
                    handle: plus.handle,
                    ..DirEntry::new(&plus.entry)
                });
                Ok((page.eof, entries.collect::<Vec<_>>()))
            })?;
            if listing.turn(page, eof)? {
                return Ok(listing.into_entries());
            }
        }
    }

    /// Asks how full the file system is (FSSTAT).
    pub fn fsstat(&mut self, object: FileHandle) -> Result<FsStat, Error> {
        let call = v3::Call::FsStat(SystemArgs { object });
        self.nfs(&call, None, |reply| taken!(reply, FsStat).map(|ok| ok.about))
    }

    /// Asks what the file system can do (FSINFO).
    pub fn fsinfo(&mut self, object: FileHandle) -> Result<FsInfo, Error> {
        let call = v3::Call::FsInfo(SystemArgs { object });
        self.nfs(&call, None, |reply| taken!(reply, FsInfo).map(|ok| ok.about))
    }

    /// Asks how names behave (PATHCONF).
    pub fn pathconf(&mut self, object: FileHandle) -> Result<PathConf, Error> {
        let call = v3::Call::PathConf(SystemArgs { object });
        self.nfs(&call, None, |reply| taken!(reply, PathConf).map(|ok| ok.about))
    }

    /// Makes `count` octets from `offset` on stable; 0 = all from there on.
    pub fn commit(&mut self, file: FileHandle, offset: u64, count: u32) -> Result<CommitOk, Error> {
        let call = v3::Call::Commit(CommitArgs { file, offset, count });
        self.nfs(&call, None, |reply| taken!(reply, Commit))
    }
}

fn parts<'a>(call: &v3::Call<'_>, item: Option<&'a [u8]>) -> RawCall<'a> {
    let len = binding::result_len_max(call);
    RawCall {
        results_max: len.inline,
        item_max: len.item,
        item,
        ..RawCall::new(v3::PROGRAM, v3::VERSION, call.procedure().number())
    }
}

fn read_into(reply: v3::Reply<'_>, room: &mut [u8]) -> Result<ReadResult, Error> {
    let ReadOk { attributes, eof, data } = taken!(reply, Read)?;
    let octets = data.octets().unwrap_or_default();
    let target = room.get_mut(..octets.len());
    target.ok_or(Error::Nonsense("READ gave more than was asked for"))?.copy_from_slice(octets);
    Ok(ReadResult { count: octets.len(), eof, attributes })
}

fn wrote(reply: v3::Reply<'_>, asked: usize, stable: StableHow) -> Result<WriteOk, Error> {
    let done = taken!(reply, Write)?;
    if usize::try_from(done.count).is_ok_and(|count| count > asked) {
        return Err(Error::Nonsense("WRITE took more than was sent"));
    }
    if done.committed < stable {
        return Err(Error::Nonsense("WRITE is less stable than was asked for"));
    }
    Ok(done)
}

fn place(dir: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { dir, name: Name(name) }
}

/// An item in its form for the message, and for the engine. An empty one has no octets for a chunk.
fn split(octets: &[u8]) -> (Bulk<'_>, Option<&[u8]>) {
    match u32::try_from(octets.len()) {
        Ok(len) if len > 0 => (Bulk::Apart(len), Some(octets)),
        _ => (Bulk::Inline(octets), None),
    }
}
