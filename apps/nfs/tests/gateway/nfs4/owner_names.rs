//! Owners and groups as `name@domain` (RFC 8881 §5.9), by a name service that the tests control.

use super::{
    ceph,
    client::{CONFIG, Client4, ServedExport, open_args},
};
use crate::gateway::{
    client::Home,
    flavors::{WithTickets, credential, files, flavors, memory},
    wire::{OverTcp, Wire},
};
use stag_engine::Config;
use stag_nfs::{
    Gateway,
    owner_names::{NameService, NamedCallers, OwnerKind, OwnerNames},
};
use stag_nfs_store::{Security, Store};
use stag_protocol::{
    nfs::v4::*,
    xdr::{Codec as _, Writer},
};
use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const OWNER: u32 = 36;
const GROUP: u32 = 37;
const BOTH: [Security; 2] = [Security::Krb5, Security::Sys];

/// A name service with alice (1500), with users of numbers from 100,000 on, and with the group
/// staff (50). It answers as long as the gate is open.
#[derive(Clone, Default)]
pub struct FakeNames {
    gate: Arc<Mutex<()>>,
    asked: Arc<AtomicU32>,
}

impl FakeNames {
    fn pass(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn names(&self, callers: NamedCallers) -> Arc<OwnerNames> {
        Arc::new(OwnerNames::asking("stag.test", callers, Box::new(self.clone())).unwrap())
    }
}

impl NameService for FakeNames {
    fn name_of(&self, kind: OwnerKind, number: u32) -> io::Result<Option<String>> {
        self.pass();
        Ok(match (kind, number) {
            (OwnerKind::User, 1500) => Some("alice".to_owned()),
            (OwnerKind::User, 100_000..) => Some(format!("u{number}")),
            (OwnerKind::Group, 50) => Some("staff".to_owned()),
            _ => None,
        })
    }

    fn number_of(&self, kind: OwnerKind, name: &str) -> io::Result<Option<u32>> {
        self.pass();
        Ok(match (kind, name) {
            (OwnerKind::User, "alice") => Some(1500),
            (OwnerKind::User, name) => name.strip_prefix('u').and_then(|it| it.parse().ok()),
            (OwnerKind::Group, "staff") => Some(50),
            _ => None,
        })
    }
}

fn wire<S: Store + 'static>(store: S, names: &FakeNames, callers: NamedCallers) -> Box<dyn Wire> {
    let gateway = Gateway::new(store).with_nfs4(CONFIG).with_owner_names(names.names(callers));
    Box::new(OverTcp::new(WithTickets(gateway), Config::small()))
}

/// A client of a store in memory, whose callers may own what they like.
fn in_memory(names: &FakeNames, callers: NamedCallers) -> Client4 {
    Client4::on(wire(memory(&BOTH), names, callers), ServedExport::new(b"data", ()), 2)
}

/// Clients of all stores.
fn all(names: &FakeNames) -> Vec<Client4> {
    let callers = NamedCallers::Kerberos;
    let home = Home::new();
    let (files, shared) = files(&home, [&BOTH, &[]]);
    let (ceph, kept) = ceph::store(Some(flavors(&BOTH)));
    vec![
        in_memory(names, callers),
        Client4::on(wire(files, names, callers), ServedExport::new(b"data", (home, shared)), 2),
        Client4::on(wire(ceph, names, callers), ServedExport::new(b"data", kept), 1),
    ]
}

/// Values of owners on the wire.
fn values(texts: &[&[u8]]) -> Vec<u8> {
    let mut octets = Vec::new();
    for text in texts {
        octets.extend((text.len() as u32).to_be_bytes());
        octets.extend(*text);
        octets.resize(octets.len().next_multiple_of(4), 0);
    }
    octets
}

fn owners<'a>(mask: &[u32], octets: &'a [u8]) -> RawAttributes<'a> {
    let mut bits = Bitmap::EMPTY;
    mask.iter().for_each(|bit| bits.insert(*bit));
    RawAttributes { mask: bits, octets }
}

