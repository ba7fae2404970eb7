//! The cases of RFC 8881 §8.4.2 and §8.4.3, one by one.

use super::{
    party::{Held, Party},
    world::{LEASE, World},
};
use crate::gateway::{
    nfs4::client::{CONFIG, Client4, ServedExport, open_args, read_args, write_args},
    wire::OverTcp,
};
use stag_engine::Config;
use stag_nfs::{
    Nfs4Config, Nfs4Records,
    records::{
        Boot, ClientRecord, FileHome, RecordChange, RecordError, RecordKeeper, RecordLog, Records,
    },
};
use stag_nfs_os::range_lock::{self, LockedOctets};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::{v3, v4::*};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn clients_take_back_all_that_they_had_and_nobody_is_faster() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    let mut other = two.open(&mut world, b"f").unwrap();
    world.restart();
    assert_eq!((world.report().in_grace, world.report().awaited), (1, 2));
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    assert_eq!(two.open(&mut world, b"g").unwrap_err(), Status4::Grace);
    let at_data = [Request::PutRootFh(()), Request::Lookup(Text(b"data"))];
    let mut removed = at_data.to_vec();
    removed.push(Request::Remove(Text(b"f")));
    assert_eq!(two.run(&mut world, &removed).status(), Status4::Grace);
    let mut moved = at_data.to_vec();
    moved.extend([
        Request::SaveFh(()),
        Request::Rename(Rename4Args { old: Text(b"f"), new: Text(b"h") }),
    ]);
    assert_eq!(two.run(&mut world, &moved).status(), Status4::Grace);
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!(two.lock(&mut world, &mut other, false), Err(Status4::Grace));
    one.reclaim_all(&mut world, &mut held).unwrap();
    assert_eq!(two.lock(&mut world, &mut other, true), Err(Status4::ReclaimConflict));
    let handle = Request::PutFh(Text(&held.handle));
    let written = one.run(&mut world, &[handle, write_args(held.open, 0, b"octets")]);
    assert_eq!(written.status(), Status4::Ok, "a reclaimed open serves in the grace period");
    assert_eq!(one.complete(&mut world), Status4::Ok);
    assert_eq!(one.open(&mut world, b"g").unwrap_err(), Status4::Grace, "another is awaited");
    assert_eq!(two.complete(&mut world), Status4::Ok);
    assert_eq!(world.report().in_grace, 0, "all that are listed are complete");
    assert_eq!(two.lock(&mut world, &mut other, false), Err(Status4::Denied));
    assert!(one.open(&mut world, b"g").is_ok());
}

#[test]
fn a_lock_that_a_program_took_while_the_server_was_down_is_reclaimed_once_it_is_free() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    let program = world.program("f");
    let octets = LockedOctets { first: 9, last: 20 };
    let refused = range_lock::set(&program, octets, Some(true)).unwrap_err();
    assert!(range_lock::is_conflict(refused), "the server shows the lock");
    world.stop();
    range_lock::set(&program, octets, Some(true)).unwrap();
    world.restart();
    assert!(one.recovers(&mut world));
    held = one.reclaim(&mut world, &held).unwrap();
    assert_eq!(one.lock(&mut world, &mut held, true), Err(Status4::ReclaimConflict));
    drop(program);
    assert_eq!(one.lock(&mut world, &mut held, true), Ok(()));
}

#[test]
fn two_kills_within_one_grace_period_lose_nothing() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    let mut other = two.open(&mut world, b"g").unwrap();
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    one.reclaim_all(&mut world, &mut held).unwrap();
    assert_eq!(one.complete(&mut world), Status4::Ok);
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    one.reclaim_all(&mut world, &mut held).unwrap();
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!((one.complete(&mut world), two.complete(&mut world)), (Status4::Ok, Status4::Ok));
    assert_eq!(world.report().in_grace, 0);
}

