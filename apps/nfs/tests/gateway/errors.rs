//! Tests that impossible requests are refused with the right status, and counted.

use crate::gateway::client::{Client, place};
use stag_protocol::nfs::v3::{
    Call, CreateArgs, CreateHow, FileHandle, LookupArgs, RemoveArgs, Reply, SetAttributes,
    StableHow, Status,
};

#[test]
fn every_mistake_has_its_status() {
    for mut client in Client::both() {
        let root = client.root;
        let file = client.create(root, b"file").unwrap();
        assert_eq!(client.lookup(root, b"missing"), Err(Status::NoEnt));
        assert_eq!(client.create(root, b"file"), Err(Status::Exist));
        assert_eq!(client.lookup(file, b"x"), Err(Status::NotDir));
        assert_eq!(client.read(root, 0, 1), Err(Status::IsDir));
        assert_eq!(client.lookup(root, &[b'n'; 256]), Err(Status::NameTooLong));
        assert_eq!(client.create(root, &[b'n'; 4000]), Err(Status::NameTooLong));
        assert_eq!(client.read(file, 0, 0), Ok((vec![], true)));
        assert_eq!(client.write(file, u64::MAX, b"x", StableHow::Unstable), Err(Status::FBig));
        assert_eq!(client.read(file, u64::MAX, 10), Ok((vec![], true)));
    }
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    for mut client in Client::both() {
        let root = client.mount("/fixed").unwrap();
        let file = client.lookup(root, b"file").unwrap();
        assert_eq!(client.read(file, 0, 100), Ok((b"fixed".to_vec(), true)));
        assert_eq!(client.create(root, b"other"), Err(Status::RoFs));
        assert_eq!(client.write(file, 0, b"x", StableHow::Unstable), Err(Status::RoFs));
        let how = CreateHow::Unchecked(SetAttributes::default());
        assert_eq!(
            client.make(&Call::Create(CreateArgs { place: place(root, b"file"), how })),
            Err(Status::RoFs)
        );
        assert_eq!(std::fs::read(client.home.path("fixed/file")).unwrap(), b"fixed");
    }
}

#[test]
fn a_handle_with_one_bit_changed_names_nothing() {
    let mut client = Client::over_fabric();
    let root = client.root;
    let whole = client.create(root, b"file").unwrap().octets().to_vec();
    for bit in 0..whole.len() * 8 {
        let mut octets = whole.clone();
        octets[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(
            client.getattr(FileHandle::new(&octets).unwrap()),
            Err(Status::BadHandle),
            "bit {bit}"
        );
    }
    for len in (0..whole.len()).chain([whole.len() + 1, 64]) {
        let mut octets = whole.clone();
        octets.resize(len, 0);
        assert_eq!(
            client.getattr(FileHandle::new(&octets).unwrap()),
            Err(Status::BadHandle),
            "{len} octets"
        );
    }
}

#[test]
fn a_handle_of_what_is_gone_is_stale() {
    let mut client = Client::over_fabric();
    let (root, path) = (client.root, client.home.path("data/gone"));
    let file = client.create(root, b"gone").unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut client = client.restart();
    assert_eq!(client.getattr(file), Err(Status::Stale));
    std::fs::write(&path, b"another").unwrap();
    let another = client.lookup(root, b"gone").unwrap();
    assert_ne!(another, file);
    assert_eq!(client.getattr(file), Err(Status::Stale));
}

#[test]
fn a_failure_tells_what_is_known_of_the_directory() {
    for mut client in Client::both() {
        let root = client.root;
        client.call(
            &Call::Lookup(LookupArgs { what: place(root, b"missing") }),
            |reply| match reply {
                Reply::Lookup(results) => assert!(results.unwrap_err().attributes.is_some()),
                other => panic!("{other:?}"),
            },
        );
        client.call(&Call::Remove(RemoveArgs { object: place(root, b"missing") }), |reply| {
            match reply {
                Reply::Remove(results) => assert!(results.unwrap_err().attributes.after.is_some()),
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn calls_octets_and_failures_are_counted() {
    for mut client in Client::both() {
        let root = client.root;
        let file = client.create(root, b"file").unwrap();
        client.write(file, 0, &[1; 1000], StableHow::Unstable).unwrap();
        client.write(file, 0, &[1; 10], StableHow::FileSync).unwrap();
        client.read(file, 500, 5000).unwrap();
        assert!(client.lookup(root, b"missing").is_err());
        assert!(client.mount("/missing").is_err());
        let report = client.wire.report();
        assert_eq!((report.nfs3["WRITE"].calls, report.nfs3["READ"].calls), (2, 1));
        assert_eq!(report.nfs3["LOOKUP"].errors["NFS3ERR_NOENT"], 1);
        assert_eq!(report.mount3["MNT"].calls, 2);
        assert_eq!(report.mount3["MNT"].errors["MNT3ERR_NOENT"], 1);
        let data = report.data;
        assert_eq!((data.octets_written, data.octets_read, data.unstable_writes), (1010, 500, 1));
        assert_eq!((report.failed_syncs, report.failed_flushes, report.unanswered), (0, 0, 0));
    }
}