/// The status of a SETATTR of these attributes.
fn set(
    client: &mut Client4,
    by: Security,
    handle: &[u8],
    mask: &[u32],
    texts: &[&[u8]],
) -> Status4 {
    client.credential = credential(by);
    let octets = values(texts);
    let attributes = owners(mask, &octets);
    let args = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
    client.run(&[Request::PutFh(Text(handle)), Request::SetAttr(args)]).status()
}

/// The owner and the group that the last GETATTR of these operations returns.
fn told(client: &mut Client4, by: Security, requests: &[Request<'_>]) -> [String; 2] {
    client.credential = credential(by);
    let reply = client.run(requests);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{reply:?}") };
    of(&raw.values().unwrap())
}

fn of(values: &AttributeValues<'_>) -> [String; 2] {
    [values.owner, values.owner_group]
        .map(|text| String::from_utf8(text.unwrap().0.to_vec()).unwrap())
}

/// The owners of an object by each way to answer: the short one, the same with a LOOKUP, and the
/// interpreter.
fn all_told(client: &mut Client4, by: Security, handle: &[u8], name: &[u8]) -> [String; 2] {
    client.credential = credential(by);
    let root =
        client.run(&[Request::PutRootFh(()), Request::Lookup(Text(b"data")), Request::GetFh(())]);
    let Answer::GetFh(Ok(root)) = root.last() else { panic!("{root:?}") };
    let put = Request::PutFh(Text(handle));
    let ask = |asked| Request::GetAttr(asked);
    let asked = Bitmap::of([3, OWNER, GROUP]);
    let ways = [
        vec![put.clone(), ask(STAT_ATTRIBUTES)],
        vec![put.clone(), ask(asked)],
        vec![Request::PutFh(root), Request::Lookup(Text(name)), ask(asked)],
        vec![put, Request::GetFh(()), ask(STAT_ATTRIBUTES)],
    ];
    let all: Vec<_> = ways.iter().map(|way| told(client, by, way)).collect();
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all.into_iter().next().unwrap()
}

/// Names, owners and groups of a directory's entries.
fn list(client: &mut Client4, by: Security, max_count: u32) -> Vec<(Vec<u8>, [String; 2])> {
    client.credential = credential(by);
    let (mut all, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let attributes = Bitmap::of([OWNER, GROUP]);
        let dir_count = max_count;
        let args = ReadDir4Args { cookie, verifier, dir_count, max_count, attributes };
        let reply = client.at_export(&[Request::ReadDir(args)]);
        let Answer::ReadDir(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
        verifier = ok.verifier;
        for entry in ok.entries.clone() {
            cookie = entry.cookie;
            all.push((entry.name.0.to_vec(), of(&entry.attributes.values().unwrap())));
        }
        if ok.eof {
            return all;
        }
    }
}

fn pair(user: &str, group: &str) -> [String; 2] {
    [user, group].map(str::to_owned)
}

#[test]
fn owners_of_callers_with_a_ticket_are_names_both_ways() {
    let mut client = in_memory(&FakeNames::default(), NamedCallers::Kerberos);
    let (_, handle) = client.open(b"f");
    let texts: [&[u8]; 2] = [b"alice@STAG.test", b"staff@stag.test"];
    let done = set(&mut client, Security::Krb5, &handle, &[OWNER, GROUP], &texts);
    assert_eq!(done, Status4::Ok);
    let names = pair("alice@stag.test", "staff@stag.test");
    assert_eq!(all_told(&mut client, Security::Krb5, &handle, b"f"), names);
    assert_eq!(list(&mut client, Security::Krb5, 4_096), [(b"f".to_vec(), names)]);
    // Callers of AUTH_SYS have numbers.
    let numbers = pair("1500", "50");
    assert_eq!(all_told(&mut client, Security::Sys, &handle, b"f"), numbers);
    assert_eq!(list(&mut client, Security::Sys, 4_096), [(b"f".to_vec(), numbers)]);
}

#[test]
fn users_and_groups_of_access_control_lists_are_names_both_ways() {
    let names = FakeNames::default();
    let home = Home::new();
    let (files, shared) = files(&home, [&BOTH, &[]]);
    let wire = wire(files, &names, NamedCallers::Kerberos);
    let mut client = Client4::on(wire, ServedExport::new(b"data", (home, shared)), 2);
    let (_, handle) = client.open(b"f");
    let aces = |user: &'static [u8], group: &'static [u8]| {
        let kind = Ace::ALLOW;
        let of = |flags, who| Ace { kind, flags, mask: ace::right::READ_DATA, who: Text(who) };
        [of(0, user), of(ace::flag::IDENTIFIER_GROUP, group)]
    };
    let set = |client: &mut Client4, by, aces: &[Ace<'_>]| {
        client.credential = credential(by);
        let mut octets = [0; 256];
        let mut writer = Writer::new(&mut octets);
        Array::of(aces).emit(&mut writer).unwrap();
        let len = writer.len();
        let attributes = RawAttributes { mask: Bitmap::of([12]), octets: &octets[..len] };
        let args = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
        client.run(&[Request::PutFh(Text(&handle)), Request::SetAttr(args)]).status()
    };
    let done = set(&mut client, Security::Krb5, &aces(b"alice@stag.test", b"staff@stag.test"));
    if done == Status4::AttrNotSupp {
        eprintln!("skipped: the file system of the tests has no access control lists");
        return;
    }
    assert_eq!(done, Status4::Ok);
    for (by, user, group) in [
        (Security::Krb5, &b"alice@stag.test"[..], &b"staff@stag.test"[..]),
        (Security::Sys, b"1500", b"50"),
    ] {
        client.credential = credential(by);
        let ask = Request::GetAttr(Bitmap::of([12]));
        let reply = client.run(&[Request::PutFh(Text(&handle)), ask]);
        let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
        let list = raw.values().unwrap().acl.unwrap();
        let subjects = list.items().map(|ace| ace.who.0).collect::<Vec<_>>();
        assert!(subjects.contains(&user) && subjects.contains(&group), "{list:?}");
    }
    // One who has a name is not accepted by his number, and one of another domain not at all.
    for refused in
        [aces(b"1500", b"staff@stag.test"), aces(b"alice@other.test", b"staff@stag.test")]
    {
        assert_eq!(set(&mut client, Security::Krb5, &refused), Status4::BadOwner);
    }
}

#[test]
fn all_stores_return_the_names_of_all_owners() {
    for mut client in all(&FakeNames::default()) {
        let (_, handle) = client.open(b"f");
        // The one who made it has no name in this service.
        let numbers = all_told(&mut client, Security::Sys, &handle, b"f");
        assert_eq!(all_told(&mut client, Security::Krb5, &handle, b"f"), numbers);
        assert_eq!(list(&mut client, Security::Krb5, 4_096), [(b"f".to_vec(), numbers)]);
    }
}

#[test]
fn an_owner_without_a_translation_is_refused_and_never_another_one() {
    let mut client = in_memory(&FakeNames::default(), NamedCallers::Kerberos);
    let (_, handle) = client.open(b"f");
    let before = all_told(&mut client, Security::Sys, &handle, b"f");
    let (krb5, sys) = (Security::Krb5, Security::Sys);
    let refused: [(Security, u32, &[u8]); 10] = [
        (krb5, OWNER, b"eve@stag.test"),
        (krb5, OWNER, b"alice@other.test"),
        (krb5, OWNER, b"alice"),
        (krb5, OWNER, b"nobody"),
        (krb5, OWNER, b"staff@stag.test"),
        (krb5, GROUP, b"alice@stag.test"),
        // A number that has a name.
        (krb5, OWNER, b"1500"),
        (krb5, GROUP, b"50"),
        (sys, OWNER, b"alice@stag.test"),
        (sys, GROUP, b"staff@stag.test"),
    ];
    for (by, attribute, text) in refused {
        let status = set(&mut client, by, &handle, &[attribute], &[text]);
        assert_eq!(status, Status4::BadOwner, "{by:?} {attribute} {text:?}");
    }
    assert_eq!(all_told(&mut client, sys, &handle, b"f"), before);
    // One owner is as good as none if the other one is not.
    let texts: [&[u8]; 2] = [b"alice@stag.test", b"none@stag.test"];
    assert_eq!(set(&mut client, krb5, &handle, &[OWNER, GROUP], &texts), Status4::BadOwner);
    assert_eq!(all_told(&mut client, sys, &handle, b"f"), before);
    // A number without a name, and any number by AUTH_SYS.
    assert_eq!(set(&mut client, krb5, &handle, &[OWNER, GROUP], &[b"1600", b"60"]), Status4::Ok);
    assert_eq!(all_told(&mut client, krb5, &handle, b"f"), pair("1600", "60"));
    assert_eq!(set(&mut client, sys, &handle, &[OWNER], &[b"1500"]), Status4::Ok);
    assert_eq!(all_told(&mut client, krb5, &handle, b"f"), pair("alice@stag.test", "60"));
}

#[test]
fn new_objects_belong_to_the_names_that_they_are_made_for() {
    let mut client = in_memory(&FakeNames::default(), NamedCallers::Kerberos);
    let [good, bad] = [b"alice@stag.test", b"eve@stag.test.."].map(|text| values(&[&text[..]]));
    let kinds = |octets| {
        let attributes = owners(&[OWNER], octets);
        let how = [
            CreateHow4::Unchecked(attributes),
            CreateHow4::Guarded(attributes),
            CreateHow4::Exclusive41(ExclusiveCreate { verifier: [7; 8], attributes }),
        ];
        let opens = how.into_iter().zip([b"a", b"b", b"c"]).map(|(how, name)| {
            let how = OpenHow::Create(how);
            Request::Open(Open4Args { how, ..open_args(name, share::BOTH, false) })
        });
        let kind = CreateKind::Directory;
        let make = Request::Create(Create4Args { kind, name: Text(b"d"), attributes });
        opens.chain([make]).collect::<Vec<_>>()
    };
    client.credential = credential(Security::Krb5);
    for request in kinds(&bad) {
        let status = client.at_export(std::slice::from_ref(&request)).status();
        assert_eq!(status, Status4::BadOwner, "{request:?}");
    }
    assert_eq!(list(&mut client, Security::Krb5, 4_096), []);
    client.credential = credential(Security::Krb5);
    for request in kinds(&good) {
        let status = client.at_export(std::slice::from_ref(&request)).status();
        assert_eq!(status, Status4::Ok, "{request:?}");
    }
    let listed = list(&mut client, Security::Krb5, 4_096);
    assert_eq!(listed.len(), 4);
    for (name, [user, _]) in listed {
        assert_eq!(user, "alice@stag.test", "{name:?}");
    }
}

#[test]
fn owners_are_compared_by_the_users_that_they_stand_for() {
    let mut client = in_memory(&FakeNames::default(), NamedCallers::Kerberos);
    let (_, handle) = client.open(b"f");
    let texts: [&[u8]; 2] = [b"alice@stag.test", b"60"];
    assert_eq!(set(&mut client, Security::Krb5, &handle, &[OWNER, GROUP], &texts), Status4::Ok);
    let cases: [(Security, &[u8], &[u8], bool); 8] = [
        (Security::Krb5, b"alice@stag.test", b"60", true),
        (Security::Krb5, b"alice@STAG.TEST", b"60", true),
        (Security::Krb5, b"alice@stag.test", b"61", false),
        // RFC 8881 §15.2: there is no NFS4ERR_BADOWNER here.
        (Security::Krb5, b"eve@stag.test", b"60", false),
        (Security::Krb5, b"alice@other.test", b"60", false),
        (Security::Krb5, b"1500", b"60", false),
        (Security::Sys, b"1500", b"60", true),
        (Security::Sys, b"alice@stag.test", b"60", false),
    ];
    for (by, user, group, are_same) in cases {
        client.credential = credential(by);
        let octets = values(&[user, group]);
        let given = owners(&[OWNER, GROUP], &octets);
        let put = Request::PutFh(Text(&handle));
        let verified = client.run(&[put.clone(), Request::Verify(given)]).status();
        let differed = client.run(&[put, Request::NVerify(given)]).status();
        let expected =
            if are_same { [Status4::Ok, Status4::Same] } else { [Status4::NotSame, Status4::Ok] };
        assert_eq!([verified, differed], expected, "{by:?} {user:?} {group:?}");
    }
}

#[test]
fn an_operation_waits_for_a_name_that_is_not_known_yet() {
    for place in 0..3 {
        let names = FakeNames::default();
        let mut client = all(&names).swap_remove(place);
        let (_, handle) = client.open(b"f");
        let before = client.wire.report().nfs4.suspensions;
        let closed = names.gate.lock().unwrap();
        // The name service does not answer: numbers after a second.
        let begun = Instant::now();
        let get = Request::GetAttr(Bitmap::of([OWNER, GROUP]));
        let way = [Request::PutFh(Text(&handle)), get];
        let owners = told(&mut client, Security::Krb5, &way);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
        assert!(owners.iter().all(|text| text.parse::<u32>().is_ok()), "{owners:?}");
        assert!(client.wire.report().nfs4.suspensions > before, "it was suspended");
        // It is late already: results have numbers at once, and an operation with a name is to be
        // tried again. It has no effect.
        let begun = Instant::now();
        assert_eq!(told(&mut client, Security::Krb5, &way), owners);
        assert_eq!(list(&mut client, Security::Krb5, 4_096), [(b"f".to_vec(), owners.clone())]);
        let owner: [&[u8]; 1] = [b"alice@stag.test"];
        let status = set(&mut client, Security::Krb5, &handle, &[OWNER], &owner);
        assert_eq!(status, Status4::Delay);
        assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
        assert_eq!(told(&mut client, Security::Sys, &way), owners);
        drop(closed);
    }
}

#[test]
fn a_name_that_arrives_in_time_is_the_answer() {
    let names = FakeNames::default();
    let mut client = in_memory(&names, NamedCallers::Kerberos);
    let (_, handle) = client.open(b"f");
    let (is_closed, closed) = std::sync::mpsc::channel();
    let gate = Arc::clone(&names.gate);
    let asked = Arc::clone(&names.asked);
    let keeper = thread::spawn(move || {
        let guard = gate.lock().unwrap();
        is_closed.send(()).unwrap();
        while asked.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(30));
        drop(guard);
    });
    closed.recv().unwrap();
    let owner: [&[u8]; 1] = [b"alice@stag.test"];
    assert_eq!(set(&mut client, Security::Krb5, &handle, &[OWNER], &owner), Status4::Ok);
    keeper.join().unwrap();
    assert!(client.wire.report().nfs4.suspensions > 0, "it was suspended");
    let [user, _] = all_told(&mut client, Security::Krb5, &handle, b"f");
    assert_eq!(user, "alice@stag.test");
}

/// Makes files `0`, `1` and so on, each with an owner of its own, from 100,000 on.
fn make_crowd(client: &mut Client4, count: usize) {
    for place in 0..count {
        let name = place.to_string();
        let text = (100_000 + place).to_string();
        client.credential = credential(Security::Sys);
        let octets = values(&[text.as_bytes()]);
        let how = OpenHow::Create(CreateHow4::Guarded(owners(&[OWNER], &octets)));
        let open = Open4Args { how, ..open_args(name.as_bytes(), share::READ, false) };
        let close = Close4Args { seqid: 0, open: Stateid::CURRENT };
        let made = client.at_export(&[Request::Open(open), Request::Close(close)]);
        assert_eq!(made.status(), Status4::Ok);
    }
}

#[test]
fn beyond_the_queries_that_may_be_outstanding_owners_are_numbers_and_names_wait() {
    let names = FakeNames::default();
    let mut client = in_memory(&names, NamedCallers::Kerberos);
    let (_, handle) = client.open(b"f");
    let before = all_told(&mut client, Security::Sys, &handle, b"f");
    let count = 1_100;
    make_crowd(&mut client, count);
    let closed = names.gate.lock().unwrap();
    // RFC 8881 §5.9: a text without "@" says that there was no translation. A listing never fails
    // for want of one, nor does it wait for each.
    let listed = list(&mut client, Security::Krb5, 1 << 20);
    assert_eq!(listed.len(), count + 1);
    let is_number = |text: &String| text.parse::<u32>().is_ok();
    assert!(listed.iter().all(|(_, owners)| owners.iter().all(is_number)), "{listed:?}");
    let begun = Instant::now();
    let get = [Request::PutFh(Text(&handle)), Request::GetAttr(Bitmap::of([OWNER, GROUP]))];
    assert_eq!(told(&mut client, Security::Krb5, &get), before);
    // A name in arguments is not guessed. Its operation has no effect, and comes again.
    let texts: [&[u8]; 1] = [b"alice@stag.test"];
    assert_eq!(set(&mut client, Security::Krb5, &handle, &[OWNER], &texts), Status4::Delay);
    let octets = values(&texts);
    let attributes = owners(&[OWNER], &octets);
    let how = OpenHow::Create(CreateHow4::Guarded(attributes));
    let open = Request::Open(Open4Args { how, ..open_args(b"made", share::READ, false) });
    let kind = CreateKind::Directory;
    let make = Request::Create(Create4Args { kind, name: Text(b"made"), attributes });
    for request in [open, make] {
        assert_eq!(client.at_export(std::slice::from_ref(&request)).status(), Status4::Delay);
    }
    // What came before it in its compound stays done, as its results say.
    let kind = CreateKind::Directory;
    let attributes = owners(&[], &[]);
    let make = Request::Create(Create4Args { kind, name: Text(b"d"), attributes });
    let attributes = owners(&[OWNER], &octets);
    let own = Request::SetAttr(SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes });
    let reply = client.at_export(&[make, own]);
    assert_eq!(reply.status(), Status4::Delay);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    drop(closed);
    let end = Instant::now() + Duration::from_secs(20);
    while set(&mut client, Security::Krb5, &handle, &[OWNER], &texts) == Status4::Delay {
        assert!(Instant::now() < end, "there is no answer");
    }
    let listed = list(&mut client, Security::Krb5, 1 << 20);
    assert_eq!(listed.len(), count + 2, "f, d, and the crowd");
    let owner = |name: &[u8]| &listed.iter().find(|(it, _)| it == name).unwrap().1[0];
    assert_eq!(
        (owner(b"f").as_str(), owner(b"7").as_str()),
        ("alice@stag.test", "u100007@stag.test")
    );
    assert_eq!(*owner(b"d"), before[0], "it was not set");
}

