//! Execution of a [`StoreCall`] by a helper's store.

use std::collections::BTreeMap;

use stag_engine::Time;
use stag_pools::Extent;
use stag_protocol::nfs::v3::{FileHandle, FileKind, PlusRoom, ReadDirPlusArgs, Verifier};

use super::listing::{EntryDetail, EntryFiller};
use crate::{
    DeviceNode, ExportRoot, FilledLink, FilledListing, FilledRead, LISTING_MAX, Lender,
    ListingStart, MadeObject, NameIn, NewAttributes, ObjectChange, Procedures, Procedures4, Status,
    StoreCall, StoreOutcome, StoreRequest, StoreResult, TRANSFER_MAX, WritePayload, XATTR_MAX,
    start_error::StartError,
};

/// A store whose calls block, shared by all helpers and shards of a process.
pub trait Backend: Send + Sync {
    /// The store of helper number `helper`, made on its thread when it gets its first call.
    ///
    /// # Errors
    /// A sentence. The helper's calls then get NFS3ERR_JUKEBOX, and the next one retries.
    fn open_helper(&self, helper: usize) -> Result<Box<dyn HelperStore>, StartError>;

    /// The names of the exports, without the leading slash.
    fn exports(&self) -> Vec<String>;

    /// The exports as a pseudo file system shows them; a helper has to find their roots.
    fn export_roots(&self) -> Vec<ExportRoot>;

    /// Removes one pin of a file ([`Store::unpin`](crate::Store::unpin)) without blocking.
    fn unpin(&self, _file: &FileHandle) {}

    /// Errors so far that blame the file system, by export.
    fn faults(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The current write verifier; does not block.
    fn verifier(&self) -> Verifier;
}

/// A store as used by one helper. It never leaves the thread that made it.
pub trait HelperStore {
    /// Carries out a call as its caller, however long that takes.
    fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome;

    /// Releases resources that were unused for a while. Called about once a second while the helper
    /// is idle.
    fn tidy(&mut self, _now: Time) {}

    /// Returns true while [`tidy`](Self::tidy) has work.
    fn wants_tidying(&self) -> bool {
        false
    }
}

/// The procedures that read bytes to lent memory, for [`perform`].
pub trait FillRoom: Procedures + Procedures4 {
    /// READ (RFC 1813 §3.3.6) of bytes from `offset` on to the front of `room`.
    fn fill_read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead>;

    /// READLINK (RFC 1813 §3.3.5) to the front of `room`, which holds any path.
    fn fill_link(&mut self, link: &FileHandle, room: &mut [u8]) -> StoreResult<FilledLink>;

    /// [`Procedures4::get_xattr`] to the front of `room`; returns the length of the value.
    fn fill_xattr(
        &mut self,
        _file: &FileHandle,
        _name: &[u8],
        _room: &mut [u8],
    ) -> StoreResult<u32> {
        Err(Status::NotSupp.into())
    }

