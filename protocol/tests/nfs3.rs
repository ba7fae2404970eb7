//! Every argument and every result of NFS version 3, whole, cut, changed, and in pieces.

use stag_protocol::nfs::binding::{self, Eligible, ResultLen};
use stag_protocol::nfs::v3::*;
use stag_protocol::nfs::{Bulk, mount};
use stag_protocol::xdr::{Codec, Error, NoRoom, Piece, Reader, Writer, pad, padded};

const TIME: Time = Time { seconds: 0x0102_0304, nanos: 999_999_999 };
const MODE: SetAttributes = SetAttributes {
    mode: Some(0o640),
    uid: None,
    gid: Some(7),
    size: Some(1 << 33),
    atime: SetTime::Server,
    mtime: SetTime::Client(TIME),
};

fn handle(len: usize) -> FileHandle {
    FileHandle::new(&vec![0xab; len]).unwrap()
}

fn place(name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { dir: handle(64), name: Name(name) }
}

fn attributes() -> Attributes {
    Attributes {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 100,
        size: 5,
        used: 4096,
        device: DeviceNumber::default(),
        fsid: 0x1122_3344_5566_7788,
        fileid: 42,
        atime: TIME,
        mtime: TIME,
        ctime: TIME,
    }
}

fn wcc() -> WccData {
    WccData { before: Some(WccAttributes::from(&attributes())), after: Some(attributes()) }
}

fn calls() -> Vec<Call<'static>> {
    let names: [&[u8]; 4] = [b"", b"n", &[b'n'; 255], &[b'n'; 256]];
    let object = handle(32);
    let system = SystemArgs { object };
    let (cookie, verifier) = (77, [1, 2, 3, 4, 5, 6, 7, 8]);
    let mut calls = vec![
        Call::Null,
        Call::GetAttr(GetAttrArgs { object: handle(0) }),
        Call::GetAttr(GetAttrArgs { object: handle(64) }),
        Call::SetAttr(SetAttrArgs { object, attributes: MODE, guard: Some(TIME) }),
        Call::SetAttr(SetAttrArgs { object, attributes: SetAttributes::default(), guard: None }),
        Call::Access(AccessArgs { object, access: Access::ALL }),
        Call::ReadLink(ReadLinkArgs { symlink: object }),
        Call::Read(ReadArgs { file: object, offset: 1 << 40, count: 1 << 20 }),
        Call::ReadDir(ReadDirArgs { dir: object, cookie, verifier, count: 4096 }),
        Call::ReadDirPlus(ReadDirPlusArgs {
            dir: object,
            cookie,
            verifier,
            dir_count: 512,
            max_count: 4096,
        }),
        Call::FsStat(system),
        Call::FsInfo(system),
        Call::PathConf(system),
        Call::Commit(CommitArgs { file: object, offset: 9, count: 0 }),
    ];
    for stable in [StableHow::Unstable, StableHow::DataSync, StableHow::FileSync] {
        for data in [&b""[..], b"h", b"hell", b"hello"] {
            let data = Bulk::Inline(data);
            calls.push(Call::Write(WriteArgs { file: object, offset: 8, stable, data }));
        }
    }
    for place in names.map(place) {
        calls.extend([
            Call::Lookup(LookupArgs { what: place }),
            Call::MkDir(MkDirArgs { place, attributes: MODE }),
            Call::Symlink(SymlinkArgs { place, attributes: MODE, path: Bulk::Inline(b"../to") }),
            Call::Remove(RemoveArgs { object: place }),
            Call::RmDir(RemoveArgs { object: place }),
            Call::Rename(RenameArgs { from: place, to: place }),
            Call::Link(LinkArgs { file: object, link: place }),
        ]);
        let hows =
            [CreateHow::Unchecked(MODE), CreateHow::Guarded(MODE), CreateHow::Exclusive([9; 8])];
        calls.extend(hows.map(|how| Call::Create(CreateArgs { place, how })));
        let device = DeviceNumber { major: 8, minor: 1 };
        let nodes = [NodeKind::Block(MODE, device), NodeKind::Fifo(MODE), NodeKind::Regular];
        calls.extend(nodes.map(|what| Call::MkNod(MkNodArgs { place, what })));
    }
    calls
}

