//! [`Files`] as a [`Store`]: content is read to the shard's buffers, and written from the call's
//! memory.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
};

use stag_engine::config;
use stag_pools::Buf;
use stag_protocol::nfs::{
    v3::{
        Access, AttributeOctets, FileHandle, FileKind, FsInfo, FsStat, PATH_MAX, PathConf,
        StableHow, Status, Verifier,
    },
    v4::state::LockRange,
};

use super::{
    Files,
    data::{self, ByteRange, Miss},
};
use crate::{
    Begun, Brought, Caller, CommitDone, CreateMode, DeviceNode, Effort, ExportRoot, Failed,
    Fetched, FileAttributes, FileTime, FoundObject, Lender, Linked, Listed, ListingStart,
    LocalLock, MadeObject, NameIn, NewAttributes, ObjectChange, Procedures, ReadDone, ReadSpan,
    ReadlinkDone, Renamed, SetDone, Store, StoreCall, StoreCallDone, StoreResult, TouchedFile,
    Visitor, WriteDone, WritePayload,
    contract::tickets::{ReadTicket, WaitTicket},
    exports::faults,
    helpers::Helpers,
    start_error::StartError,
};

/// A buffer for `wanted` bytes, or for fewer if memory is short: a READ may return less than
/// requested.
fn borrow(lender: &Lender<'_>, wanted: usize) -> Option<(Buf, usize)> {
    let lens = [wanted, wanted.min(config::MEDIUM_LEN), wanted.min(config::INLINE_LEN)];
    lens.into_iter().find_map(|len| lender(len).map(|buf| (buf, len)))
}

/// A READ whose bytes are at the front of a buffer's spare room.
fn filled(mut octets: Buf, done: data::ReadDone, is_cut: bool) -> ReadDone {
    octets.extend(done.count as usize);
    gathered(octets, done, is_cut)
}

/// A READ whose bytes are a buffer's content.
fn gathered(octets: Buf, done: data::ReadDone, is_cut: bool) -> ReadDone {
    let data = octets.freeze().into();
    let attributes = AttributeOctets::from(&done.attributes);
    ReadDone { data, is_cut, origin: done.origin, eof: done.eof, attributes }
}

impl Files {
    /// A buffer for a READ, or the answer that there is none.
    fn buffer(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        wanted: u32,
    ) -> Result<(Buf, usize), Failed<Option<FileAttributes>>> {
        borrow(lender, wanted as usize)
            // RFC 1813 §2.6 [1813-9]: a call that cannot be served in time gets NFS3ERR_JUKEBOX
            .ok_or_else(|| Failed { status: Status::Jukebox, about: self.getattr(file).ok() })
    }
}

impl Store for Files {
    type Now = Self;

    fn now(&mut self) -> &mut Self {
        self
    }

    const MAY_WAIT: bool = true;

    fn waits(&self, object: &FileHandle, effort: Effort) -> bool {
        Self::waits(self, object, effort)
    }

    fn mount_waits(&self) -> bool {
        Self::mount_waits(self)
    }

    fn begin(&mut self, call: StoreCall, ticket: WaitTicket) -> Begun {
        self.begin_call(call, ticket)
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        self.next_call_done()
    }

    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall> {
        self.helpers.as_ref()?.withdraw(ticket)
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.serving.exports.names()
    }

    fn client_networks(&self, export: &str) -> Vec<String> {
        self.clients_of(export)
    }

    fn asks_for_proof(&self) -> bool {
        self.serving.access.is_some()
    }

    fn admits(&self, export: &str, caller: &Caller) -> Result<(), Status> {
        self.judge_client(export, caller)
    }

    fn admits_to(&self, object: &FileHandle, caller: &Caller) -> Result<(), Status> {
        self.judge_client_of(object, caller)
    }

    fn edition(&self) -> u64 {
        self.serving.edition
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        let exports = self.serving.exports.iter();
        exports.map(|export| export.root_with(Some(self.root_handle(export)))).collect()
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.shared.unpin(file);
    }

    fn has_local_locks(&self) -> bool {
        true
    }

    fn show_lock(
        &mut self,
        file: &FileHandle,
        range: LockRange,
        lock: Option<bool>,
    ) -> Result<(), LocalLock> {
        self.shared.show_lock(file, range, lock)
    }

    fn find_local_lock(
        &mut self,
        file: &FileHandle,
        range: LockRange,
        exclusive: bool,
    ) -> Option<LocalLock> {
        self.shared.find_local_lock(file, range, exclusive)
    }

    fn start_watching(&mut self) -> Result<(), StartError> {
        self.start_host_watch()
    }

    fn watch(&mut self, file: &FileHandle, change: u64) -> bool {
        self.watch_file(file, change)
    }

    fn unwatch(&mut self, file: &FileHandle) {
        self.unwatch_file(file);
    }

    fn next_touched(&mut self) -> Option<TouchedFile> {
        self.next_touched_file()
    }

    fn faults(&self) -> BTreeMap<String, u64> {
        self.shared().faults.counts()
    }

    fn verifier(&self) -> Verifier {
        self.shared().verifier()
    }

    fn flush(&mut self) -> io::Result<()> {
        Files::flush(self)
    }

