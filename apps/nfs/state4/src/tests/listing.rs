//! Lists of states for administrators, and the facts of leases.

use super::{delegations::ask, *};
use stag_protocol::nfs::v4::state::LockRange;

fn listed(fixture: &Fixture, filter: &StateFilter) -> Vec<ListedState> {
    let (states, next) = fixture.tables.list_states(filter, 0);
    assert_eq!(next, None, "few states are one page");
    states
}

const fn all(kind: StateidKind) -> StateFilter {
    StateFilter { kind, client: None, file: None }
}

#[test]
fn each_state_is_listed_with_its_client_file_and_details() {
    let mut fixture = Fixture::new();
    let opens = [0, 1].map(|client| fixture.open(client, "open", BOTH, 0));
    let locks = fixture.lock(0, by(opens[0], "p"), LockType::Write, 10, 5).unwrap();
    let locks = fixture.lock(0, LockerRef::Known(locks), LockType::Read, 100, u64::MAX).unwrap();
    fixture.open_file(2, FileId(8), "other", READ, WRITE).unwrap();

    let of_locks = listed(&fixture, &all(StateidKind::Locks));
    let [one] = &of_locks[..] else { panic!("{of_locks:?}") };
    assert_eq!((one.stateid, one.client_id, &*one.handle), (locks, 11, &b"handle"[..]));
    let ListedKind::Locks { ranges, count, owner } = &one.kind else { panic!("{one:?}") };
    let ranges: Vec<_> = ranges.iter().map(|held| (held.range, held.exclusive)).collect();
    let range = |offset, length| LockRange::new(offset, length).unwrap();
    assert_eq!(ranges, [(range(10, 5), true), (range(100, u64::MAX), false)]);
    assert_eq!((*count, &**owner), (2, &b"p"[..]));

    assert_eq!(listed(&fixture, &all(StateidKind::Open)).len(), 3);
    let of_file = StateFilter { file: Some(FileId(8)), ..all(StateidKind::Open) };
    let of_file = listed(&fixture, &of_file);
    let open = ListedKind::Open { access: READ, deny: WRITE, owner: b"other"[..].into() };
    assert_eq!((of_file.len(), of_file[0].client_id, &of_file[0].kind), (1, 13, &open));
    let of_client = StateFilter { client: Some(fixture.clients[1]), ..all(StateidKind::Open) };
    let of_client = listed(&fixture, &of_client);
    assert_eq!((of_client.len(), of_client[0].stateid), (1, opens[1]));
}

#[test]
fn a_delegation_is_listed_as_held_recalled_and_revoked() {
    let mut fixture = Fixture::new();
    let given = ask(&mut fixture, 0, BOTH, Claim::New, delegations::OFFER).unwrap();
    assert!(matches!(given.delegation, DelegationOutcome::Given(_)));
    let phase = |fixture: &Fixture| match &listed(fixture, &all(StateidKind::Delegation))[0].kind {
        ListedKind::Delegation { write, is_recalled, is_revoked } => {
            (*write, *is_recalled, *is_revoked)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(phase(&fixture), (true, false, false));
    let conflict = fixture.tables.recall(FILE, None, RecallScope::All, fixture.now);
    assert_eq!(conflict, Err(StateFault::AwaitRecall));
    assert_eq!(phase(&fixture), (true, true, false));
    let state = fixture.work().into_iter().find_map(|work| match work {
        StateWork::Recall(order) => Some(order.state),
        _ => None,
    });
    fixture.tables.revoke(state.unwrap());
    assert_eq!(phase(&fixture), (true, false, true));
    let facts = fixture.tables.lease_facts(fixture.clients[0], 0).unwrap();
    assert_eq!((facts.delegations, facts.revoked, facts.opens), (1, 1, 1));
}

#[test]
fn a_lease_counts_from_the_last_request_and_shows_its_expiry() {
    let mut fixture = Fixture::new();
    fixture.open(0, "open", READ, 0);
    let client = fixture.clients[0];
    assert!(fixture.tables.renew(client, 1_000));
    let facts = |fixture: &Fixture, now| fixture.tables.lease_facts(client, now).unwrap();
    assert_eq!((facts(&fixture, 4_000).idle_ms, facts(&fixture, 4_000).opens), (3_000, 1));
    assert!(!facts(&fixture, 4_000).is_expired);
    for _ in 0..fixture.tables.turns() {
        fixture.tables.handle_time(1_000 + LEASE + 1);
    }
    assert!(facts(&fixture, 1_000 + LEASE + 1).is_expired);
}

#[test]
fn pages_list_every_state_once() {
    let limits =
        StateLimits { opens: 1_000, opens_per_client: 1_000, opens_per_file: 1_000, ..SMALL };
    let mut fixture = Fixture::with(limits);
    for number in 0..600 {
        fixture.open(0, &format!("owner {number}"), READ, 0);
    }
    let (mut seen, mut from, mut pages) = (std::collections::HashSet::new(), Some(0), 0);
    while let Some(place) = from {
        let (states, next) = fixture.tables.list_states(&all(StateidKind::Open), place);
        assert!(states.len() <= 256 && next.is_none_or(|next| next > place));
        assert!(states.iter().all(|state| seen.insert(state.stateid.other)));
        (from, pages) = (next, pages + 1);
    }
    assert_eq!(seen.len(), 600);
    assert!(pages >= 3, "{pages}");
    let (states, next) = fixture.tables.list_states(&all(StateidKind::Open), usize::MAX);
    assert_eq!((states.len(), next), (0, None), "a place past the end is an empty page");
}
