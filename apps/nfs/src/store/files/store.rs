//! [`Files`] as a [`Store`]: content is read to buffers of the shard, and written from wherever the
//! call has it.

use std::io::{self, IoSlice};

use stag_engine::config;
use stag_pools::Buf;
use stag_protocol::nfs::v3::{
    Access, AttributeOctets, FileHandle, FileKind, FsInfo, FsStat, PATH_MAX, PathConf, StableHow,
    Status, Verifier,
};
use stag_protocol::nfs::v4::state::LockRange;

use super::data::FileRange;
use super::{
    Files,
    data::{self, Miss},
};
use crate::helpers::{Helpers, ReadTicket};
use crate::state::StartError;
use crate::store::{
    Begun, Brought, Caller, CommitDone, CreateMode, DeviceNode, Effort, ExportRoot, Failed,
    Fetched, FileAttributes, FileTime, FoundObject, Lender, Linked, Listed, ListingStart,
    LocalLock, MadeObject, NameIn, NewAttributes, ObjectChange, Procedures, ReadDone, ReadSpan,
    ReadlinkDone, Renamed, SetDone, Store, StoreCall, StoreCallDone, StoreResult, TouchedFile,
    Visitor, WaitTicket, WriteDone, WritePayload,
};

/// A buffer for `wanted` octets, or for as many as there is memory for: a READ may return less than
/// was asked for.
fn borrow(lender: &Lender<'_>, wanted: usize) -> Option<(Buf, usize)> {
    let lens = [wanted, wanted.min(config::MEDIUM_LEN), wanted.min(config::INLINE_LEN)];
    lens.into_iter().find_map(|len| lender(len).map(|buf| (buf, len)))
}

/// A READ whose octets are at the front of a buffer's spare room.
fn filled(mut octets: Buf, done: data::ReadDone, is_cut: bool) -> ReadDone {
    octets.extend(done.count as usize);
    gathered(octets, done, is_cut)
}

/// A READ whose octets are a buffer's content.
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
        self.serving.exports.iter().map(|export| export.name())
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
        Files::mount(self, path)
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        Files::getattr(self, file)
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        SetDone::of(set, Files::setattr(self, file, set, guard))
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        Files::lookup(self, directory, name)
    }

    fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> StoreResult<(Access, FileAttributes)> {
        Files::access(self, file, asked)
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        let Some(mut target) = lender(PATH_MAX) else {
            return Err(Failed { status: Status::Jukebox, about: Files::getattr(self, file).ok() });
        };
        let room =
            target.spare_mut().get_mut(..PATH_MAX).expect("the buffer was taken for as many");
        let done = Files::readlink(self, file, room)?;
        target.extend(done.count as usize);
        Ok(ReadlinkDone { target: target.freeze(), attributes: done.attributes })
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let (mut octets, len) = self.buffer(lender, file, count)?;
        let room = octets.spare_mut().get_mut(..len).expect("`borrow` found a buffer for as many");
        let done = Files::read(self, file, offset, room)?;
        Ok(filled(octets, done, len < count as usize))
    }

    fn begin_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        ReadSpan { offset, count }: ReadSpan,
        ticket: ReadTicket,
    ) -> StoreResult<Option<ReadDone>> {
        let (mut octets, len) = self.buffer(lender, file, count)?;
        let room = octets.spare_mut().get_mut(..len).expect("`borrow` found a buffer for as many");
        let missing = match self.read_unless_missing(file, offset, room, Miss::Tell)? {
            Ok(done) => return Ok(Some(filled(octets, done, len < count as usize))),
            Err(missing) => missing,
        };
        let Err(mut octets) = self.put_off(missing, offset, octets, ticket) else {
            return Ok(None);
        };
        if self.helpers.as_ref().is_some_and(Helpers::fetches_are_stuck) {
            // Whoever waited here would wait as long as those do.
            return Err(Failed { status: Status::Jukebox, about: None });
        }
        let room = octets.spare_mut().get_mut(..len).expect("it is the same buffer");
        let done = self.read_unless_missing(file, offset, room, Miss::Known)?;
        let done = done.expect("who waits misses nothing");
        Ok(Some(filled(octets, done, len < count as usize)))
    }

    fn end_read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        ReadSpan { offset, count }: ReadSpan,
        brought: Option<Brought>,
    ) -> StoreResult<ReadDone> {
        if let Some(Brought { octets, len, before }) = brought
            && let Some(done) =
                self.read_brought(file, FileRange { offset, len }, octets.len(), &before)?
        {
            return Ok(gathered(octets, done, len < count as usize));
        }
        Procedures::read(self, lender, file, offset, count)
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        Files::write(self, file, offset, &mut [IoSlice::new(data.octets)], stable)
    }

    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        Files::commit(self, file)
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        Files::create(self, directory, name, how)
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        Files::mkdir(self, directory, name, set)
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        Files::symlink(self, directory, name, target, set)
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        Files::mknod(self, directory, name, kind, set)
    }

    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        Files::mknod_device(self, directory, name, node, set)
    }

    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Files::remove(self, directory, name)
    }

    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        Files::rmdir(self, directory, name)
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        Files::rename(self, from, to)
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        Files::link(self, file, directory, name)
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        Files::readdir(self, directory, place, visit)
    }

    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        Files::readdirplus(self, directory, place, visit)
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)> {
        Files::fsstat(self, object)
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        Files::fsinfo(self, object)
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)> {
        Files::pathconf(self, object)
    }
}
