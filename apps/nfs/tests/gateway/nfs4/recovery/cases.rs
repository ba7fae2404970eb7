//! The cases of RFC 8881 §8.4.2 and §8.4.3: scripts of acts around restarts, then cases that look
//! at the server, its disk or raw replies between the acts.

use super::{
    party::Party,
    script::*,
    world::{LEASE, World},
};
use crate::gateway::{
    nfs4::client::{CONFIG, Client4, ServedExport, open_args, write_args},
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
use stag_protocol::nfs::{
    v3,
    v4::{
        Answer, Bitmap, Open4Args, OpenClaim, OpenDelegation, RawAttributes, Request, SetAttr4Args,
        Stateid, Text, share,
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);
const THREE: Clients = &["three"];
const IDLE: Clients = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

scripts! {
    fn clients_take_back_all_that_they_had_and_nobody_is_faster() {
        ONE: Open("f"), Lock("f");
        TWO: Open("f");
        SERVER: Restart, InGrace(1), Awaits(2);
        BOTH: Recover;
        TWO: Open("g") => Grace, Remove("f") => Grace, Rename("f", "h") => Grace;
        TWO: Reclaim("f"), Lock("f") => Grace;
        ONE: Reclaim("f");
        TWO: ReclaimLock("f") => ReclaimConflict;
        // A reclaimed open serves in the grace period, which lasts while another is awaited.
        ONE: Write("f"), Complete, Open("g") => Grace;
        // All that are listed are complete.
        TWO: Complete;
        SERVER: InGrace(0);
        TWO: Lock("f") => Denied;
        ONE: Open("g");
    }

    fn two_kills_within_one_grace_period_lose_nothing() {
        ONE: Open("f"), Lock("f");
        TWO: Open("g");
        SERVER: Restart;
        BOTH: Recover;
        ONE: Reclaim("f"), Complete;
        SERVER: Restart;
        BOTH: Recover;
        ONE: Reclaim("f");
        TWO: Reclaim("g");
        BOTH: Complete;
        SERVER: InGrace(0);
    }

    fn a_client_whose_state_others_got_after_its_lease_reclaims_nothing() {
        ONE: Open("f"), Lock("f");
        TWO: Open("f"), Lock("f") => Denied, Idle(3), Lock("f");
        SERVER: Restart;
        BOTH: Recover;
        ONE: Reclaim("f") => NoGrace;
        TWO: Reclaim("f");
    }

    fn a_client_that_missed_one_grace_period_reclaims_nothing_in_the_next() {
        BOTH: Join;
        ONE: Open("f"), Lock("f");
        SERVER: Restart;
        TWO: Recover, Complete, Open("f") => Grace;
        SERVER: Awaits(1);
        TWO: Idle(1), Wait(LEASE / 2 + SECOND), Open("f"), Lock("f");
        SERVER: Restart;
        BOTH: Recover;
        ONE: Reclaim("f") => NoGrace;
        TWO: Reclaim("f");
    }

    fn a_client_that_began_anew_or_acts_for_another_user_reclaims_nothing() {
        ONE: Open("f");
        SERVER: Restart;
        ONE: AskIdAsAnotherUser => ClidInUse;
        // The user who had it is awaited.
        SERVER: Awaits(1), Restart;
        // No other client is awaited.
        ONE: Reboot, Reclaim("f") => NoGrace, Complete, Open("f");
        SERVER: Restart;
        ONE: Recover, Reclaim("f");
    }

    fn clients_that_have_nothing_to_reclaim_keep_nobody_waiting_after_a_kill() {
        IDLE: Join;
        // No client had state.
        SERVER: Restart, InGrace(0);
        ONE: Open("f"), Lock("f");
        IDLE: Recover, Complete;
        SERVER: Restart, InGrace(1), Awaits(1);
        ONE: Recover, Reclaim("f"), Complete;
        // The idle clients have been silent since the restart.
        SERVER: InGrace(0);
        ONE: Open("g");
        IDLE: Recover, Complete, Open("g");
        SERVER: Restart, Awaits(11);
    }

    fn a_client_without_state_is_forgotten_after_a_lease_or_when_it_has_reclaimed_nothing() {
        BOTH: Open("f");
        ONE: Close("f");
        // It had state a moment ago.
        SERVER: Restart, Awaits(2);
        BOTH: Recover;
        TWO: Reclaim("f");
        BOTH: Complete;
        // The first client has reclaimed nothing.
        SERVER: Restart, Awaits(1);
        BOTH: Recover;
        TWO: Reclaim("f");
        BOTH: Complete;
        ONE: Open("f"), Close("f");
        BOTH: Idle(4);
        // It is recorded once more.
        ONE: Open("f"), Close("f");
        BOTH: Idle(4);
        // A lease has passed.
        SERVER: Restart, Awaits(1);
        TWO: Recover, Reclaim("f");
    }

    fn a_client_that_has_left_is_not_awaited() {
        ONE: Open("f"), Close("f"), Leave;
        SERVER: Restart, InGrace(0);
        TWO: Open("f");
    }

    fn a_delegation_to_write_that_nobody_can_have_had_is_no_reclaim() {
        ONE: Open("f");
        SERVER: Restart;
        ONE: Recover, ReclaimOpen("f", DelegationType::Write) => ReclaimBad;
        ONE: ReclaimOpen("f", DelegationType::Read);
    }

    fn a_full_disk_makes_new_clients_wait_and_loses_no_old_one() {
        ONE: Open("f");
        SERVER: With(|world| world.disk.content().is_full = true);
        TWO: Open("g") => Delay;
        SERVER: With(|world| assert!(!world.has_file("g"), "what has to wait makes nothing"));
        // It is recorded.
        ONE: Open("h");
        SERVER: With(|world| assert_eq!(world.report().waiting_records, 1));
        SERVER: With(|world| assert!(world.report().failed_records >= 1));
        SERVER: With(|world| world.disk.content().is_full = false), Wait(2 * SECOND);
        TWO: Open("g");
        SERVER: With(|world| world.disk.content().is_full = true);
        THREE: Open("i") => Delay;
        SERVER: With(|world| world.disk.content().is_full = false);
        // A client that had to wait had nothing.
        SERVER: Restart, Awaits(2);
        ONE: Recover, Reclaim("f");
    }

    fn a_file_that_is_open_stays_when_it_is_removed_until_it_is_closed() {
        ONE: Open("f");
        TWO: Remove("f");
        ONE: Write("f"), Read("f"), Close("f"), Wait(SECOND), GetAttr("f") => Stale;
        SERVER: With(|world| assert_eq!(world.report().unpinned, 0));
    }
}

#[test]
fn a_lock_that_a_program_took_while_the_server_was_down_is_reclaimed_once_it_is_free() {
    let mut stage = Stage::new(DelegationPolicy::Never);
    stage.play(steps![ONE: Open("f"), Lock("f")]);
    let program = stage.world.program("f");
    let octets = LockedOctets { first: 9, last: 20 };
    let refused = range_lock::set(&program, octets, Some(true)).unwrap_err();
    assert!(range_lock::is_conflict(refused), "the server shows the lock");
    stage.world.stop();
    range_lock::set(&program, octets, Some(true)).unwrap();
    stage.play(steps![
        SERVER: Restart;
        ONE: Recover, ReclaimOpen("f", DelegationType::None), ReclaimLock("f") => ReclaimConflict;
    ]);
    drop(program);
    stage.play(steps![ONE: ReclaimLock("f")]);
}

#[test]
fn a_client_is_recorded_once_however_often_it_opens() {
    let mut stage = Stage::new(DelegationPolicy::Never);
    let before = stage.world.disk.content().writes;
    stage.play(steps![ONE: Join]);
    assert_eq!(stage.world.disk.content().writes, before, "a mount is not recorded");
    for _ in 0..20 {
        stage.play(steps![ONE: Open("f"), Lock("f"), Close("f"), Wait(LEASE / 3)]);
        assert_eq!(stage.world.disk.content().writes, before + 1);
    }
}

#[test]
fn wherever_the_log_is_torn_behind_an_acknowledgement_its_client_reclaims() {
    let mut stage = Stage::new(DelegationPolicy::Never);
    stage.play(steps![ONE: Open("f")]);
    let acknowledged = stage.world.disk.log().len();
    stage.play(steps![TWO: Open("g"), Close("g"), Leave]);
    let log = stage.world.disk.log();
    assert!(log.len() > acknowledged);
    for len in acknowledged..=log.len() {
        stage.world.disk.set_log(&log[..len]);
        stage.play(steps![SERVER: Restart; ONE: Recover, Reclaim("f")]);
    }
}

/// Two clients have a file open; the delegation of the first one was revoked.
fn revoke() -> Stage {
    let mut stage = Stage::new(DelegationPolicy::ReadWrite);
    stage.play(steps![BOTH: Join; ONE: Open("f")]);
    for conflicts in 0..100 {
        match stage.act("two", Open("f")) {
            // It is recalled.
            Status4::Delay => stage.play(steps![SERVER: Wait(LEASE / 4); ONE: Renew]),
            status => {
                assert_eq!(status, Status4::Ok);
                assert!(conflicts >= 4, "a client has a lease's time to return one");
                return stage;
            }
        }
    }
    panic!("it is revoked at its deadline");
}

#[test]
fn a_client_whose_delegation_was_revoked_reclaims_nothing() {
    revoke().play(steps![
        SERVER: Restart;
        BOTH: Recover;
        ONE: Reclaim("f") => NoGrace;
        TWO: Reclaim("f");
    ]);
}

#[test]
fn one_that_has_freed_it_knows_what_it_has_lost_and_reclaims_the_rest() {
    revoke().play(steps![
        ONE: FreeDelegation("f");
        SERVER: Restart;
        BOTH: Recover, Reclaim("f");
    ]);
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

#[test]
fn a_thread_that_keeps_records_answers_when_they_are_stable() {
    let mut client = Client4::recorded();
    let (stateid, handle) = client.open(b"f");
    let written = client.run(&[Request::PutFh(Text(&handle)), write_args(stateid, 0, b"x")]);
    assert_eq!(written.status(), Status4::Ok);
    assert_eq!(client.wire.report().nfs4.busy_slots, 0);
}
