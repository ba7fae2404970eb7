//! Queue pairs.

use super::{Completions, Domain, SharedQueue, failed, is_gone, made};
use crate::library::Library;
use crate::sys::{
    ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
    ibv_recv_wr, ibv_send_wr, ibv_sge,
};
use libc::c_int;
use std::{
    io,
    mem::MaybeUninit,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Fewer octets than these are not asked for: no message is as short.
const INLINE_MIN: u32 = 32;

/// Objects that all queue pairs of a shard share.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    pub(crate) domain: Arc<Domain>,
    pub(crate) completions: Arc<Completions>,
    /// None: each queue pair has [`receives_each`](Self::receives_each) of its own.
    pub(crate) receives: Option<Arc<SharedQueue>>,
    pub(crate) receives_each: usize,
    /// Work requests that a send queue holds.
    pub(crate) depth: usize,
    /// Octets of the longest message that is asked to travel in its work request; fewer once the
    /// device has refused as many.
    pub(crate) inline_max: Arc<AtomicU32>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    library: &'static Library,
    raw: *mut ibv_qp,
    /// Octets of the longest message that travels in its work request.
    pub(crate) inline_max: u32,
    _completions: Arc<Completions>,
    _receives: Option<Arc<SharedQueue>>,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs lets any thread call for a queue pair, and several at a time. It is destroyed
// once, by its last owner.
unsafe impl Send for QueuePair {}
// SAFETY: as above; the fields do not change.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair whose asynchronous events carry `context`. A device shows its inline limit only
    /// by refusing more, which the first queue pair finds out for all.
    pub(crate) fn new(queues: &Queues, context: u64) -> io::Result<Self> {
        let library = queues.domain.device.library;
        let mut inline = queues.inline_max.load(Ordering::Relaxed);
        let own = if queues.receives.is_none() { queues.receives_each } else { 0 };
        loop {
            let mut init = ibv_qp_init_attr {
                qp_context: ptr::without_provenance_mut(context as usize),
                send_cq: queues.completions.raw,
                recv_cq: queues.completions.raw,
                srq: queues.receives.as_ref().map_or(ptr::null_mut(), |queue| queue.raw),
                cap: ibv_qp_cap {
                    max_send_wr: queues.depth as u32,
                    max_recv_wr: own as u32,
                    max_send_sge: 1,
                    max_recv_sge: u32::from(own > 0),
                    max_inline_data: inline,
                },
                qp_type: ibv_qp_type::IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: the domain and the queues are there.
            match made(unsafe { (library.ibv_create_qp)(queues.domain.raw, &raw mut init) }) {
                Ok(raw) => {
                    queues.inline_max.store(inline, Ordering::Relaxed);
                    return Ok(Self {
                        library,
                        raw,
                        inline_max: init.cap.max_inline_data.min(inline),
                        _completions: Arc::clone(&queues.completions),
                        _receives: queues.receives.clone(),
                        domain: Arc::clone(&queues.domain),
                    });
                }
                Err(error) if inline == 0 => {
                    return Err(queues.domain.device.failed("ibv_create_qp", error));
                }
                Err(_) => inline = if inline > INLINE_MIN { inline / 2 } else { 0 },
            }
        }
    }

    /// Its number, which completions and the connection manager know it by.
    pub(crate) fn number(&self) -> u32 {
        // SAFETY: the queue pair is there.
        unsafe { (*self.raw).qp_num }
    }

    /// Changes the attributes that `mask` names.
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: the queue pair is there.
        match unsafe { (self.library.ibv_modify_qp)(self.raw, attr, mask) } {
            0 => Ok(()),
            code => Err(self.failed("ibv_modify_qp", failed(code))),
        }
    }

    /// The error of a verb on its device.
    pub(crate) fn failed(&self, verb: &'static str, error: io::Error) -> io::Error {
        self.domain.device.failed(verb, error)
    }

    /// Stops it: posted work comes back flushed, and nothing more is sent or taken.
    pub(crate) fn stop(&self) {
        let mut attr = no_attr();
        attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
        // One that has stopped by itself, or a device that is gone, refuses: the flush timeout
        // looks after it.
        let _ = self.modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE as c_int);
    }

    /// Returns true if the device has stopped the queue pair.
    pub(crate) fn has_stopped(&self) -> bool {
        let (mut attr, mut init) = (no_attr(), MaybeUninit::<ibv_qp_init_attr>::zeroed());
        let mask = ibv_qp_attr_mask::IBV_QP_STATE as c_int;
        // SAFETY: the queue pair is there, both structures are written to.
        let code = unsafe {
            (self.library.ibv_query_qp)(self.raw, &raw mut attr, mask, init.as_mut_ptr())
        };
        code == 0 && attr.qp_state == ibv_qp_state::IBV_QPS_ERR
    }

    /// Gives it one more receive of its own.
    ///
    /// # Safety
    /// No code touches what `at` names before the receive completes or the queue pair is destroyed.
    pub(crate) unsafe fn post_receive(&self, wr_id: u64, mut at: ibv_sge) -> io::Result<()> {
        let mut wr = ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: &raw mut at, num_sge: 1 };
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is there, and reads the request during the call.
        match unsafe { crate::sys::ibv_post_recv(self.raw, &raw mut wr, &raw mut bad) } {
            0 => Ok(()),
            code => Err(self.failed("ibv_post_recv", failed(code))),
        }
    }

    /// Hands a chain to the device: one doorbell. On failure: how many were taken, and why not
    /// more.
    ///
    /// # Safety
    /// Each request's `next` is the following one or null, what it names is there, and no code
    /// touches that memory before the request completes or the queue pair is destroyed.
    pub(crate) unsafe fn post(&self, chain: &mut [ibv_send_wr]) -> Result<(), (usize, io::Error)> {
        let first = chain.as_mut_ptr();
        let mut bad = ptr::null_mut::<ibv_send_wr>();
        let (raw, bad_at) = (self.raw, &raw mut bad);
        // SAFETY: the caller's promise; the device reads the requests during the call.
        let post = || unsafe { crate::sys::ibv_post_send(raw, first, bad_at) };
        let code = match self.domain.device.about.is_soft {
            false => post(),
            // SAFETY: nothing of it is touched before it ends.
            true => unsafe { self.library.write(post) },
        };
        if code == 0 {
            return Ok(());
        }
        let taken = (bad.addr().wrapping_sub(first.addr())) / size_of::<ibv_send_wr>();
        Err((taken.min(chain.len()), failed(code)))
    }
}

