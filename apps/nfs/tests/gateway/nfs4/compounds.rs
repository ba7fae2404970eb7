//! The interpreter: order, limits and malformed compounds (RFC 8881 §16.2).

use super::client::{CONFIG, Client4, encode, read_args, write_args};
use stag_protocol::{
    nfs::{Bulk, v4::*},
    rpc::{Accepted, Credential, Outcome, ReplyHeader},
    xdr::Reader,
};

#[test]
fn only_these_minor_versions_are_served() {
    let mut client = Client4::in_memory();
    for minor in [0, 3, u32::MAX] {
        let octets = encode(client.credential, minor, &[Request::PutRootFh(())]);
        let reply = client.send_octets(&octets);
        assert_eq!(reply.status(), Status4::MinorVersMismatch);
        assert!(reply.answers().is_empty());
    }
}

#[test]
fn an_operation_stands_where_it_may() {
    let mut client = Client4::in_memory();
    let bind = Request::BindConnToSession(BindConnArgs {
        session: client.session,
        wish: ChannelWish::ForeOrBoth,
        rdma_mode: false,
    });
    let session = client.session;
    for (requests, expected) in [
        (vec![Request::PutRootFh(())], Status4::OpNotInSession),
        (vec![bind.clone(), Request::PutRootFh(())], Status4::NotOnlyOp),
        (vec![Request::DestroySession(session), Request::PutRootFh(())], Status4::NotOnlyOp),
        (vec![bind.clone()], Status4::Ok),
    ] {
        assert_eq!(client.send(&requests).status(), expected, "{requests:?}");
    }
    let sequence = client.sequence_of(1, 1, false);
    assert_eq!(client.run(&[sequence]).status(), Status4::SequencePos);
    assert_eq!(client.run(&[bind]).status(), Status4::NotOnlyOp);
    assert_eq!(client.send(&[]).status(), Status4::Ok, "nothing is asked, nothing is wrong");
}

#[test]
fn a_compound_ends_with_its_first_failure() {
    let mut client = Client4::in_memory();
    let reply = client.run(&[
        Request::PutRootFh(()),
        Request::Lookup(Text(b"nothing")),
        Request::GetFh(()),
    ]);
    assert_eq!(reply.status(), Status4::NoEnt);
    assert_eq!(reply.answers().len(), 3);
}

#[test]
fn operations_that_are_not_known_or_not_served_say_so() {
    let mut client = Client4::in_memory();
    for (number, minor, expected) in [
        (0, 1, Status4::OpIllegal),
        (2, 2, Status4::OpIllegal),
        (76, 2, Status4::OpIllegal),
        (59, 1, Status4::OpIllegal),
        (u32::MAX, 1, Status4::OpIllegal),
        (30, 1, Status4::NotSupp),
        (46, 1, Status4::NotSupp),
        (68, 2, Status4::NotSupp),
    ] {
        client.minor = minor;
        let sequence = client.sequence(false);
        let mut octets = client.encode(&[sequence, Request::PutRootFh(())]);
        let at = octets.len() - 4;
        octets[at..].copy_from_slice(&u32::to_be_bytes(number));
        assert_eq!(client.send_octets(&octets).status(), expected, "{number}");
    }
}

#[test]
fn an_operation_without_a_filehandle_has_none() {
    let mut client = Client4::in_memory();
    let set = SetAttr4Args { stateid: Stateid::ANONYMOUS, attributes: RawAttributes::default() };
    for request in [
        Request::GetFh(()),
        Request::SaveFh(()),
        Request::RestoreFh(()),
        Request::Lookup(Text(b"x")),
        Request::LookupP(()),
        Request::GetAttr(Bitmap::of([1])),
        Request::Access(Access4Args { rights: 1 }),
        Request::ReadLink(()),
        Request::Remove(Text(b"x")),
        Request::Link(Text(b"x")),
        Request::SetAttr(set),
        Request::SecInfo(Text(b"x")),
        Request::SecInfoNoName(SecInfoStyle::Current),
    ] {
        let reply = client.run(std::slice::from_ref(&request));
        assert_eq!(reply.status(), Status4::NoFileHandle, "{request:?}");
    }
}