#[test]
fn a_listing_of_more_owners_than_may_be_asked_for_at_once_has_all_names() {
    let names = FakeNames::default();
    let mut client = in_memory(&names, NamedCallers::Kerberos);
    let count = 1_500;
    make_crowd(&mut client, count);
    let listed = list(&mut client, Security::Krb5, 1 << 20);
    assert_eq!(listed.len(), count);
    for (name, [user, _]) in listed {
        let place: usize = str::from_utf8(&name).unwrap().parse().unwrap();
        assert_eq!(user, format!("u{}@stag.test", 100_000 + place));
    }
    // Each was queried once, and its name once; so was the number of the group of all.
    assert_eq!(names.asked.load(Ordering::Relaxed) as usize, 2 * count + 1);
}

#[test]
fn callers_of_auth_sys_are_sent_names_by_choice() {
    let mut client = in_memory(&FakeNames::default(), NamedCallers::All);
    let (_, handle) = client.open(b"f");
    let sys = Security::Sys;
    let texts: [&[u8]; 2] = [b"alice@stag.test", b"50"];
    assert_eq!(set(&mut client, sys, &handle, &[OWNER, GROUP], &texts), Status4::Ok);
    let names = pair("alice@stag.test", "staff@stag.test");
    assert_eq!(all_told(&mut client, sys, &handle, b"f"), names);
    // Numbers are accepted: a flavor without proof proves no names either.
    assert_eq!(set(&mut client, sys, &handle, &[OWNER], &[b"1500"]), Status4::Ok);
    assert_eq!(set(&mut client, sys, &handle, &[OWNER], &[b"eve@stag.test"]), Status4::BadOwner);
}
