//! Mounts of clients, for MOUNT's DUMP (RFC 1813 §5.2.2).
//!
//! The list is a hint for people, and nothing depends on it: a client that was switched off stays
//! in it, a restart clears it, and when it is full the oldest entry is dropped. Mounts made by a
//! helper, for an export whose calls may block, are not listed.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use stag_engine::PeerAddress;

/// Mounts that are recorded.
const MOUNTS_MAX: usize = 1_024;
/// Of these, mounts of one client.
const MOUNTS_OF_CLIENT: usize = MOUNTS_MAX / 4;
/// Bytes of the longest path that is recorded; a mount with a longer one is not listed.
const PATH_MAX: usize = 255;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    pub(crate) client: IpAddr,
    pub(crate) path: Box<[u8]>,
}

/// Mounts of a server's clients, shared by its shards. Only calls of MOUNT look at it.
#[derive(Debug, Default)]
pub struct MountList(Mutex<VecDeque<MountEntry>>);

impl MountList {
    // RFC 1813 §5.2.2 [1813-110]: mounts are kept in a list that DUMP returns and UMNT shortens
    /// Notes a mount; one that is known is noted once.
    pub(crate) fn add(&self, client: PeerAddress, path: &[u8]) {
        let Some(entry) = entry(client, path) else { return };
        let mut mounts = self.mounts();
        mounts.retain(|known| *known != entry);
        let own = |known: &MountEntry| known.client == entry.client;
        if mounts.iter().filter(|known| own(known)).count() >= MOUNTS_OF_CLIENT {
            // The client's own oldest one, and no other client's.
            if let Some(oldest) = mounts.iter().position(own) {
                mounts.remove(oldest);
            }
        }
        if mounts.len() >= MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back(entry);
    }

    /// Removes a client's mount, or all of them (UMNT, UMNTALL).
    pub(crate) fn remove(&self, client: PeerAddress, path: Option<&[u8]>) {
        let PeerAddress::Ip(at) = client else { return };
        let client = at.ip().to_canonical();
        let is_it = |entry: &MountEntry| {
            entry.client == client && path.is_none_or(|path| *entry.path == *path)
        };
        self.mounts().retain(|entry| !is_it(entry));
    }

    /// All mounts, the oldest first.
    pub(crate) fn all(&self) -> Vec<MountEntry> {
        self.mounts().iter().cloned().collect()
    }

    fn mounts(&self) -> MutexGuard<'_, VecDeque<MountEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn entry(client: PeerAddress, path: &[u8]) -> Option<MountEntry> {
    let PeerAddress::Ip(at) = client else { return None };
    let client = at.ip().to_canonical();
    (path.len() <= PATH_MAX).then(|| MountEntry { client, path: path.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u32) -> PeerAddress {
        let [a, b, c, d] = number.to_be_bytes();
        PeerAddress::Ip(std::net::SocketAddr::from(([a, b, c, d], 700)))
    }

    #[test]
    fn a_mount_is_told_once_until_it_is_taken_back() {
        let list = MountList::default();
        for path in [&b"/a"[..], b"/b", b"/a"] {
            list.add(at(1), path);
        }
        list.add(at(2), b"/a");
        assert_eq!(list.all().len(), 3);
        list.remove(at(1), Some(b"/a"));
        assert_eq!(list.all().iter().map(|it| &*it.path).collect::<Vec<_>>(), [b"/b", b"/a"]);
        list.add(at(1), b"/a");
        list.remove(at(1), None);
        assert_eq!(list.all().len(), 1);
        list.add(at(2), &[b'x'; PATH_MAX + 1]);
        list.add(PeerAddress::Process { pid: 1, uid: 0 }, b"/a");
        assert_eq!(list.all().len(), 1);
    }

    #[test]
    fn a_client_that_mounts_without_end_pushes_no_other_out() {
        let list = MountList::default();
        list.add(at(1), b"/a");
        for number in 0..3 * MOUNTS_MAX {
            list.add(at(2), number.to_string().as_bytes());
        }
        let all = list.all();
        assert_eq!(all.len(), 1 + MOUNTS_OF_CLIENT);
        assert_eq!(*all[0].path, *b"/a");
        assert_eq!(*all[MOUNTS_OF_CLIENT].path, *(3 * MOUNTS_MAX - 1).to_string().as_bytes());
    }

    #[test]
    fn clients_without_end_fill_no_memory() {
        let list = MountList::default();
        for number in 0..3 * MOUNTS_MAX as u32 {
            list.add(at(number), b"/a");
        }
        assert_eq!(list.all().len(), MOUNTS_MAX);
    }
}
