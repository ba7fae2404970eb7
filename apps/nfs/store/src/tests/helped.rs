//! A store whose calls are all executed like a helper's: as owned operations, with lent memory, to
//! outcomes that are answered later.

use stag_protocol::nfs::v3::{ReadArgs, ReadDirArgs, ReadDirPlusArgs, ReadLinkArgs, Verifier};
use std::io;

use stag_engine::PeerAddress;
use stag_nfs_os::{OctetsKeeper, RoomKeeper};
use stag_pools::{Class, Extent, Pool};

use crate::{procedure_types::*, *};

/// See the module.
pub(super) struct Helped<S> {
    pub(super) store: S,
    caller: Caller,
    pool: Pool,
}

impl<S: FillRoom> Helped<S> {
    pub(super) fn new(store: S) -> Self {
        let caller = Caller::trusted(User::Anyone, PeerAddress::Simulated);
        let pool = Pool::new(&[Class { slot_len: 1 << 20, count: 4 }]).unwrap();
        Self { store, caller, pool }
    }

    /// Executes a call as a helper does; returns the store that answers it.
    fn answered(&mut self, operation: StoreRequest) -> Answered {
        self.carry_out(operation, &[])
    }

    fn carry_out(&mut self, operation: StoreRequest, octets: &[u8]) -> Answered {
        let mut copy = self.pool.take(octets.len()).unwrap();
        copy.append(octets).unwrap();
        let (payload_keeper, payload) = OctetsKeeper::lend(copy.freeze());
        let buf = self.pool.take(operation.room_len()).unwrap();
        let (room_keeper, room) = RoomKeeper::lend(buf, operation.room_len());
        let (room, payload) = (Some(room), Some(payload));
        let mut call = StoreCall { caller: self.caller, operation, room, payload };
        let outcome = perform(&mut self.store, &mut call);
        drop(payload_keeper.regain(call.payload.unwrap()));
        Answered::new(outcome, Some(room_keeper.regain(call.room.unwrap())))
    }
}

impl<S: FillRoom + Store> Store for Helped<S> {
    type Now = Self;

    fn now(&mut self) -> &mut Self {
        self
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.store.exports()
    }

    fn verifier(&self) -> Verifier {
        self.store.verifier()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.store.export_roots()
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.store.unpin(file);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.store.flush()
    }

    fn pool(&self) -> Option<&Pool> {
        self.store.pool()
    }
}

/// Makes procedures of the [table](crate::store_procedures).
macro_rules! helped {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        $(fn $method(&mut self, $($arg: $lent),*) -> $result {
            let request = StoreRequest::$variant { $($arg: Own::<$owned>::own(&$arg)),* };
            let lent = [$(Own::<$owned>::lent(&$arg)),*].into_iter().flatten().next();
            self.carry_out(request, lent.unwrap_or_default()).$method($($arg),*)
        })*
    };
}

impl<S: FillRoom> Procedures for Helped<S> {
    fn act_as(&mut self, caller: &Caller) {
        self.caller = *caller;
    }

    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        self.carry_out(StoreRequest::Mount, path).mount(path)
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        self.answered(StoreRequest::ReadLink(ReadLinkArgs { symlink: *file }))
            .readlink(lender, file)
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let args = ReadArgs { file: *file, offset, count };
        self.answered(StoreRequest::Read(args)).read(lender, file, offset, count)
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let (cookie, verifier) = (place.cookie, place.verifier);
        let args = ReadDirArgs { dir: *directory, cookie, verifier, count: 8_000 };
        self.answered(StoreRequest::ReadDir(args)).readdir(directory, place, visit)
    }

    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let (cookie, verifier) = (place.cookie, place.verifier);
        let (dir_count, max_count) = (LISTING_MAX, LISTING_MAX);
        let args = ReadDirPlusArgs { dir: *directory, cookie, verifier, dir_count, max_count };
        self.answered(StoreRequest::ReadDirPlus(args)).readdirplus(directory, place, visit)
    }

    crate::store_procedures!(version3 helped);
}

impl<S: FillRoom> Procedures4 for Helped<S> {
    fn get_xattr(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Extent> {
        let request = StoreRequest::GetXattr { file: *file, name: OwnedName::new(name) };
        self.answered(request).get_xattr(lender, file, name)
    }

    fn list_xattrs(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        self.answered(StoreRequest::ListXattrs(*file)).list_xattrs(lender, file)
    }

    fn get_acls(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        self.answered(StoreRequest::GetAcls(*file)).get_acls(lender, file)
    }

    crate::store_procedures!(version4 helped);
}
