//! The functional run against the gateway, both on one simulated fabric and in one thread.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod delegations;
mod watched;

use stag_check::{CheckPlan, CheckReport};
use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::{CallFault, Shard};
use stag_nfs::{Gateway, Nfs4Config};
use stag_nfs_os::range_lock::{self, LockedOctets};
use stag_nfs_store::{
    Store,
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
    memory::{self, Memory, MemoryExport},
};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::v3::{StableHow, Status};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, fs, os::unix::fs::FileExt, path::Path, rc::Rc, time::Duration};

/// Virtual nanoseconds that one look at the clock takes.
const TICK: u64 = 500;
/// Port at which the server listens.
const AT: Port = Port(700);

type Server<S = Files> = Rc<RefCell<Shard<Sim, Gateway<S>>>>;

fn gateway(home: &Path, read_only: bool) -> Gateway {
    let path = home.join("data");
    fs::create_dir_all(&path).unwrap();
    let config = files::FilesConfig {
        state_dir: home.join("state"),
        exports: vec![ExportConfig {
            name: "data".to_owned(),
            path,
            read_only,
            is_mountpoint: false,
        }],
        shards: 1,
        sync_directories: false,
        callers: files::Callers::UNPRIVILEGED,
        open_files: Some(64),
        cluster: None,
    };
    Gateway::new(Files::open(&SharedFiles::open(&config).unwrap(), 0).unwrap())
}

/// A server, and a client that is connected to it: the server's passes run whenever the client
/// looks at its clock.
fn pair<S: Store + 'static>(fabric: &Fabric, gateway: Gateway<S>) -> (Server<S>, NfsClient<Sim>) {
    sabotaged(fabric, gateway, || {})
}

/// As [`pair`], with `sabotage` at work between the passes.
fn sabotaged<S: Store + 'static>(
    fabric: &Fabric,
    gateway: Gateway<S>,
    sabotage: impl FnMut() + 'static,
) -> (Server<S>, NfsClient<Sim>) {
    served(fabric, gateway, shard(), sabotage)
}

/// The server's shard.
fn shard() -> stag_engine::Config {
    stag_engine::Config { grant: 8, ..stag_engine::Config::small() }
}

fn served<S: Store + 'static>(
    fabric: &Fabric,
    gateway: Gateway<S>,
    shard: stag_engine::Config,
    mut sabotage: impl FnMut() + 'static,
) -> (Server<S>, NfsClient<Sim>) {
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let mut server =
        Shard::new(fabric.end("server", limits), gateway, shard, Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let server = Rc::new(RefCell::new(server));

    let config = ClientConfig { user: (1, 1), ..ClientConfig::new(7) };
    let end = fabric.end("client", config.limits());
    let mut time = 0;
    let behind = Rc::clone(&server);
    let now = move || {
        time += TICK;
        sabotage();
        behind.borrow_mut().pass(Time(time));
        Time(time)
    };
    let mut client = NfsClient::new(end, config, now).unwrap();
    client.connect(&AT).unwrap();
    (server, client)
}

fn functional(client: &mut NfsClient<Sim>, plan: &CheckPlan) -> CheckReport {
    stag_check::run(client, "/data", plan, &mut |step| {
        if let Some(failure) = &step.failure {
            eprintln!("{}: {failure}", step.name);
        }
        // Other servers may ignore an octet of a handle; this one refuses each change.
        assert!(step.name != "handles that fail" || step.note.is_none(), "{:?}", step.note);
    })
}

#[test]
fn every_step_passes_on_a_quiet_fabric_and_nothing_is_left_behind() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(1, Faults::NONE);
    let (server, mut client) = pair(&fabric, gateway(home.path(), false));
    let report = functional(&mut client, &CheckPlan::new(1));
    assert!(report.is_success(), "{report:#?}");
    assert_eq!(fs::read_dir(home.path().join("data")).unwrap().count(), 0);
    assert!(report.octets > 20_000_000, "all sizes were written and read: {}", report.octets);
    assert!(report.calls > 4_000, "a large directory was made and removed: {}", report.calls);

    let engine = &report.engine.requester;
    assert!(
        engine.chunks.read > 0 && engine.chunks.write > 0 && engine.chunks.reply > 0,
        "{engine:?}"
    );
    assert!(engine.calls.chunked > 0 && engine.replies.chunked > 0, "{engine:?}");
    assert!(engine.remote_invalidations > 0, "{engine:?}");
    assert!(report.engine.peer_faults.is_empty(), "{:?}", report.engine.peer_faults);

    client.disconnect();
    assert_eq!(client.null(), Err(Error::NotConnected(Some(stag_engine::Cause::Local))));
    assert_eq!(client.raw().buffers_in_use(), 0);
    for _ in 0..100 {
        client.now();
    }
    assert_eq!(server.borrow().buffers_in_use(), 0);
}