/// The longest results of each procedure, the shortest ones, and its failures.
fn replies() -> Vec<Reply<'static>> {
    let mut replies = vec![
        Reply::Null,
        Reply::GetAttr(Ok(attributes())),
        Reply::GetAttr(Err(Status::Stale.into())),
        Reply::ReadDir(Err(Status::BadCookie.into())),
        Reply::ReadDirPlus(Err(Failure { status: Status::NotDir, attributes: Some(attributes()) })),
    ];
    for (attributes, wcc) in [(None, WccData::NONE), (Some(attributes()), wcc())] {
        let failure = Failure { status: Status::Io, attributes };
        let wcc_failure = Failure { status: Status::RoFs, attributes: wcc };
        let object = attributes.map(|_| handle(64));
        let created = CreateOk { object, attributes, dir_wcc: wcc };
        let renamed = RenameWcc { from_dir: wcc, to_dir: wcc };
        let linked = LinkWcc { attributes, dir_wcc: wcc };
        let looked_up = LookupOk { object: handle(64), attributes, dir_attributes: attributes };
        let read = ReadOk { attributes, eof: true, data: Bulk::Inline(b"hello") };
        let written = WriteOk { wcc, count: 5, committed: StableHow::FileSync, verifier: [3; 8] };
        let accessible = AccessOk { attributes, access: Access::READ | Access::LOOKUP };
        replies.extend([
            Reply::SetAttr(Ok(wcc)),
            Reply::SetAttr(Err(wcc_failure)),
            Reply::Lookup(Ok(looked_up)),
            Reply::Lookup(Err(failure)),
            Reply::Access(Ok(accessible)),
            Reply::Access(Err(failure)),
            Reply::ReadLink(Ok(ReadLinkOk { attributes, path: Bulk::Inline(b"target") })),
            Reply::ReadLink(Err(failure)),
            Reply::Read(Ok(read)),
            Reply::Read(Err(failure)),
            Reply::Write(Ok(written)),
            Reply::Write(Err(wcc_failure)),
            Reply::Create(Ok(created)),
            Reply::Create(Err(wcc_failure)),
            Reply::MkDir(Ok(created)),
            Reply::MkDir(Err(wcc_failure)),
            Reply::Symlink(Ok(created)),
            Reply::Symlink(Err(wcc_failure)),
            Reply::MkNod(Ok(created)),
            Reply::MkNod(Err(wcc_failure)),
            Reply::Remove(Ok(wcc)),
            Reply::Remove(Err(wcc_failure)),
            Reply::RmDir(Ok(wcc)),
            Reply::RmDir(Err(wcc_failure)),
            Reply::Rename(Ok(renamed)),
            Reply::Rename(Err(Failure { status: Status::XDev, attributes: renamed })),
            Reply::Link(Ok(linked)),
            Reply::Link(Err(Failure { status: Status::MLink, attributes: linked })),
            Reply::FsStat(Ok(SystemOk {
                attributes,
                about: FsStat { total_files: 9, ..FsStat::default() },
            })),
            Reply::FsStat(Err(failure)),
            Reply::FsInfo(Ok(SystemOk { attributes, about: fs_info() })),
            Reply::FsInfo(Err(failure)),
            Reply::PathConf(Ok(SystemOk { attributes, about: path_conf() })),
            Reply::PathConf(Err(failure)),
            Reply::Commit(Ok(CommitOk { wcc, verifier: [4; 8] })),
            Reply::Commit(Err(wcc_failure)),
        ]);
    }
    replies
}

fn fs_info() -> FsInfo {
    FsInfo {
        read_max: 1,
        read_preferred: 2,
        read_multiple: 3,
        write_max: 4,
        write_preferred: 5,
        write_multiple: 6,
        readdir_preferred: 7,
        file_size_max: 8,
        time_delta: TIME,
        properties: FsInfo::LINK | FsInfo::SYMLINK | FsInfo::HOMOGENEOUS | FsInfo::CAN_SET_TIME,
    }
}

fn path_conf() -> PathConf {
    PathConf {
        link_max: 32_000,
        name_max: 255,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    }
}