    /// [`Procedures4::list_xattrs`] to the front of `room`; returns the length of all names.
    fn fill_xattr_names(&mut self, _file: &FileHandle, _room: &mut [u8]) -> StoreResult<u32> {
        Err(Status::NotSupp.into())
    }
}

/// GETXATTR or LISTXATTRS to a buffer of the shard, through `fill`.
pub(crate) fn xattr_extent(
    lender: &Lender<'_>,
    fill: impl FnOnce(&mut [u8]) -> StoreResult<u32>,
) -> StoreResult<Extent> {
    let mut octets = lender(XATTR_MAX).ok_or(Status::Jukebox)?;
    let room = octets.spare_mut().get_mut(..XATTR_MAX).ok_or(Status::Jukebox)?;
    let len = fill(room)?;
    octets.extend(len as usize);
    Ok(octets.freeze())
}

/// Carries out a call by the methods of `store`.
pub fn perform(store: &mut impl FillRoom, call: &mut StoreCall) -> StoreOutcome {
    store.act_as(&call.caller);
    let StoreCall { operation, room, payload, .. } = call;
    let payload = payload.as_deref().unwrap_or_default();
    let room = room.as_deref_mut().unwrap_or_default();
    match operation {
        StoreRequest::Mount => StoreOutcome::Mounted(store.mount(payload)),
        StoreRequest::Read(args) => {
            let len = room.len().min(args.count.min(TRANSFER_MAX) as usize);
            let room = room.get_mut(..len).unwrap_or_default();
            StoreOutcome::Read(store.fill_read(&args.file, args.offset, room))
        }
        StoreRequest::ReadLink(args) => {
            StoreOutcome::ReadLink(store.fill_link(&args.symlink, room))
        }
        StoreRequest::ReadDir(args) => {
            let start = ListingStart::from(&*args);
            let listing = Listing { directory: args.dir, start, detail: EntryDetail::Names };
            StoreOutcome::Listed(listing.fill(store, room))
        }
        StoreRequest::ReadDirPlus(args) => {
            let start = ListingStart::plus(args, plus_room(args));
            let listing = Listing { directory: args.dir, start, detail: EntryDetail::Objects };
            StoreOutcome::Listed(listing.fill(store, room))
        }
        StoreRequest::GetXattr(at) => {
            StoreOutcome::Xattr(store.fill_xattr(&at.directory, at.name(), room))
        }
        StoreRequest::ListXattrs(file) => StoreOutcome::Xattr(store.fill_xattr_names(file, room)),
        other => perform_plain(store, other, payload),
    }
}

/// The room of a READDIRPLUS. The reply's fields before and after the entries are not counted
/// exactly, as this only saves looking up entries that do not fit.
fn plus_room(args: &ReadDirPlusArgs) -> PlusRoom {
    let all = args.max_count.min(LISTING_MAX) as usize;
    PlusRoom { names: args.dir_count as usize, all }
}

/// A listing to make.
struct Listing {
    directory: FileHandle,
    start: ListingStart,
    detail: EntryDetail,
}

impl Listing {
    fn fill(self, store: &mut impl Procedures, room: &mut [u8]) -> StoreResult<FilledListing> {
        let Self { directory, start, detail } = self;
        let before = store.getattr(&directory)?;
        let mut filler = EntryFiller::new(room, detail);
        let mut visit = |entry: &crate::ListedEntry<'_>| filler.push(entry);
        let listed = match detail {
            EntryDetail::Names => store.readdir(&directory, start, &mut visit)?,
            EntryDetail::Objects => store.readdirplus(&directory, start, &mut visit)?,
        };
        let (eof, verifier, attributes) = (listed.eof, listed.verifier, listed.attributes);
        Ok(FilledListing { len: filler.len(), eof, verifier, before, attributes })
    }
}

/// Carries out a call that needs no room.
fn perform_plain(
    store: &mut (impl Procedures + Procedures4),
    operation: &StoreRequest,
    payload: &[u8],
) -> StoreOutcome {
    match operation {
        StoreRequest::GetAttr(args) => StoreOutcome::Attributes(store.getattr(&args.object)),
        StoreRequest::SetAttr { file, set, guard } => {
            StoreOutcome::Set(store.setattr(file, set, *guard))
        }
        StoreRequest::Lookup(at) => StoreOutcome::Found(store.lookup(&at.directory, at.name())),
        StoreRequest::Access(args) => StoreOutcome::Access(store.access(&args.object, args.access)),
        StoreRequest::Write { file, offset, stable } => {
            let data = WritePayload::from(payload);
            StoreOutcome::Written(store.write(file, *offset, data, *stable))
        }
        StoreRequest::Create(at, how) => {
            StoreOutcome::Made(store.create(&at.directory, at.name(), how))
        }
        StoreRequest::MkDir(at, set) => {
            StoreOutcome::Made(store.mkdir(&at.directory, at.name(), set))
        }
        StoreRequest::Symlink(at, set) => {
            StoreOutcome::Made(store.symlink(&at.directory, at.name(), payload, set))
        }
        StoreRequest::MkNod(at, node, set) => {
            StoreOutcome::Made(make_node(store, at.place(), *node, set))
        }
        StoreRequest::Remove(at) => StoreOutcome::Changed(store.remove(&at.directory, at.name())),
        StoreRequest::RmDir(at) => StoreOutcome::Changed(store.rmdir(&at.directory, at.name())),
        StoreRequest::Rename(from, to) => {
            StoreOutcome::Renamed(store.rename(from.place(), to.place()))
        }
        StoreRequest::Link(file, at) => {
            StoreOutcome::Linked(store.link(file, &at.directory, at.name()))
        }
        StoreRequest::FsStat(args) => StoreOutcome::FsStat(store.fsstat(&args.object)),
        StoreRequest::FsInfo(args) => StoreOutcome::FsInfo(store.fsinfo(&args.object)),
        StoreRequest::PathConf(args) => StoreOutcome::PathConf(store.pathconf(&args.object)),
        StoreRequest::Commit(args) => StoreOutcome::Committed(store.commit(&args.file)),
        other => perform_more(store, other, payload),
    }
}

/// Carries out a version 4 call that needs no room.
fn perform_more(
    store: &mut (impl Procedures + Procedures4),
    operation: &StoreRequest,
    payload: &[u8],
) -> StoreOutcome {
    match operation {
        StoreRequest::LookupParent(object) => StoreOutcome::Found(store.lookupp(object)),
        StoreRequest::Pin(file) => StoreOutcome::Pinned(store.pin(file)),
        StoreRequest::Seek(file, offset, what) => {
            StoreOutcome::Sought(store.seek(file, *offset, *what))
        }
        StoreRequest::Allocate(file, span) => StoreOutcome::Changed(store.allocate(file, *span)),
        StoreRequest::Deallocate(file, span) => {
            StoreOutcome::Changed(store.deallocate(file, *span))
        }
        StoreRequest::Copy { from, to, count } => {
            StoreOutcome::Copied(store.copy(*from, *to, *count))
        }
        StoreRequest::Clone { from, to, count } => {
            StoreOutcome::Changed(store.clone_range(*from, *to, *count))
        }
        StoreRequest::SetXattr(at, how) => {
            StoreOutcome::Changed(store.set_xattr(&at.directory, at.name(), payload, *how))
        }
        StoreRequest::RemoveXattr(at) => {
            StoreOutcome::Changed(store.remove_xattr(&at.directory, at.name()))
        }
        StoreRequest::Limits(object) => StoreOutcome::Limits(store.limits(object)),
        _ => StoreOutcome::Failed(Status::ServerFault),
    }
}

/// Makes a special file of any kind.
pub fn make_node(
    store: &mut (impl Procedures + ?Sized),
    place: NameIn<'_, &FileHandle>,
    node: DeviceNode,
    set: &NewAttributes,
) -> StoreResult<MadeObject, ObjectChange> {
    let NameIn { directory, name } = place;
    match node.kind {
        FileKind::Character | FileKind::Block => store.mknod_device(directory, name, node, set),
        kind => store.mknod(directory, name, kind, set),
    }
}
