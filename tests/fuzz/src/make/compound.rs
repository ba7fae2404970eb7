//! Compounds that a client of version 4 may send to a gateway.

use stag_protocol::nfs::{
    Bulk,
    v3::StableHow,
    v4::{
        Access4Args, Array, Bitmap, CloneArgs, Close4Args, Commit4Args, Copy4Args, Create4Args,
        CreateHow4, CreateKind, FileContent, FileRange, IoAdviseArgs, ListXattrsArgs, Lock4Args,
        LockT4Args, LockType, LockU4Args, Locker, NewLockOwner, Open4Args, OpenClaim,
        OpenDowngrade4Args, OpenHow, RawAttributes, Read4Args, ReadDir4Args, Rename4Args, Request,
        SecInfoStyle, SeekArgs, SetAttr4Args, SetXattrArgs, SetXattrHow, StateOwner, Stateid, Text,
        Write4Args, share,
    },
};
use stag_protocol::xdr::{Codec as _, Reader};

use super::nfs4;
use crate::{
    mutate::push_part,
    octets::written,
    random::FuzzRandom,
    targets::{CACHE_THIS, STAND_INS, TWICE, WHOLE},
};

/// The size of a file that is nearly all hole.
const HUGE: [u8; 8] = (1_u64 << 62).to_be_bytes();

const NAMES: [&[u8]; 7] = [b"file", b"file", b"new", b"other", b".", b"a/b", b""];

fn stateid(random: &mut FuzzRandom) -> Stateid {
    let open = Stateid::parse(&mut Reader::new(&STAND_INS.open)).expect("16 octets");
    random.pick(&[
        open,
        open,
        open,
        Stateid::CURRENT,
        Stateid::CURRENT,
        Stateid::ANONYMOUS,
        Stateid::READ_BYPASS,
        Stateid::INVALID,
    ])
}

fn offset(random: &mut FuzzRandom) -> u64 {
    random.pick(&[0, 1, 4_096, 70_000, 1 << 40, u64::MAX - 1, u64::MAX])
}

fn name(random: &mut FuzzRandom) -> &'static [u8] {
    random.pick(&NAMES)
}

fn owner(random: &mut FuzzRandom) -> StateOwner<'static> {
    StateOwner { client_id: 0, owner: Text(random.pick(&[&b"owner"[..], b"other", b""])) }
}

fn attributes(random: &mut FuzzRandom) -> RawAttributes<'static> {
    match random.below(5) {
        // The size, and the mode.
        0 => RawAttributes { mask: Bitmap::of([4]), octets: &[0, 0, 0, 0, 0, 0, 16, 0] },
        3 => RawAttributes { mask: Bitmap::of([4]), octets: &HUGE },
        1 => RawAttributes { mask: Bitmap::of([33]), octets: &[0, 0, 1, 0x80] },
        2 => RawAttributes { mask: Bitmap::of([4]), octets: &[0; 8] },
        _ => RawAttributes::default(),
    }
}

fn open(random: &mut FuzzRandom) -> Open4Args<'static> {
    let how = match random.below(4) {
        0 => OpenHow::Create(CreateHow4::Unchecked(attributes(random))),
        1 => OpenHow::Create(CreateHow4::Guarded(attributes(random))),
        2 => OpenHow::Create(CreateHow4::Exclusive([random.u8() % 3; 8])),
        _ => OpenHow::NoCreate,
    };
    let claim = if random.one_in(5) { OpenClaim::Fh } else { OpenClaim::Null(Text(name(random))) };
    Open4Args {
        seqid: 0,
        share_access: random.pick(&[share::READ, share::WRITE, share::BOTH, share::BOTH, 0]),
        share_deny: random.pick(&[0, 0, 0, share::READ, share::WRITE]),
        owner: owner(random),
        how,
        claim,
    }
}