/// The octets of a READDIR or READDIRPLUS result, its status too, with three names of different
/// lengths.
fn listing(procedure: Procedure) -> Vec<u8> {
    let names: [&[u8]; 3] = [b".", b"a-name", &[b'x'; 255]];
    let entries =
        (1..).zip(names).map(|(n, name)| Entry { fileid: n, name: Name(name), cookie: n << 32 });
    written(|writer| {
        if procedure == Procedure::ReadDir {
            let mut list = ReadDirWriter::begin(writer, Some(attributes()), [5; 8], 4096).unwrap();
            entries.for_each(|entry| list.push(&entry).unwrap());
            assert_eq!(list.finish(true), Ok(3));
        } else {
            let mut list = ReadDirPlusWriter::begin(
                writer,
                None,
                [5; 8],
                PlusLimits { dir_count: 4096, max_count: 4096 },
            )
            .unwrap();
            for entry in entries {
                let attributes = (entry.fileid != 1).then(attributes);
                let handle = (entry.fileid != 2).then(|| handle(24));
                list.push(&EntryPlus { entry, attributes, handle }).unwrap();
            }
            assert_eq!(list.finish(false), Ok(3));
        }
        Ok(())
    })
}

fn written(emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut out = vec![0xee; 32_768];
    let mut writer = Writer::new(&mut out);
    emit(&mut writer).unwrap();
    let len = writer.len();
    out.truncate(len);
    out
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).unwrap())
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[test]
fn every_call_survives_a_round_trip_and_no_cut_of_it_does() {
    let mut seen = [false; Procedure::ALL.len()];
    for call in calls() {
        let (procedure, octets) = (call.procedure(), written(|writer| call.emit(writer)));
        seen[procedure as usize] = true;
        assert_eq!(Call::parse(procedure, Reader::new(&octets)), Ok(call));
        for cut in 0..octets.len() {
            assert_eq!(
                Call::parse(procedure, Reader::new(&octets[..cut])),
                Err(Error::Short),
                "{call:?} cut at {cut}"
            );
            assert_eq!(
                call.emit(&mut Writer::new(&mut vec![0; cut])),
                Err(NoRoom),
                "{call:?} in {cut}"
            );
        }
        let longer = [&octets[..], &[0; 4]].concat();
        assert_eq!(Call::parse(procedure, Reader::new(&longer)), Err(Error::Trailing), "{call:?}");
    }
    assert_eq!(seen, [true; Procedure::ALL.len()], "each procedure was called");
}

#[test]
fn every_reply_survives_a_round_trip_and_no_cut_of_it_does() {
    let mut seen = [0; Procedure::ALL.len()];
    let listings = [Procedure::ReadDir, Procedure::ReadDirPlus]
        .map(|procedure| (procedure, listing(procedure)));
    let listings = listings
        .iter()
        .map(|(procedure, octets)| Reply::parse(*procedure, Reader::new(octets)).unwrap());
    for reply in replies().into_iter().chain(listings) {
        let (procedure, octets) = (reply.procedure(), written(|writer| reply.emit(writer)));
        seen[procedure as usize] += 1;
        assert_eq!(Reply::parse(procedure, Reader::new(&octets)).as_ref(), Ok(&reply));
        for cut in 0..octets.len() {
            assert_eq!(
                Reply::parse(procedure, Reader::new(&octets[..cut])),
                Err(Error::Short),
                "{reply:?} cut at {cut}"
            );
            assert_eq!(
                reply.emit(&mut Writer::new(&mut vec![0; cut])),
                Err(NoRoom),
                "{reply:?} in {cut}"
            );
        }
        let longer = [&octets[..], &[0; 4]].concat();
        assert_eq!(
            Reply::parse(procedure, Reader::new(&longer)),
            Err(Error::Trailing),
            "{reply:?}"
        );
    }
    assert!(
        seen[0] == 1 && seen[1..].iter().all(|results| *results >= 2),
        "both arms of each: {seen:?}"
    );
}

/// Checks that octets which parse survive a round trip, whatever they were made of.
fn stays_sound(procedure: Procedure, octets: &[u8]) {
    if let Ok(call) = Call::parse(procedure, Reader::new(octets)) {
        let again = written(|writer| call.emit(writer));
        assert_eq!(Call::parse(procedure, Reader::new(&again)), Ok(call));
    }
    if let Ok(reply) = Reply::parse(procedure, Reader::new(octets)) {
        let again = written(|writer| reply.emit(writer));
        assert_eq!(Reply::parse(procedure, Reader::new(&again)), Ok(reply));
    }
}

