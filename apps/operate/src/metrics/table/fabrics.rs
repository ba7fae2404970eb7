//! Metrics of the fabrics, one set each.

use crate::metrics::{Metric, Unit};

/// iWARP in software.
pub const IWARP: &[Metric] = &[
    Metric::counter(
        "stag_iwarp_fpdus_total",
        "iwarp.fpdus_{direction=in|out}",
        "FPDUs received whole and with the right CRC, and FPDUs sent.",
    ),
    Metric::counter(
        "stag_iwarp_bytes_total",
        "iwarp.octets_{direction=in|out}",
        "Octets received and sent, set-up included.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_iwarp_payload_bytes_total",
        "iwarp.octets_{way=placed|landed|moved|gathered|copied}",
        "Octets of payload by the way they went: copied to where they belong, read to it \
         directly, copied to be in one place, copied for markers, copied with a short message.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_iwarp_system_calls_total",
        "iwarp.{call=sendmsg|recv|epoll_wait|epoll_ctl}",
        "System calls, by name.",
    ),
    Metric::counter(
        "stag_iwarp_short_sends_total",
        "iwarp.sendmsg_short",
        "Sends that the kernel took in part or not at all.",
    ),
    Metric::counter(
        "stag_iwarp_nudges_total",
        "iwarp.nudges",
        "Times that a siw was told again that it may begin.",
    ),
    Metric::counter("stag_iwarp_crc_errors_total", "iwarp.crc_errors", "FPDUs with a wrong CRC."),
    Metric::counter(
        "stag_iwarp_terminates_total",
        "iwarp.terminates_{direction=sent|received}.{terminate}",
        "Terminate messages, by what they say.",
    ),
    Metric::counter(
        "stag_iwarp_parked_messages_total",
        "iwarp.parked",
        "Messages that had to wait for a receive.",
    ),
    Metric::counter(
        "stag_iwarp_stalls_total",
        "iwarp.stalled",
        "Times that a connection was not read on, because no message of it could wait any more.",
    ),
    Metric::counter("stag_iwarp_accepts_total", "iwarp.accepted", "TCP connections accepted."),
    Metric::counter(
        "stag_iwarp_accept_pauses_total",
        "iwarp.accept_paused",
        "Times that descriptors ran out while accepting.",
    ),
    Metric::counter(
        "stag_iwarp_setups_total",
        "iwarp.{property=without_crc|long_fpdus}",
        "Connections that were set up without CRCs, or with FPDUs longer than a TCP segment.",
    ),
    Metric::counter(
        "stag_iwarp_marked_frames_total",
        "iwarp.marked_frames",
        "MPA frames that left with a reserved bit set, by which software knows software.",
    ),
    Metric::counter(
        "stag_iwarp_failed_handshakes_total",
        "iwarp.handshakes.{reason}",
        "Connections that never came to be, by reason.",
    ),
    Metric::counter(
        "stag_iwarp_disconnects_total",
        "iwarp.disconnects.{cause}",
        "Connections that ended, by cause.",
    ),
];

/// Shared memory.
pub const SHM: &[Metric] = &[
    Metric::counter("stag_shm_links_total", "shm.links", "Processes that became peers."),
    Metric::counter(
        "stag_shm_trusting_links_total",
        "shm.trusting",
        "Processes that became peers and whose pools are mapped.",
    ),
    Metric::counter(
        "stag_shm_refused_links_total",
        "shm.{reason=denied|turned_away|evicted}",
        "Processes turned away: their user is not allowed, there are too many, or their places \
         were needed.",
    ),
    Metric::counter(
        "stag_shm_records_total",
        "shm.records_{direction=sent|received}",
        "Records sent and received.",
    ),
    Metric::counter(
        "stag_shm_payload_bytes_total",
        "shm.octets_{way=in|out|fetched}",
        "Octets of payload copied: into our rings, out of peers' rings, from peers' pools.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_shm_wakeups_total",
        "shm.wakeups",
        "Wake-ups sent to processes that slept.",
    ),
    Metric::counter("stag_shm_looks_total", "shm.looks", "Looks at the sockets."),
    Metric::counter(
        "stag_shm_disconnects_total",
        "shm.{cause=violations|terminated|corrupt|lost}",
        "Connections and links that ended: a rule was broken by the peer or, it says, by us; the \
         peer wrote nonsense; its process is gone.",
    ),
];

/// Devices, through libibverbs.
pub const RDMA_DEVICES: &[Metric] = &[
    Metric::counter(
        "stag_verbs_doorbells_total",
        "rdma.doorbells",
        "Chains of work requests handed to the device.",
    ),
    Metric::counter("stag_verbs_work_requests_total", "rdma.work_requests", "Work requests."),
    Metric::counter(
        "stag_verbs_inline_sends_total",
        "rdma.inline_sends",
        "Messages that went with their work request.",
    ),
    Metric::counter("stag_verbs_binds_total", "rdma.binds", "Windows bound."),
    Metric::counter(
        "stag_verbs_cleared_octets_total",
        "rdma.cleared",
        "Octets cleared before a peer could write there.",
    ),
    Metric::counter(
        "stag_verbs_remote_invalidations_total",
        "rdma.remote_invalidations",
        "Windows that a peer invalidated.",
    ),
    Metric::counter(
        "stag_verbs_windows_remade_total",
        "rdma.windows_remade",
        "Windows that were made again after the end of their connection.",
    ),
    Metric::counter("stag_verbs_completions_total", "rdma.completions", "Completions."),
    Metric::counter(
        "stag_verbs_failed_receives_total",
        "rdma.receives_failed",
        "Receives that failed and were posted again.",
    ),
    Metric::counter(
        "stag_verbs_looks_total",
        "rdma.looks",
        "Looks at what other shards and the device report.",
    ),
    Metric::counter(
        "stag_verbs_receive_chains_total",
        "rdma.receive_chains",
        "Chains of receives handed to the queue that connections share: doorbells.",
    ),
    Metric::counter(
        "stag_verbs_device_losses_total",
        "rdma.device_losses",
        "Times that the device was lost: removed, or reset by its driver.",
    ),
    Metric::counter(
        "stag_verbs_port_events_total",
        "rdma.port_events",
        "Times that a port went down, or its address changed.",
    ),
    Metric::counter(
        "stag_verbs_ends_by_timeout_total",
        "rdma.ends_by_timeout",
        "Connections that ended before the device said that it holds no receive of theirs.",
    ),
    Metric::counter(
        "stag_verbs_shed_requests_total",
        "rdma.shed",
        "Connect requests beyond all limits.",
    ),
    Metric::counter(
        "stag_verbs_sinks_total",
        "rdma.sinks_{event=opened|lost}",
        "Places for Reads that got a key for a connection, and those that are out of use.",
    ),
    Metric::counter(
        "stag_verbs_kept_by_device_total",
        "rdma.kept_by_device",
        "Times that the device kept a queue pair or a window that was to go.",
    ),
];
