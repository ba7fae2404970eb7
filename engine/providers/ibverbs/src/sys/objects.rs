//! Objects of a device, and the attributes that it reports of itself.

use super::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};
use libc::{c_char, c_int, c_void};

/// A device of this host, open or not.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_device {
    ops: [usize; 2],
    node_type: c_int,
    /// One of [`ibv_transport_type`].
    pub(crate) transport_type: c_int,
    /// Its name, which ends with a zero.
    pub(crate) name: [c_char; 64],
}

layout! {
    first ibv_device: 88 {
        0 ops (unused),
        16 node_type,
        20 transport_type,
        24 name,
    }
}

constants! {
    /// Transports of devices.
    ibv_transport_type: i32 {
        IBV_TRANSPORT_IWARP = 1,
    }
}

/// A device that is open. The provider library of the device fills the table of functions.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    /// Commands to the device.
    pub(crate) cmd_fd: c_int,
    /// Readable when there is an asynchronous event.
    pub(crate) async_fd: c_int,
}

layout! {
    first ibv_context: 272 {
        0 device,
        8 ops,
        264 cmd_fd,
        268 async_fd,
    }
}

/// An entry of the table that this crate does not call: another operation, or one that the library
/// has exported since.
type UnusedOp = Option<unsafe extern "C" fn()>;

/// Functions of the driver of a device. `None`: the driver lacks the function.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_context_ops {
    before_alloc_mw: [UnusedOp; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
    bind_mw: UnusedOp,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    before_poll_cq: UnusedOp,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
    before_post_srq_recv: [UnusedOp; 7],
    pub(crate) post_srq_recv: Option<
        unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
    >,
    before_post_send: [UnusedOp; 4],
    pub(crate) post_send:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(crate) post_recv:
        Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    after_post_recv: [UnusedOp; 5],
}

layout! {
    whole ibv_context_ops: 256 {
        0 before_alloc_mw (unused),
        56 alloc_mw,
        64 bind_mw,
        72 dealloc_mw,
        80 before_poll_cq (unused),
        88 poll_cq,
        96 req_notify_cq,
        104 before_post_srq_recv (unused),
        160 post_srq_recv,
        168 before_post_send (unused),
        200 post_send,
        208 post_recv,
        216 after_post_recv (unused),
    }
}

/// Capabilities of a device.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_device_attr {
    /// Version of the firmware, identifiers, memory sizes.
    before_vendor_id: [u64; 12],
    pub(crate) vendor_id: u32,
    vendor_part_id: u32,
    hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    /// Bits of [`ibv_device_cap_flags`].
    pub(crate) device_cap_flags: u32,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    max_pd: c_int,
    /// RDMA Reads of the peer that one queue pair serves at a time.
    pub(crate) max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    /// RDMA Reads that one queue pair has outstanding at most.
    pub(crate) max_qp_init_rd_atom: c_int,
    before_max_mw: [c_int; 4],
    pub(crate) max_mw: c_int,
    before_max_srq_wr: [c_int; 9],
    pub(crate) max_srq_wr: c_int,
    max_srq_sge: c_int,
    after_max_srq_sge: u32,
}

layout! {
    whole ibv_device_attr: 232 {
        0 before_vendor_id (unused),
        96 vendor_id,
        100 vendor_part_id,
        104 hw_ver,
        108 max_qp,
        112 max_qp_wr,
        116 device_cap_flags,
        120 max_sge,
        124 max_sge_rd,
        128 max_cq,
        132 max_cqe,
        136 max_mr,
        140 max_pd,
        144 max_qp_rd_atom,
        148 max_ee_rd_atom,
        152 max_res_rd_atom,
        156 max_qp_init_rd_atom,
        160 before_max_mw (unused),
        176 max_mw,
        180 before_max_srq_wr (unused),
        216 max_srq_wr,
        220 max_srq_sge,
        224 after_max_srq_sge (unused),
    }
}

constants! {
    /// Capabilities: type-2 memory windows, bound to a queue pair by its number (A) or by number
    /// and protection domain (B).
    ibv_device_cap_flags: u32 {
        IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
        IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
        IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
    }
}

/// An asynchronous event. Its type is a plain number, because later kernels report events that no
/// header of today lists.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_async_event {
    /// The queue that the event is about, or the number of the port.
    pub(crate) element: *mut c_void,
    /// One of [`ibv_event_type`], or another number.
    pub(crate) event_type: c_int,
}

layout! {
    whole ibv_async_event: 16 {
        0 element,
        8 event_type,
    }
}

constants! {
    /// Types of asynchronous events.
    ibv_event_type: i32 {
        IBV_EVENT_CQ_ERR = 0,
        IBV_EVENT_QP_FATAL = 1,
        IBV_EVENT_QP_REQ_ERR = 2,
        IBV_EVENT_QP_ACCESS_ERR = 3,
        IBV_EVENT_COMM_EST = 4,
        IBV_EVENT_SQ_DRAINED = 5,
        IBV_EVENT_PATH_MIG = 6,
        IBV_EVENT_PATH_MIG_ERR = 7,
        IBV_EVENT_DEVICE_FATAL = 8,
        IBV_EVENT_PORT_ACTIVE = 9,
        IBV_EVENT_PORT_ERR = 10,
        IBV_EVENT_SRQ_ERR = 14,
        IBV_EVENT_QP_LAST_WQE_REACHED = 16,
        IBV_EVENT_GID_CHANGE = 18,
    }
}

/// A protection domain.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
}

layout! {
    first ibv_pd: 8 {
        0 context,
    }
}

/// A memory region.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mr {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    /// The key that our work requests name the region by.
    pub(crate) lkey: u32,
    /// The key for peers. That of a pool is never advertised.
    pub(crate) rkey: u32,
}

layout! {
    whole ibv_mr: 48 {
        0 context,
        8 pd,
        16 addr,
        24 length,
        32 handle,
        36 lkey,
        40 rkey,
    }
}

constants! {
    /// Rights to a memory region or window, and to the memory of a queue pair.
    ibv_access_flags: u32 {
        IBV_ACCESS_LOCAL_WRITE = 1,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_MW_BIND = 1 << 4,
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
    }
}

/// A memory window.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pd: *mut ibv_pd,
    /// The key that it was bound with last.
    pub(crate) rkey: u32,
}

layout! {
    first ibv_mw: 24 {
        0 context,
        8 pd,
        16 rkey,
    }
}

constants! {
    /// Types of memory windows. A type-2 window is bound by a work request, for one queue pair.
    ibv_mw_type: u32 {
        IBV_MW_TYPE_2 = 2,
    }
}

/// A channel that wakes up a thread which waits for completions.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_comp_channel {
    context: *mut ibv_context,
    /// Readable when a completion queue that was armed has a completion.
    pub(crate) fd: c_int,
    refcnt: c_int,
}

layout! {
    whole ibv_comp_channel: 16 {
        0 context,
        8 fd,
        12 refcnt,
    }
}

/// A completion queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
}

layout! {
    first ibv_cq: 8 {
        0 context,
    }
}

/// A shared receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
}

layout! {
    first ibv_srq: 8 {
        0 context,
    }
}

/// Size of a shared receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    /// Number of receives below which an event is reported; 0: none.
    pub(crate) srq_limit: u32,
}

layout! {
    whole ibv_srq_attr: 12 {
        0 max_wr,
        4 max_sge,
        8 srq_limit,
    }
}

/// A shared receive queue to be made.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}

layout! {
    whole ibv_srq_init_attr: 24 {
        0 srq_context,
        8 attr,
    }
}
