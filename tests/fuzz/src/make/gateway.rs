//! Inputs of whole shards.

use stag_protocol::{
    nfs::{Bulk, mount, v3},
    rpc::record::Fragment,
    rpcrdma::{Body, ChunkLists, Credits, ErrorBody, Header, Position, Segment, Xid},
    xdr::Codec,
};

use super::{call_header, lists, nfs3_arguments, offer, rpc_reply};
use crate::{
    mutate::push_part,
    octets::{Called, emitted, written},
    random::FuzzRandom,
    targets::{FILE, ROOT, good_replies},
};

/// A call that a gateway understands.
fn gateway_call(random: &mut FuzzRandom, xid: u32) -> Vec<u8> {
    let dir = v3::FileHandle::new(&ROOT).expect("a handle");
    let file = v3::FileHandle::new(&FILE).expect("a handle");
    let names: [&[u8]; 6] = [b"file", b"new", b".", b"..", b"a/b", b""];
    let name = v3::Name(random.pick(&names));
    let place = v3::DirOpArgs { dir, name };
    let (offset, count) =
        (u64::from(random.word()), random.pick(&[0, 1, 100, 4096, 70_000, u32::MAX]));
    let data = random.octets(random.clone().below(300));
    let data = Bulk::Inline(&data);
    let attributes =
        v3::SetAttributes { size: random.one_in(4).then_some(offset), ..Default::default() };
    let call = match random.below(20) {
        0 => v3::Call::GetAttr(v3::GetAttrArgs { object: dir }),
        1 => v3::Call::Lookup(v3::LookupArgs { what: place }),
        2 => v3::Call::Access(v3::AccessArgs { object: file, access: v3::Access::ALL }),
        3..=5 => v3::Call::Read(v3::ReadArgs { file, offset, count }),
        6..=8 => {
            v3::Call::Write(v3::WriteArgs { file, offset, stable: v3::StableHow::Unstable, data })
        }
        9 => v3::Call::Create(v3::CreateArgs { place, how: v3::CreateHow::Unchecked(attributes) }),
        10 => v3::Call::MkDir(v3::MkDirArgs { place, attributes }),
        11 => v3::Call::Symlink(v3::SymlinkArgs { place, attributes, path: data }),
        12 => v3::Call::Remove(v3::RemoveArgs { object: place }),
        13 => v3::Call::Rename(v3::RenameArgs {
            from: place,
            to: v3::DirOpArgs { dir, name: v3::Name(b"other") },
        }),
        14 => v3::Call::Link(v3::LinkArgs { file, link: place }),
        15 => v3::Call::ReadDir(v3::ReadDirArgs { dir, cookie: offset, verifier: [0; 8], count }),
        16 => v3::Call::ReadDirPlus(v3::ReadDirPlusArgs {
            dir,
            cookie: 0,
            verifier: [0; 8],
            dir_count: count,
            max_count: count,
        }),
        17 => v3::Call::FsInfo(v3::SystemArgs { object: dir }),
        18 => v3::Call::Commit(v3::CommitArgs { file, offset, count }),
        _ => {
            let mut message = call_header(random, xid, Called::mount(mount::Procedure::Mnt));
            message.extend(written(|writer| mount::Path(b"/data").emit(writer)));
            return message;
        }
    };
    let mut message = call_header(random, xid, Called::nfs3(call.procedure()));
    message.extend(written(|writer| call.emit(writer)));
    message
}

/// Messages for a gateway, each after four octets that say how it is sent. Segments whose handle
/// begins with the octet f0 become memory of the peer.
pub fn shard(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = Vec::new();
    push_part(&mut input, &offer(random));
    for number in 0..1 + random.below(6) as u32 {
        let mut part = vec![random.u8() % 8, 0, 0, 0];
        let xid = Xid(if random.one_in(8) { 1 } else { 1 + number });
        let payload = if random.one_in(3) {
            let (procedure, arguments) = nfs3_arguments(random);
            let mut call = call_header(random, xid.0, Called::nfs3(procedure));
            call.extend(arguments);
            call
        } else {
            gateway_call(random, xid.0)
        };
        let own = |random: &mut FuzzRandom| {
            let length = random.pick(&[0, 3, 4, 64, 300, 1000, 9000]);
            Segment { handle: 0xf000_0000 | random.u32() >> 8, length, offset: 0 }
        };
        let mut lists = ChunkLists::new();
        let (mut body, mut content) = (Body::Msg, &[][..]);
        match random.below(8) {
            0 => {
                // A Long call, or half of one.
                let (front, back) = payload.split_at(payload.len() / 2);
                let length = |octets: &[u8]| octets.len() as u32;
                let own = |length| Segment { handle: 0xf000_0001, length, offset: 0 };
                for half in [front, back] {
                    lists.push_read(Position::ZERO, own(length(half))).expect("there is room");
                }
                (body, content) = (Body::NoMsg, &payload);
                part[0] |= 2;
            }
            1 | 2 => {
                let position =
                    Position::new(payload.len() as u32 & !3).expect("a multiple of four");
                let segment = own(random);
                lists.push_read(position, segment).expect("there is room");
            }
            _ => part[0] &= !2,
        }
        if random.one_in(2) {
            lists.begin_write().expect("there is room");
            (0..random.below(4))
                .for_each(|_| lists.push_write(own(random)).expect("there is room"));
        }
        if random.one_in(3) {
            lists.begin_reply();
            (0..random.below(4))
                .for_each(|_| lists.push_reply(own(random)).expect("there is room"));
        }
        part.extend(emitted(&Header { xid, credits: Credits(32), body }, &lists));
        if body == Body::Msg {
            part.extend(&payload);
        }
        push_part(&mut input, &part);
        if part[0] & 2 == 2 {
            push_part(&mut input, content);
        }
    }
    input
}

/// Replies, each after four octets that say to which call and how it is sent.
pub fn replies(random: &mut FuzzRandom) -> Vec<u8> {
    if random.one_in(4) {
        return good_replies();
    }
    let mut input = Vec::new();
    push_part(&mut input, &offer(random));
    for _ in 0..random.below(8) {
        let mut part = vec![random.u8(), random.u8(), 0, random.u8() % 4];
        let xid = Xid(0);
        let body = if random.one_in(5) {
            Body::Error(ErrorBody::Chunk)
        } else {
            random.pick(&[Body::Msg, Body::NoMsg])
        };
        let mut lists = lists(random);
        if body == Body::NoMsg && lists.is_empty() {
            lists.begin_reply();
        }
        part.extend(emitted(&Header { xid, credits: Credits(random.word()), body }, &lists));
        if body == Body::Msg {
            part.extend(rpc_reply(random));
        }
        push_part(&mut input, &part);
    }
    input
}

/// Records of calls for a gateway.
pub fn tcp(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = Vec::new();
    for number in 0..1 + random.below(5) as u32 {
        let call = gateway_call(random, number);
        let (front, back) =
            call.split_at(if random.one_in(3) { random.below(call.len()) } else { 0 });
        if !front.is_empty() {
            input.extend(Fragment::new(front.len() as u32, false).expect("it is short").emit());
            input.extend(front);
        }
        input.extend(Fragment::new(back.len() as u32, true).expect("it is short").emit());
        input.extend(back);
    }
    input
}
