//! Ranges of files: SEEK, ALLOCATE, DEALLOCATE, COPY, CLONE, IO_ADVISE (RFC 7862 §15).

use super::client::{Client4, open_args, read_args, write_args};
use stag_protocol::nfs::v4::*;

fn seek(stateid: Stateid, offset: u64, what: FileContent) -> Request<'static> {
    Request::Seek(SeekArgs { stateid, offset, what })
}

fn range(stateid: Stateid, offset: u64, length: u64) -> FileRange {
    FileRange { stateid, offset, length }
}

fn copy(source: Stateid, target: Stateid, from: u64, to: u64, count: u64) -> Copy4Args<'static> {
    Copy4Args {
        source,
        target,
        source_offset: from,
        target_offset: to,
        count,
        consecutive: false,
        synchronous: true,
        servers: Array::of(&[]),
    }
}

/// The size of a file.
fn size(client: &mut Client4, handle: &[u8]) -> u64 {
    let reply = client.run(&[Request::PutFh(Text(handle)), Request::GetAttr(Bitmap::of([4]))]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!("{:?}", reply.last()) };
    raw.values().unwrap().size.unwrap()
}

/// The octets of a file.
fn content(client: &mut Client4, handle: &[u8]) -> Vec<u8> {
    let read = read_args(Stateid::ANONYMOUS, 0, 9_000);
    let reply = client.run(&[Request::PutFh(Text(handle)), read]);
    let Answer::Read(Ok(ok)) = reply.last() else { panic!("{:?}", reply.last()) };
    ok.data.octets().unwrap().to_vec()
}

#[test]
fn minor_version_1_has_none_of_these_operations() {
    let mut client = Client4::in_memory();
    let (stateid, handle) = client.open(b"f");
    for request in [
        seek(stateid, 0, FileContent::Data),
        Request::Allocate(range(stateid, 0, 1)),
        Request::Deallocate(range(stateid, 0, 1)),
        Request::Copy(copy(stateid, stateid, 0, 0, 1)),
    ] {
        let reply = client.run(&[Request::PutFh(Text(&handle)), request.clone()]);
        assert_eq!(reply.status(), Status4::OpIllegal, "{request:?}");
    }
}

#[test]
fn a_search_finds_data_and_holes_and_says_where_the_file_ends() {
    for mut client in Client4::newest() {
        let (stateid, handle) = client.open(b"f");
        let put = Request::PutFh(Text(&handle));
        let far = 1 << 20;
        for offset in [0, far] {
            let written = client.run(&[put.clone(), write_args(stateid, offset, &[7; 4_096])]);
            assert_eq!(written.status(), Status4::Ok);
        }
        let mut ask = |offset, what| {
            let reply = client.run(&[put.clone(), seek(stateid, offset, what)]);
            match reply.last() {
                Answer::Seek(done) => done.map(|ok| (ok.eof, ok.offset)),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(0, FileContent::Data), Ok((false, 0)));
        let (_, hole) = ask(0, FileContent::Hole).unwrap();
        assert!((4_096..=far).contains(&hole), "a hole at {hole}");
        assert_eq!(ask(hole, FileContent::Data), Ok((false, far)));
        // RFC 7862 §15.11.3: the end of the file is a hole.
        assert_eq!(ask(far, FileContent::Hole).unwrap().1, far + 4_096);
        for what in [FileContent::Data, FileContent::Hole] {
            assert_eq!(ask(far + 4_096, what), Err(Status4::NxIo));
        }
        assert_eq!(ask(0, FileContent::Other(2)), Err(Status4::UnionNotSupp));
    }
}

#[test]
fn room_is_taken_and_given_back_and_sizes_follow_the_text() {
    for mut client in Client4::newest() {
        let (stateid, handle) = client.open(b"f");
        let put = Request::PutFh(Text(&handle));
        let allocate = Request::Allocate(range(stateid, 0, 8_192));
        assert_eq!(client.run(&[put.clone(), allocate]).status(), Status4::Ok);
        // RFC 7862 §15.1.3: the file grows to the end of the range.
        assert_eq!(size(&mut client, &handle), 8_192);
        assert_eq!(content(&mut client, &handle), [0; 8_192]);
        client.run(&[put.clone(), write_args(stateid, 0, &[7; 2_000])]);
        let punch = Request::Deallocate(range(stateid, 1_000, u64::from(u32::MAX)));
        assert_eq!(client.run(&[put.clone(), punch]).status(), Status4::Ok);
        // RFC 7862 §15.4.3: the size stays.
        assert_eq!(size(&mut client, &handle), 8_192);
        let octets = content(&mut client, &handle);
        assert_eq!((&octets[..1_000], &octets[1_000..]), (&[7; 1_000][..], &[0; 7_192][..]));
    }
}

#[test]
fn room_is_refused_for_no_octets_for_too_many_and_without_the_right_open() {
    for mut client in Client4::newest() {
        client.open(b"f");
        let reading = Open4Args {
            owner: StateOwner { client_id: 0, owner: Text(b"reader") },
            ..open_args(b"f", share::READ, false)
        };
        let reply = client.at_export(&[Request::Open(reading), Request::GetFh(())]);
        let answers = reply.answers();
        let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] = &answers[..] else {
            panic!("{answers:?}")
        };
        let (reader, handle) = (open.stateid, handle.0.to_vec());
        let (writer, _) = client.open(b"f");
        for (range, expected) in [
            (range(writer, 0, 0), Status4::Inval),
            (range(writer, u64::MAX - 1, 100), Status4::FBig),
            (range(reader, 0, 1), Status4::OpenMode),
            (range(Stateid::CURRENT, 0, 1), Status4::BadStateid),
        ] {
            for request in [Request::Allocate(range), Request::Deallocate(range)] {
                let status = client.run(&[Request::PutFh(Text(&handle)), request.clone()]).status();
                let is_same = status == expected
                    // Both say that no file is so long.
                    || (expected, status) == (Status4::FBig, Status4::Inval);
                assert!(is_same, "{request:?} {status:?}");
            }
        }
    }
}

