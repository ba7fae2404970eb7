//! Work requests and completions.

use super::{ibv_mr, ibv_mw};
use libc::c_int;
use std::ptr;

/// A span of local memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

layout! {
    whole ibv_sge: 16 {
        0 addr,
        8 length,
        12 lkey,
    }
}

/// A work request for a receive queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_recv_wr {
    /// Number that its completion carries.
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

layout! {
    whole ibv_recv_wr: 32 {
        0 wr_id,
        8 next,
        16 sg_list,
        24 num_sge,
    }
}

/// A work request for a send queue. In C the operands of different operations are unions; declared
/// are the members of the operations that this crate posts.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_send_wr {
    /// Number that its completion carries.
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    /// One of [`ibv_wr_opcode`].
    pub(crate) opcode: u32,
    /// Bits of [`ibv_send_flags`].
    pub(crate) send_flags: u32,
    /// Send With Invalidate, Local Invalidate: the key.
    pub(crate) invalidate_rkey: u32,
    /// RDMA Write, RDMA Read: the memory of the peer.
    pub(crate) rdma: rdma_t,
    /// The longer operands of atomic operations.
    after_rdma: [u64; 2],
    /// Remote shared receive queue of an extended (XRC) connection.
    remote_srqn: u32,
    /// Bind: the window.
    pub(crate) bind_mw: bind_mw_t,
}

layout! {
    whole ibv_send_wr: 128 {
        0 wr_id,
        8 next,
        16 sg_list,
        24 num_sge,
        28 opcode,
        32 send_flags,
        36 invalidate_rkey as imm_data_invalidated_rkey_union,
        40 rdma as wr (first),
        56 after_rdma (unused),
        72 remote_srqn as qp_type,
        80 bind_mw as bind_mw_tso_union,
    }
}

impl ibv_send_wr {
    /// A work request without memory, flags and operands.
    pub(crate) const fn new(opcode: u32) -> Self {
        let bind_info =
            ibv_mw_bind_info { mr: ptr::null_mut(), addr: 0, length: 0, mw_access_flags: 0 };
        Self {
            wr_id: 0,
            next: ptr::null_mut(),
            sg_list: ptr::null_mut(),
            num_sge: 0,
            opcode,
            send_flags: 0,
            invalidate_rkey: 0,
            rdma: rdma_t { remote_addr: 0, rkey: 0 },
            after_rdma: [0; 2],
            remote_srqn: 0,
            bind_mw: bind_mw_t { mw: ptr::null_mut(), rkey: 0, bind_info },
        }
    }
}

/// Memory of the peer.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct rdma_t {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

layout! {
    whole rdma_t: 16 {
        0 remote_addr,
        8 rkey,
    }
}

/// A window to bind, and its new key.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct bind_mw_t {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

layout! {
    whole bind_mw_t: 48 {
        0 mw,
        8 rkey,
        16 bind_info,
    }
}

/// Memory that a window opens.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_mw_bind_info {
    pub(crate) mr: *mut ibv_mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    /// Bits of [`ibv_access_flags`](super::ibv_access_flags).
    pub(crate) mw_access_flags: u32,
}

layout! {
    whole ibv_mw_bind_info: 32 {
        0 mr,
        8 addr,
        16 length,
        24 mw_access_flags,
    }
}

constants! {
    /// Operations of a send queue.
    ibv_wr_opcode: u32 {
        IBV_WR_RDMA_WRITE = 0,
        IBV_WR_SEND = 2,
        IBV_WR_RDMA_READ = 4,
        IBV_WR_LOCAL_INV = 7,
        IBV_WR_BIND_MW = 8,
        IBV_WR_SEND_WITH_INV = 9,
    }
}

constants! {
    /// Flags of a work request.
    ibv_send_flags: u32 {
        IBV_SEND_SIGNALED = 1 << 1,
        IBV_SEND_INLINE = 1 << 3,
    }
}

/// A completion. One that is not a success has a valid `wr_id`, `status`, `qp_num` and
/// `vendor_err`, and nothing else.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    /// One of [`ibv_wc_status`].
    pub(crate) status: u32,
    opcode: u32,
    vendor_err: u32,
    /// Bytes received.
    pub(crate) byte_len: u32,
    /// The key that the peer's Send invalidated, if a flag says so.
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    src_qp: u32,
    /// Bits of [`ibv_wc_flags`].
    pub(crate) wc_flags: u32,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

layout! {
    whole ibv_wc: 48 {
        0 wr_id,
        8 status,
        12 opcode,
        16 vendor_err,
        20 byte_len,
        24 invalidated_rkey as imm_data_invalidated_rkey_union,
        28 qp_num,
        32 src_qp,
        36 wc_flags,
        40 pkey_index,
        42 slid,
        44 sl,
        45 dlid_path_bits,
    }
}

impl ibv_wc {
    /// Room for a completion.
    pub(crate) const EMPTY: Self = Self {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        invalidated_rkey: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
}

constants! {
    /// Results of work requests.
    ibv_wc_status: u32 {
        IBV_WC_SUCCESS = 0,
        IBV_WC_LOC_LEN_ERR = 1,
        IBV_WC_WR_FLUSH_ERR = 5,
        IBV_WC_REM_INV_REQ_ERR = 9,
        IBV_WC_REM_ACCESS_ERR = 10,
        IBV_WC_REM_OP_ERR = 11,
        IBV_WC_RETRY_EXC_ERR = 12,
        IBV_WC_RNR_RETRY_EXC_ERR = 13,
    }
}

constants! {
    /// Flags of a completion.
    ibv_wc_flags: u32 {
        IBV_WC_WITH_INV = 1 << 3,
    }
}
