//! Delegations: given and recalled over the connection of the calls, or not given.

use super::*;
use stag_check::CheckStep;

/// Runs everything by version 4 on a store in memory that gives these; the step of delegations.
fn step_of(delegations: DelegationPolicy, minor: u32, faults: Faults) -> CheckStep {
    let fabric = Fabric::new(3, faults);
    let gateway = in_memory().with_nfs4(Nfs4Config { delegations, ..NFS4 }).without_nfs3();
    let (server, mut client) = pair(&fabric, gateway);
    client.begin_version4(minor).unwrap();
    let report = functional(&mut client, &CheckPlan { entries: 20, ..CheckPlan::new(1) });
    assert!(report.is_success(), "{report:#?}");
    client.disconnect();
    let nfs4 = server.borrow().snapshot().app.nfs4;
    assert_eq!((nfs4.clients, nfs4.sessions, nfs4.busy_slots), (0, 0, 0));
    let mut steps = report.steps.into_iter();
    steps.find(|step| step.name == "delegations").unwrap()
}

#[test]
fn delegations_are_recalled_and_their_holder_is_asked_for_attributes() {
    for (minor, faults) in [(1, Faults::NONE), (2, Faults::NONE), (2, Faults::DELAYS)] {
        let step = step_of(DelegationPolicy::ReadWrite, minor, faults);
        let seen = "4 read delegations recalled; a write delegation, its holder asked for \
                    attributes";
        assert_eq!(step.note.as_deref(), Some(seen));
    }
}

#[test]
fn a_server_that_gives_no_delegation_passes_and_its_reason_is_told() {
    let step = step_of(DelegationPolicy::Never, 2, Faults::NONE);
    assert_eq!(step.note.as_deref(), Some("none (Resource(false))"));
}