#[test]
fn no_change_of_a_bit_or_a_word_does_harm() {
    let calls =
        calls().into_iter().map(|call| (call.procedure(), written(|writer| call.emit(writer))));
    let replies = replies()
        .into_iter()
        .map(|reply| (reply.procedure(), written(|writer| reply.emit(writer))));
    let listings = [Procedure::ReadDir, Procedure::ReadDirPlus]
        .map(|procedure| (procedure, listing(procedure)));
    for (procedure, octets) in calls.chain(replies).chain(listings) {
        for bit in 0..octets.len() * 8 {
            let mut changed = octets.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            stays_sound(procedure, &changed);
        }
        for word in 0..octets.len() / 4 {
            for value in [0, 1, 2, 64, 65, 4096, 4097, u32::MAX - 1, u32::MAX] {
                let mut changed = octets.clone();
                changed[word * 4..][..4].copy_from_slice(&value.to_be_bytes());
                stays_sound(procedure, &changed);
            }
        }
    }
}

#[test]
fn values_that_do_not_exist_are_refused() {
    let changed = |call: Call<'_>, at: usize, value: u32| {
        let mut octets = written(|writer| call.emit(writer));
        octets[at..at + 4].copy_from_slice(&value.to_be_bytes());
        Call::parse(call.procedure(), Reader::new(&octets)).map(drop)
    };
    let object = handle(64);
    let getattr = Call::GetAttr(GetAttrArgs { object });
    assert_eq!(changed(getattr, 0, 65), Err(Error::TooLong), "a handle of 65 octets");
    let setattr =
        Call::SetAttr(SetAttrArgs { object, attributes: SetAttributes::default(), guard: None });
    for at in (68..96).step_by(4) {
        let expected = if at == 84 || at == 88 { Err(Error::Short) } else { Err(Error::BadValue) };
        assert_eq!(
            changed(setattr, at, 2),
            expected,
            "2 is a way to set a time, but no boolean, at {at}"
        );
        assert_eq!(changed(setattr, at, 3), Err(Error::BadValue), "3 is neither, at {at}");
    }
    let write =
        WriteArgs { file: object, offset: 0, stable: StableHow::Unstable, data: Bulk::Inline(b"") };
    assert_eq!(changed(Call::Write(write), 80, 3), Err(Error::BadValue), "a fourth stable_how");
    let create = CreateArgs { place: place(b"name"), how: CreateHow::Exclusive([0; 8]) };
    assert_eq!(changed(Call::Create(create), 76, 3), Err(Error::BadValue), "a fourth createmode3");
    let node = MkNodArgs { place: place(b"name"), what: NodeKind::Regular };
    for kind in [0, 8] {
        assert_eq!(changed(Call::MkNod(node), 76, kind), Err(Error::BadValue), "ftype3 {kind}");
    }
}

#[test]
fn data_that_came_in_a_chunk_is_found_with_and_without_its_padding() {
    let file = handle(16);
    for (data, chunk) in
        [(&b"hello"[..], &b"hello"[..]), (b"hello", b"hello\0\0\0"), (b"hell", b"hell"), (b"", b"")]
    {
        let count = u32::try_from(data.len()).unwrap();
        let write =
            |data| Call::Write(WriteArgs { file, offset: 3, stable: StableHow::FileSync, data });
        let symlink =
            |path| Call::Symlink(SymlinkArgs { place: place(b"l"), attributes: MODE, path });
        for (apart, whole) in [
            (write(Bulk::Apart(count)), write(Bulk::Inline(data))),
            (symlink(Bulk::Apart(count)), symlink(Bulk::Inline(data))),
        ] {
            let head = written(|writer| apart.emit(writer));
            let pieces = [Piece::Inline(&head), Piece::Chunk(chunk)];
            assert_eq!(Call::parse(apart.procedure(), Reader::over(&pieces)), Ok(whole));
        }
        let read =
            |data| Reply::Read(Ok(ReadOk { attributes: Some(attributes()), eof: false, data }));
        let readlink = |path| Reply::ReadLink(Ok(ReadLinkOk { attributes: None, path }));
        for (apart, whole) in [
            (read(Bulk::Apart(count)), read(Bulk::Inline(data))),
            (readlink(Bulk::Apart(count)), readlink(Bulk::Inline(data))),
        ] {
            let head = written(|writer| apart.emit(writer));
            let pieces = [Piece::Inline(&head), Piece::Chunk(chunk)];
            assert_eq!(Reply::parse(apart.procedure(), Reader::over(&pieces)), Ok(whole));
        }
    }
}

