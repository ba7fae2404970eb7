use super::*;
use crate::export::ExportId;
use std::io::Write;

fn identity(inode: u64) -> Identity {
    Identity { file: FileId { export: ExportId(1), inode }, birth: Birth { seconds: 5, nanos: 6 } }
}

fn names(index: &Index, inode: u64) -> Vec<(u64, String)> {
    let names = index.names(identity(inode).file).iter();
    names.map(|at| (at.parent, String::from_utf8_lossy(&at.name).into_owned())).collect()
}

fn open(home: &Path, shards: usize) -> (State, Base, Vec<Index>) {
    let state = State::open(home).unwrap();
    let base = Base::open(&state, shards).unwrap();
    let indexes = (0..shards).map(|shard| Index::open(&base, shard).unwrap()).collect();
    (state, base, indexes)
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
    let mut octets = Vec::new();
    let record = Record { what: What::Here, identity: identity(10), parent: 2, stamp: 1, name: b"a" };
    record.emit(&base.key, &mut octets);
    let mut log = OpenOptions::new().append(true).open(&base.logs[0]).unwrap();
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
    let mut octets = Vec::new();
    let record = Record { what: What::Here, identity: identity(10), parent: 2, stamp: 1, name: b"a" };
    record.emit(&base.key, &mut octets);
    assert_eq!(fs::metadata(&base.logs[0]).unwrap().len(), 2 * octets.len() as u64);
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
