//! The root of all exports, names, directories (RFC 8881 §7, §18.13–§18.14, §18.23–§18.26).

use super::client::Client4;
use stag_protocol::nfs::{Bulk, v4::*};

fn attributes(client: &mut Client4, path: &[Request<'_>], asked: &[u32]) -> (u64, u64, u64) {
    let mut requests = path.to_vec();
    requests.push(Request::GetAttr(Bitmap::of(asked.iter().copied())));
    let reply = client.run(&requests);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    let values = raw.values().unwrap();
    let fsid = values.fsid.unwrap();
    (fsid.major, values.fileid.unwrap(), values.mounted_on_fileid.unwrap())
}

#[test]
fn a_path_goes_over_from_the_root_to_an_export_and_back() {
    for mut client in Client4::all() {
        let export = client.export();
        let asked = [8, 20, 55];
        let root = attributes(&mut client, &[Request::PutRootFh(())], &asked);
        assert_eq!(root, (0, 1, 1));
        let down = [Request::PutRootFh(()), Request::Lookup(Text(export))];
        let there = attributes(&mut client, &down, &asked);
        assert_ne!(there.0, 0, "an export is a file system of its own");
        assert_ne!(there.1, there.2, "it lies over an entry of the root");
        let mut back = down.to_vec();
        back.push(Request::LookupP(()));
        assert_eq!(attributes(&mut client, &back, &asked), root);
        let above = client.run(&[Request::PutRootFh(()), Request::LookupP(())]);
        assert_eq!(above.status(), Status4::NoEnt);
    }
}

#[test]
fn lookup_of_an_export_finds_a_directory_that_takes_the_place_of_the_former_one() {
    let home = crate::gateway::client::Home::new();
    let (path, aside) = (home.path("data"), home.path("aside"));
    let mut client = Client4::on_files(home);
    let down = [Request::PutRootFh(()), Request::Lookup(Text(b"data"))];
    let root = |client: &mut Client4| {
        let reply = client.run(&[&down[..], &[Request::GetFh(())]].concat());
        let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{:?}", reply.last()) };
        handle.0.to_vec()
    };
    let old = root(&mut client);
    std::fs::rename(&path, &aside).unwrap();
    assert_eq!(root(&mut client), old, "a directory may move");
    std::fs::create_dir_all(path.join("new")).unwrap();
    assert_ne!(root(&mut client), old);
    let into = client.run(&[&down[..], &[Request::Lookup(Text(b"new"))]].concat());
    assert_eq!(into.status(), Status4::Ok);
    let stale = client.run(&[Request::PutFh(Text(&old)), Request::Lookup(Text(b"new"))]);
    assert_eq!(stale.status(), Status4::Stale);
}

#[test]
fn the_root_of_all_exports_cannot_be_changed() {
    let mut client = Client4::in_memory();
    let attributes = RawAttributes::default();
    let make = Create4Args { kind: CreateKind::Directory, name: Text(b"d"), attributes };
    let set = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes };
    for request in [
        Request::Create(make),
        Request::Remove(Text(b"memory")),
        Request::SetAttr(set),
        Request::Open(super::client::open_args(b"f", share::BOTH, true)),
    ] {
        let reply = client.run(&[Request::PutRootFh(()), request.clone()]);
        assert_eq!(reply.status(), Status4::RoFs, "{request:?}");
    }
    let rights = Request::Access(Access4Args { rights: 0x3f });
    let reply = client.run(&[Request::PutRootFh(()), rights]);
    assert_eq!(reply.last(), Answer::Access(Ok(Access4Ok { supported: 0x3f, granted: 0x3 })));
}

#[test]
fn a_read_only_export_refuses_changes() {
    let mut client = Client4::in_memory();
    let fixed = [Request::PutRootFh(()), Request::Lookup(Text(b"fixed"))];
    let attributes = RawAttributes::default();
    let make = Create4Args { kind: CreateKind::Directory, name: Text(b"d"), attributes };
    for request in [
        Request::Create(make),
        Request::Open(super::client::open_args(b"f", share::BOTH, true)),
        Request::Remove(Text(b"x")),
    ] {
        let mut all = fixed.to_vec();
        all.push(request.clone());
        assert_eq!(client.run(&all).status(), Status4::RoFs, "{request:?}");
    }
}

