//! Opens, content and attributes of files (RFC 8881 §18.2, §18.7, §18.16, §18.22, §18.30–§18.32).

use super::client::{Client4, Reply4, open_args, read_args, write_args};
use stag_protocol::nfs::{Bulk, v4::*};

#[test]
fn what_is_written_is_read_again_and_attributes_follow_it() {
    for mut client in Client4::all() {
        let (stateid, handle) = client.open(b"file");
        let put = Request::PutFh(Text(&handle));
        let written = client.run(&[put.clone(), write_args(stateid, 0, b"hello world")]);
        assert_eq!(written.status(), Status4::Ok);
        let reply = client.run(&[
            put.clone(),
            read_args(stateid, 6, 100),
            Request::GetAttr(Bitmap::of([4])),
            read_args(stateid, 0, 5),
        ]);
        let answers = reply.answers();
        let [_, _, Answer::Read(Ok(first)), Answer::GetAttr(Ok(raw)), Answer::Read(Ok(second))] =
            &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!((first.data.octets(), first.eof), (Some(&b"world"[..]), true));
        assert_eq!(raw.values().unwrap().size, Some(11));
        assert_eq!((second.data.octets(), second.eof), (Some(&b"hello"[..]), false));
    }
}

#[test]
fn the_first_read_has_the_write_chunk_also_when_it_finds_nothing() {
    let mut client = Client4::in_memory();
    let (stateid, handle) = client.open(b"file");
    let put = Request::PutFh(Text(&handle));
    client.run(&[put.clone(), write_args(stateid, 0, b"hello world")]);
    client.result_max = 30_000;
    // Data that came in the Write chunk follows the message here.
    let cases = [(0, &b"world\0\0\0hello\0\0\0"[..], 5), (11, b"\0\0\0\x05world\0\0\0", 0)];
    for (offset, end, pushed) in cases {
        let before = client.wire.moved().1;
        let sequence = client.sequence(false);
        let (one, two) = (read_args(stateid, offset, 5), read_args(stateid, 6, 5));
        let octets = client.encode(&[sequence, put.clone(), one, two]);
        let reply = client.exchange(&octets);
        assert!(reply.ends_with(end), "READ from {offset}: {reply:?}");
        assert_eq!(client.wire.moved().1 - before, pushed, "the second one goes inline");
    }
}

#[test]
fn long_content_goes_and_comes_whole() {
    for mut client in Client4::all() {
        let (stateid, handle) = client.open(b"file");
        let content = crate::gateway::client::pattern(9_000, 3);
        let put = Request::PutFh(Text(&handle));
        for (number, part) in content.chunks(3_000).enumerate() {
            let offset = number as u64 * 3_000;
            let written = client.run(&[put.clone(), write_args(stateid, offset, part)]);
            assert_eq!(written.status(), Status4::Ok);
        }
        for result_max in [0, 9_000, 12_000] {
            client.result_max = result_max;
            let reply = client.run(&[put.clone(), read_args(stateid, 0, 9_000)]);
            let Answer::Read(Ok(read)) = reply.last() else { panic!() };
            assert_eq!(read.data, Bulk::Inline(&content), "a Write chunk of {result_max}");
        }
    }
}

#[test]
fn a_read_that_a_slot_keeps_is_replayed_with_its_octets() {
    let mut client = Client4::in_memory();
    let (stateid, handle) = client.open(b"file");
    let put = Request::PutFh(Text(&handle));
    client.run(&[put.clone(), write_args(stateid, 0, b"octets")]);
    let requests = [client.sequence(true), put, read_args(stateid, 0, 6)];
    let first = client.send(&requests);
    let Answer::Read(Ok(read)) = first.last() else { panic!() };
    assert_eq!(read.data.octets(), Some(&b"octets"[..]));
    assert_eq!(client.send(&requests), first);
}