const NFS4: Nfs4Config = Nfs4Config {
    lease: Duration::from_secs(90),
    epoch: 1,
    identity: [5; 16],
    delegations: DelegationPolicy::Never,
    started: 1_000,
    key: [3; 16],
    cluster: None,
};

#[test]
fn a_step_that_fails_between_two_clients_leaves_none_of_them() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(1, Faults::NONE);
    let plan = CheckPlan { entries: 20, ..CheckPlan::new(1) };
    let file = home.path().join("data").join(&plan.directory).join("state");
    // A program of the host locks the file as soon as it is there.
    let mut locked = None;
    let sabotage = move || {
        if locked.is_none() && file.exists() {
            let program = fs::OpenOptions::new().read(true).write(true).open(&file).unwrap();
            range_lock::set(&program, LockedOctets { first: 0, last: u64::MAX }, Some(true))
                .unwrap();
            locked = Some(program);
        }
    };
    let gateway = gateway(home.path(), false).with_nfs4(NFS4).without_nfs3();
    let (server, mut client) = sabotaged(&fabric, gateway, sabotage);
    client.begin_version4(2).unwrap();
    let report = functional(&mut client, &plan);
    let failed: Vec<_> = report.steps.iter().filter(|step| !step.passed).collect();
    assert_eq!(failed.len(), 1, "{failed:#?}");
    let failure = failed[0].failure.as_ref().unwrap();
    assert_eq!(
        (failed[0].name, &failure.what[..]),
        ("opens and locks", "LOCK of 0 to 100 by client A")
    );
    let nfs4 = server.borrow().snapshot().app.nfs4;
    assert_eq!((nfs4.clients, nfs4.sessions), (1, 1), "the one whose connection this is");
    assert_eq!(fs::read_dir(home.path().join("data")).unwrap().count(), 0);
}

#[test]
fn every_step_passes_by_version_4_as_well_and_the_session_ends_with_the_client() {
    let home = tempfile::tempdir().unwrap();
    for minor in [1, 2] {
        let fabric = Fabric::new(1, Faults::NONE);
        let gateway = gateway(home.path(), false).with_nfs4(NFS4).without_nfs3();
        let (server, mut client) = pair(&fabric, gateway);
        client.begin_version4(minor).unwrap();
        assert_eq!(client.minor_version(), Some(minor));
        let report = functional(&mut client, &CheckPlan::new(1));
        assert!(report.is_success(), "{report:#?}");
        assert_eq!(fs::read_dir(home.path().join("data")).unwrap().count(), 0);
        let of = |server: &Server<Files>| server.borrow().snapshot().app;
        assert_eq!(of(&server).nfs3.get("READ"), None, "nothing went by version 3");
        client.disconnect();
        let nfs4 = of(&server).nfs4;
        assert_eq!((nfs4.clients, nfs4.sessions, nfs4.busy_slots), (0, 0, 0));
        assert!(nfs4.operations["Read"] > 0 && nfs4.operations["Write"] > 0);
    }
}

/// The memory store with one empty export.
fn in_memory() -> Gateway<Memory> {
    let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
    let config = memory::MemoryConfig::new(vec![export], 64 << 20);
    Gateway::new(Memory::new(&config, &mut |_| ()).unwrap())
}

#[test]
fn every_step_passes_on_the_memory_store_which_is_empty_again_afterwards() {
    for (seed, faults) in [(5, Faults::NONE), (6, Faults::DELAYS)] {
        let fabric = Fabric::new(seed, faults);
        let (server, mut client) = pair(&fabric, in_memory());
        let report = functional(&mut client, &CheckPlan { entries: 500, ..CheckPlan::new(seed) });
        assert!(report.is_success(), "{report:#?}");
        client.disconnect();
        for _ in 0..100 {
            client.now();
        }
        let server = server.borrow();
        let (total, free) = server.app().store().capacity();
        assert_eq!((server.buffers_in_use(), total - free), (0, 0));
    }
}