#[test]
fn a_client_whose_state_others_got_after_its_lease_reclaims_nothing() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    let mut other = two.open(&mut world, b"f").unwrap();
    assert_eq!(two.lock(&mut world, &mut other, false), Err(Status4::Denied));
    for _ in 0..3 {
        world.wait(LEASE / 2);
        assert_eq!(two.run(&mut world, &[]).status(), Status4::Ok);
    }
    two.lock(&mut world, &mut other, false).unwrap();
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    assert_eq!(one.reclaim_all(&mut world, &mut held), Err(Status4::NoGrace));
    two.reclaim_all(&mut world, &mut other).unwrap();
}

#[test]
fn a_client_that_missed_one_grace_period_reclaims_nothing_in_the_next() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    world.restart();
    assert!(two.recovers(&mut world));
    assert_eq!(two.complete(&mut world), Status4::Ok);
    assert_eq!(two.open(&mut world, b"f").unwrap_err(), Status4::Grace);
    assert_eq!(world.report().awaited, 1);
    world.wait(LEASE / 2);
    assert_eq!(two.run(&mut world, &[]).status(), Status4::Ok);
    world.wait(LEASE / 2 + SECOND);
    let mut other = two.open(&mut world, b"f").unwrap();
    two.lock(&mut world, &mut other, false).unwrap();
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    assert_eq!(one.reclaim_all(&mut world, &mut held), Err(Status4::NoGrace));
    two.reclaim_all(&mut world, &mut other).unwrap();
}

#[test]
fn a_client_that_began_anew_or_acts_for_another_user_reclaims_nothing() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    world.restart();
    one.uid += 1;
    assert_eq!(one.ask_id(&mut world), Err(Status4::ClidInUse));
    assert_eq!(world.report().awaited, 1, "the user who had it is awaited");
    world.restart();
    let mut next = Party::begun(b"one", 2, &mut world);
    assert_eq!(next.reclaim_all(&mut world, &mut held), Err(Status4::NoGrace));
    assert_eq!(next.complete(&mut world), Status4::Ok);
    assert!(next.open(&mut world, b"f").is_ok(), "nobody else is awaited");
    world.restart();
    assert!(next.recovers(&mut world));
    next.reclaim_all(&mut world, &mut held).unwrap();
}

#[test]
fn clients_that_have_nothing_to_reclaim_keep_nobody_waiting_after_a_kill() {
    const IDLE: [&[u8]; 10] = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"];
    let mut world = World::new();
    let mut idle = IDLE.map(|owner| Party::new(owner, &mut world));
    world.restart();
    assert_eq!(world.report().in_grace, 0, "no client had state");
    let mut one = Party::new(b"one", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    one.lock(&mut world, &mut held, false).unwrap();
    for party in &mut idle {
        assert!(party.recovers(&mut world));
        assert_eq!(party.complete(&mut world), Status4::Ok);
    }
    world.restart();
    assert_eq!((world.report().in_grace, world.report().awaited), (1, 1));
    assert!(one.recovers(&mut world));
    one.reclaim_all(&mut world, &mut held).unwrap();
    assert_eq!(one.complete(&mut world), Status4::Ok);
    assert_eq!(world.report().in_grace, 0, "the idle ones have not said a word");
    assert!(one.open(&mut world, b"g").is_ok());
    for party in &mut idle {
        assert!(party.recovers(&mut world));
        assert_eq!(party.complete(&mut world), Status4::Ok);
        assert!(party.open(&mut world, b"g").is_ok());
    }
    world.restart();
    assert_eq!(world.report().awaited, 11);
}

#[test]
fn a_client_without_state_is_forgotten_after_a_lease_or_when_it_has_reclaimed_nothing() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    let mut other = two.open(&mut world, b"f").unwrap();
    assert_eq!(one.close(&mut world, &held), Status4::Ok);
    world.restart();
    assert_eq!(world.report().awaited, 2, "it had state a moment ago");
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!((one.complete(&mut world), two.complete(&mut world)), (Status4::Ok, Status4::Ok));
    world.restart();
    assert_eq!(world.report().awaited, 1, "the first one has reclaimed nothing");
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    two.reclaim_all(&mut world, &mut other).unwrap();
    assert_eq!((one.complete(&mut world), two.complete(&mut world)), (Status4::Ok, Status4::Ok));
    let held = one.open(&mut world, b"f").unwrap();
    assert_eq!(one.close(&mut world, &held), Status4::Ok);
    for _ in 0..4 {
        world.wait(LEASE / 2);
        assert_eq!(one.run(&mut world, &[]).status(), Status4::Ok);
        assert_eq!(two.run(&mut world, &[]).status(), Status4::Ok);
    }
    let held = one.open(&mut world, b"f").unwrap();
    assert_eq!(one.close(&mut world, &held), Status4::Ok, "it is recorded once more");
    for _ in 0..4 {
        world.wait(LEASE / 2);
        assert_eq!(one.run(&mut world, &[]).status(), Status4::Ok);
        assert_eq!(two.run(&mut world, &[]).status(), Status4::Ok);
    }
    world.restart();
    assert_eq!(world.report().awaited, 1, "a lease has passed");
    assert!(two.recovers(&mut world));
    two.reclaim_all(&mut world, &mut other).unwrap();
}

