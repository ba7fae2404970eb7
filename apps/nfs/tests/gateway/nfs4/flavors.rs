//! Security flavors of exports, in version 4: the operation that reports a wrong one, and the lists
//! of SECINFO and SECINFO_NO_NAME (RFC 8881 §2.6.3.1, §18.29, §18.45).

use super::{
    ceph,
    client::{Client4, ServedExport, open_args},
};
use crate::gateway::{
    client::Home,
    flavors::{credential, files, flavors, memory, over_tcp, set},
};
use stag_nfs_store::{Security, files::SharedFiles};
use stag_protocol::nfs::v4::*;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

const STRICT: [Security; 2] = [Security::Krb5p, Security::Krb5i];

/// Clients of all stores, whose `/data` accepts krb5p and krb5i. In memory `/fixed` does, too;
/// elsewhere it accepts AUTH_SYS.
fn all() -> Vec<Client4> {
    let (ceph, kept) = ceph::store(Some(flavors(&STRICT)));
    vec![
        on_files([&STRICT, &[]]).0,
        Client4::on(over_tcp(memory(&STRICT)), ServedExport::new(b"data", ()), 2),
        Client4::on(over_tcp(ceph), ServedExport::new(b"data", kept), 1),
    ]
}

pub(super) fn on_files(both: [&[Security]; 2]) -> (Client4, Arc<SharedFiles>, Arc<Home>) {
    let home = Arc::new(Home::new());
    let (files, shared) = files(&home, both);
    let kept = (Arc::clone(&home), Arc::clone(&shared));
    (Client4::on(over_tcp(files), ServedExport::new(b"data", kept), 2), shared, home)
}

/// The status of a compound, and the number of results after that of SEQUENCE.
fn run(client: &mut Client4, by: Security, requests: &[Request<'_>]) -> (Status4, usize) {
    client.credential = credential(by);
    let reply = client.run(requests);
    (reply.status(), reply.answers().len() - 1)
}

/// The handle of an export's root.
fn root(client: &mut Client4, name: &[u8]) -> Vec<u8> {
    client.credential = credential(Security::Krb5p);
    let way = [Request::PutRootFh(()), Request::Lookup(Text(name)), Request::GetFh(())];
    let reply = client.run(&way);
    match reply.last() {
        Answer::GetFh(Ok(handle)) => handle.0.to_vec(),
        // It accepts no ticket.
        _ => {
            client.credential = credential(Security::Sys);
            let reply = client.run(&way);
            let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
            handle.0.to_vec()
        }
    }
}

fn getattr() -> Request<'static> {
    Request::GetAttr(Bitmap::of([1, 3, 4]))
}

fn open_by_name() -> Request<'static> {
    Request::Open(open_args(b"file", share::BOTH, true))
}

fn open_by_handle() -> Request<'static> {
    Request::Open(Open4Args { claim: OpenClaim::Fh, ..open_args(b"", share::READ, false) })
}

/// The flavors of an answer, by their services; 0 and 1 are AUTH_NONE and AUTH_SYS.
fn listed(answer: &Answer<'_>) -> Vec<SecurityFlavor<'static>> {
    let (Answer::SecInfo(Ok(list)) | Answer::SecInfoNoName(Ok(list))) = answer else {
        panic!("{answer:?}")
    };
    let own = list.items().map(|flavor| match flavor {
        SecurityFlavor::Gss(mechanism) => {
            assert_eq!((mechanism.oid.0, mechanism.quality), (&GssMechanism::KERBEROS_OID[..], 0));
            SecurityFlavor::Gss(GssMechanism::kerberos(mechanism.service))
        }
        SecurityFlavor::Plain(number) => SecurityFlavor::Plain(number),
    });
    own.collect()
}

fn gss(service: GssService) -> SecurityFlavor<'static> {
    SecurityFlavor::Gss(GssMechanism::kerberos(service))
}

