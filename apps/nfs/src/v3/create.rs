//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8–3.3.11).

use stag_protocol::nfs::v3::{
    CreateArgs, CreateOk, CreateResult, MkDirArgs, MkNodArgs, SymlinkArgs, WccData,
};

use super::failure;
use crate::store::{Failed, MadeObject, Procedures, make_node};

pub(super) fn create(store: &mut impl Procedures, args: &CreateArgs<'_>) -> CreateResult {
    made(store.create(&args.place.dir, args.place.name.0, &args.how))
}

pub(super) fn mkdir(store: &mut impl Procedures, args: &MkDirArgs<'_>) -> CreateResult {
    made(store.mkdir(&args.place.dir, args.place.name.0, &args.attributes))
}

pub(super) fn symlink(store: &mut impl Procedures, args: &SymlinkArgs<'_>) -> CreateResult {
    let target = args.path.octets().expect("a parsed path is there");
    made(store.symlink(&args.place.dir, args.place.name.0, target, &args.attributes))
}

pub(super) fn mknod(store: &mut impl Procedures, args: &MkNodArgs<'_>) -> CreateResult {
    made(make_node(store, args))
}

fn made(outcome: Result<MadeObject, Failed<WccData>>) -> CreateResult {
    let made = outcome.map_err(failure)?;
    // RFC 1813 §3.3.8 [1813-62]: a new object is returned with handle and attributes
    Ok(CreateOk {
        object: Some(made.handle),
        attributes: Some(made.attributes),
        dir_wcc: made.directory,
    })
}
