use super::*;
use crate::exports::config::ExportId;
use std::{
    fs::OpenOptions,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

fn identity(inode: u64) -> Identity {
    Identity { file: FileId { export: ExportId(1), inode }, birth: Birth { seconds: 5, nanos: 6 } }
}

fn names(index: &Index, inode: u64) -> Vec<(u64, String)> {
    let names = index.names(identity(inode).file).iter();
    names.map(|at| (at.parent, String::from_utf8_lossy(&at.name).into_owned())).collect()
}

fn open(home: &Path, shards: usize) -> (StateDirectory, Base, Vec<Index>) {
    let state = StateDirectory::open(home).unwrap();
    let base = Base::open(&state, shards).unwrap();
    let indexes = (0..shards).map(|shard| Index::open(&base, shard).unwrap()).collect();
    (state, base, indexes)
}

/// The bytes of a record: file 10 has the name `a` in directory 2.
fn record_of_a(base: &Base) -> Vec<u8> {
    let mut octets = Vec::new();
    let record = IndexRecord {
        what: RecordKind::Here,
        identity: identity(10),
        parent: 2,
        stamp: 1,
        name: b"a",
    };
    record.emit(&base.common.key, &mut octets);
    octets
}

#[test]
fn what_was_flushed_is_known_after_a_restart_and_what_was_not_is_lost() {
    let home = tempfile::tempdir().unwrap();
    {
        let (_state, _base, mut indexes) = open(home.path(), 1);
        indexes[0].record(identity(10), 2, b"kept").unwrap();
        indexes[0].flush().unwrap();
        indexes[0].record(identity(11), 2, b"lost").unwrap();
    }
    for _ in 0..3 {
        let (_state, base, indexes) = open(home.path(), 1);
        assert_eq!(names(&indexes[0], 10), [(2, "kept".to_owned())]);
        assert!(names(&indexes[0], 11).is_empty());
        assert_eq!((base.files(), base.torn_octets()), (1, 0));
    }
}

#[test]
fn a_log_torn_at_any_octet_keeps_what_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let log = {
        let (_state, _base, mut indexes) = open(home.path(), 1);
        for inode in 10..13 {
            indexes[0].record(identity(inode), 2, b"name").unwrap();
        }
        indexes[0].flush().unwrap();
        fs::read(home.path().join("index.0.log")).unwrap()
    };
    let record_len = log.len() / 3;
    for len in 0..=log.len() {
        fs::remove_file(home.path().join("index.base")).unwrap();
        fs::write(home.path().join("index.0.log"), &log[..len]).unwrap();
        let (_state, base, indexes) = open(home.path(), 1);
        let whole = len / record_len;
        assert_eq!(base.files(), whole, "{len} octets");
        assert_eq!(base.torn_octets(), (len - whole * record_len) as u64);
        assert_eq!(names(&indexes[0], 10).len(), usize::from(whole > 0));
    }
}

#[test]
fn shards_read_each_others_logs_while_they_run() {
    let home = tempfile::tempdir().unwrap();
    let (_state, _base, mut indexes) = open(home.path(), 3);
    indexes[0].record(identity(10), 2, b"a").unwrap();
    assert!(!indexes[1].catch_up(), "not flushed yet");
    indexes[0].flush().unwrap();
    assert!(indexes[1].catch_up());
    assert!(!indexes[1].catch_up(), "read once");
    assert_eq!(names(&indexes[1], 10), [(2, "a".to_owned())]);
    indexes[2].catch_up();
    indexes[2].forget(identity(10), 2, b"a").unwrap();
    indexes[2].record(identity(10), 3, b"b").unwrap();
    indexes[2].flush().unwrap();
    for reader in [0, 1] {
        indexes[reader].catch_up();
        assert_eq!(names(&indexes[reader], 10), [(3, "b".to_owned())]);
    }
}

#[test]
fn a_record_that_is_being_written_is_read_when_it_is_whole() {
    let home = tempfile::tempdir().unwrap();
    let (_state, base, mut indexes) = open(home.path(), 2);
    let octets = record_of_a(&base);
    let mut log = OpenOptions::new().append(true).open(home.path().join("index.0.log")).unwrap();
    for octet in &octets {
        assert!(!indexes[1].catch_up());
        log.write_all(&[*octet]).unwrap();
    }
    assert!(indexes[1].catch_up());
    assert_eq!(names(&indexes[1], 10), [(2, "a".to_owned())]);
}

#[test]
fn a_known_name_is_not_written_again() {
    let home = tempfile::tempdir().unwrap();
    let (_state, base, mut indexes) = open(home.path(), 1);
    for _ in 0..100 {
        indexes[0].record(identity(10), 2, b"a").unwrap();
        indexes[0].record(identity(10), 2, b"b").unwrap();
        indexes[0].flush().unwrap();
    }
    let octets = record_of_a(&base);
    assert_eq!(
        fs::metadata(home.path().join("index.0.log")).unwrap().len(),
        2 * octets.len() as u64
    );
}

