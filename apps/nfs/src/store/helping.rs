//! Carrying out a [`StoreCall`]: what a helper has of a store.

use stag_engine::Time;
use stag_protocol::nfs::v3::{
    Call, FileHandle, MkNodArgs, NodeKind, PlusRoom, ReadDirPlusArgs, SetAttributes, Status,
    Verifier, WccData,
};

use super::listing::{EntryDetail, EntryFiller};
use super::{
    DeviceNode, FilledLink, FilledListing, FilledRead, LISTING_MAX, ListingStart, MadeObject,
    NameIn, Procedures, StoreCall, StoreOperation, StoreOutcome, StoreResult, TRANSFER_MAX,
    WritePayload,
};
use crate::state::StartError;

/// A store whose calls wait, shared by all helpers and shards of a process.
pub trait Backend: Send + Sync {
    /// The store of helper number `helper`, made on its thread when it gets its first call.
    ///
    /// # Errors
    /// A sentence. Its calls are then answered with NFS3ERR_JUKEBOX, and the next one tries again.
    fn open_helper(&self, helper: usize) -> Result<Box<dyn HelperStore>, StartError>;

    /// The names of the exports, without the slash before them.
    fn exports(&self) -> Vec<String>;

    /// The write verifier at this moment. Waits for nothing.
    fn verifier(&self) -> Verifier;
}

/// A store as one helper has it. It never leaves the thread that made it.
pub trait HelperStore {
    /// Carries out a call as its caller, however long that takes.
    fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome;

    /// Lets go of what nobody used for a while. Called about once a second while the helper has
    /// nothing to do.
    fn tidy(&mut self, _now: Time) {}

    /// Returns true while [`tidy`](Self::tidy) has anything to do.
    fn wants_tidying(&self) -> bool {
        false
    }
}

/// The procedures that bring octets to memory that is lent, for [`perform`].
pub trait FillRoom: Procedures {
    /// READ (RFC 1813 §3.3.6) of octets from `offset` on to the front of `room`.
    fn fill_read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead>;

    /// READLINK (RFC 1813 §3.3.5) to the front of `room`, which holds any path.
    fn fill_link(&mut self, link: &FileHandle, room: &mut [u8]) -> StoreResult<FilledLink>;
}

/// Carries out a call by the methods of `store`.
pub fn perform(store: &mut impl FillRoom, call: &mut StoreCall) -> StoreOutcome {
    store.act_as(&call.caller);
    let StoreCall { operation, room, payload, .. } = call;
    let payload = payload.as_deref().unwrap_or_default();
    let room = room.as_deref_mut().unwrap_or_default();
    match operation {
        StoreOperation::Mount => StoreOutcome::Mounted(store.mount(payload)),
        StoreOperation::Read(args) => {
            let len = room.len().min(args.count.min(TRANSFER_MAX) as usize);
            let room = room.get_mut(..len).unwrap_or_default();
            StoreOutcome::Read(store.fill_read(&args.file, args.offset, room))
        }
        StoreOperation::ReadLink(args) => {
            StoreOutcome::ReadLink(store.fill_link(&args.symlink, room))
        }
        StoreOperation::ReadDir(args) => {
            let (count, start) = (args.count, ListingStart::from(&*args));
            let listing = Listing { directory: args.dir, start, count, detail: EntryDetail::Names };
            StoreOutcome::Listed(listing.fill(store, room))
        }
        StoreOperation::ReadDirPlus(args) => {
            let (count, start) = (args.max_count, ListingStart::plus(args, plus_room(args)));
            let detail = EntryDetail::Objects;
            let listing = Listing { directory: args.dir, start, count, detail };
            StoreOutcome::Listed(listing.fill(store, room))
        }
        other => match other.call(payload) {
            Some(call) => perform_plain(store, &call),
            None => StoreOutcome::Failed(Status::ServerFault),
        },
    }
}

/// The room of a READDIRPLUS: what the reply has in front of its entries and behind is not counted
/// exactly, as it only spares looks at entries that do not fit.
fn plus_room(args: &ReadDirPlusArgs) -> PlusRoom {
    let all = args.max_count.min(LISTING_MAX) as usize;
    PlusRoom { names: args.dir_count as usize, all }
}

/// A listing to be made.
struct Listing {
    directory: FileHandle,
    start: ListingStart,
    count: u32,
    detail: EntryDetail,
}