#[test]
fn a_client_is_recorded_once_however_often_it_opens() {
    let mut world = World::new();
    let before = world.disk.content().writes;
    let mut one = Party::new(b"one", &mut world);
    assert_eq!(world.disk.content().writes, before, "a mount is not recorded");
    for _ in 0..20 {
        let mut held = one.open(&mut world, b"f").unwrap();
        one.lock(&mut world, &mut held, false).unwrap();
        assert_eq!(one.close(&mut world, &held), Status4::Ok);
        world.wait(LEASE / 3);
        assert_eq!(world.disk.content().writes, before + 1);
    }
}

/// Records that look for a file when they are stable.
struct WatchfulRecords {
    records: RecordLog<FileHome>,
    file: std::path::PathBuf,
    is_early: Arc<AtomicBool>,
}

impl Records for WatchfulRecords {
    fn begin(&mut self) -> Result<Boot, RecordError> {
        self.records.begin()
    }

    fn apply(&mut self, changes: &[RecordChange]) -> Result<(), RecordError> {
        // A server that does not wait has time to be wrong.
        let is_there = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            self.file.exists()
        });
        self.is_early.fetch_or(is_there, Ordering::Relaxed);
        self.records.apply(changes)
    }

    fn take_over(&mut self, gateway: &str) -> Result<Vec<ClientRecord>, RecordError> {
        self.records.take_over(gateway)
    }
}

#[test]
fn the_first_open_waits_for_its_record_and_makes_nothing_before() {
    let home = crate::gateway::client::Home::new();
    let mut records = RecordLog::new(FileHome::new(home.path("state")));
    let boot = records.begin().unwrap();
    let is_early = Arc::new(AtomicBool::new(false));
    let file = home.path("data/f");
    let records = WatchfulRecords { records, file, is_early: Arc::clone(&is_early) };
    let keeper = RecordKeeper::start(Box::new(records)).unwrap();
    let config = Nfs4Config { epoch: boot.epoch, ..CONFIG };
    let records = Nfs4Records { boot, keeper, grace: LEASE };
    let gateway = home.gateway().with_nfs4(config).with_records(records);
    let wire = Box::new(OverTcp::new(gateway, Config::small()));
    let mut client = Client4::on(wire, ServedExport::new(b"data", home), 2);
    let suspensions = client.wire.report().nfs4.suspensions;
    client.open(b"f");
    assert!(!is_early.load(Ordering::Relaxed), "state that a kill would lose");
    assert_eq!(client.wire.report().nfs4.suspensions, suspensions + 1);
    let (stateid, handle) = client.open(b"f");
    assert_eq!(client.wire.report().nfs4.suspensions, suspensions + 1, "it is recorded");
    let written = client.run(&[Request::PutFh(Text(&handle)), write_args(stateid, 0, b"x")]);
    assert_eq!(written.status(), Status4::Ok);
    assert_eq!(client.wire.report().nfs4.busy_slots, 0);
}

/// Two clients have a file open; the delegation of the first one was revoked.
struct Revoked {
    world: World,
    one: Party,
    two: Party,
    held: Held,
    other: Held,
}

