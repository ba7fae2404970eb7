//! Access control lists (RFC 8881 §6).

use super::client::{Client4, open_args};
use stag_protocol::{
    nfs::{
        Bulk,
        v4::{
            ace::{flag, right},
            *,
        },
    },
    xdr::{Codec as _, Writer},
};

const ACL: u32 = 12;
const ACL_SUPPORT: u32 = 13;
const MODE: u32 = 33;

/// An entry as a test compares it.
type Entry = (u32, u32, u32, String);

fn ace(kind: u32, flags: u32, mask: u32, who: &str) -> Entry {
    (kind, flags, mask, who.to_owned())
}

const READ: u32 = right::READ_DATA;
const WRITE: u32 = right::WRITE_DATA | right::APPEND_DATA;

/// The owner reads and writes, user 4711 reads, all others have no rights.
fn example() -> Vec<Entry> {
    vec![
        ace(Ace::ALLOW, 0, READ | WRITE, "OWNER@"),
        ace(Ace::ALLOW, 0, READ, "4711"),
        ace(Ace::ALLOW, 0, 0, "GROUP@"),
        ace(Ace::ALLOW, 0, 0, "EVERYONE@"),
    ]
}

/// The value of the attribute.
fn value(entries: &[Entry]) -> Vec<u8> {
    let aces = entries.iter().map(|(kind, flags, mask, who)| Ace {
        kind: *kind,
        flags: *flags,
        mask: *mask,
        who: Text(who.as_bytes()),
    });
    let aces = aces.collect::<Vec<_>>();
    let mut octets = vec![0; 64 + 64 * entries.len()];
    let mut writer = Writer::new(&mut octets);
    Array::of(&aces).emit(&mut writer).unwrap();
    let len = writer.len();
    octets.truncate(len);
    octets
}

fn set(client: &mut Client4, handle: &[u8], entries: &[Entry]) -> Status4 {
    set_raw(client, handle, Bitmap::of([ACL]), &value(entries))
}

fn set_raw(client: &mut Client4, handle: &[u8], mask: Bitmap, octets: &[u8]) -> Status4 {
    let attributes = RawAttributes { mask, octets };
    let args = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
    client.run(&[Request::PutFh(Text(handle)), Request::SetAttr(args)]).status()
}

fn entries(values: &AttributeValues<'_>) -> Option<Vec<Entry>> {
    let entry = |ace: Ace<'_>| {
        let who = String::from_utf8(ace.who.0.to_vec()).unwrap();
        (ace.kind, ace.flags, ace.mask, who)
    };
    Some(values.acl.as_ref()?.items().map(entry).collect())
}

