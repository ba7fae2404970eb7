//! CREATE, MKDIR, SYMLINK and MKNOD (RFC 1813 §3.3.8–3.3.11).

use stag_protocol::nfs::v3::{
    CreateArgs, CreateOk, CreateResult, MkDirArgs, MkNodArgs, NodeKind, SetAttributes, SymlinkArgs, WccData,
};

use super::failure;
use crate::store::{Failed, Made, files::Files};

pub(super) fn create(files: &mut Files, args: &CreateArgs<'_>) -> CreateResult {
    made(files.create(&args.place.dir, args.place.name.0, &args.how))
}

pub(super) fn mkdir(files: &mut Files, args: &MkDirArgs<'_>) -> CreateResult {
    made(files.mkdir(&args.place.dir, args.place.name.0, &args.attributes))
}

pub(super) fn symlink(files: &mut Files, args: &SymlinkArgs<'_>) -> CreateResult {
    let target = args.path.octets().expect("a parsed path is there");
    made(files.symlink(&args.place.dir, args.place.name.0, target, &args.attributes))
}

pub(super) fn mknod(files: &mut Files, args: &MkNodArgs<'_>) -> CreateResult {
    let attributes = match args.what {
        NodeKind::Character(attributes, _)
        | NodeKind::Block(attributes, _)
        | NodeKind::Socket(attributes)
        | NodeKind::Fifo(attributes) => attributes,
        // The store refuses these with NFS3ERR_BADTYPE.
        NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => SetAttributes::default(),
    };
    made(files.mknod(&args.place.dir, args.place.name.0, args.what.kind(), &attributes))
}

fn made(outcome: Result<Made, Failed<WccData>>) -> CreateResult {
    let made = outcome.map_err(failure)?;
    Ok(CreateOk { object: Some(made.handle), attributes: Some(made.attributes), dir_wcc: made.directory })
}
