//! Changes of names and attributes at a shard that is not the home.

use crate::waiting::{
    client4::{Reply4, look, make_directory, put},
    holders::World,
};
use stag_nfs_store::files::Files;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, Bitmap, RawAttributes, ReadDir4Args, Rename4Args, Request, SetAttr4Args, Stateid,
        Status4, Text, share,
    },
};
use std::{fs, path::Path};

/// A world, and the directory that it exports.
pub struct Scene {
    pub world: World<Files>,
    pub directory: FileHandle,
    pub home: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self::of(World::lending)
    }

    pub fn of(make: impl FnOnce(&Path) -> World<Files>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut world = make(home.path());
        let root = [Request::PutRootFh(()), Request::Lookup(Text(b"data")), Request::GetFh(())];
        let reply = ask(&mut world, 0, &root);
        let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
        let directory = FileHandle::new(handle.0).unwrap();
        Self { world, directory, home }
    }

    /// The handle of a name.
    fn find(&mut self, name: &[u8]) -> FileHandle {
        let found = [put(&self.directory), Request::Lookup(Text(name)), Request::GetFh(())];
        let reply = ask(&mut self.world, 0, &found);
        let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
        FileHandle::new(handle.0).unwrap()
    }

    /// Compounds that the second shard has forwarded, and compounds that it has carried out.
    pub fn counts(&self) -> (u64, u64) {
        let report = self.world.arrival.snapshot().app.nfs4;
        (report.forwarded, report.compounds)
    }

    pub fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.home.path().join("export")).unwrap();
        let mut names: Vec<_> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Sends a compound of one client, after a SEQUENCE, and returns the reply.
pub fn ask(world: &mut World<Files>, client: usize, requests: &[Request<'_>]) -> Reply4 {
    let sequence = world.sequence(client);
    let all: Vec<_> = std::iter::once(sequence).chain(requests.iter().cloned()).collect();
    world.exchange(client, &all)
}

fn set_mode() -> Request<'static> {
    let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &[0, 0, 1, 0x80] };
    Request::SetAttr(SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes })
}

const fn rename(old: &'static [u8], new: &'static [u8]) -> Request<'static> {
    Request::Rename(Rename4Args { old: Text(old), new: Text(new) })
}

#[test]
fn where_no_delegation_is_in_the_way_they_are_made_there() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    let plain = scene.find(b"plain");
    let changes = [
        vec![put(&directory), make_directory(b"made"), Request::GetFh(()), look()],
        vec![put(&plain), set_mode(), look()],
        vec![
            put(&plain),
            Request::SaveFh(()),
            put(&directory),
            Request::Link(Text(b"linked")),
            look(),
            Request::RestoreFh(()),
            look(),
        ],
        vec![put(&directory), Request::SaveFh(()), put(&directory), rename(b"plain", b"moved")],
        vec![put(&directory), Request::Remove(Text(b"made")), look()],
    ];
    for requests in &changes {
        let (forwarded, here) = scene.counts();
        let reply = ask(&mut scene.world, 1, requests);
        assert_eq!(reply.status(), Status4::Ok, "{reply:?}");
        assert_eq!(scene.counts(), (forwarded, here + 1), "{requests:?}");
    }
    assert_eq!(scene.names(), ["linked", "moved"]);
    // Two of them are one too many.
    let (forwarded, _) = scene.counts();
    let two = [put(&directory), Request::Remove(Text(b"moved")), Request::Remove(Text(b"linked"))];
    assert_eq!(ask(&mut scene.world, 1, &two).status(), Status4::Ok);
    assert_eq!((scene.counts().0, scene.names().len()), (forwarded + 1, 0));
}

/// The second client conflicts with a delegation, which is then returned.
fn recall_by(change: impl Fn(&Scene, FileHandle) -> Vec<Request<'static>>) -> Scene {
    let mut scene = Scene::new();
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    let (given, file) = scene.world.delegate();
    let requests = change(&scene, file);
    let (forwarded, _) = scene.counts();
    let reply = ask(&mut scene.world, 1, &requests);
    assert_eq!(reply.status(), Status4::Delay, "{requests:?}");
    let recalled = scene.world.clients[0].app().recalled[0].clone();
    assert_eq!((recalled.0.other, recalled.1), (given.other, file.octets().to_vec()));
    let back = [put(&file), Request::DelegReturn(given)];
    assert_eq!(ask(&mut scene.world, 0, &back).status(), Status4::Ok);
    assert_eq!(ask(&mut scene.world, 1, &requests).status(), Status4::Ok, "{requests:?}");
    assert_eq!(scene.counts().0, forwarded + 2, "the file may get another one at any moment");
    scene
}

/// PUTFH of a handle that lives as long as the test.
fn put_for_long(handle: FileHandle) -> Request<'static> {
    put(Box::leak(Box::new(handle)))
}

