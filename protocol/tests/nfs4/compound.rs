//! Compounds are read and answered one operation after another.

use stag_protocol::nfs::Bulk;
use stag_protocol::nfs::v3::StableHow;
use stag_protocol::nfs::v4::*;
use stag_protocol::xdr::{Codec, Error, NoRoom, Piece, Reader, Writer};

use crate::codec::emitted;
use crate::samples::{STATEID, answers, requests};

fn compound(minor_version: u32, operations: u32, body: &[u8]) -> Vec<u8> {
    let head = CompoundHead { tag: Text(b"tag"), minor_version, operations };
    let mut wire = emitted(|writer| head.emit(writer));
    wire.extend(body);
    wire
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn operations_come_one_after_another_as_they_were_written() {
    let all = requests();
    let mut body = Vec::new();
    for request in &all {
        body.extend(emitted(|writer| request.emit(writer)));
    }
    let wire = compound(2, all.len() as u32, &body);
    let mut operations = Compound::parse(Reader::new(&wire)).unwrap();
    assert_eq!(operations.head().tag, Text(b"tag"));
    for (number, request) in all.iter().enumerate() {
        assert_eq!(operations.left() as usize, all.len() - number);
        assert_eq!(operations.next(), Some(Ok(request.clone())));
    }
    assert_eq!(operations.next(), None);
    assert_eq!(operations.finish(), Ok(()));
}

#[test]
fn each_minor_version_has_its_operations_and_no_others() {
    for number in (0..200).chain([ILLEGAL, u32::MAX]) {
        for (minor, last) in [(1, 58), (2, 75)] {
            let body = words(&[number]);
            let wire = compound(minor, 1, &body);
            let mut operations = Compound::parse(Reader::new(&wire)).unwrap();
            let first = operations.next().unwrap();
            let known = (3..=last).contains(&number);
            match first {
                Err(OperationFault { operation: None, status }) => {
                    assert!(!known, "{number} in 4.{minor}");
                    assert_eq!(status, Status4::OpIllegal);
                }
                Err(OperationFault { operation: Some(operation), status }) => {
                    assert!(known && operation as u32 == number);
                    let expected =
                        if operation.is_served() { Status4::BadXdr } else { Status4::NotSupp };
                    assert_eq!(status, expected, "{operation:?}");
                }
                Ok(request) => assert!(known && request.operation() as u32 == number),
            }
        }
    }
}

#[test]
fn operations_that_are_not_served_are_those_of_the_plan() {
    let not: Vec<u32> = Operation::ALL
        .iter()
        .filter(|operation| !operation.is_served())
        .map(|operation| *operation as u32)
        .collect();
    let expected =
        [7, 19, 20, 30, 35, 36, 39, 46, 47, 48, 49, 50, 51, 54, 56, 61, 64, 65, 66, 67, 68, 70];
    assert_eq!(not, expected);
    let callbacks: Vec<u32> = CallbackOperation::ALL
        .iter()
        .filter(|operation| !operation.is_served())
        .map(|operation| *operation as u32)
        .collect();
    assert_eq!(callbacks, [5, 6, 7, 9, 12, 14, 15]);
    assert_eq!(CallbackOperation::Offload.minor_version(), 2);
    assert_eq!(CallbackOperation::NotifyDeviceid.minor_version(), 1);
}

#[test]
fn nothing_behind_an_operation_that_is_refused_is_read() {
    let getfh = Operation::GetFh as u32;
    let renew = Operation::Renew as u32;
    let lookup = Operation::Lookup as u32;
    let cases = [
        (vec![getfh, renew, 0, 0, getfh], Some(Operation::Renew), Status4::NotSupp),
        (vec![getfh, 200, getfh, getfh], None, Status4::OpIllegal),
        (vec![getfh, lookup, 5000, getfh], Some(Operation::Lookup), Status4::BadXdr),
        (vec![getfh], None, Status4::BadXdr),
    ];
    for (body, operation, status) in cases {
        let wire = compound(1, 4, &words(&body));
        let mut operations = Compound::parse(Reader::new(&wire)).unwrap();
        assert_eq!(operations.next(), Some(Ok(Request::GetFh(()))));
        assert_eq!(operations.next(), Some(Err(OperationFault { operation, status })));
        assert_eq!(operations.next(), None);
        assert_eq!(operations.left(), 0);
        let fault = OperationFault { operation, status };
        let wire = emitted(|writer| Answer::Refused(fault).emit(writer));
        let number = operation.map_or(ILLEGAL, |operation| operation as u32);
        assert_eq!(wire, words(&[number, status as u32]));
    }
}

#[test]
fn a_head_that_cannot_be_read_and_octets_behind_the_last_operation_are_errors() {
    let wire = compound(1, 1, &words(&[Operation::GetFh as u32, 0]));
    for cut in 0..16 {
        assert!(Compound::parse(Reader::new(&wire[..cut])).is_err());
    }
    let mut operations = Compound::parse(Reader::new(&wire)).unwrap();
    assert_eq!(operations.clone().finish(), Err(Error::Trailing), "an operation is left");
    operations.next();
    assert_eq!(operations.finish(), Err(Error::Trailing), "octets are left");
    let endless = compound(1, u32::MAX, &[]);
    assert_eq!(Compound::parse(Reader::new(&endless)).unwrap().count(), 1);
    let tag = words(&[1025]);
    assert_eq!(Compound::parse(Reader::new(&tag)).unwrap_err(), Error::TooLong);
}

#[test]
fn results_have_the_status_of_the_last_and_the_tag_of_the_request() {
    let all: Vec<_> = answers()
        .into_iter()
        .filter(|answer| answer.status() == Status4::Ok)
        .chain([Answer::Lookup(Err(Status4::NoEnt))])
        .collect();
    let mut out = vec![0; 1 << 20];
    let mut writer = Writer::new(&mut out);
    writer.u32(7).unwrap();
    let mut results = ResultsWriter::begin(&mut writer, Text(b"a tag")).unwrap();
    assert!(results.is_empty());
    for answer in &all {
        results.push(answer).unwrap();
    }
    assert_eq!(results.finish(), Status4::NoEnt);
    let len = writer.len();
    let mut results = CompoundReply::parse(Reader::new(&out[4..len])).unwrap();
    let head = *results.head();
    assert_eq!((head.status, head.tag), (Status4::NoEnt, Text(&b"a tag"[..])));
    assert_eq!(head.results as usize, all.len());
    for answer in &all {
        assert_eq!(results.next(), Some(Ok(answer.clone())));
    }
    assert_eq!(results.next(), None);
    assert_eq!(results.finish(), Ok(()));
}

#[test]
fn results_that_do_not_fit_leave_no_trace() {
    let handle = Answer::GetFh(Ok(Text(&[1; 128])));
    for room in 0..400 {
        let mut out = vec![0; room];
        let tagged = ResultsWriter::begin(&mut Writer::new(&mut out), Text(b"a tag")).is_ok();
        assert_eq!(tagged, room >= 20);
        let mut writer = Writer::new(&mut out);
        let Ok(mut results) = ResultsWriter::begin(&mut writer, Text(b"")) else {
            assert!(room < 12);
            continue;
        };
        let mut fitted = 0;
        while results.push(&handle).is_ok() {
            fitted += 1;
        }
        assert_eq!(fitted, (room - 12) / 140);
        assert_eq!(results.len(), 12 + 140 * fitted);
        let too_big = Answer::GetFh(Err(Status4::RepTooBig));
        let told = results.push(&too_big);
        assert_eq!(told, if room - 12 - 140 * fitted >= 8 { Ok(()) } else { Err(NoRoom) });
        let status = results.finish();
        let len = writer.len();
        let results = CompoundReply::parse(Reader::new(&out[..len])).unwrap();
        assert_eq!(results.head().status, status);
        assert_eq!(
            results.map(|answer| answer.unwrap()).filter(|one| *one == handle).count(),
            fitted
        );
    }
}

#[test]
fn a_minor_version_that_is_not_served_is_answered_without_results() {
    let mut out = [0xee; 64];
    let mut writer = Writer::new(&mut out);
    let results = ResultsWriter::begin(&mut writer, Text(b"v")).unwrap();
    results.finish_with(Status4::MinorVersMismatch);
    let len = writer.len();
    assert_eq!(out[..len], words(&[10021, 1, 0x7600_0000, 0]));
}

#[test]
fn an_answer_of_success_to_an_operation_that_nobody_knows_is_none() {
    for number in [7_u32, 46, 0, 2, 76, ILLEGAL] {
        let wire = words(&[number, 0]);
        assert_eq!(Answer::parse(&mut Reader::new(&wire)), Err(Error::BadValue));
    }
    let wire = words(&[76, Status4::Inval as u32]);
    assert_eq!(Answer::parse(&mut Reader::new(&wire)), Err(Error::BadValue));
}

#[test]
fn an_item_in_a_chunk_stands_between_the_operations_around_it() {
    let write = Write4Args {
        stateid: STATEID,
        offset: 0,
        stable: StableHow::Unstable,
        data: Bulk::Apart(5),
    };
    let head = CompoundHead { tag: Text(b""), minor_version: 1, operations: 2 };
    let front = emitted(|writer| {
        head.emit(writer)?;
        Request::Write(write).emit(writer)
    });
    let behind = emitted(|writer| Request::GetFh(()).emit(writer));
    let pieces = [Piece::Inline(&front), Piece::Chunk(b"hello"), Piece::Inline(&behind)];
    let mut operations = Compound::parse(Reader::over(&pieces)).unwrap();
    let inline = Write4Args { data: Bulk::Inline(b"hello"), ..write };
    assert_eq!(operations.next(), Some(Ok(Request::Write(inline))));
    assert_eq!(operations.next(), Some(Ok(Request::GetFh(()))));
    assert_eq!(operations.finish(), Ok(()));
}

#[test]
fn results_behind_data_that_leaves_by_a_chunk_are_read_where_they_belong() {
    let mut out = [0; 256];
    let mut writer = Writer::new(&mut out);
    let mut results = ResultsWriter::begin(&mut writer, Text(b"")).unwrap();
    let read = |data| Answer::Read(Ok(Read4Ok { eof: true, data }));
    results.push(&read(Bulk::Apart(5))).unwrap();
    let position = results.len();
    let handle = Answer::GetFh(Ok(Text(b"file")));
    results.push(&handle).unwrap();
    results.finish();
    let len = writer.len();
    let (front, behind) = out[..len].split_at(position);
    let pieces = [Piece::Inline(front), Piece::Chunk(b"hello"), Piece::Inline(behind)];
    let mut results = CompoundReply::parse(Reader::over(&pieces)).unwrap();
    assert_eq!(results.next(), Some(Ok(read(Bulk::Inline(b"hello")))));
    assert_eq!(results.next(), Some(Ok(handle)));
    assert_eq!(results.finish(), Ok(()));
}