/// Each cut of a message that has some of its octets in a chunk: where the chunk begins, its
/// octets, and the pieces.
fn chunked(whole: &[u8], mut judge: impl FnMut(usize, usize, Reader<'_>)) {
    for from in (0..whole.len()).step_by(4) {
        for len in 1..=whole.len() - from {
            let (head, tail) = whole.split_at(from);
            let (chunk, tail) = tail.split_at(len);
            let tail = tail.get(pad(len)..).unwrap_or_default();
            let pieces = [Piece::Inline(head), Piece::Chunk(chunk), Piece::Inline(tail)];
            judge(from, len, Reader::over(&pieces));
        }
    }
}

/// Returns true if `len` octets from `from` are the item at the end of a message, with or without
/// its padding.
fn is_item(item: Option<Bulk<'_>>, whole: &[u8], from: usize, len: usize) -> bool {
    item.is_some_and(|item| {
        from + padded(item.len()) == whole.len() && (len == item.len() || len == padded(item.len()))
    })
}

#[test]
fn nothing_but_the_item_of_a_call_may_come_in_a_chunk() {
    for call in calls() {
        let whole = written(|writer| call.emit(writer));
        let item = match call {
            Call::Write(WriteArgs { data: item, .. })
            | Call::Symlink(SymlinkArgs { path: item, .. }) => Some(item),
            _ => None,
        };
        chunked(&whole, |from, len, reader| {
            let parsed = Call::parse(call.procedure(), reader);
            assert_eq!(
                parsed.is_ok(),
                is_item(item, &whole, from, len),
                "{len} octets from {from} of {call:?}"
            );
        });
    }
}

#[test]
fn nothing_but_the_item_of_a_reply_may_come_in_a_chunk() {
    for reply in replies() {
        let whole = written(|writer| reply.emit(writer));
        let item = match reply {
            Reply::Read(Ok(ReadOk { data: item, .. }))
            | Reply::ReadLink(Ok(ReadLinkOk { path: item, .. })) => Some(item),
            _ => None,
        };
        chunked(&whole, |from, len, reader| {
            let parsed = Reply::parse(reply.procedure(), reader);
            assert_eq!(
                parsed.is_ok(),
                is_item(item, &whole, from, len),
                "{len} octets from {from} of {reply:?}"
            );
        });
    }
}

#[test]
fn parsed_data_is_the_data_that_came_and_not_a_copy() {
    let data = vec![7; 100_000];
    let write = WriteArgs {
        file: handle(8),
        offset: 0,
        stable: StableHow::Unstable,
        data: Bulk::Apart(100_000),
    };
    let head = written(|writer| write.emit(writer));
    let pieces = [Piece::Inline(&head), Piece::Chunk(&data)];
    let Ok(Call::Write(parsed)) = Call::parse(Procedure::Write, Reader::over(&pieces)) else {
        panic!("a WRITE in two pieces is a WRITE");
    };
    assert_eq!(parsed.data.octets().unwrap().as_ptr(), data.as_ptr());
}

#[test]
fn data_whose_number_of_octets_is_said_twice_and_differently_is_refused() {
    let data = Bulk::Inline(b"hello");
    let write = WriteArgs { file: handle(8), offset: 0, stable: StableHow::Unstable, data };
    let read = Reply::Read(Ok(ReadOk { attributes: None, eof: false, data }));
    for count in [0, 4, 6, 8, u32::MAX] {
        let mut octets = written(|writer| write.emit(writer));
        octets[20..24].copy_from_slice(&count.to_be_bytes());
        assert_eq!(
            Call::parse(Procedure::Write, Reader::new(&octets)),
            Err(Error::BadValue),
            "{count}"
        );
        let mut octets = written(|writer| read.emit(writer));
        octets[8..12].copy_from_slice(&count.to_be_bytes());
        assert_eq!(
            Reply::parse(Procedure::Read, Reader::new(&octets)),
            Err(Error::BadValue),
            "{count}"
        );
    }
}

#[test]
fn a_read_can_fill_its_reply_before_its_head_is_known() {
    let mut out = vec![0xee; 256];
    let mut writer = Writer::new(&mut out);
    writer.spare()[ReadOk::HEAD_LEN..][..5].copy_from_slice(b"hello");
    let read = ReadOk { attributes: Some(attributes()), eof: true, data: Bulk::Apart(5) };
    ReadResult::Ok(read).emit(&mut writer).unwrap();
    assert_eq!(writer.len(), ReadOk::HEAD_LEN);
    writer.advance(5).unwrap();
    let len = writer.len();
    let whole = Reply::Read(Ok(ReadOk { data: Bulk::Inline(b"hello"), ..read }));
    assert_eq!(Reply::parse(Procedure::Read, Reader::new(&out[..len])), Ok(whole));
}

#[test]
fn paths_have_at_most_4096_octets() {
    let path = vec![b'p'; PATH_MAX + 1];
    for (len, expected) in [(PATH_MAX, Ok(())), (PATH_MAX + 1, Err(Error::TooLong))] {
        let path = Bulk::Inline(&path[..len]);
        let link = Call::Symlink(SymlinkArgs { place: place(b"l"), attributes: MODE, path });
        let octets = written(|writer| link.emit(writer));
        assert_eq!(Call::parse(Procedure::Symlink, Reader::new(&octets)).map(drop), expected);
        let read = Reply::ReadLink(Ok(ReadLinkOk { attributes: None, path }));
        let octets = written(|writer| read.emit(writer));
        assert_eq!(Reply::parse(Procedure::ReadLink, Reader::new(&octets)).map(drop), expected);
    }
}

#[test]
fn important_messages_have_these_octets() {
    let fh = FileHandle::new(&[1, 2, 3, 4, 5]).unwrap();
    let fh_hex = "00000005 0102030405 000000";
    let read = Call::Read(ReadArgs { file: fh, offset: 0x1_0000_0002, count: 0x2000 });
    assert_eq!(written(|w| read.emit(w)), hex(&format!("{fh_hex} 00000001 00000002 00002000")));

    let data = Bulk::Inline(b"hello");
    let write = Call::Write(WriteArgs { file: fh, offset: 9, stable: StableHow::FileSync, data });
    let expected =
        format!("{fh_hex} 00000000 00000009 00000005 00000002 00000005 68656c6c 6f000000");
    assert_eq!(written(|w| write.emit(w)), hex(&expected));

    let name = DirOpArgs { dir: fh, name: Name(b"abc") };
    let lookup = Call::Lookup(LookupArgs { what: name });
    assert_eq!(written(|w| lookup.emit(w)), hex(&format!("{fh_hex} 00000003 61626300")));

    let attributes = SetAttributes { size: Some(3), ..SetAttributes::default() };
    let guard = Some(Time { seconds: 1, nanos: 2 });
    let setattr = Call::SetAttr(SetAttrArgs { object: fh, attributes, guard });
    let sattr_hex = "00000000 00000000 00000000 00000001 00000000 00000003 00000000 00000000";
    let expected = format!("{fh_hex} {sattr_hex} 00000001 00000001 00000002");
    assert_eq!(written(|w| setattr.emit(w)), hex(&expected));

    let symlink = Call::Symlink(SymlinkArgs { place: name, attributes, path: Bulk::Inline(b"to") });
    let expected = format!("{fh_hex} 00000003 61626300 {sattr_hex} 00000002 746f0000");
    assert_eq!(written(|w| symlink.emit(w)), hex(&expected));

    let plus = ReadDirPlusArgs {
        dir: fh,
        cookie: 3,
        verifier: [9; 8],
        dir_count: 0x200,
        max_count: 0x1000,
    };
    let expected = format!("{fh_hex} 00000000 00000003 09090909 09090909 00000200 00001000");
    assert_eq!(written(|w| Call::ReadDirPlus(plus).emit(w)), hex(&expected));

    let read = Reply::Read(Ok(ReadOk { attributes: None, eof: true, data: Bulk::Inline(b"hi") }));
    assert_eq!(
        written(|w| read.emit(w)),
        hex("00000000 00000000 00000002 00000001 00000002 68690000")
    );

    let write =
        WriteOk { wcc: WccData::NONE, count: 5, committed: StableHow::DataSync, verifier: [7; 8] };
    let expected = "00000000 00000000 00000000 00000005 00000001 07070707 07070707";
    assert_eq!(written(|w| Reply::Write(Ok(write)).emit(w)), hex(expected));

    let lookup = Reply::Lookup(Ok(LookupOk { object: fh, attributes: None, dir_attributes: None }));
    assert_eq!(written(|w| lookup.emit(w)), hex(&format!("00000000 {fh_hex} 00000000 00000000")));

    let before = Some(WccAttributes {
        size: 1,
        mtime: Time { seconds: 2, nanos: 3 },
        ctime: Time::default(),
    });
    let stale = Failure { status: Status::Stale, attributes: WccData { before, after: None } };
    let expected =
        "00000046 00000001 00000000 00000001 00000002 00000003 00000000 00000000 00000000";
    assert_eq!(written(|w| Reply::Write(Err(stale)).emit(w)), hex(expected));
}

#[test]
fn only_four_procedures_have_an_item_for_a_chunk() {
    for (procedure, side) in [
        (Procedure::ReadLink, Eligible::Result),
        (Procedure::Read, Eligible::Result),
        (Procedure::Write, Eligible::Argument),
        (Procedure::Symlink, Eligible::Argument),
    ] {
        assert_eq!(binding::ddp_eligible(PROGRAM, VERSION, procedure.number()), Some(side));
    }
    let count = |program, version| {
        let eligible = |procedure: &u32| {
            binding::is_ddp_eligible(Eligible::Argument, program, version, *procedure)
                || binding::is_ddp_eligible(Eligible::Result, program, version, *procedure)
        };
        (0..100).filter(eligible).count()
    };
    assert_eq!(count(PROGRAM, VERSION), 4);
    for (program, version) in
        [(PROGRAM, 2), (PROGRAM, 4), (mount::PROGRAM, mount::VERSION), (100_227, 3)]
    {
        assert_eq!(count(program, version), 0, "program {program}, version {version}");
    }
}

#[test]
fn no_results_are_longer_than_a_caller_is_told_and_the_longest_are_as_long() {
    for call in calls() {
        let longest = replies()
            .into_iter()
            .filter(|reply| reply.procedure() == call.procedure())
            .map(|reply| written(|writer| reply.emit(writer)).len())
            .max();
        let bound = binding::result_len_max(&call);
        let expected = match call {
            Call::Read(_) => bound.inline + padded(b"hello".len()),
            Call::ReadLink(_) => bound.inline + padded(b"target".len()),
            Call::ReadDir(_) | Call::ReadDirPlus(_) => {
                // Status, attributes and verifier: Linux' server does not count them.
                assert_eq!(bound, ResultLen { inline: 4 + (4 + 84) + 8 + 4096, item: 0 });
                continue;
            }
            _ => bound.whole(),
        };
        assert_eq!(longest, Some(expected), "{call:?}");
    }
    let file = handle(4);
    let read = binding::result_len_max(&Call::Read(ReadArgs { file, offset: 0, count: 5 }));
    assert_eq!(read, ResultLen { inline: ReadOk::HEAD_LEN, item: 5 });
    assert_eq!(read.whole(), ReadOk::HEAD_LEN + 8);
    let all = binding::result_len_max(&Call::Read(ReadArgs { file, offset: 0, count: u32::MAX }));
    assert_eq!(all.item, 0xffff_ffff);
    let path = binding::result_len_max(&Call::ReadLink(ReadLinkArgs { symlink: file }));
    assert_eq!(path.item, PATH_MAX);
    let tiny = ReadDirArgs { dir: file, cookie: 0, verifier: [0; 8], count: 1 };
    assert_eq!(binding::result_len_max(&Call::ReadDir(tiny)).inline, 4 + (4 + 84) + 8 + 1);
}