/// The entries and the mode of an object.
fn told(client: &mut Client4, handle: &[u8]) -> (Option<Vec<Entry>>, u32) {
    let ask = Request::GetAttr(Bitmap::of([ACL, MODE]));
    let reply = client.run(&[Request::PutFh(Text(handle)), ask]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    let values = raw.values().unwrap();
    (entries(&values), values.mode.unwrap())
}

/// Kinds, flags, rights and subjects, without the rights that everybody and each owner have.
fn granted(entries: &[Entry]) -> Vec<(u32, u32, u32, &str)> {
    let short = |(kind, flags, mask, who): &Entry| (*kind, *flags, mask & 0x7f, who.clone());
    let known = ["OWNER@", "GROUP@", "EVERYONE@", "4711", "50"];
    let name = |who: &str| *known.iter().find(|name| **name == who).unwrap();
    let entries = entries.iter().map(short);
    entries.map(|(kind, flags, mask, who)| (kind, flags, mask, name(&who))).collect()
}

/// A client of files that have lists, with the handle of a file and of a directory. None where the
/// file system of the tests has none.
fn with_lists() -> Option<(Client4, Vec<u8>, Vec<u8>)> {
    let mut client = Client4::on_files(crate::gateway::client::Home::new());
    let (_, file) = client.open(b"f");
    let ask = Request::GetAttr(Bitmap::of([0, ACL_SUPPORT]));
    let reply = client.run(&[Request::PutFh(Text(&file)), ask]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    let values = raw.values().unwrap();
    let has = values.acl_support.unwrap() == Ace::ALLOW_AND_DENY;
    assert_eq!(values.supported_attrs.unwrap().contains(ACL), has);
    if !has {
        eprintln!("skipped: the file system of the tests has no access control lists");
        return None;
    }
    let directory = made(&mut client, b"d", &RawAttributes::default()).0;
    Some((client, file, directory))
}

/// Creates a directory; returns its handle, and the attributes that were set.
fn made(client: &mut Client4, name: &[u8], attributes: &RawAttributes<'_>) -> (Vec<u8>, Bitmap) {
    let args =
        Create4Args { kind: CreateKind::Directory, name: Text(name), attributes: *attributes };
    let reply = client.at_export(&[Request::Create(args), Request::GetFh(())]);
    let answers = reply.answers();
    let [.., Answer::Create(Ok(ok)), Answer::GetFh(Ok(handle))] = &answers[..] else {
        panic!("{answers:?}")
    };
    (handle.0.to_vec(), ok.set)
}

#[test]
fn a_list_is_set_and_read_and_the_mode_follows_it() {
    let Some((mut client, file, _)) = with_lists() else { return };
    let (plain, mode) = told(&mut client, &file);
    // An object without a list has that of its mode.
    assert_eq!(granted(&plain.unwrap()).len(), 3, "{mode:o}");
    assert_eq!(set(&mut client, &file, &example()), Status4::Ok);
    let (list, mode) = told(&mut client, &file);
    let list = list.unwrap();
    assert_eq!(
        granted(&list),
        [
            (Ace::ALLOW, 0, READ | WRITE, "OWNER@"),
            (Ace::ALLOW, 0, READ, "4711"),
            (Ace::ALLOW, 0, 0, "GROUP@"),
            (Ace::ALLOW, 0, 0, "EVERYONE@"),
        ]
    );
    // The rights of the mode's group are those of the mask (acl(5)).
    assert_eq!(mode, 0o640);
    // A list that is sent back changes nothing.
    assert_eq!(set(&mut client, &file, &list), Status4::Ok);
    assert_eq!(told(&mut client, &file), (Some(list), 0o640));
}

#[test]
fn of_a_mode_and_a_list_the_list_has_the_last_word() {
    let Some((mut client, file, _)) = with_lists() else { return };
    let octets = [&value(&example())[..], &0o4777_u32.to_be_bytes()].concat();
    let mask = Bitmap::of([ACL, MODE]);
    assert_eq!(set_raw(&mut client, &file, mask, &octets), Status4::Ok);
    assert_eq!(told(&mut client, &file).1, 0o4640);
    // And a later mode changes the list.
    let mode = 0o400_u32.to_be_bytes();
    assert_eq!(set_raw(&mut client, &file, Bitmap::of([MODE]), &mode), Status4::Ok);
    let (list, mode) = told(&mut client, &file);
    assert_eq!((granted(&list.unwrap())[1], mode), ((Ace::ALLOW, 0, 0, "4711"), 0o400));
}

#[test]
fn new_objects_get_the_list_that_their_directory_passes_on() {
    let Some((mut client, _, directory)) = with_lists() else { return };
    let inherit = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT | flag::INHERIT_ONLY;
    let group = flag::IDENTIFIER_GROUP;
    let own = [READ | WRITE | right::EXECUTE | right::DELETE_CHILD, READ, 0];
    let mut list = ["OWNER@", "GROUP@", "EVERYONE@"]
        .into_iter()
        .zip(own)
        .map(|(who, mask)| ace(Ace::ALLOW, 0, mask, who))
        .collect::<Vec<_>>();
    list.push(ace(Ace::ALLOW, inherit, READ, "4711"));
    list.push(ace(Ace::ALLOW, inherit | group, READ, "50"));
    assert_eq!(set(&mut client, &directory, &list), Status4::Ok);
    let passed_on = told(&mut client, &directory).0.unwrap();
    assert!(granted(&passed_on).contains(&(Ace::ALLOW, inherit, READ, "4711")), "{passed_on:?}");

    let mode = 0o666_u32.to_be_bytes();
    let attributes = RawAttributes { mask: Bitmap::of([MODE]), octets: &mode };
    let how = OpenHow::Create(CreateHow4::Guarded(attributes));
    let open = Request::Open(Open4Args { how, ..open_args(b"new", share::BOTH, true) });
    let reply = client.run(&[Request::PutFh(Text(&directory)), open, Request::GetFh(())]);
    let Answer::GetFh(Ok(new)) = reply.last() else { panic!("{:?}", reply.last()) };
    let new = new.0.to_vec();
    let inherited = told(&mut client, &new).0.unwrap();
    let inherited = granted(&inherited);
    assert!(inherited.contains(&(Ace::ALLOW, 0, READ, "4711")), "{inherited:?}");
    assert!(inherited.contains(&(Ace::ALLOW, group, READ, "50")), "{inherited:?}");

    // A list that passes nothing on takes it away.
    list.truncate(3);
    assert_eq!(set(&mut client, &directory, &list), Status4::Ok);
    assert_eq!(told(&mut client, &directory).0.unwrap().len(), 3);
    // A file passes nothing on.
    let refused = set(&mut client, &new, &[ace(Ace::ALLOW, inherit, READ, "OWNER@")]);
    assert_eq!(refused, Status4::AttrNotSupp);
}

#[test]
fn an_object_is_created_with_its_list() {
    let Some((mut client, ..)) = with_lists() else { return };
    let octets = value(&example());
    let attributes = RawAttributes { mask: Bitmap::of([ACL]), octets: &octets };
    let (directory, set) = made(&mut client, b"e", &attributes);
    assert!(set.contains(ACL));
    assert_eq!(granted(&told(&mut client, &directory).0.unwrap())[1], (0, 0, READ, "4711"));
    for (name, how) in
        [(&b"g"[..], CreateHow4::Guarded(attributes)), (b"u", CreateHow4::Unchecked(attributes))]
    {
        let open = Open4Args { how: OpenHow::Create(how), ..open_args(name, share::BOTH, true) };
        let reply = client.at_export(&[Request::Open(open), Request::GetFh(())]);
        let answers = reply.answers();
        let [.., Answer::Open(Ok(ok)), Answer::GetFh(Ok(handle))] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(ok.set.contains(ACL));
        let list = told(&mut client, handle.0).0.unwrap();
        assert_eq!(granted(&list)[1], (Ace::ALLOW, 0, READ, "4711"));
    }
}

#[test]
fn a_symbolic_link_has_no_list_and_its_other_attributes() {
    let Some((mut client, ..)) = with_lists() else { return };
    let kind = CreateKind::Link(Bulk::Inline(b"f"));
    let args = Create4Args { kind, name: Text(b"l"), attributes: RawAttributes::default() };
    let reply = client.at_export(&[Request::Create(args), Request::GetFh(())]);
    let Answer::GetFh(Ok(link)) = reply.last() else { panic!("{:?}", reply.last()) };
    let link = link.0.to_vec();
    let (list, mode) = told(&mut client, &link);
    assert_eq!((list, mode & 0o777), (None, 0o777));
    assert_eq!(set(&mut client, &link, &example()), Status4::AttrNotSupp);
}

#[test]
fn lists_are_compared_by_their_entries() {
    let Some((mut client, file, _)) = with_lists() else { return };
    assert_eq!(set(&mut client, &file, &example()), Status4::Ok);
    let list = told(&mut client, &file).0.unwrap();
    let mut compare = |entries: &[Entry], mode: u32| {
        let octets = [&value(entries)[..], &mode.to_be_bytes()].concat();
        let attributes = RawAttributes { mask: Bitmap::of([ACL, MODE]), octets: &octets };
        let put = Request::PutFh(Text(&file));
        let verify = client.run(&[put.clone(), Request::Verify(attributes)]).status();
        let nverify = client.run(&[put, Request::NVerify(attributes)]).status();
        assert_eq!(verify == Status4::Ok, nverify == Status4::Same);
        verify
    };
    assert_eq!(compare(&list, 0o640), Status4::Ok);
    assert_eq!(compare(&list, 0o600), Status4::NotSame);
    assert_eq!(compare(&list[1..], 0o640), Status4::NotSame);
    assert_eq!(compare(&example(), 0o640), Status4::NotSame);
    assert_eq!(compare(&[ace(2, 0, READ, "OWNER@")], 0o640), Status4::NotSame);
    assert_eq!(compare(&[ace(0, 0, READ, "alice@here")], 0o640), Status4::NotSame);
}

#[test]
fn a_list_that_cannot_be_stored_changes_nothing() {
    let Some((mut client, file, _)) = with_lists() else { return };
    assert_eq!(set(&mut client, &file, &example()), Status4::Ok);
    let before = told(&mut client, &file);
    for (entry, expected) in [
        (ace(2, 0, READ, "OWNER@"), Status4::AttrNotSupp),
        (ace(Ace::ALLOW, 0x80, READ, "OWNER@"), Status4::AttrNotSupp),
        (ace(Ace::ALLOW, flag::INHERIT_ONLY, READ, "OWNER@"), Status4::AttrNotSupp),
        (ace(Ace::ALLOW, 0, READ, "alice@here"), Status4::BadOwner),
        (ace(Ace::ALLOW, 0, READ, "ANONYMOUS@"), Status4::BadOwner),
    ] {
        let list = [example(), vec![entry]].concat();
        assert_eq!(set(&mut client, &file, &list), expected);
    }
    let long = (0..513).map(|id| ace(Ace::ALLOW, 0, READ, &id.to_string()));
    assert_eq!(set(&mut client, &file, &long.collect::<Vec<_>>()), Status4::FBig);
    assert_eq!(told(&mut client, &file), before);
}

#[test]
fn a_store_without_lists_does_not_support_the_attribute() {
    let mut client = Client4::in_memory();
    let (_, file) = client.open(b"f");
    let ask = Request::GetAttr(Bitmap::of([0, ACL, ACL_SUPPORT]));
    let reply = client.run(&[Request::PutFh(Text(&file)), ask]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    let values = raw.values().unwrap();
    assert_eq!((values.acl_support, values.acl.is_none()), (Some(0), true));
    assert!(!values.supported_attrs.unwrap().contains(ACL));
    assert_eq!(set(&mut client, &file, &example()), Status4::AttrNotSupp);
    let octets = value(&example());
    let attributes = RawAttributes { mask: Bitmap::of([ACL]), octets: &octets };
    let put = Request::PutFh(Text(&file));
    let verify = client.run(&[put, Request::Verify(attributes)]).status();
    assert_eq!(verify, Status4::AttrNotSupp);
    // A creation cannot fail for the list alone.
    assert!(!made(&mut client, b"d", &attributes).1.contains(ACL));
}