impl Listing {
    fn fill(self, store: &mut impl Procedures, room: &mut [u8]) -> StoreResult<FilledListing> {
        let Self { directory, start, count, detail } = self;
        let len = room.len().min(count.min(LISTING_MAX) as usize);
        let before = store.getattr(&directory)?;
        let mut filler = EntryFiller::new(room.get_mut(..len).unwrap_or_default(), detail);
        let mut visit = |entry: &super::ListedEntry<'_>| filler.push(entry);
        let listed = match detail {
            EntryDetail::Names => store.readdir(&directory, start, &mut visit)?,
            EntryDetail::Objects => store.readdirplus(&directory, start, &mut visit)?,
        };
        let (eof, verifier, attributes) = (listed.eof, listed.verifier, listed.attributes);
        Ok(FilledListing { len: filler.len(), eof, verifier, before, attributes })
    }
}

/// Carries out a call that needs no room.
fn perform_plain(store: &mut impl Procedures, call: &Call<'_>) -> StoreOutcome {
    match call {
        Call::GetAttr(args) => StoreOutcome::Attributes(store.getattr(&args.object)),
        Call::SetAttr(args) => {
            StoreOutcome::Changed(store.setattr(&args.object, &args.attributes, args.guard))
        }
        Call::Lookup(args) => StoreOutcome::Found(store.lookup(&args.what.dir, args.what.name.0)),
        Call::Access(args) => StoreOutcome::Access(store.access(&args.object, args.access)),
        Call::Write(args) => {
            let octets = args.data.octets().unwrap_or_default();
            let data = WritePayload::from(octets);
            StoreOutcome::Written(store.write(&args.file, args.offset, data, args.stable))
        }
        Call::Create(args) => {
            StoreOutcome::Made(store.create(&args.place.dir, args.place.name.0, &args.how))
        }
        Call::MkDir(args) => {
            StoreOutcome::Made(store.mkdir(&args.place.dir, args.place.name.0, &args.attributes))
        }
        Call::Symlink(args) => {
            let target = args.path.octets().unwrap_or_default();
            let (place, set) = (&args.place, &args.attributes);
            StoreOutcome::Made(store.symlink(&place.dir, place.name.0, target, set))
        }
        Call::MkNod(args) => StoreOutcome::Made(make_node(store, args)),
        Call::Remove(args) => {
            StoreOutcome::Changed(store.remove(&args.object.dir, args.object.name.0))
        }
        Call::RmDir(args) => {
            StoreOutcome::Changed(store.rmdir(&args.object.dir, args.object.name.0))
        }
        Call::Rename(args) => StoreOutcome::Renamed(store.rename(
            NameIn::new(&args.from.dir, args.from.name.0),
            NameIn::new(&args.to.dir, args.to.name.0),
        )),
        Call::Link(args) => {
            StoreOutcome::Linked(store.link(&args.file, &args.link.dir, args.link.name.0))
        }
        Call::FsStat(args) => StoreOutcome::FsStat(store.fsstat(&args.object)),
        Call::FsInfo(args) => StoreOutcome::FsInfo(store.fsinfo(&args.object)),
        Call::PathConf(args) => StoreOutcome::PathConf(store.pathconf(&args.object)),
        Call::Commit(args) => StoreOutcome::Committed(store.commit(&args.file)),
        Call::Null
        | Call::Read(_)
        | Call::ReadLink(_)
        | Call::ReadDir(_)
        | Call::ReadDirPlus(_) => StoreOutcome::Failed(Status::ServerFault),
    }
}

/// Carries out a MKNOD of whatever kind.
pub(crate) fn make_node(
    store: &mut (impl Procedures + ?Sized),
    args: &MkNodArgs<'_>,
) -> StoreResult<MadeObject, WccData> {
    let (directory, name, kind) = (&args.place.dir, args.place.name.0, args.what.kind());
    let attributes = match args.what {
        NodeKind::Character(attributes, device) | NodeKind::Block(attributes, device) => {
            return store.mknod_device(directory, name, DeviceNode { kind, device }, &attributes);
        }
        NodeKind::Socket(attributes) | NodeKind::Fifo(attributes) => attributes,
        // The store refuses these with NFS3ERR_BADTYPE.
        NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => SetAttributes::default(),
    };
    store.mknod(directory, name, kind, &attributes)
}
