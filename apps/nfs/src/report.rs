//! Counters of a gateway: one shard's numbers since its start.

use crate::{
    data_counts::DataCounts,
    reply_cache::Duplicates,
    v4::{Nfs4Report, SessionState},
};
use std::collections::BTreeMap;

use serde::Serialize;
use stag_protocol::{
    nfs::{
        mount::{self, Procedure as MountProcedure},
        v3::{Procedure, Status, Verifier},
    },
    rpc::{Accepted, Outcome},
};

/// A snapshot of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatewayReport {
    /// NFS version 3, by procedures that were called.
    pub nfs3: BTreeMap<String, ProcedureCounts>,
    /// NFS version 4: operations, clients, sessions.
    pub nfs4: Nfs4Report,
    /// Sessions of version 4, only in a [detailed](stag_engine::App::detailed_report) report.
    #[serde(skip)]
    pub sessions: Vec<SessionState>,
    /// MOUNT version 3, by procedures that were called.
    pub mount3: BTreeMap<String, ProcedureCounts>,
    /// Calls that reached no procedure.
    pub refused: RefusedCalls,
    /// Bytes of files by version 3, their source, and their stability.
    pub data: DataCounts,
    /// Failed syncs, of all shards together: each changed the write verifier.
    pub failed_syncs: u64,
    /// Errors that blame an export's file system, by export, of all shards together.
    pub faults: BTreeMap<String, u64>,
    /// Passes whose handles could not be written to the index: they would not survive a restart
    /// until a later flush succeeds.
    pub failed_flushes: u64,
    /// Calls that had no memory for any reply: their connections were closed.
    pub unanswered: u64,
    /// Retransmitted calls, and the replies cached for them.
    pub duplicates: Duplicates,
    /// Calls that wait for a file system.
    pub waiting: WaitingCalls,
}

/// Calls that wait for a file system while the shard goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitingCalls {
    /// Calls that are in flight now.
    pub under_way: u64,
    /// Milliseconds for which the oldest of them has been in flight.
    pub oldest_ms: u64,
    /// Calls that were deferred since the start.
    pub put_off: u64,
    /// Calls that were refused, because too many waited or memory was short: NFS3ERR_JUKEBOX.
    pub refused: u64,
    /// Calls that were not started within two seconds: NFS3ERR_JUKEBOX.
    pub withdrawn: u64,
    /// Calls that were started, change nothing and took more than five seconds: NFS3ERR_JUKEBOX.
    pub given_up: u64,
}

/// Number of calls of a procedure, and number of its failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcedureCounts {
    /// Calls executed, failures included.
    pub calls: u64,
    /// Failures by the status of the reply.
    pub errors: BTreeMap<String, u64>,
}

/// Calls by the reason why they reached no procedure (RFC 5531 §9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RefusedCalls {
    /// PROG_UNAVAIL.
    pub program: u64,
    /// PROG_MISMATCH.
    pub version: u64,
    /// PROC_UNAVAIL.
    pub procedure: u64,
    /// GARBAGE_ARGS.
    pub arguments: u64,
    /// AUTH_ERROR.
    pub credential: u64,
}

/// The statuses of a failure and their names (RFC 1813 §2.6).
const FAILURES: [(Status, &str); 28] = [
    (Status::Perm, "NFS3ERR_PERM"),
    (Status::NoEnt, "NFS3ERR_NOENT"),
    (Status::Io, "NFS3ERR_IO"),
    (Status::NxIo, "NFS3ERR_NXIO"),
    (Status::Acces, "NFS3ERR_ACCES"),
    (Status::Exist, "NFS3ERR_EXIST"),
    (Status::XDev, "NFS3ERR_XDEV"),
    (Status::NoDev, "NFS3ERR_NODEV"),
    (Status::NotDir, "NFS3ERR_NOTDIR"),
    (Status::IsDir, "NFS3ERR_ISDIR"),
    (Status::Inval, "NFS3ERR_INVAL"),
    (Status::FBig, "NFS3ERR_FBIG"),
    (Status::NoSpc, "NFS3ERR_NOSPC"),
    (Status::RoFs, "NFS3ERR_ROFS"),
    (Status::MLink, "NFS3ERR_MLINK"),
    (Status::NameTooLong, "NFS3ERR_NAMETOOLONG"),
    (Status::NotEmpty, "NFS3ERR_NOTEMPTY"),
    (Status::DQuot, "NFS3ERR_DQUOT"),
    (Status::Stale, "NFS3ERR_STALE"),
    (Status::Remote, "NFS3ERR_REMOTE"),
    (Status::BadHandle, "NFS3ERR_BADHANDLE"),
    (Status::NotSync, "NFS3ERR_NOT_SYNC"),
    (Status::BadCookie, "NFS3ERR_BAD_COOKIE"),
    (Status::NotSupp, "NFS3ERR_NOTSUPP"),
    (Status::TooSmall, "NFS3ERR_TOOSMALL"),
    (Status::ServerFault, "NFS3ERR_SERVERFAULT"),
    (Status::BadType, "NFS3ERR_BADTYPE"),
    (Status::Jukebox, "NFS3ERR_JUKEBOX"),
];