#[test]
fn a_compound_that_is_cut_anywhere_fails_and_loses_no_slot() {
    let mut client = Client4::in_memory();
    let export = client.export();
    let requests = |sequence| {
        [
            sequence,
            Request::PutRootFh(()),
            Request::Lookup(Text(export)),
            Request::Access(Access4Args { rights: 0x1f }),
            Request::GetAttr(Bitmap::of([1, 3, 4, 33])),
        ]
    };
    let whole = client.encode(&requests(client.sequence_of(0, 1, false)));
    let head = client.encode(&[]).len() - 4;
    for cut in (0..whole.len() - head).step_by(4) {
        let sequence = client.sequence(true);
        let mut octets = client.encode(&requests(sequence));
        octets.truncate(head + cut);
        let reply = client.exchange(&octets);
        let mut reader = Reader::new(&reply);
        let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
        if outcome != Outcome::accepted(Accepted::Success) {
            assert_eq!(outcome, Outcome::accepted(Accepted::GarbageArgs));
            client.sequences[0] -= 1;
            continue;
        }
        let reply = super::client::Reply4(reply[ReplyHeader::LEN..].to_vec());
        let answers = reply.answers();
        assert_eq!(reply.status(), Status4::BadXdr, "cut at {cut}");
        if !matches!(answers.first(), Some(Answer::Sequence(Ok(_)))) {
            client.sequences[0] -= 1;
        }
    }
    assert_eq!(client.run(&[]).status(), Status4::Ok, "the slot serves on");
}

#[test]
fn the_lease_is_the_one_of_the_configuration() {
    let mut client = Client4::in_memory();
    let reply = client.run(&[Request::PutRootFh(()), Request::GetAttr(Bitmap::of([10]))]);
    let Answer::GetAttr(Ok(raw)) = reply.last() else { panic!() };
    let lease = raw.values().unwrap().lease_time.unwrap();
    assert_eq!(u64::from(lease), CONFIG.lease.as_secs());
}

/// Octets of a reply in front of the sequence ID: status, tag, number of results, number and status
/// of SEQUENCE, session.
const SEQUENCE_AT: usize = 5 * 4 + 16;

/// Free files and octets: others use the file systems of the host meanwhile.
const FREE: [u32; 4] = [21, 22, 42, 43];

#[test]
fn a_getattr_is_answered_by_the_same_octets_in_place_and_by_the_interpreter() {
    for mut client in Client4::all() {
        let (_, file) = client.open(b"file");
        let root = client.at_export(&[Request::GetFh(())]);
        let Answer::GetFh(Ok(directory)) = root.last() else { panic!("{root:?}") };
        let missing = [7; 30];
        let each = (0..=90).chain([200, 255]).map(|number| Bitmap::of([number]));
        let left_out = [&FREE[..], &[48, 54, 74, 81]].concat();
        let all = Bitmap::of((0..=90).filter(|number| !left_out.contains(number)));
        // Attributes that Linux asks for each time.
        let linux = Bitmap::of([1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);
        for asked in each.chain([linux, all, Bitmap::EMPTY]) {
            for handle in [&file[..], directory.0, &missing] {
                let behind = [Request::PutFh(Text(handle)), Request::GetAttr(asked)];
                let [in_place, interpreted] = [false, true].map(|is_kept| {
                    let [put, get] = behind.clone();
                    let mut reply = client.send_next(is_kept, [put, get]).0;
                    reply[SEQUENCE_AT..SEQUENCE_AT + 4].fill(0);
                    reply
                });
                if asked.meets(&Bitmap::of(FREE)) {
                    assert_eq!(in_place.len(), interpreted.len(), "{asked:?} of {handle:?}");
                } else {
                    assert_eq!(in_place, interpreted, "{asked:?} of {handle:?}");
                }
            }
        }
    }
}

/// Attributes of a file that a WRITE of the same octets leaves as they are.
const STEADY: [u32; 7] = [1, 4, 8, 20, 33, 36, 55];

/// Operations after PUTFH as in compounds that are answered without the interpreter, and some that
/// are nearly of that kind.
fn short_shapes(open: Stateid) -> Vec<Vec<Request<'static>>> {
    let (handle, attributes) = (Request::GetFh(()), Request::GetAttr(STAT_ATTRIBUTES));
    let mut all = vec![vec![handle.clone()], vec![handle.clone(), attributes.clone()]];
    for name in [&b"file"[..], b"link", b"dir", b"nothing", b".", b""] {
        let lookup = Request::Lookup(Text(name));
        all.push(vec![lookup.clone()]);
        all.push(vec![lookup.clone(), handle.clone()]);
        all.push(vec![lookup.clone(), attributes.clone()]);
        all.push(vec![lookup.clone(), handle.clone(), attributes.clone()]);
        all.push(vec![lookup, handle.clone(), Request::GetAttr(Bitmap::of([19, 20]))]);
    }
    for rights in [0, 1, 0x3f, 0x1ff, 0x200] {
        let access = || Request::Access(Access4Args { rights });
        all.push(vec![access()]);
        all.push(vec![access(), attributes.clone()]);
    }
    let other = Stateid { seqid: 1, other: [5; 12] };
    let stateids = [open, other, Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT];
    for stateid in stateids.into_iter().chain([Stateid { seqid: 9, ..open }]) {
        for (offset, count) in [(0, 4), (1, 600), (3, 0), (9, 9), (u64::MAX, 2)] {
            all.push(vec![read_args(stateid, offset, count)]);
        }
        for (offset, octets) in [(0, &b"content"[..]), (2, b""), (u64::MAX - 1, b"abc")] {
            all.push(vec![write_args(stateid, offset, octets)]);
            let steady = Request::GetAttr(Bitmap::of(STEADY));
            all.push(vec![write_args(stateid, offset, octets), steady]);
        }
    }
    all
}

