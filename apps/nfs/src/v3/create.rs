//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8–3.3.11).

use stag_protocol::nfs::v3::{
    CreateArgs, CreateOk, CreateResult, MkDirArgs, MkNodArgs, SymlinkArgs,
};

use stag_nfs_store::{DeviceNode, Failed, MadeObject, NewAttributes, ObjectChange, Procedures};

pub(super) fn create(store: &mut impl Procedures, args: &CreateArgs<'_>) -> CreateResult {
    made(store.create(&args.place.dir, args.place.name.0, &(&args.how).into()))
}

pub(super) fn mkdir(store: &mut impl Procedures, args: &MkDirArgs<'_>) -> CreateResult {
    made(store.mkdir(&args.place.dir, args.place.name.0, &(&args.attributes).into()))
}

pub(super) fn symlink(store: &mut impl Procedures, args: &SymlinkArgs<'_>) -> CreateResult {
    let target = args.path.octets().expect("a parsed path is there");
    made(store.symlink(&args.place.dir, args.place.name.0, target, &(&args.attributes).into()))
}

pub(super) fn mknod(store: &mut impl Procedures, args: &MkNodArgs<'_>) -> CreateResult {
    let (node, set) = (DeviceNode::from(&args.what), NewAttributes::from(&args.what));
    made(store.mknod(&args.place.dir, args.place.name.0, node, &set))
}

fn made(outcome: Result<MadeObject, Failed<ObjectChange>>) -> CreateResult {
    let made = outcome?;
    // RFC 1813 §3.3.8 [1813-62]: a new object is returned with handle and attributes
    Ok(CreateOk {
        object: Some(made.handle),
        attributes: Some(made.attributes.into()),
        dir_wcc: made.directory.into(),
    })
}
