//! Tests that operations on files have the intended results.

use crate::gateway::client::{Client, Home, LARGEST, pattern, place};
use crate::gateway::wire::OverFabric;
use stag_engine::{App, Config, Cx};
use stag_nfs::{Gateway, GatewayReport};
use stag_protocol::nfs::v3::{
    Access, AccessArgs, Call, CommitArgs, CommitOk, CreateArgs, CreateHow, FileHandle, FileKind,
    FsInfo, LinkArgs, MkDirArgs, MkNodArgs, NodeKind, ReadLinkArgs, RemoveArgs, RenameArgs, Reply,
    SetAttrArgs, SetAttributes, SetTime, StableHow, Status, SystemArgs, Time,
};

const SIZES: [usize; 7] = [0, 1, 4095, 4096, 4097, 65_537, LARGEST];

fn commit(client: &mut Client, file: FileHandle) -> CommitOk {
    client.call(&Call::Commit(CommitArgs { file, offset: 0, count: 0 }), |reply| match reply {
        Reply::Commit(results) => results.unwrap(),
        other => panic!("{other:?}"),
    })
}

fn set(
    client: &mut Client,
    object: FileHandle,
    attributes: SetAttributes,
    guard: Option<Time>,
) -> Result<(), Status> {
    client.call(&Call::SetAttr(SetAttrArgs { object, attributes, guard }), |reply| match reply {
        Reply::SetAttr(results) => results.map(drop).map_err(|failure| failure.status),
        other => panic!("{other:?}"),
    })
}

fn readlink(client: &mut Client, symlink: FileHandle) -> Result<Vec<u8>, Status> {
    client.call(&Call::ReadLink(ReadLinkArgs { symlink }), |reply| match reply {
        Reply::ReadLink(Ok(read)) => Ok(read.path.octets().unwrap().to_vec()),
        Reply::ReadLink(Err(failure)) => Err(failure.status),
        other => panic!("{other:?}"),
    })
}

fn remove(client: &mut Client, dir: FileHandle, name: &[u8]) -> Result<(), Status> {
    client.call(&Call::Remove(RemoveArgs { object: place(dir, name) }), |reply| match reply {
        Reply::Remove(results) => results.map(drop).map_err(|failure| failure.status),
        other => panic!("{other:?}"),
    })
}

fn rmdir(client: &mut Client, dir: FileHandle, name: &[u8]) -> Result<(), Status> {
    client.call(&Call::RmDir(RemoveArgs { object: place(dir, name) }), |reply| match reply {
        Reply::RmDir(results) => results.map(drop).map_err(|failure| failure.status),
        other => panic!("{other:?}"),
    })
}

fn mkdir(client: &mut Client, dir: FileHandle, name: &[u8]) -> Result<FileHandle, Status> {
    client.make(&Call::MkDir(MkDirArgs {
        place: place(dir, name),
        attributes: SetAttributes::default(),
    }))
}

#[test]
fn every_size_is_written_made_stable_and_read_back() {
    for mut client in Client::both() {
        let root = client.root;
        for (seed, len) in SIZES.into_iter().enumerate() {
            let (name, data) = (format!("file-{len}"), pattern(len, seed));
            let file = client.create(root, name.as_bytes()).unwrap();
            let done = client.write(file, 0, &data, StableHow::Unstable).unwrap();
            assert_eq!((done.count as usize, done.committed), (len, StableHow::Unstable));
            assert_eq!(done.wcc.after.unwrap().size, len as u64);
            assert_eq!(commit(&mut client, file).verifier, done.verifier);
            assert_eq!(std::fs::read(client.home.path("data").join(&name)).unwrap(), data);
            let (read, eof) = client.read(file, 0, LARGEST as u32).unwrap();
            assert!(read == data && eof, "{len} octets");
            assert_eq!(
                client.read(file, len as u64, 4096).unwrap(),
                (vec![], true),
                "behind {len} octets"
            );
            assert_eq!(client.getattr(file).unwrap().size, len as u64);
        }
    }
}

#[test]
fn a_part_is_read_and_overwritten_in_place() {
    for mut client in Client::both() {
        let root = client.root;
        let mut data = pattern(300_000, 1);
        let file = client.create(root, b"f").unwrap();
        client.write(file, 0, &data, StableHow::FileSync).unwrap();
        for (offset, len) in [(0, 1), (3, 5), (4095, 2), (65_535, 70_001), (299_999, 1)] {
            let part = pattern(len, offset);
            for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
                let done = client.write(file, offset as u64, &part, stable).unwrap();
                assert!(done.count as usize == len && done.committed >= stable);
            }
            data[offset..offset + len].copy_from_slice(&part);
            let (read, eof) = client.read(file, offset as u64, len as u32).unwrap();
            assert!(
                read == part && eof == (offset + len == data.len()),
                "{len} octets at {offset}"
            );
        }
        assert!(client.read(file, 0, u32::MAX).unwrap() == (data, true));
    }
}