#[test]
fn a_copy_is_done_when_it_is_answered() {
    for mut client in Client4::newest() {
        let (source, from) = client.open(b"from");
        let (target, to) = client.open(b"to");
        let octets = crate::gateway::client::pattern(5_000, 3);
        client.run(&[Request::PutFh(Text(&from)), write_args(source, 0, &octets[..3_000])]);
        client.run(&[Request::PutFh(Text(&from)), write_args(source, 3_000, &octets[3_000..])]);
        let at = |request| {
            [Request::PutFh(Text(&from)), Request::SaveFh(()), Request::PutFh(Text(&to)), request]
        };
        let reply = client.run(&at(Request::Copy(copy(source, target, 1_000, 10, 0))));
        let Answer::Copy(Ok(done)) = reply.last() else { panic!("{:?}", reply.last()) };
        assert_eq!((done.outcome.callback, done.outcome.count), (None, 4_000));
        assert_eq!(done.manner, CopyManner { consecutive: true, synchronous: true });
        let copied = content(&mut client, &to);
        assert_eq!((&copied[..10], &copied[10..]), (&[0; 10][..], &octets[1_000..]));
        for (args, expected) in [
            (copy(source, target, 5_001, 0, 1), Status4::Inval),
            (copy(source, target, 4_999, 0, 2), Status4::Inval),
            (copy(target, target, 0, 0, 1), Status4::BadStateid),
            (copy(source, source, 0, 0, 1), Status4::BadStateid),
        ] {
            let reply = client.run(&at(Request::Copy(args.clone())));
            assert_eq!(reply.status(), expected, "{args:?}");
        }
        let same = [
            Request::PutFh(Text(&from)),
            Request::SaveFh(()),
            Request::Copy(copy(source, source, 0, 0, 1)),
        ];
        assert_eq!(client.run(&same).status(), Status4::Inval, "one file");
        let alone = [Request::PutFh(Text(&to)), Request::Copy(copy(source, target, 0, 0, 1))];
        assert_eq!(client.run(&alone).status(), Status4::NoFileHandle);
        let elsewhere = [SourceServer::Name(Text(b"server"))];
        let args = Copy4Args { servers: Array::of(&elsewhere), ..copy(source, target, 0, 0, 1) };
        assert_eq!(client.run(&at(Request::Copy(args))).status(), Status4::NotSupp);
    }
}

#[test]
fn the_current_stateids_of_both_files_serve_a_copy() {
    for mut client in Client4::newest() {
        let (source, from) = client.open(b"from");
        client.run(&[Request::PutFh(Text(&from)), write_args(source, 0, b"octets")]);
        let export = client.export();
        let reply = client.run(&[
            Request::PutRootFh(()),
            Request::Lookup(Text(export)),
            Request::Open(open_args(b"from", share::READ, false)),
            Request::SaveFh(()),
            Request::PutRootFh(()),
            Request::Lookup(Text(export)),
            Request::Open(open_args(b"to", share::BOTH, true)),
            Request::Copy(copy(Stateid::CURRENT, Stateid::CURRENT, 0, 0, 0)),
        ]);
        let Answer::Copy(Ok(done)) = reply.last() else { panic!("{:?}", reply.last()) };
        assert_eq!(done.outcome.count, 6);
    }
}