#[test]
fn a_wrong_flavor_is_reported_where_the_filehandle_comes_from() {
    for mut client in all() {
        let data = root(&mut client, b"data");
        let put = || Request::PutFh(Text(&data));
        let (save, name) = (Request::SaveFh(()), Request::Lookup(Text(b"file")));
        let wrong = |results| (Status4::WrongSec, results);
        let cases = [
            // The name in the pseudo file system leads over to an export.
            (vec![Request::PutRootFh(()), Request::Lookup(Text(b"data"))], wrong(2)),
            // By LOOKUP and OPEN by name, and by PUTFH before any other.
            (vec![put(), name.clone(), getattr()], wrong(2)),
            (vec![put(), open_by_name()], wrong(2)),
            (vec![put(), getattr()], wrong(1)),
            (vec![put(), Request::GetFh(())], wrong(1)),
            (vec![put(), open_by_handle()], wrong(1)),
            (vec![put(), Request::Access(Access4Args { rights: 1 })], wrong(1)),
            (vec![put(), Request::Remove(Text(b"file"))], wrong(1)),
            (
                vec![put(), Request::Close(Close4Args { seqid: 0, open: Stateid::ANONYMOUS })],
                wrong(1),
            ),
            // SAVEFH counts as absent.
            (vec![put(), save.clone(), getattr()], wrong(1)),
            (vec![put(), save.clone(), name], wrong(3)),
            // Of several filehandles only the last is judged, and none that is not used.
            (vec![put(), put(), getattr()], wrong(2)),
            (vec![put(), save.clone(), Request::RestoreFh(()), getattr()], wrong(3)),
            (vec![put(), save], (Status4::Ok, 2)),
            (vec![put(), put()], (Status4::Ok, 2)),
        ];
        for weak in [Security::None, Security::Sys, Security::Krb5] {
            for (requests, expected) in &cases {
                assert_eq!(run(&mut client, weak, requests), *expected, "{weak:?} {requests:?}");
            }
        }
        for strong in STRICT {
            for requests in [vec![put(), getattr()], vec![put(), open_by_name(), getattr()]] {
                let (status, _) = run(&mut client, strong, &requests);
                assert_eq!(status, Status4::Ok, "{strong:?} {requests:?}");
            }
        }
    }
}

#[test]
fn secinfo_lists_the_flavors_in_order_whatever_the_flavor_of_its_call() {
    let strict = [gss(GssService::Privacy), gss(GssService::Integrity)];
    for (mut client, is_mixed) in all().into_iter().zip([true, false, true]) {
        let data = root(&mut client, b"data");
        let of_root = match is_mixed {
            true => [&strict[..], &[SecurityFlavor::Plain(1), SecurityFlavor::Plain(0)]].concat(),
            false => strict.to_vec(),
        };
        let style = |style| Request::SecInfoNoName(style);
        let put = || Request::PutFh(Text(&data));
        let cases = [
            (vec![Request::PutRootFh(()), Request::SecInfo(Text(b"data"))], &strict[..]),
            (vec![put(), Request::SecInfo(Text(b"anything"))], &strict),
            (vec![put(), style(SecInfoStyle::Current)], &strict),
            (vec![put(), style(SecInfoStyle::Parent)], &of_root),
            (vec![Request::PutRootFh(()), style(SecInfoStyle::Current)], &of_root),
        ];
        for by in [Security::Sys, Security::None, Security::Krb5] {
            client.credential = credential(by);
            for (requests, expected) in &cases {
                let reply = client.run(requests);
                assert_eq!(reply.status(), Status4::Ok, "{by:?} {requests:?}");
                assert_eq!(listed(&reply.last()), *expected, "{by:?} {requests:?}");
            }
        }
        if is_mixed {
            let fixed = client.run(&[Request::PutRootFh(()), Request::SecInfo(Text(b"fixed"))]);
            let plain = [SecurityFlavor::Plain(1), SecurityFlavor::Plain(0)];
            assert_eq!(listed(&fixed.last()), plain);
        }
    }
}

#[test]
fn the_root_of_all_exports_accepts_the_flavors_of_each() {
    for (mut client, is_mixed) in all().into_iter().zip([true, false, true]) {
        let data = root(&mut client, b"data");
        let up = [Request::PutFh(Text(&data)), Request::LookupP(()), getattr()];
        for (by, is_right) in
            [(Security::Krb5p, true), (Security::Krb5, false), (Security::Sys, is_mixed)]
        {
            let expected = if is_right { (Status4::Ok, 2) } else { (Status4::WrongSec, 1) };
            let asked = [Request::PutRootFh(()), getattr()];
            assert_eq!(run(&mut client, by, &asked), expected, "{by:?}");
            let expected = if is_right { (Status4::Ok, 3) } else { (Status4::WrongSec, 2) };
            assert_eq!(run(&mut client, by, &up), expected, "{by:?}");
        }
    }
}