fn revoke() -> Revoked {
    let mut world = World::with(DelegationPolicy::ReadWrite);
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    let mut conflicts = 0;
    let other = loop {
        match two.open(&mut world, b"f") {
            Ok(other) => break other,
            Err(status) => assert_eq!(status, Status4::Delay, "it is recalled"),
        }
        conflicts += 1;
        assert!(conflicts < 100, "it is revoked at its deadline");
        world.wait(LEASE / 4);
        assert_eq!(one.run(&mut world, &[]).status(), Status4::Ok);
    };
    assert!(conflicts >= 4, "a client has a lease's time to return one");
    Revoked { world, one, two, held, other }
}

#[test]
fn a_client_whose_delegation_was_revoked_reclaims_nothing() {
    let Revoked { mut world, mut one, mut two, mut held, mut other } = revoke();
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    assert_eq!(one.reclaim_all(&mut world, &mut held), Err(Status4::NoGrace));
    two.reclaim_all(&mut world, &mut other).unwrap();
}

#[test]
fn one_that_has_freed_it_knows_what_it_has_lost_and_reclaims_the_rest() {
    let Revoked { mut world, mut one, mut two, mut held, mut other } = revoke();
    let delegation = held.delegation.take().expect("nobody else had the file open");
    let freed = one.run(&mut world, &[Request::FreeStateid(delegation)]);
    assert_eq!(freed.status(), Status4::Ok);
    world.restart();
    assert!(one.recovers(&mut world) && two.recovers(&mut world));
    one.reclaim_all(&mut world, &mut held).unwrap();
    two.reclaim_all(&mut world, &mut other).unwrap();
}

#[test]
fn attributes_of_a_file_stay_while_a_delegation_of_it_may_be_reclaimed() {
    for (delegations, expected) in
        [(DelegationPolicy::Read, Status4::Grace), (DelegationPolicy::Never, Status4::Ok)]
    {
        let mut world = World::with(delegations);
        let mut one = Party::new(b"one", &mut world);
        let held = one.open_as(&mut world, open_args(b"f", share::READ, true)).unwrap();
        assert_eq!(held.delegation.is_some(), delegations == DelegationPolicy::Read);
        world.restart();
        let mut two = Party::begun(b"two", 1, &mut world);
        let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &[0, 0, 1, 0x80] };
        let set = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
        let set = [Request::PutFh(Text(&held.handle)), Request::SetAttr(set)];
        assert_eq!(two.run(&mut world, &set).status(), expected);
        let file = v3::FileHandle::new(&held.handle).unwrap();
        let set = v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() };
        let set = v3::SetAttrArgs { object: file, attributes: set, guard: None };
        let status = world.call3(&v3::Call::SetAttr(set));
        assert_eq!(status == v3::Status::Jukebox, expected == Status4::Grace);
        // Nothing conflicts once the grace period is over.
        world.wait(LEASE * 2);
        assert_eq!(world.call3(&v3::Call::SetAttr(set)), v3::Status::Ok);
    }
}

#[test]
fn a_client_that_has_left_is_not_awaited() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    assert_eq!(one.close(&mut world, &held), Status4::Ok);
    assert_eq!(one.leave(&mut world), Status4::Ok);
    world.restart();
    assert_eq!(world.report().in_grace, 0);
    let mut two = Party::new(b"two", &mut world);
    assert!(two.open(&mut world, b"f").is_ok());
}

#[test]
fn a_delegation_to_write_that_nobody_can_have_had_is_no_reclaim() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    world.restart();
    assert!(one.recovers(&mut world));
    let write = one.reclaim_with(&mut world, &held, DelegationType::Write);
    assert_eq!(write.unwrap_err(), Status4::ReclaimBad);
    assert!(one.reclaim_with(&mut world, &held, DelegationType::Read).is_ok());
}

