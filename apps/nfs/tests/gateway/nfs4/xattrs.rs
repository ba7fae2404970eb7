//! Extended attributes (RFC 8276 §8).

use super::client::{Client4, encode};
use stag_protocol::nfs::v4::*;

fn set<'a>(how: SetXattrHow, name: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request::SetXattr(SetXattrArgs { how, name: Text(name), value: Text(value) })
}

fn list(cookie: u64, max_count: u32) -> Request<'static> {
    Request::ListXattrs(ListXattrsArgs { cookie, max_count })
}

/// Clients of servers whose files have extended attributes, each with the handle of one.
fn with_xattrs() -> Vec<(Client4, Vec<u8>)> {
    let all = Client4::newest().into_iter().map(|mut client| {
        let (_, handle) = client.open(b"f");
        let put = Request::PutFh(Text(&handle));
        let reply = client.run(&[put, Request::GetAttr(Bitmap::of([82]))]);
        let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
        let has = raw.values().unwrap().xattr_support;
        (client, handle, has)
    });
    all.filter_map(|(client, handle, has)| (has == Some(true)).then_some((client, handle)))
        .collect()
}

fn change(client: &mut Client4, handle: &[u8]) -> u64 {
    let reply = client.run(&[Request::PutFh(Text(handle)), Request::GetAttr(Bitmap::of([3]))]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    raw.values().unwrap().change.unwrap()
}

#[test]
fn the_memory_store_has_extended_attributes() {
    assert!(!with_xattrs().is_empty());
}

#[test]
fn a_value_comes_back_until_it_is_removed() {
    for (mut client, handle) in with_xattrs() {
        let put = Request::PutFh(Text(&handle));
        let get = Request::GetXattr(Text(b"name"));
        assert_eq!(client.run(&[put.clone(), get.clone()]).status(), Status4::NoXattr);
        for value in [&b"value"[..], b"", &[0, 255, 10]] {
            let before = change(&mut client, &handle);
            let either = set(SetXattrHow::Either, b"name", value);
            let reply = client.run(&[put.clone(), either, get.clone()]);
            let answers = reply.answers();
            let [_, _, Answer::SetXattr(Ok(told)), Answer::GetXattr(Ok(found))] = &answers[..]
            else {
                panic!("{answers:?}")
            };
            assert_eq!(found.0, value);
            // RFC 8276 §8.4.2.3: the file's change attribute changes with its extended attributes.
            let after = change(&mut client, &handle);
            assert_eq!(told.after, after);
            assert!(!told.atomic || told.before == before);
            assert_ne!(before, after);
        }
        let remove = Request::RemoveXattr(Text(b"name"));
        assert_eq!(client.run(&[put.clone(), remove.clone()]).status(), Status4::Ok);
        assert_eq!(client.run(&[put.clone(), remove]).status(), Status4::NoXattr);
        assert_eq!(client.run(&[put, get]).status(), Status4::NoXattr);
    }
}

#[test]
fn a_value_is_made_or_replaced_as_it_is_asked_for() {
    for (mut client, handle) in with_xattrs() {
        let put = Request::PutFh(Text(&handle));
        for (how, expected) in [
            (SetXattrHow::Replace, Status4::NoXattr),
            (SetXattrHow::Create, Status4::Ok),
            (SetXattrHow::Create, Status4::Exist),
            (SetXattrHow::Replace, Status4::Ok),
        ] {
            let reply = client.run(&[put.clone(), set(how, b"name", b"value")]);
            assert_eq!(reply.status(), expected, "{how:?}");
        }
        for (name, expected) in [(&b""[..], Status4::Inval), (&[b'n'; 251], Status4::NameTooLong)] {
            let reply = client.run(&[put.clone(), set(SetXattrHow::Either, name, b"v")]);
            assert_eq!(reply.status(), expected);
        }
    }
}

#[test]
fn every_name_is_listed_once_however_little_fits() {
    for (mut client, handle) in with_xattrs() {
        let put = Request::PutFh(Text(&handle));
        let mut expected = Vec::new();
        for number in 0..12_usize {
            let name = format!("{}{number}", "n".repeat(number * 3)).into_bytes();
            let reply = client.run(&[put.clone(), set(SetXattrHow::Either, &name, b"v")]);
            assert_eq!(reply.status(), Status4::Ok);
            expected.push(name);
        }
        expected.sort();
        for max_count in [64, 100, 4_096] {
            let (mut names, mut cookie) = (Vec::new(), 0);
            loop {
                let reply = client.run(&[put.clone(), list(cookie, max_count)]);
                let Answer::ListXattrs(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
                names.extend(ok.names.items().map(|name| name.0.to_vec()));
                let len: usize =
                    ok.names.items().map(|name| 4 + name.0.len().next_multiple_of(4)).sum();
                assert!(8 + 4 + len + 4 <= max_count as usize, "the results keep to their limit");
                if ok.eof {
                    break;
                }
                assert!(!ok.names.is_empty() && ok.cookie > cookie, "a listing goes on");
                cookie = ok.cookie;
            }
            names.sort();
            assert_eq!(names, expected, "{max_count} octets at a time");
        }
        for (request, expected) in
            [(list(0, 20), Status4::TooSmall), (list(u64::MAX, 4_096), Status4::BadCookie)]
        {
            assert_eq!(client.run(&[put.clone(), request]).status(), expected);
        }
    }
}

#[test]
fn a_value_that_is_longer_than_any_can_be_is_refused() {
    for (mut client, handle) in with_xattrs() {
        let put = Request::PutFh(Text(&handle));
        let long = vec![1; XATTR_LEN_MAX + 1];
        let sequence = client.sequence(false);
        let args = set(SetXattrHow::Either, b"name", b"");
        let mut octets = encode(client.credential, 2, &[sequence, put, args]);
        // The value is the last of the arguments.
        octets.truncate(octets.len() - 4);
        octets.extend((long.len() as u32).to_be_bytes());
        octets.extend(&long);
        octets.extend([0; 3]);
        let reply = client.send_octets(&octets);
        let expected = [Status4::BadXdr, Status4::Xattr2Big, Status4::ReqTooBig];
        assert!(expected.contains(&reply.status()), "{:?}", reply.status());
        assert_eq!(client.run(&[]).status(), Status4::Ok, "the slot serves on");
    }
}

#[test]
fn access_tells_of_extended_attributes_in_minor_version_2_only() {
    for (mut client, handle) in with_xattrs() {
        let put = Request::PutFh(Text(&handle));
        let rights = Request::Access(Access4Args { rights: 0x1c0 });
        let reply = client.run(&[put, rights]);
        let all = Access4Ok { supported: 0x1c0, granted: 0x1c0 };
        assert_eq!(reply.last(), Answer::Access(Ok(all)));
    }
    let mut client = Client4::in_memory();
    let rights = Request::Access(Access4Args { rights: 0x40 });
    assert_eq!(client.at_export(&[rights]).status(), Status4::Inval);
}

#[test]
fn the_root_of_all_exports_has_no_extended_attributes() {
    for mut client in Client4::newest() {
        for (request, expected) in [
            (Request::GetXattr(Text(b"n")), Status4::NoXattr),
            (set(SetXattrHow::Either, b"n", b"v"), Status4::RoFs),
            (Request::RemoveXattr(Text(b"n")), Status4::RoFs),
            (list(0, 4_096), Status4::NotSupp),
        ] {
            let reply = client.run(&[Request::PutRootFh(()), request.clone()]);
            assert_eq!(reply.status(), expected, "{request:?}");
        }
    }
}
