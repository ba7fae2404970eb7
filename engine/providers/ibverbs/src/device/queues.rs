//! The queues that the connections of a shard share: completions and receives.

use super::{Device, Domain, failed, made, set_nonblocking};
use crate::sys::{
    ibv_comp_channel, ibv_cq, ibv_recv_wr, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
};
use libc::c_int;
use std::{
    io,
    os::fd::{BorrowedFd, RawFd},
    ptr,
    sync::Arc,
};

/// A shard's completion queue, and the channel that wakes it up.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(super) device: Arc<Device>,
    pub(super) raw: *mut ibv_cq,
    pub(super) channel: *mut ibv_comp_channel,
}

// SAFETY: libibverbs lets any thread call for a completion queue and its channel. Completions are
// polled by the shard's thread alone, for the others have only what queue pairs hold of this.
unsafe impl Send for Completions {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for Completions {}

impl Completions {
    pub(crate) fn new(device: &Arc<Device>, capacity: usize) -> io::Result<Arc<Self>> {
        let library = device.library;
        // SAFETY: the context is open.
        let channel = made(unsafe { (library.ibv_create_comp_channel)(device.raw) })
            .map_err(|error| device.failed("ibv_create_comp_channel", error))?;
        let capacity = c_int::try_from(capacity).unwrap_or(c_int::MAX);
        // SAFETY: the context is open and the channel belongs to it.
        let raw =
            unsafe { (library.ibv_create_cq)(device.raw, capacity, ptr::null_mut(), channel, 0) };
        let raw = match made(raw) {
            Ok(raw) => raw,
            Err(error) => {
                // SAFETY: no queue uses it.
                unsafe { (library.ibv_destroy_comp_channel)(channel) };
                return Err(device.failed("ibv_create_cq", error));
            }
        };
        let queue = Self { device: Arc::clone(device), raw, channel };
        set_nonblocking(queue.channel_fd())?;
        Ok(Arc::new(queue))
    }

    fn channel_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as `self`.
        unsafe { (*self.channel).fd }
    }

    /// Readable when the queue was armed and a completion came.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.channel_fd()) }
    }

    /// Takes completions; returns how many.
    pub(crate) fn poll(&self, into: &mut [ibv_wc]) -> usize {
        let most = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is there, and `into` has room for `most`.
        let count = unsafe { crate::sys::ibv_poll_cq(self.raw, most, into.as_mut_ptr()) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Forgets wake-ups that came.
    pub(crate) fn quench(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        let get = self.device.library.ibv_get_cq_event;
        let mut count = 0;
        // SAFETY: the channel is there and never blocks.
        while unsafe { get(self.channel, &raw mut queue, &raw mut context) } == 0 {
            count += 1;
        }
        if count > 0 {
            // SAFETY: `count` events were taken from this queue.
            unsafe { (self.device.library.ibv_ack_cq_events)(self.raw, count) };
        }
    }

    /// Asks for a wake-up at the next completion.
    pub(crate) fn arm(&self) {
        let raw = self.raw;
        // SAFETY: the queue is there.
        let arm = || unsafe { crate::sys::ibv_req_notify_cq(raw, 0) };
        // A device that is gone refuses, and has an event of its own to wake the shard.
        let _ = match self.device.about.is_soft {
            false => arm(),
            // SAFETY: the queue stays.
            true => unsafe { self.device.library.write(arm) },
        };
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Arc` of this, and every event was acknowledged.
        unsafe { (self.device.library.ibv_destroy_cq)(self.raw) };
        // SAFETY: its only queue is gone.
        unsafe { (self.device.library.ibv_destroy_comp_channel)(self.channel) };
    }
}

/// A shard's receives, shared by its connections.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    pub(super) domain: Arc<Domain>,
    pub(super) raw: *mut ibv_srq,
}

// SAFETY: libibverbs lets any thread call for a shared receive queue, and several at a time.
unsafe impl Send for SharedQueue {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for SharedQueue {}

impl SharedQueue {
    pub(crate) fn new(domain: &Arc<Domain>, capacity: usize) -> io::Result<Arc<Self>> {
        let max_wr = u32::try_from(capacity).unwrap_or(u32::MAX);
        let attr = ibv_srq_attr { max_wr, max_sge: 1, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is there.
        let raw =
            made(unsafe { (domain.device.library.ibv_create_srq)(domain.raw, &raw mut init) })
                .map_err(|error| domain.device.failed("ibv_create_srq", error))?;
        Ok(Arc::new(Self { domain: Arc::clone(domain), raw }))
    }

    /// Gives the queue more receives, with one doorbell. On failure: how many were taken, and why
    /// not more.
    ///
    /// # Safety
    /// Each request's `next` is the one after it or null, and the memory that it names is used by
    /// nothing else until the receive completes or the queue is destroyed.
    pub(crate) unsafe fn post(&self, chain: &mut [ibv_recv_wr]) -> Result<(), (usize, io::Error)> {
        let first = chain.as_mut_ptr();
        let mut bad = ptr::null_mut::<ibv_recv_wr>();
        // SAFETY: the queue is there, and reads the requests during the call.
        let code = unsafe { crate::sys::ibv_post_srq_recv(self.raw, first, &raw mut bad) };
        if code == 0 {
            return Ok(());
        }
        let taken = bad.addr().wrapping_sub(first.addr()) / size_of::<ibv_recv_wr>();
        Err((taken.min(chain.len()), failed(code)))
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold an `Arc` of this, so none uses it.
        unsafe { (self.domain.device.library.ibv_destroy_srq)(self.raw) };
    }
}
