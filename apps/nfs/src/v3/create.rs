//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8–3.3.11).

use stag_protocol::nfs::v3::{
    CreateArgs, CreateOk, CreateResult, MkDirArgs, MkNodArgs, NodeKind, SetAttributes, SymlinkArgs,
    WccData,
};

use super::failure;
use crate::store::{DeviceNode, Failed, MadeObject, Store};

pub(super) fn create(store: &mut impl Store, args: &CreateArgs<'_>) -> CreateResult {
    made(store.create(&args.place.dir, args.place.name.0, &args.how))
}

pub(super) fn mkdir(store: &mut impl Store, args: &MkDirArgs<'_>) -> CreateResult {
    made(store.mkdir(&args.place.dir, args.place.name.0, &args.attributes))
}

pub(super) fn symlink(store: &mut impl Store, args: &SymlinkArgs<'_>) -> CreateResult {
    let target = args.path.octets().expect("a parsed path is there");
    made(store.symlink(&args.place.dir, args.place.name.0, target, &args.attributes))
}

pub(super) fn mknod(store: &mut impl Store, args: &MkNodArgs<'_>) -> CreateResult {
    let (directory, name, kind) = (&args.place.dir, args.place.name.0, args.what.kind());
    let attributes = match args.what {
        NodeKind::Character(attributes, device) | NodeKind::Block(attributes, device) => {
            return made(store.mknod_device(
                directory,
                name,
                DeviceNode { kind, device },
                &attributes,
            ));
        }
        NodeKind::Socket(attributes) | NodeKind::Fifo(attributes) => attributes,
        // The store refuses these with NFS3ERR_BADTYPE.
        NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => SetAttributes::default(),
    };
    made(store.mknod(directory, name, kind, &attributes))
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
