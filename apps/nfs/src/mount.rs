//! MOUNT version 3: from an export's name to its file handle (RFC 1813 §5).
//!
//! The gateway remembers no mounts: DUMP lists none, and UMNT and UMNTALL have nothing to take
//! away. A list kept in memory would be wrong after every restart and every client that was
//! switched off, and nothing depends on it (RFC 1813 §5.2.2).

use stag_protocol::{
    nfs::{
        List, ListWriter,
        mount::{Call, Flavors, MntOk, MntResult, Path, Status, push_export},
        v3,
    },
    xdr::{Codec, NoRoom, Reader, padded},
};

use crate::reply::ReplyWriter;
use crate::store::{Procedures as _, Store};

/// AUTH_SYS and AUTH_NONE, as a counted array: the flavors of every export.
const FLAVORS: [u8; 12] = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0];

/// Octets of the results of MNT at most.
pub(crate) const MNT_LEN: usize = 4 + 4 + v3::FileHandle::MAX + FLAVORS.len();

/// Octets of the results of `call` at most.
pub(crate) fn results_len(store: &impl Store, call: &Call<'_>) -> usize {
    match call {
        // TRUE, length, "/" and the name, an empty list of groups.
        Call::Export => store.exports().map(|name| 12 + padded(1 + name.len())).sum::<usize>() + 4,
        Call::Mnt(_) => MNT_LEN,
        Call::Null | Call::Dump | Call::Umnt(_) | Call::UmntAll => List::<'_, ()>::END_LEN,
    }
}

/// Carries out `call` and writes its results.
pub(crate) fn answer(
    store: &mut impl Store,
    call: &Call<'_>,
    reply: &mut ReplyWriter,
) -> Result<(), Status> {
    match call {
        // RFC 1813 §5.2.3 [1813-111]: the replies to UMNT and UMNTALL have no results
        Call::Null | Call::Umnt(_) | Call::UmntAll => Ok(()),
        Call::Mnt(path) => {
            let mounted = store.now().mount(path.0);
            answer_mounted(mounted, reply)
        }
        Call::Dump => {
            reply.put(&false);
            Ok(())
        }
        Call::Export => list_exports(store, reply),
    }
}

/// Writes the results of a MNT.
pub(crate) fn answer_mounted(
    mounted: Result<v3::FileHandle, v3::Status>,
    reply: &mut ReplyWriter,
) -> Result<(), Status> {
    let flavors = Flavors::parse(&mut Reader::new(&FLAVORS)).expect("the list says its length");
    let mounted: MntResult<'_> = match mounted {
        // RFC 1813 §5.2.1 [1813-107]: a MNT returns the handle and the accepted flavors
        Ok(handle) => Ok(MntOk { handle, flavors }),
        Err(status) => Err(mount_status(status)),
    };
    reply.put(&mounted);
    mounted.map(drop)
}

/// An incomplete list would be a lie: without memory for all of it, it is the server that failed.
fn list_exports(store: &impl Store, reply: &mut ReplyWriter) -> Result<(), Status> {
    let written: Result<(), NoRoom> = reply.write(|writer| {
        let mut list = ListWriter::begin(writer, 0)?;
        // RFC 1813 §5.2.5 [1813-112]: an EXPORT lists each export with the hosts it admits
        for name in store.exports() {
            let path = format!("/{name}");
            push_export(&mut list, Path(path.as_bytes()), [])?;
        }
        list.finish();
        Ok(())
    });
    written.map_err(|NoRoom| {
        reply.fail();
        Status::ServerFault
    })
}

/// Why a directory cannot be mounted, in the fewer words that MOUNT has.
fn mount_status(status: v3::Status) -> Status {
    match status {
        v3::Status::Perm => Status::Perm,
        // RFC 1813 §5.2.1 [1813-108]: a MNT that fails returns a status of MOUNT
        v3::Status::NoEnt | v3::Status::Stale => Status::NoEnt,
        v3::Status::Io => Status::Io,
        v3::Status::Acces => Status::Acces,
        v3::Status::NotDir => Status::NotDir,
        v3::Status::Inval => Status::Inval,
        v3::Status::NameTooLong => Status::NameTooLong,
        _ => Status::ServerFault,
    }
}
