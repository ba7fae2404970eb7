//! Delegations of files that local programs change, too.

use super::{
    delegations::{OFFER, ask},
    *,
};
use stag_protocol::nfs::v4::NoDelegation;

const WATCHED: DelegationOffer = DelegationOffer { policy: DelegationPolicy::Watched, ..OFFER };
const WANTS: u32 = READ | share::WANT_READ_DELEGATION;

fn given(fixture: &mut Fixture, client: usize) -> GivenDelegation {
    match ask(fixture, client, WANTS, Claim::New, WATCHED).unwrap().delegation {
        DelegationOutcome::Given(given) => given,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_gets_one_of_a_file_that_anybody_has_open_for_writing() {
    for (writer, access) in [(0, WRITE), (0, BOTH), (1, WRITE)] {
        let mut fixture = Fixture::new();
        let open = fixture.open(writer, "other", access, 0);
        let refused = DelegationOutcome::Refused(NoDelegation::Contention(false));
        let opened = ask(&mut fixture, 0, WANTS, Claim::New, WATCHED).unwrap();
        assert_eq!(opened.delegation, refused, "{writer} {access}");
        let closed = fixture.on(writer, open);
        fixture.tables.close(&closed).unwrap();
        given(&mut fixture, 0);
    }
}

#[test]
fn one_that_cannot_be_watched_is_as_if_it_had_not_been_given() {
    for (asked, told) in [
        (READ, DelegationOutcome::None),
        (WANTS, DelegationOutcome::Refused(NoDelegation::Contention(false))),
    ] {
        let mut fixture = Fixture::new();
        let one = given(&mut fixture, 0);
        assert_eq!(fixture.tables.take_back(one.state, asked), told);
        fixture.tables.assert_consistent();
        assert_eq!((fixture.tables.delegation_count(), fixture.work()), (0, vec![]));
        given(&mut fixture, 0);
    }
}

#[test]
fn a_file_without_delegations_is_told_of_when_the_last_one_went_or_was_revoked() {
    let mut fixture = Fixture::new();
    let one = given(&mut fixture, 0);
    fixture.tables.take_back(one.state, READ);
    assert_eq!(fixture.tables.next_undelegated(), None, "nobody wants to know");
    fixture.tables.note_undelegated();
    let (one, other) = (given(&mut fixture, 0), given(&mut fixture, 1));
    let back = fixture.on(0, one.stateid);
    fixture.tables.return_delegation(&back).unwrap();
    assert_eq!(fixture.tables.next_undelegated(), None, "there is another one");
    fixture.tables.begin_recall(other.state, 0);
    fixture.tables.revoke(other.state);
    assert_eq!(fixture.tables.next_undelegated(), Some(FILE), "that is of no use any more");
    assert_eq!(fixture.tables.next_undelegated(), None);
}

#[test]
fn a_program_of_the_host_waits_no_longer_than_it_can() {
    for (patience, expected) in [(Some(30_000), 30_000), (None, LEASE), (Some(2 * LEASE), LEASE)] {
        let mut fixture = Fixture::new();
        let one = given(&mut fixture, 0);
        let asked = |fixture: &mut Fixture, now| {
            let recalled = fixture.tables.recall_for_host(FILE, patience, now);
            assert_eq!(recalled, Err(StateFault::AwaitRecall), "whoever has it");
        };
        asked(&mut fixture, 0);
        assert!(matches!(fixture.work()[..], [StateWork::Recall(_)]));
        fixture.tables.handle_recall_sent(one.state, 0);
        // A second request does not extend the time.
        asked(&mut fixture, 20_000);
        let mut revoked_at = None;
        for now in (0..=3 * LEASE).step_by(1_000) {
            fixture.clients.iter().for_each(|client| assert!(fixture.tables.renew(*client, now)));
            fixture.tables.handle_time(now);
            match fixture.work()[..] {
                [] => {}
                [StateWork::Revoke(state)] if state == one.state && revoked_at.is_none() => {
                    revoked_at = Some(now);
                }
                ref other => panic!("{other:?}"),
            }
        }
        assert_eq!(revoked_at, Some(expected), "{patience:?}");
    }
}
