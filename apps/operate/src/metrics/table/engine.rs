//! Metrics of the engine: connections, RPC-over-RDMA, RPC over TCP.

use crate::metrics::{Across, Metric, Unit};

/// Connections, limits and cores.
pub const CONNECTIONS: &[Metric] = &[
    Metric::gauge("stag_connections", "engine.connections.live", "Connections that are up.")
        .across(Across::Shard),
    Metric::counter(
        "stag_connections_accepted_total",
        "engine.connections.{over=fabric|tcp}",
        "Connections accepted, over the fabric and over TCP.",
    ),
    Metric::counter(
        "stag_connections_refused_total",
        "engine.connections.refused",
        "Connections turned away: not in the list of clients, or the server stops or drains.",
    ),
    Metric::counter(
        "stag_disconnects_total",
        "engine.disconnects.{cause}",
        "Connections that ended, by cause.",
    ),
    Metric::counter(
        "stag_peer_faults_total",
        "engine.peer_faults.{rule}",
        "Breaches of rules by peers, by rule.",
    ),
    Metric::counter(
        "stag_kerberos_contexts_total",
        "engine.gss.contexts",
        "Contexts of Kerberos that clients set up.",
    ),
    Metric::counter(
        "stag_kerberos_contexts_refused_total",
        "engine.gss.refused",
        "Requests for contexts of Kerberos that were refused; the log has the reasons.",
    ),
    Metric::gauge("stag_kerberos_contexts", "engine.gss.live", "Contexts of Kerberos that exist.")
        .across(Across::Largest),
    Metric::gauge(
        "stag_kerberos_contexts_waiting",
        "engine.gss.waiting",
        "Requests for contexts of Kerberos that wait, with the one that is judged.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_kerberos_contexts_crowded_total",
        "engine.gss.crowded",
        "Requests for contexts of Kerberos for which there was no place, of all or of their \
         address: they wait at their core.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_kerberos_contexts_displaced_total",
        "engine.gss.displaced",
        "Contexts of Kerberos that made room for newer ones: unused for longest of their \
         principal, of their address, or of all.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_kerberos_calls_total",
        "engine.gss.calls",
        "Calls inside a context of Kerberos.",
    ),
    Metric::counter(
        "stag_kerberos_calls_denied_total",
        "engine.gss.denied",
        "Calls denied: their context is unknown or has ended, or their verifier is wrong.",
    ),
    Metric::counter(
        "stag_kerberos_calls_replayed_total",
        "engine.gss.replayed",
        "Calls without an answer, because their sequence number was used before or is too old.",
    ),
    Metric::counter(
        "stag_kerberos_calls_garbled_total",
        "engine.gss.garbage",
        "Calls whose arguments were not signed or encrypted as they said.",
    ),
    Metric::counter(
        "stag_kerberos_replies_lost_total",
        "engine.gss.unprotectable",
        "Replies that cannot be protected, as they are longer than any buffer. Their connections \
         were closed.",
    ),
    Metric::counter(
        "stag_kerberos_steps_total",
        "engine.gss.steps",
        "Steps of 64 KiB in which long calls and replies were signed or encrypted.",
    ),
    Metric::counter(
        "stag_limits_met_total",
        "engine.limits.{limit}",
        "Times that a limit made somebody wait or turned somebody away, by limit.",
    ),
    Metric::counter("stag_core_passes_total", "engine.passes.total", "Turns of a core's loop.")
        .across(Across::Shard),
    Metric::counter(
        "stag_core_sleeps_total",
        "engine.passes.sleeps",
        "Times that a core slept, for want of work.",
    )
    .across(Across::Shard),
];