    fn wants_idle_passes(&self) -> bool {
        Self::wants_idle_passes(self)
    }

    fn tidy(&mut self, now: stag_engine::Time) {
        Files::tidy(self, now);
    }

    fn next_fetched(&mut self) -> Option<Fetched> {
        Files::next_fetched(self)
    }
}

impl Procedures for Files {
    fn act_as(&mut self, caller: &Caller) {
        self.act_as_caller(caller);
    }

    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        let mounted = Files::mount(self, path);
        if faults::is_noted() {
            let found = self.serving.exports.by_path(path).map(|(export, _)| export);
            self.report_fault("MNT", found);
        }
        mounted
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        self.noting("GETATTR", file, |files| Files::getattr(files, file))
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        self.noting("SETATTR", file, |files| {
            SetDone::of(set, Files::setattr(files, file, set, guard))
        })
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        self.noting("LOOKUP", directory, |files| Files::lookup(files, directory, name))
    }

    fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> StoreResult<(Access, FileAttributes)> {
        self.noting("ACCESS", file, |files| Files::access(files, file, asked))
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        self.noting("READLINK", file, |files| {
            let Some(mut target) = lender(PATH_MAX) else {
                return Err(Failed {
                    status: Status::Jukebox,
                    about: Files::getattr(files, file).ok(),
                });
            };
            let room =
                target.spare_mut().get_mut(..PATH_MAX).expect("the buffer was taken for as many");
            let done = Files::readlink(files, file, room)?;
            target.extend(done.count as usize);
            Ok(ReadlinkDone { target: target.freeze(), attributes: done.attributes })
        })
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        self.noting("READ", file, |files| {
            let (mut octets, len) = files.buffer(lender, file, count)?;
            let room =
                octets.spare_mut().get_mut(..len).expect("`borrow` found a buffer for as many");
            let done = Files::read(files, file, offset, room)?;
            Ok(filled(octets, done, len < count as usize))
        })
    }

    fn begin_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        ReadSpan { offset, count }: ReadSpan,
        ticket: ReadTicket,
    ) -> StoreResult<Option<ReadDone>> {
        self.noting("READ", file, |files| {
            let (mut octets, len) = files.buffer(lender, file, count)?;
            let room =
                octets.spare_mut().get_mut(..len).expect("`borrow` found a buffer for as many");
            let missing = match files.read_unless_missing(file, offset, room, Miss::Tell)? {
                Ok(done) => return Ok(Some(filled(octets, done, len < count as usize))),
                Err(missing) => missing,
            };
            let Err(mut octets) = files.put_off(missing, offset, octets, ticket) else {
                return Ok(None);
            };
            if files.helpers.as_ref().is_some_and(Helpers::fetches_are_stuck) {
                // Waiting here would take as long as the calls already deferred.
                return Err(Failed { status: Status::Jukebox, about: None });
            }
            let room = octets.spare_mut().get_mut(..len).expect("it is the same buffer");
            let done = files.read_unless_missing(file, offset, room, Miss::Known)?;
            let done = done.expect("who waits misses nothing");
            Ok(Some(filled(octets, done, len < count as usize)))
        })
    }

    fn end_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        ReadSpan { offset, count }: ReadSpan,
        brought: Option<Brought>,
    ) -> StoreResult<ReadDone> {
        self.noting("READ", file, |files| {
            if let Some(Brought { octets, len, before }) = brought
                && let Some(done) =
                    files.read_brought(file, ByteRange { offset, len }, octets.len(), &before)?
            {
                return Ok(gathered(octets, done, len < count as usize));
            }
            Procedures::read(files, lender, file, offset, count)
        })
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        self.noting("WRITE", file, |files| {
            Files::write(files, file, offset, &mut [IoSlice::new(data.octets)], stable)
        })
    }

    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        self.noting("COMMIT", file, |files| Files::commit(files, file))
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.noting("CREATE", directory, |files| Files::create(files, directory, name, how))
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.noting("MKDIR", directory, |files| Files::mkdir(files, directory, name, set))
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.noting("SYMLINK", directory, |files| {
            Files::symlink(files, directory, name, target, set)
        })
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.noting("MKNOD", directory, |files| Files::mknod(files, directory, name, kind, set))
    }

    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.noting("MKNOD", directory, |files| {
            Files::mknod_device(files, directory, name, node, set)
        })
    }

    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("REMOVE", directory, |files| Files::remove(files, directory, name))
    }

    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("RMDIR", directory, |files| Files::rmdir(files, directory, name))
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        self.noting("RENAME", from.directory, |files| Files::rename(files, from, to))
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        self.noting("LINK", file, |files| Files::link(files, file, directory, name))
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.noting("READDIR", directory, |files| Files::readdir(files, directory, place, visit))
    }

    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.noting("READDIRPLUS", directory, |files| {
            Files::readdirplus(files, directory, place, visit)
        })
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)> {
        self.noting("FSSTAT", object, |files| Files::fsstat(files, object))
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        self.noting("FSINFO", object, |files| Files::fsinfo(files, object))
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)> {
        self.noting("PATHCONF", object, |files| Files::pathconf(files, object))
    }
}
