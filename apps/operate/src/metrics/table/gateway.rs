//! Metrics of the gateway: NFS, MOUNT version 3, and the store that they serve.

use crate::metrics::{Across, Metric, Unit};

/// The gateway.
pub const GATEWAY: &[Metric] = &[
    Metric::counter(
        "stag_nfs3_calls_total",
        "app.nfs3.{procedure}.calls",
        "Calls of NFS version 3 carried out, failures included.",
    ),
    Metric::counter(
        "stag_nfs3_errors_total",
        "app.nfs3.{procedure}.errors.{status}",
        "Calls of NFS version 3 that failed, by the status of the reply.",
    ),
    Metric::counter(
        "stag_nfs4_operations_total",
        "app.nfs4.operations.{operation}",
        "Operations of NFS version 4 carried out, failures included.",
    ),
    Metric::counter(
        "stag_nfs4_errors_total",
        "app.nfs4.errors.{operation}.{status}",
        "Operations of NFS version 4 that failed, by operation and status.",
    ),
    Metric::counter(
        "stag_nfs4_compounds_total",
        "app.nfs4.compounds",
        "Compounds of NFS version 4.",
    ),
    Metric::counter(
        "stag_nfs4_replayed_total",
        "app.nfs4.replayed",
        "Replies of NFS version 4 that came from a slot of a session.",
    ),
    Metric::counter(
        "stag_nfs4_read_bytes_total",
        "app.nfs4.data.octets_read",
        "Octets of files that READ of NFS version 4 returned.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_nfs4_written_bytes_total",
        "app.nfs4.data.octets_written",
        "Octets of files that WRITE of NFS version 4 took.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_nfs4_unstable_writes_total",
        "app.nfs4.data.unstable_writes",
        "WRITEs of NFS version 4 answered with UNSTABLE4.",
    ),
    Metric::counter(
        "stag_nfs4_commits_total",
        "app.nfs4.data.commits",
        "COMMITs of NFS version 4 that succeeded.",
    ),
    Metric::counter(
        "stag_nfs4_reads_short_of_memory_total",
        "app.nfs4.data.short_of_memory",
        "READs of NFS version 4 cut short for want of a buffer.",
    ),
    Metric::gauge("stag_nfs4_clients", "app.nfs4.clients", "Client records of NFS version 4."),
    Metric::gauge("stag_nfs4_sessions", "app.nfs4.sessions", "Sessions of NFS version 4."),
    Metric::gauge("stag_nfs4_slots", "app.nfs4.slots", "Slots of all sessions."),
    Metric::gauge(
        "stag_nfs4_busy_slots",
        "app.nfs4.busy_slots",
        "Slots in which a compound is carried out.",
    ),
    Metric::gauge(
        "stag_nfs4_suspended",
        "app.nfs4.suspended",
        "Compounds that wait for the store or for delegations.",
    ),
    Metric::counter(
        "stag_nfs4_suspensions_total",
        "app.nfs4.suspensions",
        "Times that a compound had to wait.",
    ),
    Metric::counter(
        "stag_nfs4_joined_total",
        "app.nfs4.joined",
        "Compounds that were sent again over another connection while they waited.",
    ),
    Metric::counter(
        "stag_nfs4_short_total",
        "app.nfs4.short",
        "Compounds of the most frequent kinds, which were answered in one step.",
    ),
    Metric::counter(
        "stag_nfs4_callbacks_total",
        "app.nfs4.callbacks",
        "Callbacks sent, those that were sent again included.",
    ),
    Metric::counter(
        "stag_nfs4_callbacks_failed_total",
        "app.nfs4.failed_callbacks",
        "Callbacks that were not answered, or by a failure.",
    ),
    Metric::counter(
        "stag_nfs4_notices_dropped_total",
        "app.nfs4.dropped_notices",
        "Notices that a lock may be free, dropped because too many of the host waited.",
    ),
    Metric::counter(
        "stag_nfs4_name_conflicts_total",
        "app.nfs4.name_conflicts",
        "Requests for client IDs by the name of another host's client, as cloned hosts send them.",
    ),
    Metric::counter(
        "stag_nfs4_unpinned_total",
        "app.nfs4.unpinned",
        "Opens of files that a REMOVE takes away at once, because too many are kept.",
    ),
    Metric::gauge(
        "stag_nfs4_in_grace",
        "app.nfs4.in_grace",
        "1 in the grace period, in which only clients of the last start get state.",
    ),
    Metric::gauge(
        "stag_nfs4_awaited",
        "app.nfs4.awaited",
        "Clients that the grace period waits for.",
    ),
    Metric::gauge(
        "stag_nfs4_waiting_records",
        "app.nfs4.waiting_records",
        "Changes of client records that are not stable.",
    ),
    Metric::counter(
        "stag_nfs4_failed_records_total",
        "app.nfs4.failed_records",
        "Attempts to record clients that failed: clients wait, and nothing is lost.",
    ),
    Metric::gauge(
        "stag_nfs4_watched",
        "app.nfs4.watched",
        "Delegated files that are watched, as programs of the host may change them.",
    ),
    Metric::counter(
        "stag_nfs4_touched_total",
        "app.nfs4.touched",
        "Watched files that a program of the host wanted to write, or has changed otherwise.",
    ),
    Metric::counter(
        "stag_nfs4_forwarded_total",
        "app.nfs4.forwarded",
        "Compounds that a shard forwarded to the one that has all clients.",
    ),
    Metric::counter(
        "stag_nfs4_asked_home_total",
        "app.nfs4.asked_home",
        "Calls of version 3 that a shard asked the one with all clients about.",
    ),
    Metric::counter(
        "stag_mount3_calls_total",
        "app.mount3.{procedure}.calls",
        "Calls of MOUNT version 3 carried out, failures included.",
    ),
    Metric::counter(
        "stag_mount3_errors_total",
        "app.mount3.{procedure}.errors.{status}",
        "Calls of MOUNT version 3 that failed, by the status of the reply.",
    ),
    Metric::counter(
        "stag_calls_refused_total",
        "app.refused.{reason}",
        "Calls that reached no procedure, by what was wrong with them (RFC 5531 section 9).",
    ),
    Metric::counter(
        "stag_nfs3_read_bytes_total",
        "app.data.octets_read",
        "Octets of files that READ returned.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_nfs3_written_bytes_total",
        "app.data.octets_written",
        "Octets of files that WRITE took.",
    )
    .in_unit(Unit::Bytes),
    Metric::counter(
        "stag_nfs3_unstable_writes_total",
        "app.data.unstable_writes",
        "WRITEs answered with UNSTABLE.",
    ),
    Metric::counter("stag_nfs3_commits_total", "app.data.commits", "COMMITs that succeeded."),
    Metric::counter(
        "stag_nfs3_reads_total",
        "app.data.reads_{way=cached|warmed|brought|helped|blocking|direct}",
        "READs by the way of their octets: in memory, brought by a helper or by io_uring, read by \
         a helper, waited for by the core, or from a file system that does not say.",
    ),
    Metric::counter(
        "stag_nfs3_reads_short_of_memory_total",
        "app.data.short_of_memory",
        "READs cut short or put off for want of a buffer.",
    ),
    Metric::counter(
        "stag_failed_syncs_total",
        "app.failed_syncs",
        "Syncs that failed: each changed the write verifier.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_store_faults_total",
        "app.faults.{export}",
        "Errors that blame the file system of an export: each has a line in the log, or is \
         counted in one.",
    )
    .across(Across::Largest),
    Metric::counter(
        "stag_failed_flushes_total",
        "app.failed_flushes",
        "Passes whose handles could not be written to the index.",
    ),
    Metric::counter(
        "stag_unanswered_calls_total",
        "app.unanswered",
        "Calls that had no memory for any reply: their connections were closed.",
    ),
    Metric::gauge(
        "stag_duplicates_kept",
        "app.duplicates.kept",
        "Replies that are kept for calls that come again.",
    ),
    Metric::counter(
        "stag_duplicates_total",
        "app.duplicates.{event=replayed|busy|evicted|fetched|given|waited|asked_again|turned_away}",
        "What happened to calls that came again, and to the replies that are kept for them.",
    ),
    Metric::gauge(
        "stag_waiting_calls",
        "app.waiting.under_way",
        "Calls that wait for a file system.",
    ),
    Metric::gauge(
        "stag_waiting_calls_oldest_seconds",
        "app.waiting.oldest_ms",
        "Time for which the oldest call has waited for a file system.",
    )
    .in_unit(Unit::Millis)
    .across(Across::Largest),
    Metric::counter(
        "stag_waiting_calls_total",
        "app.waiting.{outcome=put_off|refused|withdrawn|given_up}",
        "Calls that were put off until a file system answers, and those of them that were \
         answered with NFS3ERR_JUKEBOX instead.",
    ),
];