/// RPC-over-RDMA. As responder the server answers calls, as requester it makes some.
pub const RDMA: &[Metric] = &[
    Metric::counter(
        "stag_rdma_calls_total",
        "engine.{role=responder|requester}.calls.{form}",
        "Calls by form (RFC 8166 section 3.5).",
    ),
    Metric::counter(
        "stag_rdma_replies_total",
        "engine.{role=responder|requester}.replies.{form}",
        "Replies by form (RFC 8166 section 3.5).",
    ),
    Metric::counter(
        "stag_rdma_calls_by_version_total",
        "engine.{role=responder|requester}.versions.{version}.{direction}",
        "Calls by version of RPC-over-RDMA and direction.",
    ),
    Metric::counter(
        "stag_rdma_error_messages_total",
        "engine.{role=responder|requester}.errors",
        "RDMA_ERROR messages: sent as responder, received as requester.",
    ),
    Metric::counter(
        "stag_rdma_version_errors_total",
        "engine.{role=responder|requester}.version_errors",
        "RDMA_ERROR messages that name versions (ERR_VERS).",
    ),
    Metric::counter(
        "stag_rdma_options_total",
        "engine.{role=responder|requester}.options",
        "Options of version 2 that were asked for.",
    ),
    Metric::counter(
        "stag_rdma_chunks_total",
        "engine.{role=responder|requester}.chunks.{chunk=read|write|reply}",
        "Chunks that calls offered.",
    ),
    Metric::counter(
        "stag_rdma_segments_total",
        "engine.{role=responder|requester}.chunks.{chunk=read|write|reply}_segments",
        "Segments of chunks that calls offered.",
    ),
    Metric::counter(
        "stag_rdma_remote_invalidations_total",
        "engine.{role=responder|requester}.remote_invalidations",
        "Replies that invalidated a key of their caller.",
    ),
    Metric::counter(
        "stag_rdma_read_bytes_total",
        "engine.responder.pulled",
        "Octets pulled by RDMA Read.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_rdma_written_bytes_total",
        "engine.responder.pushed",
        "Octets pushed by RDMA Write.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter("stag_rdma_writes_total", "engine.responder.writes", "RDMA Writes."),
    Metric::counter(
        "stag_rdma_reply_chunks_spared_total",
        "engine.responder.reply_chunks_spared",
        "Reply chunks returned unused, because the reply fitted inline.",
    ),
    Metric::gauge(
        "stag_rdma_grant_credits",
        "engine.responder.grant",
        "The largest grant that a connection had.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_rdma_version_silences_total",
        "engine.requester.version_silences",
        "Peers that did not answer the first message of version 2 in time.",
    ),
    Metric::counter(
        "stag_rdma_local_invalidations_total",
        "engine.requester.local_invalidations",
        "Keys of ours that we invalidated ourselves.",
    ),
    Metric::counter(
        "stag_rdma_credit_waits_total",
        "engine.requester.waited_for_credit",
        "Calls of ours that had to wait for a credit.",
    ),
    Metric::counter(
        "stag_rdma_write_chunks_unused_total",
        "engine.requester.write_chunks_unused",
        "Replies to us whose Write chunk came back unused.",
    ),
    Metric::counter(
        "stag_rdma_unwritten_bytes_total",
        "engine.requester.unwritten",
        "Octets that replies to us claimed in chunks and nobody wrote.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_rdma_timeouts_total",
        "engine.requester.timeouts",
        "Calls of ours whose deadline passed.",
    ),
];

/// RPC over TCP.
pub const TCP: &[Metric] = &[
    Metric::counter("stag_tcp_calls_total", "engine.stream.calls", "Calls over TCP."),
    Metric::counter("stag_tcp_replies_total", "engine.stream.replies", "Replies over TCP."),
    Metric::counter(
        "stag_tcp_received_bytes_total",
        "engine.stream.received",
        "Octets received over TCP.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter("stag_tcp_sent_bytes_total", "engine.stream.sent", "Octets sent over TCP.")
        .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_tcp_system_calls_total",
        "engine.stream.{call=receives|sends|looks|watches}",
        "System calls for RPC over TCP, by what they are for.",
    ),
    Metric::counter(
        "stag_tcp_silent_total",
        "engine.stream.silent",
        "Connections that brought no call in time, or whose place was needed before.",
    ),
    Metric::counter(
        "stag_tcp_tls_sessions_total",
        "engine.stream.tls_sessions",
        "TLS sessions that stood (RFC 9289).",
    ),
    Metric::counter(
        "stag_tcp_tls_kernel_sessions_total",
        "engine.stream.tls_kernel_sessions",
        "TLS sessions that the kernel took over (--tls-records kernel).",
    ),
    Metric::counter(
        "stag_tcp_tls_failures_total",
        "engine.stream.tls_failures",
        "Connections that ended because they got no TLS session, or broke its rules.",
    ),
    Metric::counter(
        "stag_tcp_tls_refusals_total",
        "engine.stream.tls_refusals",
        "Calls denied because they came without TLS, or asked for it where they may not.",
    ),
];
