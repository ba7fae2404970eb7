//! Client records in each home: the state found by a later boot, after any cut or failure.

use super::*;
use stag_ceph::{Errno, Existence, PoolSettings, RadosLibrary, RadosPool};
use std::{
    collections::BTreeMap,
    ffi::CString,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Named byte strings in memory, which fail on demand like a full disk: in the middle.
#[derive(Clone, Debug, Default)]
struct FaultyHome(Arc<Mutex<FaultyOctets>>);

#[derive(Debug, Default)]
struct FaultyOctets {
    files: BTreeMap<String, Vec<u8>>,
    /// Steps that succeed before all fail; none: no limit.
    steps_left: Option<usize>,
    /// Bytes of an append that are stored although it fails.
    left_behind: usize,
}

impl FaultyOctets {
    fn step(&mut self) -> Result<(), RecordError> {
        match &mut self.steps_left {
            Some(0) => Err(io::Error::from(io::ErrorKind::StorageFull).into()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl FaultyHome {
    fn fail_after(&self, steps: Option<usize>, left_behind: usize) {
        let mut octets = self.0.lock().unwrap();
        (octets.steps_left, octets.left_behind) = (steps, left_behind);
    }

    fn log(&self) -> Vec<u8> {
        self.0.lock().unwrap().files.get("clients").cloned().unwrap_or_default()
    }

    fn with_log(octets: &[u8]) -> Self {
        let home = Self::default();
        home.0.lock().unwrap().files.insert("clients".to_owned(), octets.to_vec());
        home
    }
}

impl LogHome for FaultyHome {
    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, RecordError> {
        Ok(self.0.lock().unwrap().files.get(name).cloned())
    }

    fn append(&mut self, name: &str, at: u64, octets: &[u8]) -> Result<(), RecordError> {
        let mut home = self.0.lock().unwrap();
        let stepped = home.step();
        let len = if stepped.is_err() { home.left_behind.min(octets.len()) } else { octets.len() };
        let file = home.files.get_mut(name).unwrap();
        file.truncate(usize::try_from(at).unwrap());
        file.extend_from_slice(&octets[..len]);
        stepped
    }

    fn replace(&mut self, name: &str, octets: &[u8]) -> Result<(), RecordError> {
        let mut home = self.0.lock().unwrap();
        home.step()?;
        home.files.insert(name.to_owned(), octets.to_vec());
        Ok(())
    }

    fn create(&mut self, name: &str, octets: &[u8]) -> Result<bool, RecordError> {
        let mut home = self.0.lock().unwrap();
        home.step()?;
        if home.files.contains_key(name) {
            return Ok(false);
        }
        home.files.insert(name.to_owned(), octets.to_vec());
        Ok(true)
    }

    fn remove(&mut self, name: &str) -> Result<(), RecordError> {
        let mut home = self.0.lock().unwrap();
        home.step()?;
        home.files.remove(name);
        Ok(())
    }
}

fn client(name: &str) -> ClientRecord {
    let principal = Principal::Unix(1_000);
    ClientRecord {
        owner: name.as_bytes().into(),
        verifier: [7; 8],
        principal,
        origin: OriginMark::default(),
    }
}

fn complete(name: &str) -> RecordChange {
    RecordChange::Complete(client(name))
}

fn owner(name: &str) -> Box<[u8]> {
    name.as_bytes().into()
}

fn names(clients: &[ClientRecord]) -> Vec<String> {
    clients.iter().map(|client| String::from_utf8_lossy(&client.owner).into_owned()).collect()
}

fn begun<H: LogHome>(home: H) -> (RecordLog<H>, Boot) {
    let mut log = RecordLog::new(home);
    let boot = log.begin().unwrap();
    (log, boot)
}

fn shared<H: LogHome>(home: H, gateway: &str) -> (RecordLog<H>, Boot) {
    let mut log = RecordLog::shared(home, gateway).unwrap();
    let boot = log.begin().unwrap();
    (log, boot)
}

#[test]
fn a_boot_finds_the_clients_that_were_complete_and_a_greater_epoch() {
    let home = FaultyHome::default();
    let (mut log, first) = begun(home.clone());
    assert_eq!((first.epoch, first.clients.len(), first.torn_octets), (1, 0, 0));
    log.apply(&[complete("a"), complete("b"), RecordChange::EndGrace]).unwrap();
    log.apply(&[RecordChange::Remove(owner("a")), RecordChange::Remove(owner("x"))]).unwrap();
    let (_, second) = begun(home.clone());
    assert_eq!((second.epoch, names(&second.clients)), (2, vec!["b".to_owned()]));
    assert_eq!(second.clients[0], client("b"));
    assert_eq!(begun(home).1.epoch, 3);
}

#[test]
fn a_client_that_did_not_come_back_in_the_grace_period_is_forgotten_at_its_end() {
    let home = FaultyHome::default();
    begun(home.clone()).0.apply(&[complete("a"), complete("b")]).unwrap();
    let (mut log, boot) = begun(home.clone());
    assert_eq!(names(&boot.clients), ["a", "b"]);
    log.apply(&[complete("b"), RecordChange::EndGrace]).unwrap();
    assert_eq!(names(&begun(home).1.clients), ["b"]);
}

#[test]
fn a_second_crash_within_the_grace_period_loses_no_client() {
    let home = FaultyHome::default();
    begun(home.clone()).0.apply(&[complete("a"), complete("b")]).unwrap();
    begun(home.clone()).0.apply(&[complete("b")]).unwrap();
    assert_eq!(names(&begun(home).1.clients), ["a", "b"]);
}

#[test]
fn a_client_whose_state_was_taken_away_reclaims_nothing_of_that_epoch() {
    let home = FaultyHome::default();
    let (mut log, _) = begun(home.clone());
    log.apply(&[complete("a"), complete("b"), RecordChange::Forbid(owner("a"))]).unwrap();
    let (mut log, boot) = begun(home.clone());
    assert_eq!(names(&boot.clients), ["b"]);
    log.apply(&[complete("a")]).unwrap();
    assert_eq!(names(&begun(home).1.clients), ["a", "b"]);
}

#[test]
fn one_that_has_acknowledged_it_reclaims_the_rest_unless_it_was_not_complete() {
    let home = FaultyHome::default();
    let (mut log, _) = begun(home.clone());
    let [forbid, allow] = [RecordChange::Forbid(owner("a")), RecordChange::Allow(owner("a"))];
    log.apply(&[complete("a"), complete("b"), forbid.clone(), allow.clone()]).unwrap();
    let (mut log, boot) = begun(home.clone());
    assert_eq!(names(&boot.clients), ["a", "b"]);
    // In this epoch it has not reclaimed all its state when the grace period ends.
    log.apply(&[complete("b"), forbid, allow.clone(), RecordChange::EndGrace]).unwrap();
    log.apply(&[allow]).unwrap();
    assert_eq!(names(&begun(home).1.clients), ["b"]);
}

#[test]
fn delegations_to_write_are_remembered_until_a_grace_period_is_over() {
    let home = FaultyHome::default();
    let (mut log, boot) = begun(home.clone());
    assert!(!boot.had_write_delegations);
    log.apply(&[RecordChange::WriteDelegations, RecordChange::WriteDelegations]).unwrap();
    assert!(begun(home.clone()).1.had_write_delegations);
    let (mut log, boot) = begun(home.clone());
    assert!(boot.had_write_delegations, "the grace period did not end");
    log.apply(&[RecordChange::EndGrace]).unwrap();
    assert!(!begun(home).1.had_write_delegations);
}

#[test]
fn a_log_that_is_cut_at_any_octet_is_that_of_an_earlier_moment() {
    let home = FaultyHome::default();
    let (mut log, _) = begun(home.clone());
    let mut moments = vec![(home.log().len(), Vec::new())];
    for name in ["a", "b", "c"] {
        log.apply(&[complete(name)]).unwrap();
        let mut known = moments.last().unwrap().1.clone();
        known.push(name.to_owned());
        moments.push((home.log().len(), known));
    }
    let whole = home.log();
    for len in 0..=whole.len() {
        let (_, boot) = begun(FaultyHome::with_log(&whole[..len]));
        let moment = moments.iter().rev().find(|(end, _)| *end <= len);
        let expected = moment.map_or(Vec::new(), |(_, known)| known.clone());
        assert_eq!(names(&boot.clients), expected, "{len} octets");
        let end = moment.map_or(0, |(end, _)| *end);
        assert_eq!(boot.torn_octets, (len - end) as u64);
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x80;
        let (_, boot) = begun(FaultyHome::with_log(&damaged));
        assert!(boot.clients.len() < 3, "octet {at}");
        assert!(boot.torn_octets > 0);
    }
}

#[test]
fn what_a_full_disk_left_behind_never_becomes_a_record() {
    for left_behind in 0..120 {
        let home = FaultyHome::default();
        let (mut log, _) = begun(home.clone());
        log.apply(&[complete("kept")]).unwrap();
        home.fail_after(Some(0), left_behind);
        for _ in 0..3 {
            let failed = log.apply(&[complete("lost"), complete("also lost")]);
            assert!(matches!(failed, Err(RecordError::Storage(_))), "{failed:?}");
        }
        let crashed = FaultyHome::with_log(&home.log());
        assert!(names(&begun(crashed).1.clients).contains(&"kept".to_owned()));
        home.fail_after(None, 0);
        log.apply(&[complete("late")]).unwrap();
        assert_eq!(names(&begun(home).1.clients), ["kept", "late"], "{left_behind} octets");
    }
}

#[test]
fn a_log_does_not_grow_for_ever_and_clients_have_a_limit() {
    let home = FaultyHome::default();
    let (mut log, _) = begun(home.clone());
    let mut longest = 0;
    for number in 0..5_000 {
        log.apply(&[complete("a"), RecordChange::Remove(owner("a"))]).unwrap();
        longest = longest.max(home.log().len());
        assert!(number > 0 || longest > 0);
    }
    assert!(longest < 80_000, "{longest} octets");
    let many: Vec<_> = (0..CLIENTS_MAX).map(|number| complete(&number.to_string())).collect();
    log.apply(&many).unwrap();
    assert!(matches!(log.apply(&[complete("more")]), Err(RecordError::Full)));
    log.apply(&[complete("7")]).unwrap();
    let long = ClientRecord { owner: vec![b'x'; OWNER_MAX + 1].into(), ..client("") };
    let refused = log.apply(&[RecordChange::Complete(long)]);
    assert!(matches!(refused, Err(RecordError::Unfit(_))));
}

/// Two gateways, one of which takes over, with a crash of the taker after any number of steps.
#[test]
fn records_are_taken_over_by_one_gateway_wherever_it_dies() {
    for steps in 0..12 {
        let home = FaultyHome::default();
        let (mut dead, _) = shared(home.clone(), "a");
        dead.apply(&[complete("of a"), complete("of both"), RecordChange::EndGrace]).unwrap();
        let (mut taker, _) = shared(home.clone(), "b");
        taker.apply(&[complete("of b"), complete("of both"), RecordChange::EndGrace]).unwrap();
        home.fail_after(Some(steps), 0);
        let taken = taker.take_over("a");
        home.fail_after(None, 0);
        let all = ["of a", "of b", "of both"];
        if let Ok(clients) = &taken {
            assert_eq!(names(clients), all);
        }
        drop(taker);
        let (mut taker, boot) = shared(home.clone(), "b");
        if names(&boot.clients) != all {
            taker.take_over("a").unwrap();
        }
        let (mut other, _) = shared(home.clone(), "c");
        let late = other.take_over("a");
        assert!(matches!(late, Err(RecordError::Unfit(_))), "{steps} steps: {late:?}");
        assert!(matches!(dead.apply(&[complete("late")]), Err(RecordError::TakenOver)));
        let (_, boot) = shared(home.clone(), "b");
        assert_eq!(names(&boot.clients), all, "{steps} steps");
        let (mut again, boot) = shared(home.clone(), "a");
        assert_eq!((boot.epoch, boot.clients.len()), (2, 0), "its epoch goes on");
        again.apply(&[complete("new")]).unwrap();
        assert_eq!(names(&shared(home, "a").1.clients), ["new"]);
    }
}

#[test]
fn only_gateways_with_records_are_taken_over() {
    let home = FaultyHome::default();
    let (mut log, _) = shared(home.clone(), "a");
    for name in ["a", "nobody", "", "../x", ".hidden", "a/b"] {
        assert!(matches!(log.take_over(name), Err(RecordError::Unfit(_))), "{name:?}");
    }
    let (mut alone, _) = begun(home.clone());
    assert!(matches!(alone.take_over("a"), Err(RecordError::Unfit(_))));
    assert!(matches!(RecordLog::shared(home, "x y"), Err(RecordError::Unfit(_))));
}

#[test]
fn files_are_kept_over_restarts_and_shared_by_gateways() {
    let home = tempfile::tempdir().unwrap();
    let (mut log, boot) = begun(FileHome::new(home.path()));
    assert_eq!(boot.epoch, 1);
    log.apply(&[complete("a")]).unwrap();
    log.apply(&[complete("b")]).unwrap();
    let file = home.path().join("clients");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&file).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    // A torn tail.
    let mut octets = std::fs::read(&file).unwrap();
    octets.extend_from_slice(&octets.clone()[..30]);
    std::fs::write(&file, &octets).unwrap();
    let (_, boot) = begun(FileHome::new(home.path()));
    assert_eq!((names(&boot.clients), boot.torn_octets), (vec!["a".into(), "b".into()], 30));
    let (mut one, _) = shared(FileHome::new(home.path()), "one");
    one.apply(&[complete("c")]).unwrap();
    let (mut two, _) = shared(FileHome::new(home.path()), "two");
    assert_eq!(names(&two.take_over("one").unwrap()), ["c"]);
    assert!(matches!(one.apply(&[complete("d")]), Err(RecordError::TakenOver)));
    assert!(matches!(two.take_over("one"), Err(RecordError::Unfit(_)) | Ok(_)));
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.iter().all(|path| path.extension() != Some("new".as_ref())), "{left:?}");
}

#[test]
fn a_directory_that_is_gone_is_a_failure_of_storage() {
    let home = tempfile::tempdir().unwrap();
    let (mut log, _) = begun(FileHome::new(home.path().join(".")));
    drop(home);
    assert!(matches!(log.apply(&[complete("a")]), Err(RecordError::Storage(_))));
}

/// A namespace of a pool, on the fake library or on a cluster.
fn pool(library: &'static RadosLibrary, configuration: &Path, namespace: &str) -> RadosPool {
    let text = |text: &str| CString::new(text).unwrap();
    let configuration = text(configuration.to_str().unwrap());
    let settings = PoolSettings {
        user: None,
        configuration: Some(&configuration),
        pool: c"data",
        namespace: &text(namespace),
    };
    RadosPool::open(library, &settings).unwrap()
}

fn gateways_share_a_pool(open: &dyn Fn() -> RadosPool) {
    let home = || RadosHome::new(open());
    let (mut one, boot) = shared(home(), "one");
    assert_eq!((boot.epoch, boot.clients.len()), (1, 0));
    one.apply(&[complete("a"), complete("b")]).unwrap();
    one.apply(&[RecordChange::Remove(owner("a"))]).unwrap();
    let (mut two, _) = shared(home(), "two");
    two.apply(&[complete("c")]).unwrap();
    assert_eq!(names(&two.take_over("one").unwrap()), ["b", "c"]);
    assert!(matches!(one.apply(&[complete("d")]), Err(RecordError::TakenOver)));
    let (mut three, _) = shared(home(), "three");
    assert!(matches!(three.take_over("one"), Err(RecordError::Unfit(_))));
    let (_, boot) = shared(home(), "one");
    assert_eq!((boot.epoch, boot.clients.len()), (2, 0));
    let (_, boot) = shared(home(), "two");
    assert_eq!((boot.epoch, names(&boot.clients)), (2, vec!["b".into(), "c".into()]));
    let pool = open();
    for name in ["one.clients", "two.clients", "three.clients"] {
        pool.remove(name).unwrap();
    }
    assert_eq!(pool.read("one.clients", 10), Err(Errno::NOENT));
}

/// The configuration of a cluster of the fake library for one test alone.
fn fake_cluster(home: &tempfile::TempDir) -> PathBuf {
    let configuration = home.path().join("ceph.conf");
    std::fs::write(&configuration, "").unwrap();
    configuration
}

fn fake_library() -> &'static RadosLibrary {
    let here = std::env::current_exe().unwrap();
    RadosLibrary::open(&here.with_file_name("libstag_ceph_fake.so")).unwrap()
}

#[test]
fn gateways_share_records_in_rados() {
    assert_eq!(fake_library().absent(), [""; 0]);
    let home = tempfile::tempdir().unwrap();
    let place = fake_cluster(&home);
    gateways_share_a_pool(&|| pool(fake_library(), &place, "records"));
    // A namespace separates objects from those of others.
    let other = pool(fake_library(), &place, "other");
    other.write("x", b"octets", None, Existence::Refused).unwrap();
    assert_eq!(other.write("x", b"", None, Existence::Refused), Err(Errno::EXIST));
    assert_eq!(other.write("y", b"", Some(0), Existence::Needed), Err(Errno::NOENT));
    assert_eq!(pool(fake_library(), &place, "records").read("x", 10), Err(Errno::NOENT));
    assert_eq!(other.read("x", 10).unwrap(), b"octets");
    assert_eq!(other.read("x", 5), Err(Errno::FBIG));
}

#[test]
fn gateways_share_records_in_rados_of_a_cluster() {
    let library = match RadosLibrary::installed() {
        Ok(library) => library,
        Err(error) => return println!("skipped: {error}"),
    };
    let Some(place) = stag_ceph_fake::cluster::configuration() else { return };
    let namespace = format!("stag-records-{}", std::process::id());
    gateways_share_a_pool(&|| pool(library, place, &namespace));
}

#[test]
fn a_cluster_that_fails_at_any_step_loses_no_record_that_was_stable() {
    let home = tempfile::tempdir().unwrap();
    let place = fake_cluster(&home);
    for (number, call) in ["rados_write_op_operate", "rados_stat", "*"].iter().enumerate() {
        let namespace = format!("faults-{number}");
        let open = || RadosHome::new(pool(fake_library(), &place, &namespace));
        let (mut log, _) = shared(open(), "one");
        log.apply(&[complete("kept")]).unwrap();
        let control = pool(fake_library(), &place, &namespace);
        for count in 1..4 {
            let fault = CString::new(format!("{call} 110 {count}")).unwrap();
            control.set_option(c"fake_fail", &fault).unwrap();
            let change = complete(&format!("late {count}"));
            let mut failures = 0;
            while let Err(error) = log.apply(std::slice::from_ref(&change)) {
                assert!(matches!(error, RecordError::Storage(_)), "{error:?}");
                failures += 1;
                assert!(failures <= count, "a fault passes");
            }
        }
        let (_, boot) = shared(open(), "one");
        assert_eq!(names(&boot.clients), ["kept", "late 1", "late 2", "late 3"], "{call}");
    }
}

fn outcomes(keeper: &mut RecordKeeper, count: usize) -> Vec<keeper::ChangeDone> {
    let mut done = Vec::new();
    while done.len() < count {
        match keeper.next_done() {
            Some(change) => done.push(change),
            None => std::thread::yield_now(),
        }
    }
    done
}

#[test]
fn a_keeper_answers_each_change_and_goes_on_after_failures() {
    let home = FaultyHome::default();
    let (log, _) = begun(home.clone());
    let mut keeper = RecordKeeper::start(Box::new(log)).unwrap();
    let tickets: Vec<_> =
        (0..100).map(|number| keeper.change(complete(&number.to_string())).unwrap()).collect();
    let done = outcomes(&mut keeper, 100);
    assert!(done.iter().all(|change| change.outcome.is_ok()));
    assert!(done.iter().map(|change| change.ticket).eq(tickets));
    home.fail_after(Some(0), 9);
    keeper.change(complete("failing")).unwrap();
    let [failed] = &outcomes(&mut keeper, 1)[..] else { panic!("one was asked for") };
    assert!(matches!(failed.outcome, Err(keeper::ChangeFault::Storage)));
    home.fail_after(None, 0);
    let long = ClientRecord { owner: vec![b'x'; OWNER_MAX + 1].into(), ..client("") };
    keeper.change(RecordChange::Complete(long)).unwrap();
    keeper.change(complete("fine")).unwrap();
    let done = outcomes(&mut keeper, 2);
    assert!(matches!(done[0].outcome, Err(keeper::ChangeFault::Unfit)));
    assert!(done[1].outcome.is_ok());
    assert!(keeper.next_done().is_none());
    drop(keeper);
    let clients = names(&begun(home).1.clients);
    assert_eq!(clients.len(), 101);
    assert!(clients.contains(&"fine".to_owned()) && !clients.contains(&"failing".to_owned()));
}
