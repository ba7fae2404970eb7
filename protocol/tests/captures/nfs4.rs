//! Every octet of the traffic of version 4.1 is understood, operation by operation and attribute by
//! attribute, and comes out of our encoders as it went in; nothing of that allocates.

use std::collections::BTreeMap;

use stag_protocol::nfs::v4::*;
use stag_protocol::rpc::{CallHeader, ReplyHeader};
use stag_protocol::rpcrdma::Direction;
use stag_protocol::xdr::{Codec, NoRoom, Reader, Writer};

use crate::NFS41;
use crate::calls::{Call, capture};
use crate::counting::allocations;
use crate::understood::{whole_call, whole_reply};

/// Linux' own: it reads and lists up to a MiB.
const LIMITS: ReplyLimits = ReplyLimits {
    read: 1 << 20,
    listing: 1 << 20,
    link: 4096,
    xattr: 65_536,
    flavors: 8,
    handle: 128,
    user: 1024,
};

/// Operations of a compound, by name and status.
type Seen = BTreeMap<String, usize>;

/// The RPC header's length, and if the call is a COMPOUND or a CB_COMPOUND.
fn header_of_call(octets: &[u8]) -> (usize, bool) {
    let mut reader = Reader::new(octets);
    let header = CallHeader::parse(&mut reader).unwrap();
    (octets.len() - reader.remaining(), header.procedure == COMPOUND)
}

fn header_of_reply(octets: &[u8]) -> usize {
    let mut reader = Reader::new(octets);
    ReplyHeader::parse(&mut reader).unwrap();
    octets.len() - reader.remaining()
}

/// Each value that there is comes out as it went in.
fn check_attributes(raw: &RawAttributes<'_>, out: &mut [u8]) {
    let values = raw.values().expect("the table has all that Linux sends");
    assert_eq!(values.mask(), values.mask().intersection(&raw.mask));
    let mut writer = Writer::new(out);
    emit_attributes(&raw.mask, &mut writer, |one, writer| values.emit_one(one, writer)).unwrap();
    let len = writer.len();
    let again: RawAttributes<'_> = Reader::new(&out[..len]).whole().unwrap();
    assert_eq!(again, *raw);
}

fn attributes_of_request<'a>(request: &Request<'a>) -> Option<RawAttributes<'a>> {
    match request {
        Request::SetAttr(arguments) => Some(arguments.attributes),
        Request::Create(arguments) => Some(arguments.attributes),
        Request::NVerify(attributes) | Request::Verify(attributes) => Some(*attributes),
        Request::Open(arguments) => match &arguments.how {
            OpenHow::Create(
                CreateHow4::Unchecked(attributes) | CreateHow4::Guarded(attributes),
            ) => Some(*attributes),
            OpenHow::Create(CreateHow4::Exclusive41(both)) => Some(both.attributes),
            OpenHow::Create(CreateHow4::Exclusive(_)) | OpenHow::NoCreate => None,
        },
        _ => None,
    }
}

fn check_answer(answer: &Answer<'_>, out: &mut [u8]) {
    match answer {
        Answer::GetAttr(Ok(attributes)) => check_attributes(attributes, out),
        Answer::ReadDir(Ok(listing)) => {
            listing.entries.clone().for_each(|entry| check_attributes(&entry.attributes, out));
        }
        _ => {}
    }
}

/// Emits what `emit` writes; it has to be these octets.
fn check_octets(
    expected: &[u8],
    out: &mut [u8],
    emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) {
    let mut writer = Writer::new(out);
    emit(&mut writer).unwrap();
    let len = writer.len();
    assert!(out[..len] == *expected);
}

/// Reads a COMPOUND and writes it again, one operation at a time, and the same with its results.
fn understand_compound(call: &[u8], reply: &[u8], out: &mut [u8], spare: &mut [u8]) {
    let mut operations = Compound::parse(Reader::new(call)).unwrap();
    let mut results = CompoundReply::parse(Reader::new(reply)).unwrap();
    assert_eq!(operations.head().minor_version, 1);
    let (calls, replies) = out.split_at_mut(call.len());
    let mut calls = Writer::new(calls);
    operations.head().emit(&mut calls).unwrap();
    let mut replies = Writer::new(replies);
    let mut written = ResultsWriter::begin(&mut replies, results.head().tag).unwrap();
    for request in operations.by_ref() {
        let request = request.expect("Linux asks for what there is");
        request.emit(&mut calls).unwrap();
        if let Some(attributes) = attributes_of_request(&request) {
            check_attributes(&attributes, spare);
        }
        let Some(answer) = results.next() else { continue };
        let answer = answer.unwrap();
        let before = written.len();
        written.push(&answer).unwrap();
        assert!(written.len() - before <= request.reply_len_max(&LIMITS), "{request:?}");
        check_answer(&answer, spare);
    }
    let status = written.finish();
    assert_eq!(status, results.head().status);
    let (calls_len, replies_len) = (calls.len(), replies.len());
    assert_eq!((operations.finish(), results.finish()), (Ok(()), Ok(())));
    assert!(out[..calls_len] == *call);
    assert!(out[call.len()..call.len() + replies_len] == *reply);
}

fn understand_callback(call: &[u8], reply: &[u8], out: &mut [u8]) -> Vec<CallbackOperation> {
    let operations = CallbackCompound::parse(Reader::new(call)).unwrap();
    let results = CallbackReply::parse(Reader::new(reply)).unwrap();
    let mut seen = Vec::new();
    check_octets(call, out, |writer| {
        operations.head().emit(writer)?;
        for request in operations.clone() {
            let request = request.expect("Linux asks for what there is");
            seen.push(request.operation());
            request.emit(writer)?;
        }
        Ok(())
    });
    check_octets(reply, out, |writer| {
        let mut written = ResultsWriter::begin(writer, results.head().tag)?;
        for answer in results.clone() {
            written.push(&answer.unwrap())?;
        }
        written.finish();
        Ok(())
    });
    seen
}

