//! Counters of version 4.

use std::collections::BTreeMap;

use serde::Serialize;
use stag_protocol::nfs::v4::{Operation, Status4};

use crate::data_counts::Nfs4DataCounts;

/// Counters of version 4, and the use of its tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nfs4Report {
    /// Operations executed, failures included, by name.
    pub operations: BTreeMap<String, u64>,
    /// Operations that failed, by name and status.
    pub errors: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bytes of files, and their stability.
    pub data: Nfs4DataCounts,
    /// Compounds.
    pub compounds: u64,
    /// Replies that came from a slot.
    pub replayed: u64,
    /// Client records at this moment.
    pub clients: u64,
    /// Sessions at this moment.
    pub sessions: u64,
    /// Their slots.
    pub slots: u64,
    /// Slots that execute a compound at this moment.
    pub busy_slots: u64,
    /// Compounds that wait at this moment: for the store, or for delegations of other clients.
    pub suspended: u64,
    /// Times that a compound had to wait.
    pub suspensions: u64,
    /// Compounds that were sent again over another connection while they waited.
    pub joined: u64,
    /// Compounds that were answered without the interpreter.
    pub short: u64,
    /// Callbacks sent, including those sent again.
    pub callbacks: u64,
    /// Callbacks without an answer, or answered by a failure.
    pub failed_callbacks: u64,
    /// Notices of locks that may be free, dropped because too many waited.
    pub dropped_notices: u64,
    /// Clients that gave the name of another host's client.
    pub name_conflicts: u64,
    /// Opens of files that a REMOVE removes at once, because too many are kept.
    pub unpinned: u64,
    /// 1 in the grace period, in which only clients of the last boot get state.
    pub in_grace: u64,
    /// Clients that the grace period waits for at this moment.
    pub awaited: u64,
    /// Changes of client records that are not stable at this moment.
    pub waiting_records: u64,
    /// Attempts to record clients that failed.
    pub failed_records: u64,
    /// Files that are watched at this moment, as they are delegated and local programs may change
    /// them.
    pub watched: u64,
    /// Watched files that a local program was about to write, or has changed otherwise.
    pub touched: u64,
    /// Compounds that this shard forwarded to the one that has all clients.
    pub forwarded: u64,
    /// Calls of version 3 on this shard about which the home was asked.
    pub asked_home: u64,
}

/// Numbers of operations are below this.
pub const OPERATIONS: usize = {
    let (mut above, mut rest) = (0, Operation::ALL);
    while let [first, others @ ..] = rest {
        let number = *first as usize;
        above = if number < above { above } else { number + 1 };
        rest = others;
    }
    above
};
/// Small statuses have their own places below this; statuses specific to NFS begin at 10,000.
const PLAIN: usize = 100;
const STATUSES: usize = PLAIN + 100;

/// The counters in memory: counting allocates nothing.
#[derive(Debug)]
pub(in crate::v4) struct Tally {
    operations: [u64; OPERATIONS],
    /// Failures of each operation by status.
    failures: Box<[[u64; STATUSES]]>,
    pub(in crate::v4) data: Nfs4DataCounts,
    pub(in crate::v4) compounds: u64,
    pub(in crate::v4) replayed: u64,
    pub(in crate::v4) suspensions: u64,
    pub(in crate::v4) joined: u64,
    pub(in crate::v4) short: u64,
    pub(in crate::v4) name_conflicts: u64,
    pub(in crate::v4) unpinned: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            operations: [0; OPERATIONS],
            failures: vec![[0; STATUSES]; OPERATIONS].into_boxed_slice(),
            data: Nfs4DataCounts::default(),
            compounds: 0,
            replayed: 0,
            suspensions: 0,
            joined: 0,
            short: 0,
            name_conflicts: 0,
            unpinned: 0,
        }
    }
}

impl Tally {
    /// Counts an operation; none stands for one that is not defined.
    pub(in crate::v4) fn count(&mut self, operation: Option<Operation>, status: Status4) {
        let place = operation.map_or(0, |operation| operation as usize);
        if let Some(count) = self.operations.get_mut(place) {
            *count += 1;
        }
        if status != Status4::Ok
            && let Some(statuses) = self.failures.get_mut(place)
            && let Some(count) = statuses.get_mut(place_of(status))
        {
            *count += 1;
        }
    }

    /// Uncounts an operation that succeeded, whose compound is executed elsewhere.
    pub(in crate::v4) fn take_back(&mut self, operation: Operation) {
        if let Some(count) = self.operations.get_mut(operation as usize) {
            *count = count.saturating_sub(1);
        }
    }

    /// A copy with names.
    pub(in crate::v4) fn report(&self) -> Nfs4Report {
        let name = |number: usize| operation_name(u32::try_from(number).unwrap_or(0));
        let errors = self.failures.iter().map(|statuses| named(statuses, status_name));
        let errors = errors.enumerate().filter(|(_, statuses)| !statuses.is_empty());
        Nfs4Report {
            operations: named(&self.operations, name),
            errors: errors.map(|(number, statuses)| (name(number), statuses)).collect(),
            data: self.data,
            compounds: self.compounds,
            replayed: self.replayed,
            suspensions: self.suspensions,
            joined: self.joined,
            short: self.short,
            name_conflicts: self.name_conflicts,
            unpinned: self.unpinned,
            ..Nfs4Report::default()
        }
    }
}

/// The counts that are not zero, by the name of their place.
fn named(counts: &[u64], name: impl Fn(usize) -> String) -> BTreeMap<String, u64> {
    let counted = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    counted.map(|(place, count)| (name(place), *count)).collect()
}

/// The name of an operation; "ILLEGAL" for a number without one.
pub fn operation_name(number: u32) -> String {
    Operation::new(number).map_or_else(|| "ILLEGAL".to_owned(), |known| format!("{known:?}"))
}

const fn place_of(status: Status4) -> usize {
    let number = status as usize;
    if number >= 10_000 { PLAIN + (number - 10_000) } else { number }
}

fn status_name(place: usize) -> String {
    use stag_protocol::xdr::{Codec, Reader};
    let number = if place >= PLAIN { place - PLAIN + 10_000 } else { place };
    let octets = u32::try_from(number).unwrap_or_default().to_be_bytes();
    let status = Status4::parse(&mut Reader::new(&octets));
    status
        .map_or_else(|_| number.to_string(), |status| format!("NFS4ERR_{status:?}").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_called_and_how_it_ended_is_told_by_name() {
        let mut tally = Tally::default();
        tally.count(Some(Operation::GetAttr), Status4::Ok);
        for operation in [Operation::Lookup, Operation::Access, Operation::Lookup] {
            tally.count(Some(operation), Status4::NoEnt);
        }
        tally.count(Some(Operation::RemoveXattr), Status4::Xattr2Big);
        tally.count(None, Status4::OpIllegal);
        let report = tally.report();
        assert_eq!(report.operations["GetAttr"], 1);
        assert_eq!(report.operations["ILLEGAL"], 1);
        assert_eq!(report.operations["RemoveXattr"], 1);
        assert_eq!(report.errors["Lookup"]["NFS4ERR_NOENT"], 2);
        assert_eq!(report.errors["Access"]["NFS4ERR_NOENT"], 1);
        assert_eq!(report.errors["RemoveXattr"]["NFS4ERR_XATTR2BIG"], 1);
        assert_eq!(report.errors["ILLEGAL"].len(), 1);
        assert_eq!(report.errors.len(), 4, "operations that succeed have no entry");
    }
}