#[test]
fn a_later_file_with_the_same_inode_takes_the_names_of_the_earlier() {
    let home = tempfile::tempdir().unwrap();
    let (_state, _base, mut indexes) = open(home.path(), 1);
    let later = Identity { birth: Birth { seconds: 9, nanos: 0 }, ..identity(10) };
    indexes[0].record(identity(10), 2, b"old").unwrap();
    indexes[0].record(later, 2, b"new").unwrap();
    indexes[0].forget(identity(10), 2, b"new").unwrap();
    assert_eq!(names(&indexes[0], 10), [(2, "new".to_owned())]);
}

#[test]
fn the_names_seen_last_are_kept() {
    let home = tempfile::tempdir().unwrap();
    {
        let (_state, _base, mut indexes) = open(home.path(), 1);
        for number in 0..20 {
            indexes[0].record(identity(10), 2, format!("n{number}").as_bytes()).unwrap();
        }
        assert_eq!(names(&indexes[0], 10).len(), NAMES_MAX);
        indexes[0].flush().unwrap();
    }
    let (_state, _base, indexes) = open(home.path(), 1);
    let expected: Vec<_> = (12..20).rev().map(|number| (2, format!("n{number}"))).collect();
    assert_eq!(names(&indexes[0], 10), expected);
}

#[test]
fn more_records_than_may_wait_are_written_in_between() {
    let home = tempfile::tempdir().unwrap();
    let (_state, _base, mut indexes) = open(home.path(), 2);
    let capacity = indexes[0].pending.capacity();
    for inode in 0..10_000 {
        indexes[0].record(identity(inode), 2, b"a name of some length").unwrap();
    }
    assert_eq!(indexes[0].pending.capacity(), capacity, "allocated once");
    indexes[0].flush().unwrap();
    assert!(indexes[1].catch_up());
    assert!((0..10_000).all(|inode| names(&indexes[1], inode).len() == 1));
}

#[test]
fn a_restart_with_fewer_shards_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    {
        let (_state, _base, mut indexes) = open(home.path(), 4);
        for (inode, index) in (10..).zip(&mut indexes) {
            index.record(identity(inode), 2, b"a").unwrap();
            index.flush().unwrap();
        }
    }
    let (_state, base, _indexes) = open(home.path(), 1);
    assert_eq!(base.files(), 4);
    assert!(!home.path().join("index.3.log").exists());
}

/// Bytes of all files of the index.
fn disk_len(home: &Path) -> u64 {
    let entries = fs::read_dir(home).unwrap().map(|entry| entry.unwrap());
    let of_index =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("index."));
    of_index.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

/// Files that are made and removed again, ten in a pass.
fn churn(index: &mut Index, inodes: std::ops::Range<u64>) {
    for inode in inodes {
        index.record(identity(inode), 2, b"a name of some length").unwrap();
        index.forget(identity(inode), 2, b"a name of some length").unwrap();
        if inode % 10 == 0 {
            index.flush().unwrap();
        }
    }
    index.flush().unwrap();
}

/// Churns on until the compactor has made `count` more bases.
fn churn_for(index: &mut Index, count: u64) {
    let (start, mut inode) = (index.common.generation().number, 1_000_000);
    let deadline = Instant::now() + Duration::from_secs(60);
    while index.common.generation().number < start + count {
        assert!(Instant::now() < deadline, "nothing is merged");
        churn(index, inode..inode + 100);
        inode += 100;
    }
    index.catch_up();
}

#[test]
fn files_that_come_and_go_leave_little_on_disk_and_in_memory() {
    let home = tempfile::tempdir().unwrap();
    let (_state, base, mut indexes) = open(home.path(), 2);
    indexes[0].record(identity(10), 2, b"kept").unwrap();
    churn(&mut indexes[0], 100..60_100);
    churn_for(&mut indexes[0], 1);
    let deadline = Instant::now() + Duration::from_secs(60);
    while disk_len(home.path()) > 1 << 20 || indexes[0].since.len() > 8_192 {
        assert!(
            Instant::now() < deadline,
            "{} octets, {}",
            disk_len(home.path()),
            indexes[0].since.len()
        );
        churn(&mut indexes[0], 100..200);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(names(&indexes[0], 10), [(2, "kept".to_owned())]);
    assert!(base.files() < 100, "{}", base.files());
    // A shard that slept meanwhile finds the current names, and reads no removed segments.
    indexes[1].catch_up();
    assert_eq!(names(&indexes[1], 10), [(2, "kept".to_owned())]);
    assert!(indexes[1].since.len() <= 8_192 + 200);
}

#[test]
fn every_shard_sees_every_name_whatever_was_merged_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let (state, base, mut indexes) = open(home.path(), 3);
    for round in 0..6_u64 {
        for (shard, index) in indexes.iter_mut().enumerate() {
            let inode = 10 + round * 3 + shard as u64;
            index.record(identity(inode), 2, format!("kept-{inode}").as_bytes()).unwrap();
            index.record(identity(inode), 3, b"moved").unwrap();
            index.forget(identity(inode), 3, b"moved").unwrap();
            index.flush().unwrap();
        }
        let writer = (round % 3) as usize;
        churn_for(&mut indexes[writer], 1);
        indexes[writer].record(identity(1_000 + round), 2, b"unwritten").unwrap();
        // One of them sleeps through two bases.
        let reader = (writer + 1) % 3;
        indexes[reader].catch_up();
        for inode in 10..10 + (round + 1) * 3 {
            assert_eq!(
                names(&indexes[reader], inode),
                [(2, format!("kept-{inode}"))],
                "round {round}"
            );
        }
        assert_eq!(names(&indexes[writer], 1_000 + round), [(2, "unwritten".to_owned())]);
    }
    drop((indexes, base, state));
    let (_state, _base, indexes) = open(home.path(), 1);
    for inode in 10..28 {
        assert_eq!(names(&indexes[0], inode), [(2, format!("kept-{inode}"))]);
    }
}