#[test]
fn data_travels_in_chunks_and_not_through_messages() {
    let mut client = Client::over_fabric();
    let root = client.root;
    let file = client.create(root, b"f").unwrap();
    let data = pattern(LARGEST, 1);
    client.write(file, 0, &data, StableHow::Unstable).unwrap();
    assert_eq!(client.wire.moved(), (LARGEST as u64, 0));
    assert!(client.read(file, 0, LARGEST as u32).unwrap().0 == data);
    assert_eq!(client.wire.moved(), (LARGEST as u64, LARGEST as u64));
}

#[test]
fn more_than_the_largest_transfer_is_done_in_part() {
    for mut client in Client::both() {
        let root = client.root;
        let file = client.create(root, b"f").unwrap();
        let data = pattern(LARGEST + 4096, 1);
        assert_eq!(
            client.write(file, 0, &data, StableHow::Unstable).unwrap().count as usize,
            LARGEST
        );
        client.write(file, LARGEST as u64, &data[LARGEST..], StableHow::Unstable).unwrap();
        let (read, eof) = client.read(file, 0, u32::MAX).unwrap();
        assert!(read == data[..LARGEST] && !eof);
    }
}

#[test]
fn names_move_multiply_and_go() {
    for mut client in Client::both() {
        let root = client.root;
        let (a, b) =
            (mkdir(&mut client, root, b"a").unwrap(), mkdir(&mut client, root, b"b").unwrap());
        let file = client.create(a, b"one").unwrap();
        client.write(file, 0, b"content", StableHow::FileSync).unwrap();
        let rename = RenameArgs { from: place(a, b"one"), to: place(b, b"two") };
        client.call(&Call::Rename(rename), |reply| match reply {
            Reply::Rename(results) => assert!(results.unwrap().to_dir.after.is_some()),
            other => panic!("{other:?}"),
        });
        assert_eq!(client.lookup(a, b"one"), Err(Status::NoEnt));
        assert_eq!(client.lookup(b, b"two"), Ok(file));
        client.call(
            &Call::Link(LinkArgs { file, link: place(a, b"three") }),
            |reply| match reply {
                Reply::Link(results) => assert_eq!(results.unwrap().attributes.unwrap().nlink, 2),
                other => panic!("{other:?}"),
            },
        );
        assert_eq!(client.lookup(a, b"three"), Ok(file));
        assert_eq!(client.lookup(b, b".."), Ok(root));
        assert_eq!(rmdir(&mut client, root, b"b"), Err(Status::NotEmpty));
        remove(&mut client, b, b"two").unwrap();
        rmdir(&mut client, root, b"b").unwrap();
        assert_eq!(client.read(file, 0, 100).unwrap(), (b"content".to_vec(), true));
        assert_eq!(client.getattr(file).unwrap().nlink, 1);
    }
}

#[test]
fn a_link_of_every_length_keeps_its_path() {
    for mut client in Client::both() {
        let root = client.root;
        for len in [1, 2, 3, 4, 1000, 3900, 4095] {
            let (name, path) = (format!("link-{len}"), "p".repeat(len).into_bytes());
            let link = client.symlink(root, name.as_bytes(), &path).unwrap();
            assert_eq!(readlink(&mut client, link).unwrap(), path);
            assert_eq!(client.getattr(link).unwrap().kind, FileKind::Symlink);
        }
        assert_eq!(readlink(&mut client, root), Err(Status::Inval));
        assert_eq!(client.symlink(root, b"empty", b""), Err(Status::Inval));
    }
}

#[test]
fn attributes_are_set_and_a_guard_guards() {
    for mut client in Client::both() {
        let root = client.root;
        let file = client.create(root, b"f").unwrap();
        client.write(file, 0, &pattern(5000, 1), StableHow::FileSync).unwrap();
        for size in [100, 0, 9000] {
            let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            set(&mut client, file, attributes, None).unwrap();
            assert_eq!(client.getattr(file).unwrap().size, size);
        }
        assert!(client.read(file, 0, 9000).unwrap() == (vec![0; 9000], true));
        let mtime = Time { seconds: 1_000_000_000, nanos: 5 };
        let attributes = SetAttributes {
            mode: Some(0o600),
            mtime: SetTime::Client(mtime),
            ..SetAttributes::default()
        };
        let ctime = client.getattr(file).unwrap().ctime;
        set(&mut client, file, attributes, Some(ctime)).unwrap();
        let found = client.getattr(file).unwrap();
        assert_eq!((found.mode, found.mtime), (0o600, mtime));
        let other = Time { seconds: 1, nanos: 1 };
        assert_eq!(set(&mut client, file, attributes, Some(other)), Err(Status::NotSync));
    }
}

#[test]
fn an_exclusive_create_is_recognised_when_it_comes_again() {
    for mut client in Client::both() {
        let root = client.root;
        let exclusive = |verifier| {
            Call::Create(CreateArgs {
                place: place(root, b"f"),
                how: CreateHow::Exclusive(verifier),
            })
        };
        let file = client.make(&exclusive(*b"verifier")).unwrap();
        assert_eq!(client.make(&exclusive(*b"verifier")), Ok(file));
        assert_eq!(client.make(&exclusive(*b"another!")), Err(Status::Exist));
    }
}