impl QueuePair {
    /// Destroys it. Returns it when the device keeps it: the device may still reach memory that was
    /// posted to it.
    pub(crate) fn destroy(mut self) -> Result<(), Self> {
        // SAFETY: its asynchronous events are acknowledged as they are taken, and it is not used
        // again when it was destroyed.
        let code = unsafe { (self.library.ibv_destroy_qp)(self.raw) };
        if !is_gone(code) {
            return Err(self);
        }
        self.raw = ptr::null_mut();
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: as in `destroy`. One that the device keeps stays: the code that posted to it
            // keeps that memory away from others.
            unsafe { (self.library.ibv_destroy_qp)(self.raw) };
        }
    }
}

/// Attributes that `modify` and others fill or read as far as their mask says.
pub(crate) fn no_attr() -> ibv_qp_attr {
    // SAFETY: it is made of integers, for which zero is a value.
    unsafe { MaybeUninit::<ibv_qp_attr>::zeroed().assume_init() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::device::tests::{ANSWER, ONE_AT_A_TIME, domain, queues, zeroed};
    use std::sync::atomic::Ordering;

    /// A queue pair of a device that does nothing.
    pub(crate) fn pair(queues: &Queues) -> QueuePair {
        let raw = zeroed::<ibv_qp>();
        QueuePair {
            library: queues.domain.device.library,
            raw: Box::leak(Box::new(raw)),
            inline_max: 0,
            _completions: Arc::clone(&queues.completions),
            _receives: queues.receives.clone(),
            domain: Arc::clone(&queues.domain),
        }
    }

    #[test]
    fn a_queue_pair_that_the_device_keeps_comes_back_and_nothing_aborts() {
        let _one = ONE_AT_A_TIME.lock();
        let queues = queues(&domain());
        ANSWER.store(libc::EBUSY, Ordering::Relaxed);
        let kept = pair(&queues).destroy().unwrap_err();
        drop(kept);
        ANSWER.store(0, Ordering::Relaxed);
        assert!(pair(&queues).destroy().is_ok());
    }
}