/// The statuses of a failed MNT and their names (RFC 1813 §5.1.5).
const MOUNT_FAILURES: [(mount::Status, &str); 9] = [
    (mount::Status::Perm, "MNT3ERR_PERM"),
    (mount::Status::NoEnt, "MNT3ERR_NOENT"),
    (mount::Status::Io, "MNT3ERR_IO"),
    (mount::Status::Acces, "MNT3ERR_ACCES"),
    (mount::Status::NotDir, "MNT3ERR_NOTDIR"),
    (mount::Status::Inval, "MNT3ERR_INVAL"),
    (mount::Status::NameTooLong, "MNT3ERR_NAMETOOLONG"),
    (mount::Status::NotSupp, "MNT3ERR_NOTSUPP"),
    (mount::Status::ServerFault, "MNT3ERR_SERVERFAULT"),
];

/// One procedure's numbers; errors are indexed as in the table of their names.
#[derive(Clone, Copy, Debug)]
struct ProcedureTally<const ERRORS: usize> {
    calls: u64,
    errors: [u64; ERRORS],
}

impl<const ERRORS: usize> ProcedureTally<ERRORS> {
    const ZERO: Self = Self { calls: 0, errors: [0; ERRORS] };

    fn count<S: PartialEq>(&mut self, failure: Option<S>, names: &[(S, &str); ERRORS]) {
        self.calls += 1;
        let place = failure.and_then(|status| names.iter().position(|(known, _)| *known == status));
        if let Some(errors) = place.and_then(|place| self.errors.get_mut(place)) {
            *errors += 1;
        }
    }

    fn served<S>(&self, names: &[(S, &str); ERRORS]) -> ProcedureCounts {
        let counts = self.errors.iter().zip(names).filter(|(count, _)| **count > 0);
        ProcedureCounts {
            calls: self.calls,
            errors: counts.map(|(count, (_, name))| ((*name).to_owned(), *count)).collect(),
        }
    }
}

/// The live counters: counting allocates nothing.
#[derive(Debug)]
pub(crate) struct GatewayCounters {
    nfs3: [ProcedureTally<28>; Procedure::ALL.len()],
    mount3: [ProcedureTally<9>; MountProcedure::ALL.len()],
    refused: RefusedCalls,
    pub(crate) data: DataCounts,
    pub(crate) waiting: WaitingCalls,
    failed_flushes: u64,
    unanswered: u64,
    first_verifier: Verifier,
}

impl GatewayCounters {
    /// All zeros. `verifier` is the store's write verifier at the start.
    pub(crate) fn new(verifier: Verifier) -> Self {
        Self {
            nfs3: [ProcedureTally::ZERO; Procedure::ALL.len()],
            mount3: [ProcedureTally::ZERO; MountProcedure::ALL.len()],
            refused: RefusedCalls::default(),
            data: DataCounts::default(),
            waiting: WaitingCalls::default(),
            failed_flushes: 0,
            unanswered: 0,
            first_verifier: verifier,
        }
    }

    pub(crate) fn count_nfs(&mut self, procedure: Procedure, status: Status) {
        let tally =
            self.nfs3.get_mut(procedure.number() as usize).expect("a tally for each procedure");
        tally.count((status != Status::Ok).then_some(status), &FAILURES);
    }