#[test]
fn a_file_is_made_as_often_as_its_mode_of_creating_says() {
    for mut client in Client4::all() {
        let with = |how| OpenHow::Create(how);
        let guarded = CreateHow4::Guarded(RawAttributes::default());
        let open = Open4Args { how: with(guarded), ..open_args(b"g", share::BOTH, true) };
        let open = Request::Open(open);
        assert_eq!(client.at_export(std::slice::from_ref(&open)).status(), Status4::Ok);
        assert_eq!(client.at_export(&[open]).status(), Status4::Exist);
        let exclusive = |verifier| {
            let how = with(CreateHow4::Exclusive([verifier; 8]));
            Request::Open(Open4Args { how, ..open_args(b"e", share::BOTH, true) })
        };
        assert_eq!(client.at_export(&[exclusive(1)]).status(), Status4::Ok);
        assert_eq!(client.at_export(&[exclusive(1)]).status(), Status4::Ok, "once more");
        assert_eq!(client.at_export(&[exclusive(2)]).status(), Status4::Exist);
        let missing = Request::Open(open_args(b"missing", share::READ, false));
        assert_eq!(client.at_export(&[missing]).status(), Status4::NoEnt);
    }
}

#[test]
fn an_exclusive_creation_sets_the_mode_in_the_same_call() {
    for mut client in Client4::all() {
        let mode = 0o640_u32.to_be_bytes();
        let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &mode };
        let how = CreateHow4::Exclusive41(ExclusiveCreate { verifier: [1; 8], attributes });
        let open = Open4Args { how: OpenHow::Create(how), ..open_args(b"e", share::BOTH, true) };
        let reply = client.at_export(&[Request::Open(open), Request::GetAttr(Bitmap::of([33]))]);
        let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
        assert_eq!(raw.values().unwrap().mode, Some(0o640));
    }
}

/// The value of mode_umask (RFC 8275 §4).
fn mode_umask(mode: u32, umask: u32) -> [u8; 8] {
    (u64::from(mode) << 32 | u64::from(umask)).to_be_bytes()
}

/// The mode in the last answer.
fn told_mode(reply: &Reply4) -> Option<u32> {
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    raw.values().unwrap().mode
}

#[test]
fn a_umask_is_taken_from_the_mode_of_whatever_is_made() {
    for mut client in Client4::all() {
        let value = mode_umask(0o666, 0o027);
        let attributes = || RawAttributes { mask: Bitmap::of([81]), octets: &value };
        let exclusive = ExclusiveCreate { verifier: [1; 8], attributes: attributes() };
        let modes = [
            (&b"unchecked"[..], CreateHow4::Unchecked(attributes())),
            (b"guarded", CreateHow4::Guarded(attributes())),
            (b"exclusive", CreateHow4::Exclusive41(exclusive)),
        ];
        let asked = Request::GetAttr(Bitmap::of([33]));
        for (name, how) in modes {
            let open = open_args(name, share::BOTH, true);
            let open = Request::Open(Open4Args { how: OpenHow::Create(how), ..open });
            let reply = client.at_export(&[open, asked.clone()]);
            assert_eq!(told_mode(&reply), Some(0o640), "{name:?}");
            let answers = reply.answers();
            let [.., Answer::Open(Ok(open)), _] = &answers[..] else { panic!("{answers:?}") };
            assert!(open.set.contains(81) && !open.set.contains(33), "{:?}", open.set);
        }
        for (name, kind) in [(&b"d"[..], CreateKind::Directory), (b"p", CreateKind::Fifo)] {
            let args = Create4Args { kind, name: Text(name), attributes: attributes() };
            let reply = client.at_export(&[Request::Create(args), asked.clone()]);
            assert_eq!(told_mode(&reply), Some(0o640), "{name:?}");
        }
    }
}

#[test]
fn a_umask_is_refused_beside_a_mode_with_other_bits_and_for_what_exists() {
    for mut client in Client4::all() {
        let (stateid, handle) = client.open(b"f");
        let both = [&0o640_u32.to_be_bytes()[..], &mode_umask(0o666, 0o022)].concat();
        let values = [
            (Bitmap::of([33, 81]), both),
            (Bitmap::of([81]), mode_umask(0o666, 0o1022).to_vec()),
            (Bitmap::of([81]), mode_umask(0o10_666, 0o022).to_vec()),
        ];
        for (mask, octets) in &values {
            let attributes = RawAttributes { mask: *mask, octets };
            let args = Create4Args { kind: CreateKind::Directory, name: Text(b"d"), attributes };
            assert_eq!(client.at_export(&[Request::Create(args)]).status(), Status4::Inval);
        }
        let octets = mode_umask(0o666, 0o022);
        let attributes = RawAttributes { mask: Bitmap::of([81]), octets: &octets };
        let set = Request::SetAttr(SetAttr4Args { stateid, attributes });
        let put = Request::PutFh(Text(&handle));
        assert_eq!(client.run(&[put.clone(), set]).status(), Status4::Inval);
        let ask = Request::GetAttr(Bitmap::of([81]));
        assert_eq!(client.run(&[put, ask]).status(), Status4::Inval);
    }
}

