//! [`Files`] as a [`Store`]: content is read to the shard's buffers, and written from the call's
//! memory.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
};

use stag_engine::{PeerAddress, config};
use stag_pools::Buf;
use stag_protocol::nfs::{
    v3::{
        Access, AttributeOctets, FileHandle, FsInfo, FsStat, PATH_MAX, PathConf, StableHow, Status,
        Verifier,
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
    exports::{faults, security::SecurityFlavors},
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
    /// SETATTR as [`Files::set_attributes`], with the attributes that were set.
    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        SetDone::of(set, self.set_attributes(file, set, guard))
    }

    /// WRITE of the bytes of a call.
    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        self.write_slices(file, offset, &mut [IoSlice::new(data.octets)], stable)
    }

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

    fn has_security(&self) -> bool {
        self.has_flavors()
    }

    fn flavors(&self, export: &str, address: PeerAddress) -> Option<SecurityFlavors> {
        self.flavors_of_export(export, address)
    }

    fn flavors_of(&self, object: &FileHandle, address: PeerAddress) -> Option<SecurityFlavors> {
        self.flavors_of_object(object, address)
    }

    fn export_of(&self, object: &FileHandle) -> Option<&str> {
        self.export_named(object).map(|export| export.name())
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

/// Makes the procedures of the [table](crate::store_procedures): each is the method of that name,
/// whose faults are noted.
macro_rules! noted {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident,
            [$object:expr $(, $other:expr)*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        $(fn $method(&mut self, $($arg: $lent),*) -> $result {
            self.noting($label, $object, |files| Files::$method(files, $($arg),*))
        })*
    };
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

    crate::store_procedures!(version3 noted);
}
