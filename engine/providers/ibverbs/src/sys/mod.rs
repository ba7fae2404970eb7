//! C declarations of rdma-core: the structures, constants and inline functions that this crate uses
//! of `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>`.
//!
//! They are part of the tree, so that a build needs neither headers nor libclang. Names are those
//! of the headers. Structures that this crate allocates are declared whole; of structures that the
//! libraries allocate, only the used beginning is. [`layout`] states size and offsets, which the
//! compiler checks on 64-bit targets; with the feature `compare` a test compares them and all
//! constants with rdma-sys, whose bindings bindgen derives from the headers of the build host:
//! `tests/declarations`.
//!
//! The data path has no exported functions: the headers define them inline, over a table in the
//! device context, and so does this module. Exported functions are called through
//! [`Library`](crate::library::Library) instead: a direct call would link the libraries.

#[macro_use]
mod layout;

mod cm;
mod objects;
mod queue_pair;
mod requests;

pub(crate) use cm::{
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    rdma_port_space,
};
pub(crate) use objects::{
    ibv_access_flags, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_device_cap_flags, ibv_event_type, ibv_mr, ibv_mw, ibv_mw_type, ibv_pd,
    ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_transport_type,
};
pub(crate) use queue_pair::{
    ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type,
};
pub(crate) use requests::{
    bind_mw_t, ibv_mw_bind_info, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc,
    ibv_wc_flags, ibv_wc_status, ibv_wr_opcode, rdma_t,
};

use libc::c_int;

/// Takes up to `count` completions of `cq` into `completions`; returns their number, or a negative
/// error number.
///
/// # Safety
/// `cq` exists, and `completions` has room for `count` entries.
#[inline]
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*cq).context };
    // SAFETY: a completion queue keeps its context open.
    let poll_cq = unsafe { (*context).ops.poll_cq }.expect("every driver polls");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { poll_cq(cq, count, completions) }
}

/// Requests a completion event for the next completion of `cq`; with `solicited_only` not 0, for
/// the next solicited one. Returns 0 or an error number.
///
/// # Safety
/// `cq` exists.
#[inline]
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*cq).context };
    // SAFETY: a completion queue keeps its context open.
    let req_notify_cq = unsafe { (*context).ops.req_notify_cq }.expect("every driver notifies");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { req_notify_cq(cq, solicited_only) }
}

/// Posts the chain of receives at `first` to `srq`. Returns 0, or an error number with the first
/// receive that was not posted in `bad`.
///
/// # Safety
/// `srq` exists, the chain is valid during the call, and the named memory until completion.
#[inline]
pub(crate) unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*srq).context };
    // SAFETY: a shared receive queue keeps its context open.
    let post_srq_recv = unsafe { (*context).ops.post_srq_recv }.expect("its driver made the queue");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { post_srq_recv(srq, first, bad) }
}

/// Posts the chain of receives at `first` to `qp`. Returns 0, or an error number with the first
/// receive that was not posted in `bad`.
///
/// # Safety
/// `qp` exists, the chain is valid during the call, and the named memory until completion.
#[inline]
pub(crate) unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*qp).context };
    // SAFETY: a queue pair keeps its context open.
    let post_recv = unsafe { (*context).ops.post_recv }.expect("every driver receives");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { post_recv(qp, first, bad) }
}

/// Posts the chain of work requests at `first` to the send queue of `qp`. Returns 0, or an error
/// number with the first request that was not posted in `bad`.
///
/// # Safety
/// `qp` exists, the chain is valid during the call, and the named memory until completion.
#[inline]
pub(crate) unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*qp).context };
    // SAFETY: a queue pair keeps its context open.
    let post_send = unsafe { (*context).ops.post_send }.expect("every driver sends");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { post_send(qp, first, bad) }
}

/// Allocates a memory window. Returns null with the error number in `errno` on failure, `None` for
/// a driver without windows.
///
/// # Safety
/// `pd` exists.
pub(crate) unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: u32) -> Option<*mut ibv_mw> {
    // SAFETY: the caller's promise.
    let context = unsafe { (*pd).context };
    // SAFETY: a protection domain keeps its context open.
    let alloc_mw = unsafe { (*context).ops.alloc_mw }?;
    // SAFETY: the caller's promise; the function is the driver's for this context.
    Some(unsafe { alloc_mw(pd, kind) })
}

/// Frees a memory window. Returns 0 or an error number.
///
/// # Safety
/// `mw` exists; after a return of 0 it no longer does.
pub(crate) unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's promise.
    let context = unsafe { (*mw).context };
    // SAFETY: a memory window keeps its context open.
    let dealloc_mw = unsafe { (*context).ops.dealloc_mw }.expect("its driver made the window");
    // SAFETY: the caller's promise; the function is the driver's for this context.
    unsafe { dealloc_mw(mw) }
}
