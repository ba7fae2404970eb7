use super::{shard::SEEN_MAX, *};
use stag_nfs_store::{FileAttributes, FileTime};
use stag_protocol::{
    nfs::{
        v3::{DeviceNumber, FileKind},
        v4::{Attribute, Bitmap},
    },
    xdr::Writer,
};
use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

/// A name service with alice, whose number is 1500, and the group staff, 50. It answers as long as
/// `gate` is open. A user of another domain is bob, and carol is known with her domain only.
struct FakeNames {
    gate: Arc<Mutex<()>>,
    fails: bool,
}

impl FakeNames {
    fn pass(&self) -> io::Result<()> {
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        if self.fails { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl NameService for FakeNames {
    fn name_of(&self, kind: OwnerKind, number: u32) -> io::Result<Option<String>> {
        self.pass()?;
        Ok(match (kind, number) {
            (OwnerKind::User, 1500) => Some("alice".to_owned()),
            (OwnerKind::User, 1501) => Some("bob@other.test".to_owned()),
            (OwnerKind::User, 1502) => Some("carol@Stag.Test".to_owned()),
            (OwnerKind::User, 1503) => Some("x".repeat(OWNER_LEN_MAX)),
            (OwnerKind::Group, 50) => Some("staff".to_owned()),
            _ => None,
        })
    }

    fn number_of(&self, kind: OwnerKind, name: &str) -> io::Result<Option<u32>> {
        self.pass()?;
        Ok(match (kind, name) {
            (OwnerKind::User, "alice") => Some(1500),
            (OwnerKind::User, "carol@stag.test") => Some(1502),
            (OwnerKind::Group, "staff") => Some(50),
            _ => None,
        })
    }
}

fn names(fails: bool) -> (ShardNames, Arc<Mutex<()>>) {
    let gate = Arc::default();
    let service = FakeNames { gate: Arc::clone(&gate), fails };
    let names = OwnerNames::asking("stag.test", NamedCallers::Kerberos, Box::new(service)).unwrap();
    (ShardNames::new(Arc::new(names)), gate)
}

fn object(uid: u32, gid: u32) -> FileAttributes {
    let time = FileTime::default();
    FileAttributes {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid,
        gid,
        size: 0,
        used: 0,
        device: DeviceNumber::default(),
        fsid: 1,
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
        birth: None,
        change: 0,
    }
}

/// The owners of an object, as they are sent once all names have arrived.
fn sent(names: &mut ShardNames, uid: u32, gid: u32) -> [String; 2] {
    let object = object(uid, gid);
    loop {
        let mut owners = OwnerLookups::new(Some(names));
        owners.look_up(&OWNERS, &object);
        let Some(ticket) = owners.ticket else { break };
        await_answer(names, ticket);
    }
    let form = OwnerForm::Names(names);
    [(OwnerKind::User, uid), (OwnerKind::Group, gid)].map(|(kind, number)| {
        let mut octets = [0; 256];
        let mut writer = Writer::new(&mut octets);
        form.emit(kind, number, &mut writer).unwrap();
        let len = u32::from_be_bytes(*octets.first_chunk().unwrap()) as usize;
        str::from_utf8(&octets[4..4 + len]).unwrap().to_owned()
    })
}

fn await_answer(names: &ShardNames, ticket: u64) {
    let end = Instant::now() + Duration::from_secs(20);
    while !names.is_answered(ticket) {
        assert!(Instant::now() < end, "there is no answer");
        thread::yield_now();
    }
}

/// The number that an owner stands for, once the answer has arrived.
fn received(names: &mut ShardNames, kind: OwnerKind, text: &[u8], by: Security) -> Option<u32> {
    loop {
        match names.number(kind, text, by) {
            OwnerNumber::Known(number) => return number,
            OwnerNumber::Pending(ticket) => await_answer(names, ticket),
            OwnerNumber::Unavailable => panic!("the name service answers"),
        }
    }
}

#[test]
fn owners_are_names_where_the_host_has_one_and_numbers_else() {
    let (mut names, _gate) = names(false);
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
    assert_eq!(sent(&mut names, 50, 1500), ["50", "1500"], "users are no groups");
    // The name of another domain, one with this domain, and one that is too long.
    assert_eq!(sent(&mut names, 1501, 0), ["1501", "0"]);
    assert_eq!(sent(&mut names, 1502, 0), ["carol@Stag.Test", "0"]);
    assert_eq!(sent(&mut names, 1503, 0), ["1503", "0"]);
}

#[test]
fn an_owner_is_a_name_of_the_domain_or_a_number_without_a_name() {
    let (mut names, _gate) = names(false);
    let krb5 = Security::Krb5;
    let mut user = |text: &[u8], by| received(&mut names, OwnerKind::User, text, by);
    assert_eq!(user(b"alice@stag.test", krb5), Some(1500));
    assert_eq!(user(b"alice@STAG.Test", krb5), Some(1500), "domains have no case");
    assert_eq!(user(b"carol@stag.test", krb5), Some(1502));
    let none: [&[u8]; 10] = [
        b"",
        b"alice",
        b"@stag.test",
        b"eve@stag.test",
        b"alice@other.test",
        b"alice@stag.test.",
        b"staff@stag.test",
        b"ali\0ce@stag.test",
        b"\xff@stag.test",
        b"nobody",
    ];
    for text in none {
        assert_eq!(user(text, krb5), None, "{text:?}");
    }
    // RFC 8881 §5.9: a number stands for a user that has no name.
    assert_eq!((user(b"1500", krb5), user(b"1600", krb5)), (None, Some(1600)));
    assert_eq!(user(b"1500", Security::Sys), Some(1500));
    assert_eq!(user(b"007", Security::Sys), None);
    assert_eq!(received(&mut names, OwnerKind::Group, b"staff@stag.test", krb5), Some(50));
    assert_eq!(received(&mut names, OwnerKind::Group, b"alice@stag.test", krb5), None);
}

#[test]
fn while_there_is_no_answer_owners_are_numbers() {
    let (mut names, gate) = names(false);
    let closed = gate.lock().unwrap();
    let object = object(1500, 50);
    let mut owners = OwnerLookups::new(Some(&mut names));
    owners.look_up(&Bitmap::of_attributes(&[Attribute::Mode]), &object);
    assert_eq!(owners.ticket, None, "no owner is asked for");
    owners.look_up(&OWNERS, &object);
    let ticket = owners.ticket.expect("the name service is asked");
    assert!(!names.is_answered(ticket) && !names.is_late(Duration::from_secs(60)));
    let mut octets = [0; 8];
    let mut writer = Writer::new(&mut octets);
    OwnerForm::Names(&names).emit(OwnerKind::User, 1500, &mut writer).unwrap();
    assert_eq!(octets, [0, 0, 0, 4, b'1', b'5', b'0', b'0']);
    let end = Instant::now() + Duration::from_secs(20);
    while !names.is_late(Duration::from_millis(5)) {
        assert!(Instant::now() < end, "one query takes long");
        thread::sleep(Duration::from_millis(1));
    }
    drop(closed);
    await_answer(&names, ticket);
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
    assert!(!names.is_late(Duration::ZERO));
}

#[test]
fn a_name_service_that_fails_is_not_waited_for() {
    let (mut names, _gate) = names(true);
    let OwnerNumber::Pending(ticket) =
        names.number(OwnerKind::User, b"alice@stag.test", Security::Krb5)
    else {
        panic!("it is asked")
    };
    await_answer(&names, ticket);
    let again = names.number(OwnerKind::User, b"alice@stag.test", Security::Krb5);
    assert_eq!(again, OwnerNumber::Unavailable);
    assert_eq!(sent(&mut names, 1500, 50), ["1500", "50"]);
}

#[test]
fn names_that_callers_invent_and_numbers_of_files_fill_no_memory() {
    let (mut names, _gate) = names(false);
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
    let invented = u32::try_from(SEEN_MAX).unwrap() + 200;
    for number in 10_000..10_000 + invented {
        let text = format!("{number}x@stag.test");
        assert_eq!(received(&mut names, OwnerKind::User, text.as_bytes(), Security::Krb5), None);
        assert_eq!(sent(&mut names, number, number), [number.to_string(), number.to_string()]);
    }
    assert!(names.len() <= 4 * SEEN_MAX, "{}", names.len());
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
}

#[test]
fn what_is_forgotten_is_asked_again() {
    let (mut names, gate) = names(false);
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
    let closed = gate.lock().unwrap();
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"], "cached");
    names.forget();
    let mut owners = OwnerLookups::new(Some(&mut names));
    let object = object(1500, 50);
    owners.look_up(&OWNERS, &object);
    assert!(owners.ticket.is_some());
    drop(closed);
    assert_eq!(sent(&mut names, 1500, 50), ["alice@stag.test", "staff@stag.test"]);
}

#[test]
fn callers_with_a_ticket_use_names_and_all_others_by_choice() {
    let by = |callers| {
        let service = FakeNames { gate: Arc::default(), fails: false };
        let names = OwnerNames::asking("stag.test", callers, Box::new(service)).unwrap();
        [Security::None, Security::Sys, Security::Krb5, Security::Krb5p]
            .map(|security| names.are_used_with(security))
    };
    assert_eq!(by(NamedCallers::Kerberos), [false, false, true, true]);
    assert_eq!(by(NamedCallers::All), [true; 4]);
}
