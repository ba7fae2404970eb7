//! REMOVE, RMDIR, RENAME and LINK (RFC 1813 §3.3.12–3.3.15).

use stag_protocol::nfs::v3::{
    Failure, LinkArgs, LinkResult, LinkWcc, RemoveArgs, RemoveResult, RenameArgs, RenameResult,
    RenameWcc,
};

use super::failure;
use crate::store::{Linked, NameIn, Procedures, Renamed};

pub(super) fn remove(store: &mut impl Procedures, args: &RemoveArgs<'_>) -> RemoveResult {
    store.remove(&args.object.dir, args.object.name.0).map_err(failure)
}

pub(super) fn rmdir(store: &mut impl Procedures, args: &RemoveArgs<'_>) -> RemoveResult {
    store.rmdir(&args.object.dir, args.object.name.0).map_err(failure)
}

pub(super) fn rename(store: &mut impl Procedures, args: &RenameArgs<'_>) -> RenameResult {
    let wcc = |about: Renamed| RenameWcc { from_dir: about.from, to_dir: about.to };
    match store.rename(
        NameIn::new(&args.from.dir, args.from.name.0),
        NameIn::new(&args.to.dir, args.to.name.0),
    ) {
        Ok(about) => Ok(wcc(about)),
        Err(failed) => Err(Failure { status: failed.status, attributes: wcc(failed.about) }),
    }
}

pub(super) fn link(store: &mut impl Procedures, args: &LinkArgs<'_>) -> LinkResult {
    let wcc = |about: Linked| LinkWcc { attributes: about.file, dir_wcc: about.directory };
    match store.link(&args.file, &args.link.dir, args.link.name.0) {
        Ok(about) => Ok(wcc(about)),
        Err(failed) => Err(Failure { status: failed.status, attributes: wcc(failed.about) }),
    }
}