#[test]
fn a_copy_between_exports_goes_over_a_border() {
    for mut client in Client4::newest() {
        let (target, to) = client.open(b"to");
        let fixed = [Request::PutRootFh(()), Request::Lookup(Text(b"fixed"))];
        let mut all = fixed.to_vec();
        let source = if client.export() == b"data" {
            all.extend([Request::Lookup(Text(b"file")), Request::SaveFh(())]);
            Stateid::ANONYMOUS
        } else {
            return;
        };
        all.push(Request::PutFh(Text(&to)));
        all.push(Request::Copy(copy(source, target, 0, 0, 0)));
        assert_eq!(client.run(&all).status(), Status4::XDev);
    }
}

#[test]
fn a_clone_shares_or_says_that_it_cannot() {
    for mut client in Client4::newest() {
        let (source, from) = client.open(b"from");
        let (target, to) = client.open(b"to");
        let octets = [5; 4_096];
        client.run(&[Request::PutFh(Text(&from)), write_args(source, 0, &octets)]);
        let clone = CloneArgs { source, target, source_offset: 0, target_offset: 0, count: 4_096 };
        let put = Request::PutFh(Text(&to));
        let reply = client.run(&[
            Request::PutFh(Text(&from)),
            Request::SaveFh(()),
            put.clone(),
            Request::Clone(clone),
        ]);
        let told = client.run(&[put, Request::GetAttr(Bitmap::of([77]))]);
        let Answer::GetAttr(Ok(raw)) = told.last() else { panic!("{:?}", told.last()) };
        match reply.status() {
            // RFC 7862 §12.2.1: a server that clones reports the size of its blocks.
            Status4::Ok => {
                assert!(raw.values().unwrap().clone_blksize.is_some());
                assert_eq!(content(&mut client, &to), octets);
            }
            status => assert_eq!(status, Status4::NotSupp),
        }
    }
}

#[test]
fn advice_is_taken_and_none_is_promised_to_be_followed() {
    for mut client in Client4::newest() {
        let (stateid, handle) = client.open(b"f");
        let hints = Bitmap::of([1, 3]);
        let advise = IoAdviseArgs { stateid, offset: 0, count: 0, hints };
        let put = Request::PutFh(Text(&handle));
        let reply = client.run(&[put.clone(), Request::IoAdvise(advise.clone())]);
        let Answer::IoAdvise(Ok(followed)) = reply.last() else { panic!("{:?}", reply.last()) };
        assert_eq!(followed, Bitmap::EMPTY);
        let wrong = IoAdviseArgs { stateid: Stateid::INVALID, ..advise };
        let refused = client.run(&[put, Request::IoAdvise(wrong)]);
        assert_eq!(refused.status(), Status4::BadStateid);
    }
}

#[test]
fn what_is_no_file_has_no_ranges() {
    for mut client in Client4::newest() {
        let attributes = RawAttributes::default();
        for (kind, name) in [(CreateKind::Directory, &b"d"[..]), (CreateKind::Fifo, b"p")] {
            let expected = if name == b"d" { Status4::IsDir } else { Status4::WrongType };
            let make = Create4Args { kind, name: Text(name), attributes };
            let made = client.at_export(&[Request::Create(make)]);
            assert_eq!(made.status(), Status4::Ok);
            for request in [
                seek(Stateid::ANONYMOUS, 0, FileContent::Data),
                Request::Allocate(range(Stateid::ANONYMOUS, 0, 1)),
                Request::Deallocate(range(Stateid::ANONYMOUS, 0, 1)),
            ] {
                let reply = client.at_export(&[Request::Lookup(Text(name)), request.clone()]);
                assert_eq!(reply.status(), expected, "{request:?}");
            }
        }
        for request in [
            seek(Stateid::ANONYMOUS, 0, FileContent::Data),
            Request::Allocate(range(Stateid::ANONYMOUS, 0, 1)),
        ] {
            let reply = client.run(&[Request::PutRootFh(()), request]);
            assert_eq!(reply.status(), Status4::IsDir, "the root of all exports");
        }
    }
}