/// An operation on the current object: on a file mostly, or in a directory.
fn on_file(random: &mut FuzzRandom, data: &'static [u8]) -> Request<'static> {
    let (stateid, offset) = (stateid(random), offset(random));
    let length = random.pick(&[0, 1, 4_096, 1 << 40, 1 << 62, u64::MAX]);
    let count = random.pick(&[0, 1, 100, 2_000, 70_000, u32::MAX]);
    let kind = random.pick(&[LockType::Read, LockType::Write, LockType::WriteWait]);
    match random.below(20) {
        0..=2 => Request::Read(Read4Args { stateid, offset, count }),
        3..=5 => {
            let (stable, data) = (StableHow::Unstable, Bulk::Inline(data));
            Request::Write(Write4Args { stateid, offset, stable, data })
        }
        6 => Request::SetAttr(SetAttr4Args { stateid, attributes: attributes(random) }),
        7 => {
            let new =
                NewLockOwner { open_seqid: 0, open: stateid, lock_seqid: 0, owner: owner(random) };
            let (reclaim, locker) = (random.one_in(8), Locker::New(new));
            Request::Lock(Lock4Args { kind, reclaim, offset, length, locker })
        }
        8 => Request::LockT(LockT4Args { kind, offset, length, owner: owner(random) }),
        9 => Request::LockU(LockU4Args { kind, seqid: 0, stateid, offset, length }),
        10 => Request::Close(Close4Args { seqid: 0, open: stateid }),
        11 => {
            let (share_access, share_deny) = (random.below(5) as u32, random.below(4) as u32);
            let open = stateid;
            Request::OpenDowngrade(OpenDowngrade4Args { open, seqid: 0, share_access, share_deny })
        }
        12 => Request::Commit(Commit4Args { offset, count }),
        13 => {
            let what = random.pick(&[FileContent::Data, FileContent::Hole, FileContent::Other(7)]);
            Request::Seek(SeekArgs { stateid, offset, what })
        }
        14 => Request::Allocate(FileRange { stateid, offset, length }),
        15 => Request::Deallocate(FileRange { stateid, offset, length }),
        16 => {
            let hints = Bitmap::of([random.u32() % 64]);
            Request::IoAdvise(IoAdviseArgs { stateid, offset, count: length, hints })
        }
        17 => Request::Copy(Copy4Args {
            source: stateid,
            target: stateid,
            source_offset: 0,
            target_offset: offset,
            count: length,
            consecutive: random.one_in(2),
            synchronous: random.one_in(2),
            servers: Array::of(&[]),
        }),
        18 => {
            let (source, target, count) = (stateid, stateid, length);
            let (source_offset, target_offset) = (0, offset);
            Request::Clone(CloneArgs { source, target, source_offset, target_offset, count })
        }
        _ => Request::FreeStateid(stateid),
    }
}

fn on_names(random: &mut FuzzRandom) -> Request<'static> {
    let name = Text(name(random));
    match random.below(14) {
        0..=2 => Request::Open(open(random)),
        3 => Request::Lookup(name),
        4 => Request::LookupP(()),
        5 => Request::Remove(name),
        6 => Request::Rename(Rename4Args { old: name, new: Text(b"new") }),
        7 => Request::Link(name),
        8 => {
            let path = Bulk::Inline(b"path");
            let kinds = [CreateKind::Directory, CreateKind::Link(path), CreateKind::Fifo];
            let kind = kinds[random.below(3)];
            Request::Create(Create4Args { kind, name, attributes: attributes(random) })
        }
        9 => Request::ReadDir(ReadDir4Args {
            cookie: random.pick(&[0, 0, 1, 3, u64::MAX]),
            verifier: [0; 8],
            dir_count: 1_000,
            max_count: random.pick(&[0, 100, 1_000, 4_096, u32::MAX]),
            attributes: Bitmap::of([random.u32() % 90]),
        }),
        10 => Request::SecInfo(name),
        11 => Request::SecInfoNoName(random.pick(&[SecInfoStyle::Current, SecInfoStyle::Parent])),
        12 => {
            let how =
                random.pick(&[SetXattrHow::Either, SetXattrHow::Create, SetXattrHow::Replace]);
            Request::SetXattr(SetXattrArgs { how, name, value: Text(b"value") })
        }
        _ => Request::ListXattrs(ListXattrsArgs { cookie: 0, max_count: random.u32() % 200 }),
    }
}

fn anywhere(random: &mut FuzzRandom) -> Request<'static> {
    match random.below(8) {
        0..=2 => Request::GetAttr(Bitmap::of((0..90).filter(|_| random.one_in(6)))),
        3 => Request::Access(Access4Args { rights: random.u32() % 0x200 }),
        4 => Request::GetFh(()),
        5 => Request::SaveFh(()),
        6 => Request::RestoreFh(()),
        _ => Request::GetXattr(Text(name(random))),
    }
}

/// A place to begin at.
fn place(random: &mut FuzzRandom) -> Vec<Request<'static>> {
    match random.below(6) {
        0 => vec![Request::PutRootFh(())],
        1 => vec![Request::PutRootFh(()), Request::Lookup(Text(b"data"))],
        2 | 3 => vec![Request::PutFh(Text(&STAND_INS.root))],
        _ => vec![Request::PutFh(Text(&STAND_INS.file))],
    }
}

/// Requests of a client, each preceded by what is done with it.
pub fn compound(random: &mut FuzzRandom) -> Vec<u8> {
    const DATA: &[u8] = &[0x5a; 600];
    let mut input = Vec::new();
    for _ in 0..1 + random.below(5) {
        let mut flags = random.u8() & (CACHE_THIS | TWICE);
        if random.one_in(8) {
            flags |= if random.one_in(3) { WHOLE } else { 0 };
            let (count, octets) = nfs4::arguments(random);
            let octets = match flags & WHOLE {
                0 => octets,
                _ => nfs4::nfs4_compound(random),
            };
            push_part(&mut input, &[&[flags, count as u8][..], &octets].concat());
            continue;
        }
        let mut requests = place(random);
        for _ in 0..random.below(5) {
            requests.push(match random.below(3) {
                0 => {
                    let len = random.pick(&[0, 5, 600]);
                    on_file(random, &DATA[..len])
                }
                1 => on_names(random),
                _ => anywhere(random),
            });
        }
        let octets = written(|writer| requests.iter().try_for_each(|request| request.emit(writer)));
        push_part(&mut input, &[&[flags, requests.len() as u8][..], &octets].concat());
    }
    input
}

/// A request that makes the file as long as a file can be, or nearly, and a hole of all of it.
pub fn huge_hole() -> Vec<u8> {
    let stateid = Stateid::parse(&mut Reader::new(&STAND_INS.open)).expect("16 octets");
    let attributes = RawAttributes { mask: Bitmap::of([4]), octets: &HUGE };
    let requests = [
        Request::PutFh(Text(&STAND_INS.file)),
        Request::SetAttr(SetAttr4Args { stateid, attributes }),
        Request::Deallocate(FileRange { stateid, offset: 0, length: 1 << 62 }),
    ];
    let octets = written(|writer| requests.iter().try_for_each(|request| request.emit(writer)));
    let mut input = Vec::new();
    push_part(&mut input, &[&[0, 3][..], &octets].concat());
    input
}