    pub(crate) fn count_mount(
        &mut self,
        procedure: MountProcedure,
        outcome: Result<(), mount::Status>,
    ) {
        let tally =
            self.mount3.get_mut(procedure.number() as usize).expect("a tally for each procedure");
        tally.count(outcome.err(), &MOUNT_FAILURES);
    }

    pub(crate) fn count_refusal(&mut self, outcome: &Outcome<'_>) {
        let refused = &mut self.refused;
        *match outcome {
            Outcome::Denied(_) => &mut refused.credential,
            Outcome::Accepted { status, .. } => match status {
                Accepted::ProgUnavail => &mut refused.program,
                Accepted::ProgMismatch { .. } => &mut refused.version,
                Accepted::ProcUnavail => &mut refused.procedure,
                Accepted::GarbageArgs | Accepted::SystemErr | Accepted::Success => {
                    &mut refused.arguments
                }
            },
        } += 1;
    }

    pub(crate) fn count_failed_flush(&mut self) {
        self.failed_flushes += 1;
    }

    pub(crate) fn count_unanswered(&mut self) {
        self.unanswered += 1;
    }

    /// A copy with names. `verifier` is the store's current write verifier.
    pub(crate) fn report(&self, verifier: Verifier) -> GatewayReport {
        let nfs3 = Procedure::ALL.iter().zip(&self.nfs3).filter(|(_, tally)| tally.calls > 0);
        let mount3 =
            MountProcedure::ALL.iter().zip(&self.mount3).filter(|(_, tally)| tally.calls > 0);
        GatewayReport {
            waiting: self.waiting,
            nfs3: nfs3
                .map(|(procedure, tally)| (name(procedure), tally.served(&FAILURES)))
                .collect(),
            mount3: mount3
                .map(|(procedure, tally)| (name(procedure), tally.served(&MOUNT_FAILURES)))
                .collect(),
            refused: self.refused,
            data: self.data,
            // The verifier grows by one for each failure (`files::sync` of the stores).
            failed_syncs: u64::from_be_bytes(verifier)
                .wrapping_sub(u64::from_be_bytes(self.first_verifier)),
            faults: BTreeMap::new(),
            failed_flushes: self.failed_flushes,
            unanswered: self.unanswered,
            duplicates: Duplicates::default(),
            nfs4: Nfs4Report::default(),
            sessions: Vec::new(),
        }
    }
}

/// The specification's name of a procedure.
fn name(procedure: &impl std::fmt::Debug) -> String {
    format!("{procedure:?}").to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::xdr::{Codec, Reader};

    #[test]
    fn every_status_of_a_failure_has_its_name() {
        let statuses = (1..20_000_u32)
            .filter_map(|value| Status::parse(&mut Reader::new(&value.to_be_bytes())).ok());
        assert!(statuses.eq(FAILURES.map(|(status, _)| status)));
        for (status, name) in FAILURES {
            let debug = format!("NFS3ERR_{status:?}").to_uppercase();
            assert_eq!(name.replace('_', ""), debug.replace('_', ""));
        }
        let statuses = (1..20_000_u32)
            .filter_map(|value| mount::Status::parse(&mut Reader::new(&value.to_be_bytes())).ok());
        assert!(statuses.eq(MOUNT_FAILURES.map(|(status, _)| status)));
    }

    #[test]
    fn a_report_names_what_was_called_and_how_it_ended() {
        let mut counters = GatewayCounters::new(7_u64.to_be_bytes());
        for status in [Status::Ok, Status::NoEnt, Status::NoEnt, Status::Jukebox] {
            counters.count_nfs(Procedure::ReadDirPlus, status);
        }
        counters.count_mount(MountProcedure::Mnt, Err(mount::Status::Acces));
        let report = counters.report(9_u64.to_be_bytes());
        let served = &report.nfs3["READDIRPLUS"];
        assert_eq!(
            (served.calls, served.errors["NFS3ERR_NOENT"], served.errors["NFS3ERR_JUKEBOX"]),
            (4, 2, 1)
        );
        assert_eq!(report.mount3["MNT"].errors["MNT3ERR_ACCES"], 1);
        assert_eq!((report.nfs3.len(), report.mount3.len(), report.failed_syncs), (1, 1, 2));
        fn becomes_part_of_the_statistics(_: impl Serialize) {}
        becomes_part_of_the_statistics(report);
    }
}
