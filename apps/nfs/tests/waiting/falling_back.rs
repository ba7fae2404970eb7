//! Compounds that begin at a shard that is not the home, wait there, and then need the home.

use crate::waiting::{
    beside::{Scene, ask},
    client4::put,
    holders::World,
    opening::{Shares, look_behind, named, opened},
};
use stag_nfs::owner_names::{NameService, NamedCallers, OwnerKind, OwnerNames};
use stag_protocol::nfs::v4::{
    Answer, Bitmap, Close4Args, OpenHow, RawAttributes, Request, SetAttr4Args, Stateid, Status4,
    Text, share,
};
use std::{
    fs, io,
    sync::{Arc, Mutex, PoisonError},
};

const OWNER: u32 = 36;

/// A name service that answers as long as its gate is open.
struct GatedNames(Arc<Mutex<()>>);

impl GatedNames {
    fn pass(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl NameService for GatedNames {
    fn name_of(&self, _: OwnerKind, _: u32) -> io::Result<Option<String>> {
        self.pass();
        Ok(None)
    }

    fn number_of(&self, _: OwnerKind, _: &str) -> io::Result<Option<u32>> {
        self.pass();
        Ok(None)
    }
}

fn scene(gate: &Arc<Mutex<()>>) -> Scene {
    let service = Box::new(GatedNames(Arc::clone(gate)));
    let names = Arc::new(OwnerNames::asking("stag.test", NamedCallers::All, service).unwrap());
    let scene = Scene::of(|directory| World::naming(directory, names));
    fs::write(scene.home.path().join("export/plain"), b"octets").unwrap();
    scene
}

/// Sends a compound of the second client, and returns when it waits at its shard.
fn begin(scene: &mut Scene, requests: &[Request<'_>]) {
    let suspensions = |scene: &Scene| scene.world.arrival.snapshot().app.nfs4.suspensions;
    let before = suspensions(scene);
    let sequence = scene.world.sequence(1);
    let all: Vec<_> = std::iter::once(sequence).chain(requests.iter().cloned()).collect();
    scene.world.send(1, &all);
    for _ in 0..100_000 {
        scene.world.step();
        if suspensions(scene) > before {
            return;
        }
    }
    panic!("it waits for a name");
}

#[test]
fn a_file_that_loses_its_name_while_a_compound_waits_is_found_at_the_home() {
    let gate = Arc::default();
    let mut scene = scene(&gate);
    let directory = scene.directory;
    // The first client has it open, so that it stays without a name, at the home.
    let reads = Shares { access: share::READ | share::WANT_NO_DELEGATION, deny: 0 };
    let open = look_behind(&directory, named(b"plain", OpenHow::NoCreate, reads));
    let (state, file) = loop {
        let reply = ask(&mut scene.world, 0, &open);
        if reply.status() != Status4::Delay {
            break opened(&reply);
        }
    };
    let closed = gate.lock().unwrap();
    let (forwarded, _) = scene.counts();
    begin(&mut scene, &[put(&file), Request::GetAttr(Bitmap::of([OWNER]))]);
    let remove = [put(&directory), Request::Remove(Text(b"plain"))];
    assert_eq!(ask(&mut scene.world, 0, &remove).status(), Status4::Ok);
    let reply = loop {
        scene.world.step();
        if let Some(reply) = scene.world.take(1) {
            break reply;
        }
    };
    let Answer::GetAttr(Ok(_)) = reply.last() else { panic!("{reply:?}") };
    assert_eq!((reply.status(), scene.counts().0), (Status4::Ok, forwarded + 1));
    drop(closed);
    // Its slot goes on, and the file ends with its state.
    let close = [put(&file), Request::Close(Close4Args { seqid: 0, open: state })];
    assert_eq!(ask(&mut scene.world, 0, &close).status(), Status4::Ok);
    let look = [put(&file), Request::GetAttr(Bitmap::of([OWNER]))];
    assert_eq!(ask(&mut scene.world, 1, &look).status(), Status4::Stale);
}

#[test]
fn a_name_in_arguments_is_waited_for_at_every_shard() {
    let gate = Arc::default();
    let mut scene = scene(&gate);
    let find = [put(&scene.directory), Request::Lookup(Text(b"plain")), Request::GetFh(())];
    let reply = ask(&mut scene.world, 0, &find);
    let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
    let put = Request::PutFh(handle);
    let closed = gate.lock().unwrap();
    let octets = [&[0, 0, 0, 15][..], b"alice@stag.test\0"].concat();
    let attributes = RawAttributes { mask: Bitmap::of([OWNER]), octets: &octets };
    let set = Request::SetAttr(SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes });
    begin(&mut scene, &[put, set]);
    drop(closed);
    let reply = loop {
        std::thread::yield_now();
        scene.world.step();
        if let Some(reply) = scene.world.take(1) {
            break reply;
        }
    };
    // There is no such name; NFS4ERR_DELAY if the answer came too late.
    assert!(matches!(reply.status(), Status4::BadOwner | Status4::Delay), "{reply:?}");
}
