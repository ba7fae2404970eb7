//! Memory that a device knows.

use super::{Domain, is_gone, made};
use crate::sys::{ibv_access_flags, ibv_mr, ibv_sge};
use stag_pools::{Access, Buf, Pool, PoolId};
use std::{
    io,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Memory of a pool that the device knows: all of it, for our own use and for windows, with a
/// permanent remote key that opens nothing; or one place where a Read lands.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    domain: Arc<Domain>,
    /// Null: it was given back.
    raw: *mut ibv_mr,
    pub(crate) id: PoolId,
    base: NonNull<u8>,
    len: usize,
    lkey: u32,
    /// Pool of the region, held so that registered memory stays mapped.
    _pool: Pool,
}

impl MemoryRegion {
    /// A pool of the shard.
    pub(crate) fn new(domain: &Arc<Domain>, pool: &Pool) -> io::Result<Self> {
        // RFC 8166 §8.1.2: no right for a peer is in it; those come with windows.
        let mut access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        if domain.device.about.has_windows {
            access |= ibv_access_flags::IBV_ACCESS_MW_BIND;
        }
        Self::with(domain, pool, 0, pool.span().1, access)
    }

    /// The place of `buf`, in which a peer may write: a Read lands there.
    pub(crate) fn of_sink(domain: &Arc<Domain>, pool: &Pool, buf: &Buf) -> io::Result<Self> {
        let access =
            ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        let (at, len) = (buf.place().at, buf.capacity());
        assert!(at + len <= pool.span().1, "a place lies inside of its pool");
        Self::with(domain, pool, at, len, access)
    }

    /// Octets of a pool that peers of the domain may reach in this way.
    pub(crate) fn of_span(
        domain: &Arc<Domain>,
        pool: &Pool,
        at: usize,
        len: usize,
        access: Access,
    ) -> io::Result<Self> {
        assert!(at + len <= pool.span().1, "a buffer lies inside of its pool");
        // RFC 5042 §6.3.5 [5042-11]: a buffer is opened only for the access it needs
        let access = match access {
            Access::RemoteRead => ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            Access::RemoteWrite => {
                ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE
            }
        };
        Self::with(domain, pool, at, len, access)
    }

    /// The key for peers.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: the region is there.
        unsafe { (*self.raw).rkey }
    }

    fn with(
        domain: &Arc<Domain>,
        pool: &Pool,
        at: usize,
        len: usize,
        access: u32,
    ) -> io::Result<Self> {
        let library = domain.device.library;
        // SAFETY: the callers look that `at` is inside of the pool.
        let base = unsafe { pool.span().0.add(at) };
        // SAFETY: the domain is there; `len` octets from `base` are mapped as long as the pool, of
        // which this keeps a clone.
        let raw = unsafe { library.reg_mr(domain.raw, base.as_ptr().cast(), len, access) };
        let raw = made(raw)?;
        // SAFETY: it was just made.
        let lkey = unsafe { (*raw).lkey };
        let domain = Arc::clone(domain);
        Ok(Self { domain, raw, id: pool.id(), base, len, lkey, _pool: pool.clone() })
    }

    /// Deregisters the memory. Returns the region if the device keeps it: its key may still open
    /// it.
    pub(crate) fn close(mut self) -> Result<(), Self> {
        // SAFETY: no outstanding work names it, and it is not used again when it was given back.
        let code = unsafe { (self.domain.device.library.ibv_dereg_mr)(self.raw) };
        if !is_gone(code) {
            return Err(self);
        }
        self.raw = ptr::null_mut();
        Ok(())
    }

    /// Names `len` octets from its octet `at` for a work request.
    pub(crate) fn name(&self, at: usize, len: usize) -> ibv_sge {
        assert!(at + len <= self.len, "memory of a pool lies inside of its region");
        ibv_sge {
            addr: (self.base.addr().get() + at) as u64,
            length: u32::try_from(len).expect("slots are shorter than 2^32"),
            lkey: self.lkey,
        }
    }

    /// Copies octets that a device put at its octet `at`.
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= self.len, "memory of a pool lies inside of its region");
        // SAFETY: `at` is inside of what is mapped.
        let from = unsafe { self.base.add(at) };
        // SAFETY: so are as many octets as `to` has; they are another pool's than `to`. No
        // reference is made to them, because a peer may write there.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    pub(crate) const fn raw(&self) -> *mut ibv_mr {
        self.raw
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the provider drops its queue pairs and windows before its regions.
            unsafe { (self.domain.device.library.ibv_dereg_mr)(self.raw) };
        }
    }
}