#[test]
fn every_step_passes_when_everything_is_late_by_its_own_time() {
    for seed in [2, 3] {
        let home = tempfile::tempdir().unwrap();
        let fabric = Fabric::new(seed, Faults::DELAYS);
        let (_server, mut client) = pair(&fabric, gateway(home.path(), false));
        let report = functional(&mut client, &CheckPlan { entries: 200, ..CheckPlan::new(seed) });
        assert!(report.is_success(), "seed {seed}: {report:#?}");
    }
}

#[test]
fn every_step_passes_on_a_server_that_says_nothing_while_connecting() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(11, Faults::NONE);
    let shard = stag_engine::Config { private_data: false, ..shard() };
    let (_server, mut client) = served(&fabric, gateway(home.path(), false), shard, || {});
    let report = functional(&mut client, &CheckPlan { entries: 200, ..CheckPlan::new(11) });
    assert!(report.is_success(), "{report:#?}");
    let engine = &report.engine.requester;
    assert!(engine.remote_invalidations == 0 && engine.local_invalidations > 0, "{engine:?}");
    assert!(engine.calls.long > 0 && engine.replies.long > 0, "{engine:?}");
}

#[test]
fn mount_may_be_answered_by_another_connection() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(12, Faults::NONE);
    let (server, mut client) = pair(&fabric, gateway(home.path(), false));
    let mut time = 0;
    let now = move || {
        time += TICK;
        server.borrow_mut().pass(Time(time));
        Time(time)
    };
    let config = ClientConfig { user: (1, 1), ..ClientConfig::new(8) };
    let mut mount = NfsClient::new(fabric.end("mount", config.limits()), config, now).unwrap();
    mount.connect(&AT).unwrap();
    let plan = CheckPlan { entries: 20, ..CheckPlan::new(12) };
    let report = stag_check::run_apart(&mut client, Some(&mut mount), "/data", &plan, &mut |_| {});
    assert!(report.is_success(), "{report:#?}");
    assert_eq!(mount.calls(), 6, "NULL, EXPORT, MNT twice, an unknown procedure, UMNT");
}

#[test]
fn a_read_only_export_fails_the_step_that_needs_to_write_and_skips_the_rest() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(4, Faults::NONE);
    let (_server, mut client) = pair(&fabric, gateway(home.path(), true));
    let report = functional(&mut client, &CheckPlan::new(4));
    assert!(!report.is_success());
    assert!(report.failed >= 1 && report.skipped > 0, "{report:#?}");
    let failure = report.steps.last().unwrap().failure.as_ref().unwrap();
    assert_eq!(failure.expected, "success");
    assert!(!failure.fatal);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["failed"], 1);
}

#[test]
fn an_export_that_is_not_there_fails_the_mount_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(5, Faults::NONE);
    let (_server, mut client) = pair(&fabric, gateway(home.path(), false));
    let report = stag_check::run(&mut client, "/other", &CheckPlan::new(5), &mut |_| {});
    let failed: Vec<_> =
        report.steps.iter().filter(|step| !step.passed).map(|step| step.name).collect();
    assert_eq!(failed, ["exports", "mount"]);
    let failure = report.steps.last().unwrap().failure.as_ref().unwrap();
    assert_eq!(failure.to_string(), "MNT /other: expected success, came MOUNT failed (NoEnt)");
}

#[test]
fn a_connection_that_breaks_ends_the_run_with_its_cause() {
    for lost_at in [40, 200, 1_001] {
        let home = tempfile::tempdir().unwrap();
        let fabric = Fabric::new(lost_at, Faults { lost_at: Some(lost_at), ..Faults::NONE });
        let (_server, mut client) = pair(&fabric, gateway(home.path(), false));
        let report = functional(&mut client, &CheckPlan::new(6));
        assert!(!report.is_success());
        let fatal = report
            .steps
            .iter()
            .filter_map(|step| step.failure.as_ref())
            .filter(|failure| failure.fatal);
        assert!(fatal.count() >= 1, "{report:#?}");
    }
}