/// The server may end between any two steps of the compactor: with the new base and some or all of
/// its merged segments.
#[test]
fn segments_that_are_in_the_base_already_change_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (state, base, mut indexes) = open(home.path(), 2);
    // Two shards in turns: one made the file, the other removed it, and made it again.
    let mut logs = vec![];
    for (turn, (shard, gone)) in
        [(0, false), (1, true), (0, false), (1, false)].into_iter().enumerate()
    {
        let index = &mut indexes[shard];
        index.catch_up();
        for inode in 10..40 {
            if gone {
                index.forget(identity(inode), 2, b"a").unwrap();
            } else {
                index.record(identity(inode), 2, b"a").unwrap();
            }
        }
        index.flush().unwrap();
        let name = format!("index.{shard}.log");
        logs.push((format!("index.{shard}.{turn}.log"), fs::read(home.path().join(name)).unwrap()));
    }
    drop((indexes, base, state));
    for left in 0..1 << logs.len() {
        drop(open(home.path(), 2));
        for (turn, (name, octets)) in logs.iter().enumerate() {
            if left >> turn & 1 == 1 {
                fs::write(home.path().join(name), octets).unwrap();
            }
        }
        fs::write(home.path().join("index.base.tmp"), b"half of a ba").unwrap();
        let (_state, base, indexes) = open(home.path(), 2);
        assert_eq!((base.files(), base.torn_octets()), (30, 0), "left behind: {left:b}");
        assert!(
            (10..40).all(|inode| names(&indexes[0], inode) == [(2, "a".to_owned())]),
            "{left:b}"
        );
    }
}

#[test]
fn taking_up_a_base_reads_only_what_is_not_in_it() {
    let home = tempfile::tempdir().unwrap();
    let (_state, base, mut indexes) = open(home.path(), 1);
    let (index, kept) = (&mut indexes[0], 10..20_010);
    for inode in kept.clone() {
        index.record(identity(inode), 2, b"a name of some length").unwrap();
    }
    index.flush().unwrap();
    churn_for(index, 2);
    assert!(base.files() >= 20_000);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut taken = 0;
    while taken < 3 {
        assert!(Instant::now() < deadline);
        let before = index.generation;
        churn(index, 100_000..100_010);
        if index.generation != before {
            taken += 1;
            let again = index.since.keys().filter(|file| kept.contains(&file.inode)).count();
            assert_eq!(again, 0, "names that were in all of these bases were read again");
        }
    }
}

const CHILD: &str = "STAG_TEST_INDEX";

/// Writes names and reports each, until it is killed.
#[test]
#[ignore = "started by what_was_flushed_survives_a_server_that_is_killed_at_any_time"]
fn writes_until_it_is_killed() {
    let Ok(home) = std::env::var(CHILD) else { return };
    let (_state, _base, mut indexes) = open(Path::new(&home), 2);
    for round in 0_u64.. {
        for (shard, index) in indexes.iter_mut().enumerate() {
            churn(index, 1_000_000..1_000_500);
            index.record(identity(10 + 2 * round + shard as u64), 2, b"kept").unwrap();
            index.flush().unwrap();
        }
        println!("\nflushed {}", 2 * (round + 1));
    }
}

#[test]
fn what_was_flushed_survives_a_server_that_is_killed_at_any_time() {
    let home = tempfile::tempdir().unwrap();
    let mut bases = 0;
    for attempt in 0..12_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "exports::index::tests::writes_until_it_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD, home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let count =
            |line: String| line.strip_prefix("flushed ").map(|count| count.parse::<u64>().unwrap());
        let mut flushed = 0;
        for told in lines.map_while(Result::ok).filter_map(count) {
            flushed = told;
            if told >= 20 + 14 * attempt {
                // It continues meanwhile, and dies at any point.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(flushed >= 20);
        let left = fs::metadata(home.path().join("index.base")).unwrap().len();
        bases += u64::from(left > 0);
        let (_state, _base, indexes) = open(home.path(), 2);
        for inode in 10..10 + flushed {
            assert_eq!(names(&indexes[0], inode), [(2, "kept".to_owned())], "attempt {attempt}");
        }
        for entry in fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.to_string_lossy().contains("index.") {
                fs::remove_file(entry).unwrap();
            }
        }
    }
    assert!(bases >= 6, "some of them died after a base was made: {bases}");
}
