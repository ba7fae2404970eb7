//! Metrics of the process as a whole, and of the time of calls.

use crate::metrics::{Across, Metric, Unit};

/// The server.
pub const SERVER: &[Metric] = &[
    Metric::gauge(
        "stag_build_info",
        "build.{version}.{commit}",
        "Always 1; the labels say what runs.",
    ),
    Metric::gauge("stag_uptime_seconds", "uptime_s", "Time since the start.")
        .in_unit(Unit::Seconds),
    Metric::gauge(
        "stag_draining",
        "draining",
        "1 while the server takes no connections, because it was told to drain.",
    ),
    Metric::gauge(
        "stag_outages",
        "outages",
        "Shards whose RDMA device is gone, or has no port or no address at the moment.",
    ),
    Metric::gauge(
        "stag_memory_bytes",
        "memory.{part}",
        "Memory that the shards took at start, by what it is for.",
    )
    .in_unit(Unit::Bytes),
    Metric::gauge(
        "stag_export_size_bytes",
        "exports.{export}.size_bytes",
        "Size of the file system that holds an export. Missing while it does not answer.",
    )
    .in_unit(Unit::Bytes),
    Metric::gauge(
        "stag_export_available_bytes",
        "exports.{export}.available_bytes",
        "Space of that file system that users without privileges can still fill.",
    )
    .in_unit(Unit::Bytes),
    Metric::gauge(
        "stag_export_inodes",
        "exports.{export}.inodes",
        "Files that the file system of an export can hold. Missing where there is no limit.",
    ),
    Metric::gauge(
        "stag_export_available_inodes",
        "exports.{export}.available_inodes",
        "Files that can still be made there.",
    ),
    Metric::counter("stag_log_events_total", "log.written", "Events that were logged."),
    Metric::counter(
        "stag_log_events_lost_total",
        "log.lost",
        "Events that were not logged, because there were too many at once.",
    ),
    Metric::gauge(
        "process_resident_memory_bytes",
        "process.resident_bytes",
        "Memory of the process that is in RAM.",
    )
    .in_unit(Unit::Bytes),
    Metric::gauge(
        "stag_locked_memory_bytes",
        "process.locked_bytes",
        "Memory of the process that is locked in RAM.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "process_cpu_seconds_total",
        "process.cpu_ms",
        "Time that all threads of the process ran, in user space and in the kernel.",
    )
    .in_unit(Unit::Millis),
    Metric::gauge("process_open_fds", "process.open_fds", "Descriptors that are open."),
    Metric::gauge(
        "process_max_fds",
        "process.max_fds",
        "Descriptors that may be open (RLIMIT_NOFILE).",
    ),
];

/// Time of calls. Only watched calls have one: 1 in --sample.
pub const TIMES: &[Metric] = &[
    Metric::histogram(
        "stag_call_seconds",
        "procedures[].total",
        "Time of watched calls in the server, from message to reply, by procedure.",
    ),
    Metric::histogram(
        "stag_call_stage_seconds",
        "procedures[].stages",
        "Time of watched calls in each stage of their way, by procedure and stage.",
    ),
    Metric::histogram(
        "stag_nfs4_operation_seconds",
        "operations[].total",
        "Time of watched compounds of NFS version 4 in the server, by the operation that they are \
         sent for.",
    ),
    Metric::histogram(
        "stag_nfs4_operation_stage_seconds",
        "operations[].stages",
        "Time of watched compounds of NFS version 4 in each stage of their way, by operation and \
         stage.",
    ),
    Metric::counter(
        "stag_watched_calls_total",
        "stages.calls",
        "Calls that were watched from message to reply.",
    ),
    Metric::gauge(
        "stag_watched_every",
        "stages.every",
        "One call in so many is watched (--sample); 0: none.",
    )
    .across(Across::Largest),
];
