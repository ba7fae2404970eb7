//! Version 3 next to version 4: each respects the delegations and denials of the other.

use super::client::open_args;
use super::recovery::{party::Party, world::World};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::{
    Bulk, v3,
    v3::{DirOpArgs, FileHandle, GetAttrArgs, Name, ReadArgs, RemoveArgs, StableHow, WriteArgs},
    v4::*,
};

fn read(handle: &[u8]) -> v3::Call<'static> {
    let file = FileHandle::new(handle).unwrap();
    v3::Call::Read(ReadArgs { file, offset: 0, count: 10 })
}

fn write(handle: &[u8]) -> v3::Call<'static> {
    let file = FileHandle::new(handle).unwrap();
    let (data, stable) = (Bulk::Inline(&b"octets"[..]), StableHow::FileSync);
    v3::Call::Write(WriteArgs { file, offset: 0, stable, data })
}

/// The handle of the export's root.
fn root(party: &mut Party, world: &mut World) -> FileHandle {
    let to = [Request::PutRootFh(()), Request::Lookup(Text(b"data")), Request::GetFh(())];
    let reply = party.run(world, &to);
    let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{:?}", reply.last()) };
    FileHandle::new(handle.0).unwrap()
}

#[test]
fn version_3_waits_until_a_delegation_is_back() {
    for name in [&b"f"[..], b"g", b"h", b"i"] {
        // A client that refuses a recall has no back channel any more.
        let mut world = World::with(DelegationPolicy::ReadWrite);
        let mut one = Party::new(b"one", &mut world);
        let dir = root(&mut one, &mut world);
        let held = one.open(&mut world, name).unwrap();
        assert!(held.delegation.is_some(), "nobody else has it open");
        let object = FileHandle::new(&held.handle).unwrap();
        let at = DirOpArgs { dir, name: Name(name) };
        let call = match name {
            b"f" => v3::Call::GetAttr(GetAttrArgs { object }),
            b"g" => read(&held.handle),
            b"h" => write(&held.handle),
            _ => v3::Call::Remove(RemoveArgs { object: at }),
        };
        for _ in 0..2 {
            assert_eq!(world.call3(&call), v3::Status::Jukebox, "{call:?}");
        }
        assert_eq!(one.return_delegation(&mut world, &held), Status4::Ok);
        assert_eq!(world.call3(&call), v3::Status::Ok, "{call:?}");
    }
}

#[test]
fn version_3_does_not_get_what_an_open_denies() {
    let mut world = World::new();
    let mut one = Party::new(b"one", &mut world);
    let open = open_args(b"f", share::BOTH, true);
    let denying = Open4Args { share_deny: share::WRITE, ..open };
    let held = one.open_as(&mut world, denying).unwrap();
    assert_eq!(world.call3(&write(&held.handle)), v3::Status::Acces);
    assert_eq!(world.call3(&read(&held.handle)), v3::Status::Ok);
    let dir = root(&mut one, &mut world);
    let place = DirOpArgs { dir, name: Name(b"f") };
    let set = v3::SetAttributes { size: Some(0), ..v3::SetAttributes::default() };
    let cut = v3::CreateArgs { place, how: v3::CreateHow::Unchecked(set) };
    assert_eq!(world.call3(&v3::Call::Create(cut)), v3::Status::Acces, "it would cut the file");
    assert_eq!(one.close(&mut world, &held), Status4::Ok);
    assert_eq!(world.call3(&write(&held.handle)), v3::Status::Ok);
}
