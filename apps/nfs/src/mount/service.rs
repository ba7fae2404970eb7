//! MOUNT version 3: maps an export's name to its file handle (RFC 1813 §5).
//!
//! DUMP lists the recorded mounts ([`super::list`]): a hint for people, on which nothing depends
//! (RFC 1813 §5.2.2).

use stag_engine::PeerAddress;
use stag_protocol::{
    nfs::{
        List, ListWriter,
        mount::{Call, Flavors, HostName, MntOk, MntResult, Mount, Path, Status, push_export},
        v3,
    },
    xdr::{Codec, NoRoom, padded},
};

use super::list::{MountEntry, MountList};
use crate::reply::ReplyWriter;
use stag_nfs_store::{Procedures as _, Security, Store, exports::security::SecurityFlavors};

/// Flavors in the reply of MNT at most, with AUTH_NONE.
const FLAVORS_MAX: usize = Security::ALL.len() + 1;

/// Bytes of the results of MNT at most.
pub(crate) const MNT_LEN: usize = 4 + 4 + v3::FileHandle::MAX + 4 + 4 * FLAVORS_MAX;

/// A call of MOUNT, with the state for its answer in addition to the store.
pub(crate) struct MountCall<'a> {
    pub call: &'a Call<'a>,
    pub from: PeerAddress,
    pub mounts: &'a MountList,
    /// The current mounts, for DUMP.
    pub told: Vec<MountEntry>,
}

impl<'a> MountCall<'a> {
    pub fn new(call: &'a Call<'a>, from: PeerAddress, mounts: &'a MountList) -> Self {
        let told = if *call == Call::Dump { mounts.all() } else { Vec::new() };
        Self { call, from, mounts, told }
    }

    /// Bytes of the results at most.
    pub fn results_len(&self, store: &impl Store) -> usize {
        // TRUE and the length of a text, or of two.
        match self.call {
            Call::Export => store.exports().map(|name| export_len(store, name)).sum::<usize>() + 4,
            Call::Mnt(_) => MNT_LEN,
            Call::Dump => {
                let len = |it: &MountEntry| {
                    12 + padded(it.client.to_string().len()) + padded(it.path.len())
                };
                self.told.iter().map(len).sum::<usize>() + 4
            }
            Call::Null | Call::Umnt(_) | Call::UmntAll => List::<'_, ()>::END_LEN,
        }
    }

    /// Executes the call and writes its results.
    pub fn answer(&self, store: &mut impl Store, reply: &mut ReplyWriter) -> Result<(), Status> {
        match self.call {
            // RFC 1813 §5.2.3 [1813-111]: the replies to UMNT and UMNTALL have no results
            Call::Null => Ok(()),
            Call::Umnt(path) => {
                self.mounts.remove(self.from, Some(path.0));
                Ok(())
            }
            Call::UmntAll => {
                self.mounts.remove(self.from, None);
                Ok(())
            }
            Call::Mnt(path) => {
                let flavors = flavors_of_path(store, path.0, self.from);
                let mounted = store.now().mount(path.0);
                if mounted.is_ok() {
                    self.mounts.add(self.from, path.0);
                }
                answer_mounted(mounted, flavors, reply)
            }
            Call::Dump => written(reply, |list| list_mounts(&self.told, list)),
            Call::Export => written(reply, |list| list_exports(store, list)),
        }
    }
}

/// Bytes of one export in the results of EXPORT.
fn export_len(store: &impl Store, name: &str) -> usize {
    let groups = store.client_networks(name);
    let groups: usize = groups.iter().map(|group| 8 + padded(group.len())).sum();
    // TRUE, length, "/" and the name, the end of the groups.
    12 + padded(1 + name.len()) + groups
}

/// The flavors that a client may use for the export of a path.
pub(crate) fn flavors_of_path(
    store: &impl Store,
    path: &[u8],
    from: PeerAddress,
) -> SecurityFlavors {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_of = |name: &&str| {
        let rest = path.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    // The name of an export may begin with the name of another one.
    let export = store.exports().filter(is_of).max_by_key(|name| name.len());
    export.and_then(|name| store.flavors(name, from)).unwrap_or_default()
}

/// Writes the results of a MNT.
pub(crate) fn answer_mounted(
    mounted: Result<v3::FileHandle, v3::Status>,
    flavors: SecurityFlavors,
    reply: &mut ReplyWriter,
) -> Result<(), Status> {
    let mut words = [[0; 4]; FLAVORS_MAX];
    let mut count = 0;
    for (word, flavor) in words.iter_mut().zip(flavors.announced()) {
        *word = flavor.pseudo_flavor().to_be_bytes();
        count += 1;
    }
    let flavors = Flavors::over(words.get(..count).unwrap_or_default());
    let mounted: MntResult<'_> = match mounted {
        // RFC 1813 §5.2.1 [1813-107]: a MNT returns the handle and the accepted flavors
        Ok(handle) => Ok(MntOk { handle, flavors }),
        Err(status) => Err(mount_status(status)),
    };
    reply.put(&mounted);
    mounted.map(drop)
}

/// Writes a list. A truncated one would mislead: without memory for all of it, the call fails with
/// a server fault.
fn written(
    reply: &mut ReplyWriter,
    fill: impl FnOnce(&mut ListWriter<'_, '_>) -> Result<(), NoRoom>,
) -> Result<(), Status> {
    let written: Result<(), NoRoom> = reply.write(|writer| {
        let mut list = ListWriter::begin(writer, 0)?;
        fill(&mut list)?;
        list.finish();
        Ok(())
    });
    written.map_err(|NoRoom| {
        reply.fail();
        Status::ServerFault
    })
}

fn list_exports(store: &impl Store, list: &mut ListWriter<'_, '_>) -> Result<(), NoRoom> {
    // RFC 1813 §5.2.5 [1813-112]: an EXPORT lists each export with the hosts it admits
    for name in store.exports() {
        let (path, groups) = (format!("/{name}"), store.client_networks(name));
        let groups = groups.iter().map(|group| HostName(group.as_bytes()));
        push_export(list, Path(path.as_bytes()), groups)?;
    }
    Ok(())
}

fn list_mounts(mounts: &[MountEntry], list: &mut ListWriter<'_, '_>) -> Result<(), NoRoom> {
    for MountEntry { client, path } in mounts {
        let client = client.to_string();
        let mount = Mount { host: HostName(client.as_bytes()), directory: Path(path) };
        list.push(|writer| mount.emit(writer))?;
    }
    Ok(())
}

/// The MOUNT status, of which there are fewer, for a failed MNT.
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