/// The names of a directory, asked for in steps of `max_count` octets.
fn list(client: &mut Client4, path: &[Request<'_>], max_count: u32) -> Vec<Vec<u8>> {
    let (mut names, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let mut requests = path.to_vec();
        requests.push(Request::ReadDir(ReadDir4Args {
            cookie,
            verifier,
            dir_count: max_count,
            max_count,
            attributes: Bitmap::of([1, 11, 20]),
        }));
        let reply = client.run(&requests);
        let Answer::ReadDir(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
        verifier = ok.verifier;
        for entry in ok.entries.clone() {
            assert!(entry.cookie > 2, "1 and 2 are never given");
            cookie = entry.cookie;
            names.push(entry.name.0.to_vec());
        }
        if ok.eof {
            return names;
        }
        assert!(ok.entries.len() > 0, "a listing that goes on has entries");
    }
}

#[test]
fn every_name_is_listed_once_whatever_room_there_is() {
    for mut client in Client4::all() {
        let mut expected = Vec::new();
        for number in 0..40 {
            let name = format!("{}{number}", "n".repeat(number)).into_bytes();
            client.open(&name);
            expected.push(name);
        }
        expected.sort();
        let path = [Request::PutRootFh(()), Request::Lookup(Text(client.export()))];
        for max_count in [160, 200, 512, 3_000] {
            let mut names = list(&mut client, &path, max_count);
            names.sort();
            assert_eq!(names, expected, "in steps of {max_count}");
        }
        let exports = list(&mut client, &path[..1], 200);
        assert!(exports.iter().any(|name| name == client.export()) && exports.len() == 2);
    }
}

#[test]
fn a_listing_keeps_to_its_limit_and_refuses_what_it_cannot_do() {
    let mut client = Client4::in_memory();
    client.open(&[b'n'; 100]);
    let args = |cookie, max_count, attributes| {
        let (verifier, dir_count) = ([0; 8], max_count);
        let attributes = Bitmap::of([attributes]);
        Request::ReadDir(ReadDir4Args { cookie, verifier, dir_count, max_count, attributes })
    };
    for (request, expected) in [
        (args(0, 0, 1), Status4::TooSmall),
        (args(0, 15, 1), Status4::TooSmall),
        (args(0, 100, 1), Status4::TooSmall),
        (args(1, 4_096, 1), Status4::BadCookie),
        (args(2, 4_096, 1), Status4::BadCookie),
        (args(0, 4_096, 48), Status4::Inval),
        (args(0, 4_096, 1), Status4::Ok),
    ] {
        assert_eq!(
            client.at_export(std::slice::from_ref(&request)).status(),
            expected,
            "{request:?}"
        );
    }
    let mut largest = 0;
    for max_count in 16..400 {
        let reply = client.at_export(&[args(0, max_count, 1)]);
        if let Answer::ReadDir(Ok(_)) = reply.last() {
            // Status, tag, count, SEQUENCE, PUTROOTFH, LOOKUP, and number and status of READDIR.
            let len = reply.0.len() - 12 - 44 - 8 - 8 - 8;
            assert!(len <= max_count as usize, "{len} octets of {max_count}");
            largest = largest.max(len);
        }
    }
    assert!(largest > 100);
}

#[test]
fn names_that_no_object_can_have_are_refused_everywhere() {
    let mut client = Client4::in_memory();
    let attributes = RawAttributes::default();
    for (name, expected) in [
        (&b""[..], Status4::Inval),
        (b".", Status4::BadName),
        (b"..", Status4::BadName),
        (b"a/b", Status4::BadChar),
        (&[b'x'; 256], Status4::NameTooLong),
    ] {
        let make = Create4Args { kind: CreateKind::Fifo, name: Text(name), attributes };
        for request in [
            Request::Lookup(Text(name)),
            Request::Remove(Text(name)),
            Request::SecInfo(Text(name)),
            Request::Create(make),
            Request::Open(super::client::open_args(name, share::READ, false)),
        ] {
            let reply = client.at_export(std::slice::from_ref(&request));
            assert_eq!(reply.status(), expected, "{request:?}");
        }
    }
}

#[test]
fn links_lead_where_they_were_made_to_lead() {
    for mut client in Client4::all() {
        let path = Bulk::Inline(b"some/where");
        let attributes = RawAttributes::default();
        let make = Create4Args { kind: CreateKind::Link(path), name: Text(b"l"), attributes };
        let made = client.at_export(&[Request::Create(make), Request::ReadLink(())]);
        assert_eq!(made.last(), Answer::ReadLink(Ok(LinkPath(path))));
        let through = client.at_export(&[Request::Lookup(Text(b"l")), Request::Lookup(Text(b"x"))]);
        assert_eq!(through.status(), Status4::Symlink);
        let opened = super::client::open_args(b"l", share::READ, false);
        assert_eq!(client.at_export(&[Request::Open(opened)]).status(), Status4::Symlink);
    }
}

#[test]
fn a_name_moves_and_goes() {
    for mut client in Client4::all() {
        client.open(b"a");
        let moved = client.at_export(&[
            Request::SaveFh(()),
            Request::Rename(Rename4Args { old: Text(b"a"), new: Text(b"b") }),
            Request::Lookup(Text(b"b")),
        ]);
        assert_eq!(moved.status(), Status4::Ok);
        let linked = client.at_export(&[
            Request::Lookup(Text(b"b")),
            Request::SaveFh(()),
            Request::PutRootFh(()),
            Request::Lookup(Text(client.export())),
            Request::Link(Text(b"c")),
        ]);
        assert_eq!(linked.status(), Status4::Ok);
        for name in [&b"b"[..], b"c"] {
            assert_eq!(client.at_export(&[Request::Remove(Text(name))]).status(), Status4::Ok);
        }
        assert_eq!(client.at_export(&[Request::Remove(Text(b"b"))]).status(), Status4::NoEnt);
    }
}

#[test]
fn the_security_of_a_name_is_told_and_takes_the_filehandle() {
    let mut client = Client4::in_memory();
    let export = client.export();
    let reply =
        client.run(&[Request::PutRootFh(()), Request::SecInfo(Text(export)), Request::GetFh(())]);
    assert_eq!(reply.status(), Status4::NoFileHandle);
    let reply =
        client.run(&[Request::PutRootFh(()), Request::SecInfoNoName(SecInfoStyle::Current)]);
    let Answer::SecInfoNoName(Ok(flavors)) = reply.last() else { panic!() };
    let flavors: Vec<_> = flavors.items().collect();
    assert_eq!(flavors, [SecurityFlavor::Plain(1), SecurityFlavor::Plain(0)]);
}