#[test]
fn a_listing_of_exports_has_the_error_in_the_entry() {
    let (mut client, ..) = on_files([&STRICT, &[]]);
    client.credential = credential(Security::Sys);
    let list = ReadDir4Args {
        cookie: 0,
        verifier: [0; 8],
        dir_count: 4_096,
        max_count: 4_096,
        attributes: Bitmap::of([1, 11]),
    };
    let reply = client.run(&[Request::PutRootFh(()), Request::ReadDir(list)]);
    let Answer::ReadDir(Ok(ok)) = reply.last() else { panic!("{reply:?}") };
    let entries: Vec<_> = ok.entries.collect();
    let error = |name: &[u8]| {
        let entry = entries.iter().find(|entry| entry.name.0 == name).unwrap();
        entry.attributes.values().unwrap().rdattr_error
    };
    assert_eq!(error(b"data"), Some(Status4::WrongSec));
    assert_ne!(error(b"fixed"), Some(Status4::WrongSec));
}

#[test]
fn the_saved_filehandle_is_judged_too() {
    let both: [&[Security]; 2] =
        [&[Security::Krb5p, Security::Krb5], &[Security::Krb5, Security::Sys]];
    let (mut client, ..) = on_files(both);
    let [data, fixed] = [b"data".as_slice(), b"fixed"].map(|name| root(&mut client, name));
    let rename = Request::Rename(Rename4Args { old: Text(b"file"), new: Text(b"file") });
    let link = Request::Link(Text(b"file"));
    let mut over = |by, from: &[u8], to: &[u8], operation: Request<'_>| {
        let (from, to) = (Request::PutFh(Text(from)), Request::PutFh(Text(to)));
        run(&mut client, by, &[from, Request::SaveFh(()), to, operation])
    };
    for operation in [rename, link] {
        let wrong = |results| (Status4::WrongSec, results);
        assert_eq!(over(Security::Sys, &data, &fixed, operation.clone()), wrong(4));
        assert_eq!(over(Security::Sys, &fixed, &data, operation.clone()), wrong(3));
        assert_eq!(over(Security::Krb5p, &data, &fixed, operation.clone()), wrong(3));
        // The right flavor for both: it fails for another reason.
        let (status, results) = over(Security::Krb5, &data, &fixed, operation);
        assert!(status != Status4::WrongSec && results == 4, "{status:?}");
    }
    let restored = [
        Request::PutFh(Text(&data)),
        Request::SaveFh(()),
        Request::PutFh(Text(&fixed)),
        Request::RestoreFh(()),
        getattr(),
    ];
    assert_eq!(run(&mut client, Security::Sys, &restored), (Status4::WrongSec, 4));
}

#[test]
fn exports_without_a_common_flavor_are_different_file_systems_for_rename_and_link() {
    let (mut client, ..) = on_files([&STRICT, &[]]);
    let [data, fixed] = [b"data".as_slice(), b"fixed"].map(|name| root(&mut client, name));
    let rename = Request::Rename(Rename4Args { old: Text(b"file"), new: Text(b"file") });
    for operation in [rename, Request::Link(Text(b"file"))] {
        let way = [
            Request::PutFh(Text(&data)),
            Request::SaveFh(()),
            Request::PutFh(Text(&fixed)),
            operation,
        ];
        assert_eq!(run(&mut client, Security::Sys, &way), (Status4::XDev, 4));
    }
}

#[test]
fn one_compound_has_one_flavor_for_all_exports_on_its_way() {
    let (mut client, ..) = on_files([&STRICT, &[]]);
    let way = [
        Request::PutRootFh(()),
        Request::Lookup(Text(b"fixed")),
        getattr(),
        Request::PutRootFh(()),
        Request::Lookup(Text(b"data")),
        getattr(),
    ];
    assert_eq!(run(&mut client, Security::Sys, &way), (Status4::WrongSec, 5));
    assert_eq!(run(&mut client, Security::Krb5p, &way), (Status4::WrongSec, 2));
}

#[test]
fn other_flavors_of_a_reload_hold_for_open_files_at_once() {
    let (mut client, shared, home) = on_files([&STRICT, &[]]);
    client.credential = credential(Security::Krb5p);
    let (_, file) = client.open(b"file");
    let used = [Request::PutFh(Text(&file)), getattr()];
    let change = |both, client: &mut Client4, by, expected| {
        shared.replace_exports(&set(&home, both)).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while run(client, by, &used).0 != expected {
            assert!(Instant::now() < until, "the flavors do not change within twenty seconds");
        }
    };
    let sys: &[Security] = &[Security::Sys];
    change([sys, &[]], &mut client, Security::Krb5p, Status4::WrongSec);
    assert_eq!(run(&mut client, Security::Sys, &used).0, Status4::Ok);
    change([&STRICT, &[]], &mut client, Security::Sys, Status4::WrongSec);
    assert_eq!(run(&mut client, Security::Krb5i, &used).0, Status4::Ok);
    // Without any flavors none is judged.
    change([&[], &[]], &mut client, Security::Sys, Status4::Ok);
}