#[test]
fn short_compounds_are_answered_by_the_octets_of_the_interpreter() {
    for mut client in Client4::all() {
        let (open, file) = client.open(b"file");
        let put = Request::PutFh(Text(&file));
        let written = client.run(&[put, write_args(open, 0, b"content")]);
        assert_eq!(written.status(), Status4::Ok);
        for (name, kind) in [
            (&b"dir"[..], CreateKind::Directory),
            (b"link", CreateKind::Link(Bulk::Inline(b"file"))),
        ] {
            let attributes = RawAttributes::default();
            let create = Create4Args { kind, name: Text(name), attributes };
            assert_eq!(client.at_export(&[Request::Create(create)]).status(), Status4::Ok);
        }
        let mut handle_of = |path: &[&'static [u8]]| {
            let steps = path.iter().map(|name| Request::Lookup(Text(name)));
            let reply = client.at_export(&steps.chain([Request::GetFh(())]).collect::<Vec<_>>());
            let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
            handle.0.to_vec()
        };
        let (top, link) = (handle_of(&[]), handle_of(&[b"link"]));
        for shape in short_shapes(open) {
            for handle in [&file[..], &top, &link, b"stag", &[7; 30]] {
                let [short, interpreted] = [false, true].map(|is_kept| {
                    let put = Request::PutFh(Text(handle));
                    let all = [put].into_iter().chain(shape.iter().cloned());
                    let mut reply = client.send_next(is_kept, all).0;
                    reply[SEQUENCE_AT..SEQUENCE_AT + 4].fill(0);
                    reply
                });
                assert_eq!(short, interpreted, "{shape:?} of {handle:?}");
            }
        }
        let report = client.wire.report();
        let data = report.nfs4.data;
        assert!(data.octets_read > 0 && data.octets_written > 0);
        assert_eq!((report.data.octets_read, report.data.octets_written), (0, 0), "of version 3");
    }
}

#[test]
fn the_compounds_that_linux_sends_most_do_without_the_interpreter() {
    let mut client = Client4::in_memory();
    let (open, file) = client.open(b"file");
    let top = client.at_export(&[Request::GetFh(())]);
    let Answer::GetFh(Ok(top)) = top.last() else { panic!("{top:?}") };
    let attributes = || Request::GetAttr(STAT_ATTRIBUTES);
    let consistent = || Request::GetAttr(Bitmap::of([3, 4, 52, 53]));
    let lookup = |name| vec![Request::Lookup(Text(name)), Request::GetFh(()), attributes()];
    let access = Request::Access(Access4Args { rights: 0x1f });
    for (handle, shape) in [
        (&file[..], vec![attributes()]),
        (&file, vec![consistent()]),
        (top.0, lookup(b"file")),
        (top.0, lookup(b"nothing")),
        (&file, vec![access, consistent()]),
        (&file, vec![read_args(open, 0, 64)]),
        (&file, vec![write_args(open, 0, b"content"), consistent()]),
    ] {
        for is_kept in [false, true] {
            let before = client.wire.report().nfs4.short;
            let put = Request::PutFh(Text(handle));
            client.send_next(is_kept, [put].into_iter().chain(shape.clone()));
            let more = client.wire.report().nfs4.short - before;
            assert_eq!(more, u64::from(!is_kept), "{shape:?}");
        }
    }
}

#[test]
fn a_slot_judges_a_getattr_in_place_as_any_other_request() {
    let mut client = Client4::in_memory();
    let (_, file) = client.open(b"file");
    let rest = [Request::PutFh(Text(&file)), Request::GetAttr(Bitmap::of([1, 4]))];
    assert_eq!(client.run(&rest).status(), Status4::Ok);
    let last = client.sequences[0];
    let [put, get] = rest;
    let mut send = |slot, sequence| {
        let request = client.sequence_of(slot, sequence, false);
        client.send(&[request, put.clone(), get.clone()]).status()
    };
    assert_eq!(send(0, last), Status4::RetryUncachedRep, "it was answered, and is not kept");
    assert_eq!(send(0, last + 2), Status4::SeqMisordered);
    assert_eq!(send(64, 1), Status4::BadSlot);
    assert_eq!(send(0, last + 1), Status4::Ok, "nothing of that changed the slot");
    client.credential = Credential::None;
    let request = client.sequence_of(0, last + 1, false);
    let other = client.send(&[request, put.clone(), get.clone()]);
    assert_eq!(other.status(), Status4::SeqFalseRetry, "another user");
    client.session = [9; 16];
    assert_eq!(client.run(&[put, get]).status(), Status4::BadSession);
}
