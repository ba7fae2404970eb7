//! Capabilities of adapters, as their drivers of rdma-core and the kernel say.

use crate::sys::ibv_device_cap_flags as caps;
use libc::c_int;

/// The way in which a driver answers a request for type-2 memory windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceWindowing {
    /// It has them.
    Works,
    /// It has them, and does not say so.
    Unsaid,
    /// It says so, and `alloc_mw` fails with this number.
    Fails(c_int),
    /// One can be made, but not bound.
    Unbindable,
    /// There is no `alloc_mw`, or only windows of type 1.
    Missing,
}

/// An adapter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adapter {
    /// The driver of the kernel, and the generation.
    pub(crate) name: &'static str,
    pub(crate) vendor: u32,
    pub(crate) is_iwarp: bool,
    pub(crate) windowing: DeviceWindowing,
    /// Receives of a shared queue; 0: none can be made. And their number as the driver says it.
    pub(crate) shared_receives: c_int,
    pub(crate) says_receives: Option<c_int>,
    /// Work requests of one queue, and entries of a completion queue.
    pub(crate) queue_depth: c_int,
    pub(crate) completions: c_int,
    pub(crate) inline_max: u32,
    /// It says that it knows Send With Invalidate, and does.
    pub(crate) says_invalidation: bool,
    pub(crate) sends_invalidation: bool,
    /// The sink of a Read has to grant the peer remote write.
    pub(crate) wants_sinks: bool,
    /// Reliable connections.
    pub(crate) has_connections: bool,
    /// The kernel takes it from programs that have it open; else its removal waits for them.
    pub(crate) disassociates: bool,
    /// A verb that fails.
    pub(crate) fails: Option<&'static str>,
}

impl Adapter {
    /// Its capabilities as bits.
    pub(crate) const fn caps(&self) -> u32 {
        let windows = match self.windowing {
            DeviceWindowing::Works | DeviceWindowing::Fails(_) => {
                caps::IBV_DEVICE_MEM_WINDOW_TYPE_2B
            }
            _ => 0,
        };
        let invalidation =
            if self.says_invalidation { caps::IBV_DEVICE_MEM_MGT_EXTENSIONS } else { 0 };
        windows | invalidation
    }
}

/// One with all capabilities, from which the others differ.
const FULL: Adapter = Adapter {
    name: "mlx5",
    vendor: 0x2c9,
    is_iwarp: false,
    windowing: DeviceWindowing::Works,
    shared_receives: 32_767,
    says_receives: None,
    queue_depth: 32_768,
    completions: 4_194_303,
    inline_max: 512,
    says_invalidation: true,
    sends_invalidation: true,
    wants_sinks: false,
    has_connections: true,
    disassociates: true,
    fails: None,
};

/// The table: rdma-core of August 2026 (`providers/*`: `alloc_mw`, `create_srq`, operations of
/// `post_send`), and the kernel (`drivers/infiniband`: `query_device`). Sizes are examples.
pub(crate) const ADAPTERS: [Adapter; 15] = [
    FULL,
    Adapter { name: "mlx4", inline_max: 928, queue_depth: 16_351, ..FULL },
    // E810 and X722. The kernel says IB_DEVICE_MEM_WINDOW alone; the library binds type 2.
    Adapter { name: "irdma2", shared_receives: 0, ..IRDMA3 },
    IRDMA3,
    Adapter {
        name: "bnxt_re",
        vendor: 0x14e4,
        windowing: DeviceWindowing::Fails(libc::EOPNOTSUPP),
        inline_max: 96,
        ..FULL
    },
    // The kernel says max_srq 0, and max_srq_wr as of T6.
    Adapter { name: "cxgb4-t5", shared_receives: 0, says_receives: Some(32_767), ..CXGB4_T6 },
    CXGB4_T6,
    Adapter {
        name: "hns",
        vendor: 0x19e5,
        windowing: DeviceWindowing::Fails(libc::EOPNOTSUPP),
        inline_max: 32,
        ..FULL
    },
    Adapter { name: "qedr", vendor: 0x1077, windowing: DeviceWindowing::Missing, ..FULL },
    Adapter {
        name: "erdma",
        vendor: 0x1ded,
        is_iwarp: true,
        windowing: DeviceWindowing::Missing,
        shared_receives: 0,
        inline_max: 96,
        wants_sinks: true,
        ..FULL
    },
    // The library makes windows, and its queues know neither binds nor, in the version looked at,
    // how to invalidate.
    Adapter {
        name: "mana",
        vendor: 0x1414,
        windowing: DeviceWindowing::Unbindable,
        shared_receives: 0,
        sends_invalidation: false,
        inline_max: 0,
        ..FULL
    },
    Adapter { name: "ionic", vendor: 0x1dd8, shared_receives: 0, inline_max: 32, ..FULL },
    Adapter {
        name: "efa",
        vendor: 0x1d0f,
        windowing: DeviceWindowing::Missing,
        shared_receives: 0,
        says_invalidation: false,
        sends_invalidation: false,
        has_connections: false,
        inline_max: 32,
        ..FULL
    },
    Adapter {
        name: "rxe",
        disassociates: false,
        vendor: 0xff_ffff,
        shared_receives: 8_192,
        queue_depth: 1_048_576,
        completions: 32_767,
        ..FULL
    },
    Adapter {
        name: "siw",
        disassociates: false,
        vendor: 0x62_6d74,
        is_iwarp: true,
        windowing: DeviceWindowing::Missing,
        completions: 1_048_576,
        inline_max: 48,
        ..FULL
    },
];

/// The third generation.
const IRDMA3: Adapter = Adapter {
    name: "irdma3",
    vendor: 0x8086,
    windowing: DeviceWindowing::Unsaid,
    inline_max: 101,
    queue_depth: 4_063,
    ..FULL
};

const CXGB4_T6: Adapter = Adapter {
    name: "cxgb4-t6",
    vendor: 0x1425,
    is_iwarp: true,
    windowing: DeviceWindowing::Missing,
    wants_sinks: true,
    inline_max: 64,
    ..FULL
};