#[test]
fn an_open_of_something_else_than_a_file_says_what_it_is() {
    for mut client in Client4::all() {
        let make = |kind, name| {
            let attributes = RawAttributes::default();
            Request::Create(Create4Args { kind, name: Text(name), attributes })
        };
        client.at_export(&[make(CreateKind::Directory, b"d")]);
        client.at_export(&[make(CreateKind::Fifo, b"p")]);
        for (name, expected) in [(&b"d"[..], Status4::IsDir), (b"p", Status4::WrongType)] {
            let open = Request::Open(open_args(name, share::READ, false));
            assert_eq!(client.at_export(&[open]).status(), expected);
        }
        let regular = make(CreateKind::Other(1), b"f");
        assert_eq!(client.at_export(&[regular]).status(), Status4::BadType);
    }
}

#[test]
fn the_current_stateid_stands_for_the_open_until_it_is_closed() {
    for mut client in Client4::all() {
        let open = Request::Open(open_args(b"f", share::BOTH, true));
        let reply = client.at_export(&[
            open.clone(),
            write_args(Stateid::CURRENT, 0, b"x"),
            read_args(Stateid::CURRENT, 0, 1),
            Request::Close(Close4Args { seqid: 0, open: Stateid::CURRENT }),
        ]);
        assert_eq!(reply.last(), Answer::Close(Ok(Stateid::INVALID)));
        let reply = client.at_export(&[
            open,
            Request::Close(Close4Args { seqid: 0, open: Stateid::CURRENT }),
            read_args(Stateid::CURRENT, 0, 1),
        ]);
        assert_eq!(reply.status(), Status4::BadStateid);
    }
}

#[test]
fn a_stateid_is_good_for_its_file_and_its_access_only() {
    let mut client = Client4::in_memory();
    let (stateid, handle) = client.open(b"a");
    let (_, other) = client.open(b"b");
    let at = |handle| Request::PutFh(Text(handle));
    let wrong = client.run(&[at(&other), read_args(stateid, 0, 1)]);
    assert_eq!(wrong.status(), Status4::BadStateid);
    let old = Stateid { seqid: stateid.seqid + 1, ..stateid };
    assert_eq!(client.run(&[at(&handle), read_args(old, 0, 1)]).status(), Status4::BadStateid);
    let newest = Stateid { seqid: 0, ..stateid };
    assert_eq!(client.run(&[at(&handle), read_args(newest, 0, 1)]).status(), Status4::Ok);
    let downgrade = Request::OpenDowngrade(OpenDowngrade4Args {
        open: stateid,
        seqid: 0,
        share_access: share::READ,
        share_deny: 0,
    });
    let never = client.run(&[at(&handle), downgrade.clone()]);
    assert_eq!(never.status(), Status4::Inval, "nobody opened it so");
    let reading = Request::Open(open_args(b"a", share::READ, false));
    client.at_export(&[reading]);
    let current = Stateid { seqid: 0, ..stateid };
    let downgrade = match downgrade {
        Request::OpenDowngrade(args) => {
            Request::OpenDowngrade(OpenDowngrade4Args { open: current, ..args })
        }
        _ => unreachable!(),
    };
    assert_eq!(client.run(&[at(&handle), downgrade]).status(), Status4::Ok);
    let write = client.run(&[at(&handle), write_args(current, 0, b"x")]);
    assert_eq!(write.status(), Status4::OpenMode);
}

