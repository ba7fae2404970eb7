//! The means by which buffers are opened to peers: windows, or, on devices that have none, regions
//! that are registered for one use.
//!
//! A window opens a buffer to one connection and is bound on the data path. A region opens it to
//! all connections of the shard's protection domain, and takes a system call to register and one to
//! give back, after which its key is of no use. RFC 5042 §6.1.1 lets a key be shared by streams
//! that trust each other, so a shard that opens regions has connections to one host at a time
//! (`cm`). Each use has another key, and only the span that is lent can be reached.

use crate::{
    device::{Domain, MemoryRegion, MemoryWindow},
    windows::DeviceWindows,
};
use stag_pools::{Access, Buf, Exposed, Fenced, Pool, RemoteKey, Scope, Writer};
use std::{collections::HashMap, io, ops::Range, sync::Arc};

/// Windows or regions: one of both opens buffers on a device.
#[derive(Debug)]
pub(crate) enum Exposures {
    Windows(DeviceWindows),
    Regions(OpenRegions),
}

impl Exposures {
    /// Returns true if keys open their buffers to other connections as well.
    pub(crate) const fn are_shared(&self) -> bool {
        matches!(self, Self::Regions(_))
    }

    /// The windows, where the device has some.
    pub(crate) const fn windows(&mut self) -> Option<&mut DeviceWindows> {
        match self {
            Self::Windows(windows) => Some(windows),
            Self::Regions(_) => None,
        }
    }

    /// Returns true if one more buffer can be opened.
    pub(crate) fn has_room(&self) -> bool {
        match self {
            Self::Windows(windows) => windows.has_idle(),
            Self::Regions(regions) => regions.open.len() < regions.capacity,
        }
    }

    /// Notes that a key of this scope is being invalidated by us. False: there is none, or it is
    /// already.
    pub(crate) fn begin_end(&mut self, scope: Scope, key: RemoteKey) -> bool {
        match self {
            Self::Windows(windows) => windows.begin_end(scope, key),
            Self::Regions(regions) => {
                let open = regions.open.get_mut(&key.0).filter(|open| open.scope == scope);
                open.is_some_and(|open| !std::mem::replace(&mut open.is_ending, true))
            }
        }
    }

    /// Ends a key whose invalidation is posted, if that needs no work request. `None` if it does.
    pub(crate) fn end_here(&mut self, key: RemoteKey) -> Option<io::Result<Fenced>> {
        match self {
            Self::Windows(windows) => windows.is_dead(key).then(|| Ok(windows.invalidated(key))),
            Self::Regions(regions) => Some(regions.close_one(key)),
        }
    }

    /// Begins the end of all of a scope. Windows have to be freed and made again: they come back
    /// with the numbers of their entries. Regions end here; how many did, and how many the device
    /// keeps.
    pub(crate) fn withdraw(
        &mut self,
        scope: Scope,
        fenced: impl FnMut(Fenced),
    ) -> (Vec<(u32, MemoryWindow)>, u64, u64) {
        match self {
            Self::Windows(windows) => (windows.withdraw(scope), 0, 0),
            Self::Regions(regions) => {
                let (freed, kept) = regions.close(scope, fenced);
                (Vec::new(), freed, kept)
            }
        }
    }

    /// Buffers that are open.
    pub(crate) fn in_use(&self) -> usize {
        match self {
            Self::Windows(windows) => windows.in_use(),
            Self::Regions(regions) => regions.open.len(),
        }
    }
}

/// Buffers that are open by regions of their own, by their keys.
#[derive(Debug)]
pub(crate) struct OpenRegions {
    open: HashMap<u32, OpenRegion>,
    capacity: usize,
    domain: Arc<Domain>,
}

#[derive(Debug)]
struct OpenRegion {
    scope: Scope,
    region: MemoryRegion,
    exposed: Exposed,
    is_ending: bool,
}

impl OpenRegions {
    /// For `capacity` buffers at a time.
    pub(crate) fn new(domain: &Arc<Domain>, capacity: usize) -> Self {
        let (open, domain) = (HashMap::with_capacity(capacity), Arc::clone(domain));
        Self { open, capacity, domain }
    }

    /// Opens a span of the content of `buf`, which belongs to `pool`. Returns the key, and how many
    /// octets were cleared. The buffer comes back when the device registers no more.
    pub(crate) fn open(
        &mut self,
        scope: Scope,
        pool: &Pool,
        buf: Buf,
        span: Range<usize>,
        access: Access,
        writer: Writer,
    ) -> Result<(RemoteKey, usize), Buf> {
        let at = buf.place().at + span.start;
        let region = match MemoryRegion::of_span(&self.domain, pool, at, span.len(), access) {
            Ok(region) if region.remote_key() != 0 => region,
            _ => return Err(buf),
        };
        let key = RemoteKey(region.remote_key());
        let (exposed, cleared) = buf.expose_cleared(span, access, writer);
        let open = OpenRegion { scope, region, exposed, is_ending: false };
        let before = self.open.insert(key.0, open);
        assert!(before.is_none(), "a device gives a key to one region at a time");
        Ok((key, cleared))
    }

    /// Ends one. When the device keeps it, it stays.
    fn close_one(&mut self, key: RemoteKey) -> io::Result<Fenced> {
        let OpenRegion { scope, region, exposed, is_ending } =
            self.open.remove(&key.0).expect("a key stays until its invalidation is done");
        match region.close() {
            // SAFETY: the device has given the region up: this key opens the buffer to no peer.
            Ok(()) => Ok(unsafe { exposed.fence(key) }),
            Err(region) => {
                self.open.insert(key.0, OpenRegion { scope, region, exposed, is_ending });
                Err(self
                    .domain
                    .device
                    .failed("ibv_dereg_mr", io::Error::from_raw_os_error(libc::EBUSY)))
            }
        }
    }

    fn close(&mut self, scope: Scope, mut fenced: impl FnMut(Fenced)) -> (u64, u64) {
        let own = self.open.iter().filter(|(_, open)| open.scope == scope);
        let keys: Vec<_> = own.map(|(key, _)| RemoteKey(*key)).collect();
        let (mut freed, mut kept) = (0, 0);
        for key in keys {
            match self.close_one(key) {
                Ok(proof) => {
                    fenced(proof);
                    freed += 1;
                }
                Err(_) => kept += 1,
            }
        }
        (freed, kept)
    }
}

impl Drop for OpenRegions {
    fn drop(&mut self) {
        let keys: Vec<_> = self.open.keys().map(|key| RemoteKey(*key)).collect();
        // What the device keeps stays away from others.
        keys.into_iter().for_each(|key| drop(self.close_one(key)));
    }
}
