//! MOUNT finds exports and directories below them.

use crate::gateway::client::Client;
use stag_protocol::nfs::mount::{Call, Path, Reply, Status};

#[test]
fn exports_and_directories_below_them_are_mounted() {
    for mut client in Client::both() {
        std::fs::create_dir_all(client.home.path("data/a/b")).unwrap();
        std::fs::write(client.home.path("data/file"), b"").unwrap();
        std::os::unix::fs::symlink("a", client.home.path("data/link")).unwrap();
        let root = client.root;
        assert_eq!(client.mount("/data/"), Ok(root));
        let a = client.lookup(root, b"a").unwrap();
        assert_eq!(client.mount("/data/a/b"), client.lookup(a, b"b").map_err(|_| Status::Io));
        assert_eq!(client.mount("/data/a/.."), Ok(root));
        assert_eq!(client.mount("/data/../.."), Ok(root), "nothing lies above an export");
        let fixed = client.mount("/fixed").unwrap();
        assert_ne!(fixed, root);
        for (path, status) in [
            ("/", Status::NoEnt),
            ("", Status::NoEnt),
            ("/other", Status::NoEnt),
            ("/data/missing", Status::NoEnt),
            ("/data/file", Status::NotDir),
            ("/data/link", Status::NotDir),
            ("/data/file/x", Status::NotDir),
            ("/state", Status::NoEnt),
        ] {
            assert_eq!(client.mount(path), Err(status), "{path:?}");
        }
        let long = format!("/data/{}", "n".repeat(256));
        assert_eq!(client.mount(&long), Err(Status::NameTooLong));
    }
}

#[test]
fn a_directory_that_takes_the_place_of_an_exported_one_is_mounted_next() {
    for mut client in Client::both() {
        let (path, aside) = (client.home.path("data"), client.home.path("aside"));
        let old = client.root;
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(client.mount("/data"), Ok(old), "a directory may move");
        std::fs::create_dir_all(path.join("new")).unwrap();
        let new = client.mount("/data").unwrap();
        assert!(new != old && client.lookup(new, b"new").is_ok());
        assert!(client.lookup(old, b"new").is_err(), "its handle is stale");
    }
}

#[test]
fn exports_are_listed_and_mounts_are_told_until_they_are_taken_back() {
    for mut client in Client::both() {
        client.call_mount(&Call::Export, |reply| match reply {
            Reply::Export(list) => {
                let mut names = list.map(|export| export.directory.0.to_vec()).collect::<Vec<_>>();
                names.sort();
                assert_eq!(names, [b"/data".to_vec(), b"/fixed".to_vec()]);
            }
            other => panic!("{other:?}"),
        });
        let dump = |client: &mut Client| {
            let mut mounts = Vec::new();
            client.call_mount(&Call::Dump, |reply| match reply {
                Reply::Dump(list) => mounts.extend(list.map(|it| it.directory.0.to_vec())),
                other => panic!("{other:?}"),
            });
            mounts
        };
        // Who has no IP address has no name in the list.
        let is_named = !dump(&mut client).is_empty() || client.mount("/data").is_ok();
        assert!(is_named);
        let mounts = dump(&mut client);
        assert!(mounts.iter().all(|path| path == b"/data") && mounts.len() <= 1, "{mounts:?}");
        for call in
            [Call::Null, Call::Umnt(Path(b"/data")), Call::Umnt(Path(b"/nothing")), Call::UmntAll]
        {
            client.call_mount(&call, |_| ());
        }
        assert_eq!(dump(&mut client), [] as [Vec<u8>; 0]);
    }
}