#[test]
fn a_delegation_in_their_way_comes_back_first() {
    recall_by(|_, file| vec![put_for_long(file), set_mode(), look()]);
    let remove = Request::Remove(Text(b"file"));
    let scene = recall_by(|scene, _| vec![put_for_long(scene.directory), remove.clone()]);
    assert_eq!(scene.names(), ["plain"]);
    let directory = |scene: &Scene| put_for_long(scene.directory);
    let moved = |scene: &Scene, change| {
        vec![directory(scene), Request::SaveFh(()), directory(scene), change]
    };
    let scene = recall_by(|scene, _| moved(scene, rename(b"file", b"moved")));
    assert_eq!(scene.names(), ["moved", "plain"]);
    let scene = recall_by(|scene, _| moved(scene, rename(b"plain", b"file")));
    assert_eq!(scene.names(), ["file"]);
    let link = Request::Link(Text(b"linked"));
    let scene = recall_by(|scene, file| {
        vec![put_for_long(file), Request::SaveFh(()), directory(scene), link.clone()]
    });
    assert_eq!(scene.names(), ["file", "linked", "plain"]);
}

#[test]
fn attributes_of_a_name_are_asked_for_at_the_home_only_where_it_may_know_better() {
    let mut scene = Scene::new();
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    scene.world.delegate();
    let directory = scene.directory;
    let mut cost = |name: &'static [u8]| {
        let (forwarded, here) = scene.counts();
        let found = [put(&directory), Request::Lookup(Text(name)), Request::GetFh(()), look()];
        assert_eq!(ask(&mut scene.world, 1, &found).status(), Status4::Ok);
        let after = scene.counts();
        (after.0 - forwarded, after.1 - here)
    };
    assert_eq!((cost(b"plain"), cost(b"file")), ((0, 1), (1, 0)));
    // What was begun here and carried out there counts there alone.
    let report = scene.world.arrival.snapshot().app.nfs4;
    assert_eq!(report.operations["Lookup"], 1);
}

#[test]
fn a_file_that_gets_another_name_has_no_delegation_before_other_shards_know_of_it() {
    let mut scene = Scene::new();
    let (given, file) = scene.world.delegate();
    let directory = scene.directory;
    let link = |name| [put(&file), Request::SaveFh(()), put(&directory), Request::Link(Text(name))];
    let back = [put(&file), Request::DelegReturn(given)];
    assert_eq!(ask(&mut scene.world, 0, &back).status(), Status4::Ok);
    scene.world.is_arrival_stuck = true;
    assert_eq!(ask(&mut scene.world, 0, &link(b"linked")).status(), Status4::Ok);
    for _ in 0..20 {
        assert_eq!(scene.world.open_for_reading().0, None, "another shard may remove that name");
    }
    scene.world.is_arrival_stuck = false;
    let (given, _) = scene.world.delegate();
    let reply = ask(&mut scene.world, 0, &link(b"again"));
    assert_eq!(reply.status(), Status4::Delay, "it is its holder's own");
    assert_eq!(scene.world.clients[0].app().recalled[0].0.other, given.other);
}

/// The size of each file that a client of the other shard sees in a listing, if reported.
fn listed_sizes(scene: &mut Scene) -> Vec<Option<u64>> {
    let (mut sizes, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    let attributes = Bitmap::of([1, 4, 11, 20]);
    loop {
        let args = ReadDir4Args { cookie, verifier, dir_count: 600, max_count: 600, attributes };
        let list = [put(&scene.directory), Request::ReadDir(args)];
        let (forwarded, here) = scene.counts();
        let reply = ask(&mut scene.world, 1, &list);
        assert_eq!(scene.counts(), (forwarded, here + 1));
        let Answer::ReadDir(Ok(listing)) = reply.last() else { panic!("{reply:?}") };
        for entry in listing.entries.clone() {
            (cookie, verifier) = (entry.cookie, listing.verifier);
            sizes.push(entry.attributes.values().unwrap().size);
        }
        if listing.eof {
            sizes.sort();
            return sizes;
        }
    }
}

#[test]
fn what_a_delegation_to_write_may_change_is_not_listed_there() {
    let mut scene = Scene::new();
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    let (given, file) = scene.world.delegate();
    let sizes = listed_sizes(&mut scene);
    assert_eq!(sizes, [Some(0), Some(6)], "a delegation to read changes nothing");
    let back = |given| [put(&file), Request::DelegReturn(given)];
    assert_eq!(ask(&mut scene.world, 0, &back(given)).status(), Status4::Ok);
    scene.world.close();
    let (given, _) = scene.world.delegate_for(share::BOTH);
    let sizes = listed_sizes(&mut scene);
    assert_eq!(sizes, [None, Some(6)]);
    assert_eq!(ask(&mut scene.world, 0, &back(given)).status(), Status4::Ok);
    assert!(!listed_sizes(&mut scene).contains(&None));
}