fn count(call: &[u8], reply: &[u8], seen: &mut Seen) {
    let operations = Compound::parse(Reader::new(call)).unwrap();
    let results = CompoundReply::parse(Reader::new(reply)).unwrap();
    for (request, answer) in operations.zip(results) {
        let (operation, status) = (request.unwrap().operation(), answer.unwrap().status());
        *seen.entry(format!("{operation:?} {status:?}")).or_default() += 1;
    }
}

fn bodies(call: &Call) -> Option<(Vec<u8>, Vec<u8>)> {
    let (called, replied) = (whole_call(call), whole_reply(call));
    let (header_len, is_compound) = header_of_call(&called);
    let results = replied[header_of_reply(&replied)..].to_vec();
    if !is_compound {
        assert_eq!((called.len(), results.len()), (header_len, 0), "NULL has nothing");
        return None;
    }
    Some((called[header_len..].to_vec(), results))
}

/// Inputs for the fuzz targets: each compound, named by its operations.
pub fn add_compound(call: &Call, mut add: impl FnMut(&'static str, &str, Vec<u8>)) {
    let is_nfs4 = CallHeader::parse(&mut Reader::new(&whole_call(call)))
        .is_ok_and(|header| header.version == VERSION || call.direction == Direction::Reverse);
    let Some((arguments, results)) = is_nfs4.then(|| bodies(call)).flatten() else { return };
    if call.direction == Direction::Reverse {
        add("nfs4_callback", "call", [&[0; 4], &arguments[..]].concat());
        add("nfs4_callback", "reply", [&[0, 0, 0, 1], &results[..]].concat());
        return;
    }
    let operations = Compound::parse(Reader::new(&arguments)).unwrap();
    let names = operations.map(|request| format!("{:?}", request.unwrap().operation()));
    let name = names.skip(1).collect::<Vec<_>>().join(" ");
    let name = if name.is_empty() { "alone" } else { &name };
    add("nfs4_compound", name, arguments);
    add("nfs4_reply", name, results);
}

#[test]
fn every_octet_of_nfs_4_1_is_understood_and_emitted_again_without_an_allocation() {
    let capture = capture(NFS41);
    let (mut out, mut spare) = (vec![0; 4 << 20], vec![0; 64 << 10]);
    let (mut seen, mut callbacks) = (Seen::new(), Vec::new());
    for call in &capture.calls {
        let Some((arguments, results)) = bodies(call) else { continue };
        if call.direction == Direction::Reverse {
            callbacks.extend(understand_callback(&arguments, &results, &mut out));
            continue;
        }
        let understand = || understand_compound(&arguments, &results, &mut out, &mut spare);
        assert_eq!(allocations(understand).1, 0);
        count(&arguments, &results, &mut seen);
    }
    seen.iter().for_each(|(line, count)| println!("{count:5}  {line}"));
    assert_eq!(callbacks, [CallbackOperation::Sequence, CallbackOperation::Recall]);
    let expected = [
        ("Access Ok", 23),
        ("Close Ok", 19),
        ("Commit Ok", 1),
        ("Create Ok", 5),
        ("CreateSession Ok", 1),
        ("DelegReturn Ok", 2),
        ("DestroyClientid Ok", 1),
        ("DestroySession Ok", 1),
        ("ExchangeId Ok", 2),
        ("FreeStateid Ok", 1),
        ("GetAttr Ok", 86),
        ("GetFh Ok", 15),
        ("Link Ok", 1),
        ("Lock Grace", 8),
        ("Lock Ok", 1),
        ("LockU Ok", 1),
        ("Lookup NoEnt", 3),
        ("Lookup Ok", 1),
        ("Open Ok", 19),
        ("PutFh Ok", 139),
        ("PutRootFh Ok", 2),
        ("Read Ok", 23),
        ("ReadDir Ok", 4),
        ("ReclaimComplete Ok", 1),
        ("Remove Ok", 1),
        ("Rename Ok", 1),
        ("RestoreFh Ok", 1),
        ("SaveFh Ok", 2),
        ("SecInfoNoName Ok", 1),
        ("Sequence Ok", 144),
        ("SetAttr Ok", 5),
        ("Write Ok", 13),
    ];
    assert_eq!(seen, expected.map(|(line, count)| (line.to_owned(), count)).into());
}

#[test]
fn every_cut_of_every_compound_is_refused_in_its_place() {
    let capture = capture(NFS41);
    for call in capture.calls.iter().filter(|call| call.direction == Direction::Forward) {
        let Some((arguments, results)) = bodies(call) else { continue };
        for cut in (0..arguments.len()).step_by(4).take(200) {
            let Ok(operations) = Compound::parse(Reader::new(&arguments[..cut])) else {
                assert!(cut < 12);
                continue;
            };
            let faults: Vec<_> = operations.filter_map(Result::err).collect();
            assert_eq!(faults.len(), 1);
            assert_eq!(faults[0].status, Status4::BadXdr);
        }
        for cut in (0..results.len()).step_by(4).take(200) {
            let Ok(results) = CompoundReply::parse(Reader::new(&results[..cut])) else { continue };
            assert_eq!(results.filter(Result::is_err).count(), 1);
        }
    }
}
