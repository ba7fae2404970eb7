//! The calls that make a file, and the handles that inputs have instead of the server's own.

use crate::octets::{Called, written};
use stag_protocol::{
    nfs::{mount, v3},
    rpc::{Auth, Credential, ReplyHeader},
    xdr::{Codec, Reader},
};

/// Stands for the handle of the exported directory.
pub const ROOT: [u8; HANDLE_LEN] = [b'R'; HANDLE_LEN];
/// Stands for the handle of a file in it.
pub const FILE: [u8; HANDLE_LEN] = [b'F'; HANDLE_LEN];
/// Octets of the memory store's handles.
pub(super) const HANDLE_LEN: usize = 40;

/// An RPC call without chunks.
pub(in crate::targets) fn short_call(xid: u32, called: Called, arguments: &[u8]) -> Vec<u8> {
    let header = called.header(xid, Credential::None, Auth::NONE);
    let mut message = written(|writer| header.emit(writer));
    message.extend(arguments);
    message
}

/// The call that mounts the export.
pub(in crate::targets) fn mount_call(xid: u32) -> Vec<u8> {
    let arguments = written(|writer| mount::Path(b"/data").emit(writer));
    short_call(xid, Called::mount(mount::Procedure::Mnt), &arguments)
}

/// The call that makes the file.
pub(in crate::targets) fn create_call(xid: u32, root: &[u8]) -> Vec<u8> {
    let dir = v3::FileHandle::new(root).expect("the server's own");
    let place = v3::DirOpArgs { dir, name: v3::Name(b"file") };
    let how =
        v3::CreateHow::Unchecked(v3::SetAttributes { size: Some(5000), ..Default::default() });
    let arguments = written(|writer| v3::CreateArgs { place, how }.emit(writer));
    short_call(xid, Called::nfs3(v3::Procedure::Create), &arguments)
}

/// The export's handle in the reply to [`mount_call`].
pub(in crate::targets) fn mounted(reply: &[u8]) -> Vec<u8> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    let Ok(mount::Reply::Mnt(Ok(mounted))) = mount::Reply::parse(mount::Procedure::Mnt, results)
    else {
        panic!("the export can be mounted")
    };
    mounted.handle.octets().to_vec()
}

/// The file's handle in the reply to [`create_call`].
pub(in crate::targets) fn created(reply: &[u8]) -> Vec<u8> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    let Ok(v3::Reply::Create(Ok(created))) = v3::Reply::parse(v3::Procedure::Create, results)
    else {
        panic!("the file can be made")
    };
    created.object.expect("a server gives it").octets().to_vec()
}

/// Puts the server's handles in place of their stand-ins.
pub(in crate::targets) fn with_handles(octets: &mut [u8], root: &[u8], file: &[u8]) {
    for (stand_in, handle) in [(&ROOT, root), (&FILE, file)] {
        let mut at = 0;
        while let Some(found) =
            octets[at..].windows(HANDLE_LEN).position(|octets| octets == stand_in)
        {
            octets[at + found..][..HANDLE_LEN].copy_from_slice(handle);
            at += found + HANDLE_LEN;
        }
    }
}