#[test]
fn pipes_are_made_and_devices_are_not() {
    for mut client in Client::both() {
        let root = client.root;
        let node =
            |name: &'static [u8], what| Call::MkNod(MkNodArgs { place: place(root, name), what });
        let pipe = client.make(&node(b"pipe", NodeKind::Fifo(SetAttributes::default()))).unwrap();
        assert_eq!(client.getattr(pipe).unwrap().kind, FileKind::Fifo);
        let device = NodeKind::Block(SetAttributes::default(), Default::default());
        assert_eq!(client.make(&node(b"disk", device)), Err(Status::Perm));
        assert_eq!(client.make(&node(b"file", NodeKind::Regular)), Err(Status::BadType));
    }
}

#[test]
fn rights_and_the_file_system_are_told() {
    for mut client in Client::both() {
        let root = client.root;
        let asked = Access::READ | Access::LOOKUP | Access::EXTEND;
        client.call(
            &Call::Access(AccessArgs { object: root, access: asked }),
            |reply| match reply {
                Reply::Access(results) => assert_eq!(results.unwrap().access, asked),
                other => panic!("{other:?}"),
            },
        );
        let object = SystemArgs { object: root };
        client.call(&Call::FsInfo(object), |reply| match reply {
            Reply::FsInfo(results) => {
                let found = results.unwrap();
                assert!(found.attributes.is_some());
                assert_eq!(
                    (found.about.read_max, found.about.write_max),
                    (LARGEST as u32, LARGEST as u32)
                );
                assert_ne!(found.about.properties & FsInfo::SYMLINK, 0);
            }
            other => panic!("{other:?}"),
        });
        client.call(&Call::FsStat(object), |reply| match reply {
            Reply::FsStat(results) => assert!(results.unwrap().about.total_octets > 0),
            other => panic!("{other:?}"),
        });
        client.call(&Call::PathConf(object), |reply| match reply {
            Reply::PathConf(results) => assert_eq!(results.unwrap().about.name_max, 255),
            other => panic!("{other:?}"),
        });
    }
}

#[test]
fn handles_survive_a_restart() {
    let mut client = Client::over_fabric();
    let root = client.root;
    let directory = mkdir(&mut client, root, b"d").unwrap();
    let file = client.create(directory, b"f").unwrap();
    client.write(file, 0, b"content", StableHow::FileSync).unwrap();
    let verifier = commit(&mut client, file).verifier;
    let mut client = client.restart();
    assert_eq!(client.read(file, 0, 100).unwrap(), (b"content".to_vec(), true));
    assert_eq!(client.lookup(directory, b"f"), Ok(file));
    assert_ne!(commit(&mut client, file).verifier, verifier, "unstable data may have been lost");
}

#[test]
fn a_handle_is_in_the_index_before_its_reply_arrives() {
    for mut client in Client::both() {
        let (root, log) = (client.root, client.home.path("state/index.0.log"));
        for i in 0..10 {
            let before = std::fs::metadata(&log).unwrap().len();
            client.create(root, format!("file-{i}").as_bytes()).unwrap();
            assert!(std::fs::metadata(&log).unwrap().len() > before);
        }
        assert_eq!(client.wire.report().failed_flushes, 0);
    }
}

/// A gateway whose passes never end: over shared memory a reply leaves before that.
struct Endless(Gateway);

impl App for Endless {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.0.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: stag_engine::Call<'_>) {
        self.0.on_call(cx, call);
    }
}

#[test]
fn a_handle_is_in_the_index_before_its_pass_is_over() {
    let home = Home::new();
    let log = home.path("state/index.0.log");
    let endless = Endless(home.gateway());
    let mut client = Client::on(Box::new(OverFabric::new(endless, Config::small())), home);
    let (root, indexed) = (client.root, || std::fs::metadata(&log).unwrap().len());
    for name in ["looked-up", "looked-up-too"] {
        std::fs::write(client.home.path("data").join(name), b"content").unwrap();
        let before = indexed();
        client.lookup(root, name.as_bytes()).unwrap();
        assert!(indexed() > before, "LOOKUP of {name}");
    }
    let before = indexed();
    client.create(root, b"made").unwrap();
    assert!(indexed() > before, "CREATE");
}

#[test]
fn an_index_that_cannot_be_written_is_counted_and_stops_nobody() {
    let home = Home::new();
    let log = home.path("state/index.0.log");
    let gateway = home.gateway_after(|| {
        std::fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    });
    let mut client = Client::on(Box::new(OverFabric::new(gateway, Config::small())), home);
    let root = client.root;
    let file = client.create(root, b"file").unwrap();
    client.write(file, 0, b"content", StableHow::FileSync).unwrap();
    assert_eq!(client.read(file, 0, 100).unwrap(), (b"content".to_vec(), true));
    assert!(client.wire.report().failed_flushes > 0);
}