#[test]
fn attributes_are_set_and_said_to_be() {
    for mut client in Client4::all() {
        let (stateid, handle) = client.open(b"f");
        let mut octets = 7_u64.to_be_bytes().to_vec();
        octets.extend(0o600_u32.to_be_bytes());
        let mask = Bitmap::of([4, 33]);
        let attributes = RawAttributes { mask, octets: &octets };
        let set = Request::SetAttr(SetAttr4Args { stateid, attributes });
        let reply = client.run(&[
            Request::PutFh(Text(&handle)),
            set,
            Request::GetAttr(Bitmap::of([4, 33])),
        ]);
        let answers = reply.answers();
        assert_eq!(answers[2], Answer::SetAttr(SetAttr4Result { status: Status4::Ok, set: mask }));
        let Answer::GetAttr(Ok(raw)) = &answers[3] else { panic!() };
        let values = raw.values().unwrap();
        assert_eq!((values.size, values.mode), (Some(7), Some(0o600)));
        let type_of = RawAttributes { mask: Bitmap::of([1]), octets: &[0, 0, 0, 1] };
        let set = Request::SetAttr(SetAttr4Args { stateid, attributes: type_of });
        let refused = client.run(&[Request::PutFh(Text(&handle)), set]);
        assert_eq!(
            refused.last(),
            Answer::SetAttr(SetAttr4Result { status: Status4::Inval, set: Bitmap::EMPTY })
        );
    }
}

#[test]
fn attributes_are_compared_as_they_would_be_told() {
    for mut client in Client4::all() {
        let (_, handle) = client.open(b"f");
        let put = Request::PutFh(Text(&handle));
        let mask = Bitmap::of([1, 4, 33, 36]);
        let reply = client.run(&[put.clone(), Request::GetAttr(mask)]);
        let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!() };
        let same = client.run(&[put.clone(), Request::Verify(raw)]);
        assert_eq!(same.status(), Status4::Ok);
        let same = client.run(&[put.clone(), Request::NVerify(raw)]);
        assert_eq!(same.status(), Status4::Same);
        let mut octets = raw.octets.to_vec();
        octets[11] ^= 1;
        let other = RawAttributes { mask, octets: &octets };
        let differs = client.run(&[put.clone(), Request::Verify(other)]);
        assert_eq!(differs.status(), Status4::NotSame);
        let unknown = RawAttributes { mask: Bitmap::of([24]), octets: &[] };
        let refused = client.run(&[put, Request::Verify(unknown)]);
        assert_eq!(refused.status(), Status4::AttrNotSupp);
    }
}

#[test]
fn an_open_that_denies_keeps_others_out_until_it_is_closed() {
    let mut client = Client4::in_memory();
    let deny = Open4Args { share_deny: share::WRITE, ..open_args(b"f", share::READ, true) };
    let reply = client.at_export(&[Request::Open(deny), Request::GetFh(())]);
    let answers = reply.answers();
    let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] = &answers[..] else { panic!() };
    let put = Request::PutFh(*handle);
    let other = Open4Args {
        owner: StateOwner { client_id: 0, owner: Text(b"other") },
        ..open_args(b"f", share::WRITE, false)
    };
    let refused = client.at_export(&[Request::Open(other.clone())]);
    assert_eq!(refused.status(), Status4::ShareDenied);
    let anonymous = client.run(&[put.clone(), write_args(Stateid::ANONYMOUS, 0, b"x")]);
    assert_eq!(anonymous.status(), Status4::Locked);
    let close = Request::Close(Close4Args { seqid: 0, open: open.stateid });
    assert_eq!(client.run(&[put, close]).status(), Status4::Ok);
    assert_eq!(client.at_export(&[Request::Open(other)]).status(), Status4::Ok);
}

#[test]
fn an_open_that_is_denied_does_not_cut_the_file() {
    let mut client = Client4::in_memory();
    let deny = Open4Args { share_deny: share::WRITE, ..open_args(b"f", share::BOTH, true) };
    let reply = client.at_export(&[Request::Open(deny), Request::GetFh(())]);
    let answers = reply.answers();
    let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] = &answers[..] else { panic!() };
    let put = Request::PutFh(*handle);
    let written = client.run(&[put.clone(), write_args(open.stateid, 0, b"content")]);
    assert_eq!(written.status(), Status4::Ok);
    let empty = RawAttributes { mask: Bitmap::of([4]), octets: &[0; 8] };
    for access in [share::READ, share::WRITE] {
        let cut = Open4Args {
            owner: StateOwner { client_id: 0, owner: Text(b"other") },
            how: OpenHow::Create(CreateHow4::Unchecked(empty)),
            ..open_args(b"f", access, true)
        };
        assert_eq!(client.at_export(&[Request::Open(cut)]).status(), Status4::ShareDenied);
    }
    let looked = client.run(&[put, Request::GetAttr(Bitmap::of([4]))]);
    let Answer::GetAttr(Ok(raw)) = looked.last() else { panic!("{looked:?}") };
    assert_eq!(raw.octets, 7_u64.to_be_bytes());
}
