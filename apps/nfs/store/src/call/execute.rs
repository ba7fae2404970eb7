//! Execution of a [`StoreCall`] by a helper's store.

use std::collections::BTreeMap;

use stag_engine::Time;
use stag_pools::Extent;
use stag_protocol::nfs::v3::{FileHandle, PlusRoom, ReadDirPlusArgs, Verifier};

use super::{
    arguments::Lend,
    listing::{EntryDetail, EntryFiller},
};
use crate::{
    ExportRoot, FilledLink, FilledListing, FilledRead, LISTING_MAX, Lender, ListingStart,
    Procedures, Procedures4, Status, StoreCall, StoreOutcome, StoreRequest, StoreResult,
    TRANSFER_MAX, exports::security::SecurityFlavors, start_error::StartError,
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

    /// As [`Store::has_security`](crate::Store::has_security), and never changes.
    fn has_security(&self) -> bool {
        false
    }

    /// As [`Store::flavors`](crate::Store::flavors), the same for all addresses.
    fn flavors(&self, _export: &str) -> Option<SecurityFlavors> {
        None
    }

    /// The same for the export of an object, without blocking. The handle is not verified.
    fn flavors_of(&self, _object: &FileHandle) -> Option<SecurityFlavors> {
        None
    }

    /// Returns true if an object is the root of an export, as far as that is known without
    /// blocking.
    fn is_root(&self, object: &FileHandle) -> bool {
        self.export_roots().iter().any(|export| export.root.as_ref() == Some(object))
    }

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

    /// [`Procedures4::get_acls`] to the front of `room`; returns the length of both lists.
    fn fill_acls(&mut self, _file: &FileHandle, _room: &mut [u8]) -> StoreResult<u32> {
        Err(Status::NotSupp.into())
    }
}

/// GETXATTR, LISTXATTRS or GETACL to a buffer of the shard with `room_len` bytes, through `fill`.
pub(crate) fn filled_extent(
    lender: &Lender<'_>,
    room_len: usize,
    fill: impl FnOnce(&mut [u8]) -> StoreResult<u32>,
) -> StoreResult<Extent> {
    let mut octets = lender(room_len).ok_or(Status::Jukebox)?;
    let room = octets.spare_mut().get_mut(..room_len).ok_or(Status::Jukebox)?;
    let len = fill(room)?;
    octets.extend(len as usize);
    Ok(octets.freeze())
}

/// Makes [`perform`] of the table of [procedures](crate::store_procedures).
macro_rules! execution {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
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
                    let detail = EntryDetail::Names;
                    let listing = Listing { directory: args.dir, start, detail };
                    StoreOutcome::Listed(listing.fill(store, room))
                }
                StoreRequest::ReadDirPlus(args) => {
                    let start = ListingStart::plus(args, plus_room(args));
                    let detail = EntryDetail::Objects;
                    let listing = Listing { directory: args.dir, start, detail };
                    StoreOutcome::Listed(listing.fill(store, room))
                }
                StoreRequest::GetXattr { file, name } => {
                    StoreOutcome::Xattr(store.fill_xattr(file, name.octets(), room))
                }
                StoreRequest::ListXattrs(file) => {
                    StoreOutcome::Xattr(store.fill_xattr_names(file, room))
                }
                StoreRequest::GetAcls(file) => StoreOutcome::Xattr(store.fill_acls(file, room)),
                $(StoreRequest::$variant { $($arg),* } => {
                    StoreOutcome::$outcome(store.$method($(Lend::lend($arg, payload)),*))
                })*
            }
        }
    };
}

crate::store_procedures!(all execution);

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