#[test]
fn one_wrong_octet_of_a_file_and_one_name_too_many_fail_their_steps_and_no_other() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(9, Faults::NONE);
    let plan = CheckPlan { entries: 20, ..CheckPlan::new(9) };
    let work = home.path().join("data").join(&plan.directory);
    let mut is_strange = false;
    let sabotage = move || {
        let file = work.join("file-65537-FileSync");
        if fs::metadata(&file).is_ok_and(|found| found.len() == 65_537) {
            fs::OpenOptions::new()
                .write(true)
                .open(&file)
                .unwrap()
                .write_all_at(b"\0", 40_007)
                .unwrap();
        }
        let last = work.join("large").join("entry-00019-------------------");
        if last.exists() && !std::mem::replace(&mut is_strange, true) {
            fs::write(work.join("large").join("stranger"), b"").unwrap();
        }
    };
    let (_server, mut client) = sabotaged(&fabric, gateway(home.path(), false), sabotage);
    let report = functional(&mut client, &plan);
    let failed: Vec<_> =
        report.steps.iter().filter(|step| !step.passed).map(|step| step.name).collect();
    assert_eq!(failed, ["files", "listing"], "{report:#?}");
    let failures: Vec<_> = report.steps.iter().filter_map(|step| step.failure.as_ref()).collect();
    assert_eq!(failures[0].what, "the content of file-65537-FileSync");
    assert!(failures[0].came.starts_with("Some((40007, "), "{}", failures[0]);
    assert_eq!(failures[1].came, "Some(\"stranger\")");
    assert_eq!(
        fs::read_dir(home.path().join("data")).unwrap().count(),
        0,
        "it cleans up all the same"
    );
}

#[test]
fn the_client_reads_and_writes_what_is_in_the_file() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(7, Faults::NONE);
    let (_server, mut client) = pair(&fabric, gateway(home.path(), false));
    let root = client.mount("/data").unwrap();
    fs::write(home.path().join("data/file"), b"as it was").unwrap();
    let file = client.lookup(root, b"file").unwrap().object;
    let mut room = [0; 9];
    assert_eq!(client.read(file, 0, &mut room).unwrap().count, 9);
    assert_eq!(&room, b"as it was");
    fs::write(home.path().join("data/file"), b"as it wAs").unwrap();
    client.read(file, 0, &mut room).unwrap();
    assert_eq!(&room, b"as it wAs");
    let wrote = client.write(file, 3, b"is", StableHow::FileSync).unwrap();
    assert_eq!(wrote.count, 2);
    assert_eq!(fs::read(home.path().join("data/file")).unwrap(), b"as is wAs");
    assert_eq!(client.lookup(root, b"nothing").unwrap_err(), Error::Nfs(Status::NoEnt));
}

#[test]
fn a_client_can_connect_again_and_forgets_why_the_last_connection_ended() {
    let home = tempfile::tempdir().unwrap();
    let fabric = Fabric::new(10, Faults::NONE);
    let (_server, mut client) = pair(&fabric, gateway(home.path(), false));
    let root = client.mount("/data").unwrap();
    for _ in 0..5 {
        client.disconnect();
        assert_eq!(client.null(), Err(Error::NotConnected(Some(stag_engine::Cause::Local))));
        client.connect(&AT).unwrap();
        client.getattr(root).unwrap();
        client.connect(&AT).unwrap();
        client.getattr(root).unwrap();
    }
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    let fabric = Fabric::new(8, Faults::NONE);
    let config = ClientConfig { timeout: Duration::from_secs(2), ..ClientConfig::new(8) };
    // An end that listens and is never polled.
    let mut deaf = fabric.end("deaf", stag_sim::LIMITS);
    let at = stag_verbs::Provider::listen(&mut deaf, &Port(0)).unwrap();
    let mut time = 0;
    let now = move || {
        time += 1_000_000;
        Time(time)
    };
    let mut client = NfsClient::new(fabric.end("client", config.limits()), config, now).unwrap();
    assert_eq!(client.connect(&at), Err(Error::Call(CallFault::TimedOut)));
    let nobody = Port(at.0 + 1);
    assert!(matches!(client.connect(&nobody), Err(Error::NotConnected(Some(_)))));
}
