//! REMOVE, RMDIR, RENAME and LINK (RFC 1813 §3.3.12–3.3.15).

use stag_protocol::nfs::v3::{
    LinkArgs, LinkResult, RemoveArgs, RemoveResult, RenameArgs, RenameResult,
};

use stag_nfs_store::{NameIn, Procedures};

pub(super) fn remove(store: &mut impl Procedures, args: &RemoveArgs<'_>) -> RemoveResult {
    Ok(store.remove(&args.object.dir, args.object.name.0)?.into())
}

pub(super) fn rmdir(store: &mut impl Procedures, args: &RemoveArgs<'_>) -> RemoveResult {
    Ok(store.rmdir(&args.object.dir, args.object.name.0)?.into())
}

pub(super) fn rename(store: &mut impl Procedures, args: &RenameArgs<'_>) -> RenameResult {
    let renamed = store.rename(
        NameIn::new(&args.from.dir, args.from.name.0),
        NameIn::new(&args.to.dir, args.to.name.0),
    )?;
    Ok(renamed.into())
}

pub(super) fn link(store: &mut impl Procedures, args: &LinkArgs<'_>) -> LinkResult {
    Ok(store.link(&args.file, &args.link.dir, args.link.name.0)?.into())
}