#[test]
fn a_delegation_of_a_file_that_nobody_watched_meanwhile_is_reclaimed_to_be_returned() {
    for (policy, comes_back) in [(DelegationPolicy::Read, false), (DelegationPolicy::Watched, true)]
    {
        let mut world = World::with(policy);
        let mut one = Party::new(b"one", &mut world);
        let held = one.open_as(&mut world, open_args(b"f", share::READ, true)).unwrap();
        world.restart();
        assert!(one.recovers(&mut world));
        let claim = OpenClaim::Previous(DelegationType::Read);
        let open = Open4Args { claim, ..open_args(b"", share::READ, false) };
        let handle = Request::PutFh(Text(&held.handle));
        let reply = one.run(&mut world, &[handle, Request::Open(open)]);
        let Answer::Open(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
        let OpenDelegation::Read(given) = ok.delegation else { panic!("{:?}", ok.delegation) };
        assert_eq!(given.recall, comes_back, "{policy:?}");
    }
}

#[test]
fn a_full_disk_makes_new_clients_wait_and_loses_no_old_one() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    world.disk.content().is_full = true;
    let mut two = Party::new(b"two", &mut world);
    assert_eq!(two.open(&mut world, b"g").unwrap_err(), Status4::Delay);
    assert!(!world.has_file("g"), "what has to wait makes nothing");
    assert!(one.open(&mut world, b"h").is_ok(), "it is recorded");
    let report = world.report();
    assert_eq!(report.waiting_records, 1);
    assert!(report.failed_records >= 1);
    world.disk.content().is_full = false;
    world.wait(2 * SECOND);
    assert!(two.open(&mut world, b"g").is_ok());
    world.disk.content().is_full = true;
    let mut three = Party::new(b"three", &mut world);
    assert_eq!(three.open(&mut world, b"i").unwrap_err(), Status4::Delay);
    world.disk.content().is_full = false;
    world.restart();
    assert_eq!(world.report().awaited, 2, "who was told to wait had nothing");
    assert!(one.recovers(&mut world));
    one.reclaim_all(&mut world, &mut held).unwrap();
}

#[test]
fn wherever_the_log_is_torn_behind_an_acknowledgement_its_client_reclaims() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut held = one.open(&mut world, b"f").unwrap();
    let acknowledged = world.disk.log().len();
    let mut two = Party::new(b"two", &mut world);
    let other = two.open(&mut world, b"g").unwrap();
    assert_eq!(two.close(&mut world, &other), Status4::Ok);
    assert_eq!(two.leave(&mut world), Status4::Ok);
    let log = world.disk.log();
    assert!(log.len() > acknowledged);
    for len in acknowledged..=log.len() {
        world.disk.set_log(&log[..len]);
        world.restart();
        assert!(one.recovers(&mut world));
        one.reclaim_all(&mut world, &mut held).unwrap();
    }
}

#[test]
fn a_file_that_is_open_stays_when_it_is_removed_until_it_is_closed() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let mut two = Party::new(b"two", &mut world);
    let held = one.open(&mut world, b"f").unwrap();
    let (root, data) = (Request::PutRootFh(()), Request::Lookup(Text(b"data")));
    let removed = two.run(&mut world, &[root, data, Request::Remove(Text(b"f"))]);
    assert_eq!(removed.status(), Status4::Ok);
    let handle = Request::PutFh(Text(&held.handle));
    let written = one.run(&mut world, &[handle.clone(), write_args(held.open, 0, b"octets")]);
    assert_eq!(written.status(), Status4::Ok);
    let read = one.run(&mut world, &[handle.clone(), read_args(held.open, 0, 6)]);
    let Answer::Read(Ok(read)) = read.last() else { panic!("{:?}", read.last()) };
    assert_eq!(read.data.octets(), Some(&b"octets"[..]));
    assert_eq!(one.close(&mut world, &held), Status4::Ok);
    world.wait(SECOND);
    let gone = one.run(&mut world, &[handle, Request::GetAttr(Bitmap::of([1]))]);
    assert_eq!(gone.status(), Status4::Stale);
    assert_eq!(world.report().unpinned, 0);
}

#[test]
fn a_thread_that_keeps_records_answers_when_they_are_stable() {
    let mut client = Client4::recorded();
    let (stateid, handle) = client.open(b"f");
    let written = client.run(&[Request::PutFh(Text(&handle)), write_args(stateid, 0, b"x")]);
    assert_eq!(written.status(), Status4::Ok);
    assert_eq!(client.wire.report().nfs4.busy_slots, 0);
}
