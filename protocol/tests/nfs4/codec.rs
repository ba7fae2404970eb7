//! Every operation survives in each of its forms, and no result is longer than its bound.

use std::collections::BTreeSet;
use std::fmt::Debug;

use stag_protocol::nfs::v4::*;
use stag_protocol::xdr::{Codec, Error, NoRoom, Reader, Writer};

use crate::samples::{LIMITS, SESSION, STATEID, answers, foreign_answers, requests};

/// Emits a value into exactly the room that it takes; one octet less is too little.
pub fn emitted(emit: impl Fn(&mut Writer<'_>) -> Result<(), NoRoom>) -> Vec<u8> {
    let mut out = vec![0xee; 80_000];
    let mut writer = Writer::new(&mut out);
    emit(&mut writer).unwrap();
    let len = writer.len();
    out.truncate(len);
    for cut in (0..len).step_by(4).take(400) {
        assert_eq!(emit(&mut Writer::new(&mut vec![0; cut])), Err(NoRoom), "room for {cut}");
    }
    out
}

/// The value comes back whole, and from no cut of its octets.
pub fn survives<T: PartialEq + Debug>(
    wire: &[u8],
    value: &T,
    parse: impl for<'a> Fn(&mut Reader<'a>, &T) -> Result<bool, Error>,
) {
    let mut reader = Reader::new(wire);
    assert_eq!(parse(&mut reader, value), Ok(true), "{value:?}");
    assert_eq!(reader.finish(), Ok(()));
    let cuts = (0..wire.len()).take(2000).chain(wire.len().saturating_sub(8)..wire.len());
    for cut in cuts {
        let cut_off = parse(&mut Reader::new(&wire[..cut]), value);
        assert!(cut_off.is_err(), "{value:?} cut at {cut}");
    }
}

#[test]
fn all_arguments_survive_and_every_cut_of_them_is_an_error() {
    let mut seen = BTreeSet::new();
    for request in requests() {
        let operation = request.operation();
        seen.insert(operation);
        let wire = emitted(|writer| request.emit(writer));
        survives(&wire, &request, |reader, value| {
            assert_eq!(reader.u32()?, operation as u32);
            let parsed = Request::parse(operation, reader)?;
            Ok(parsed == *value)
        });
    }
    let served = Operation::ALL.iter().copied().filter(|operation| operation.is_served());
    assert_eq!(seen, served.collect(), "each operation has a sample");
}

#[test]
fn all_results_survive_and_every_cut_of_them_is_an_error() {
    let mut seen = BTreeSet::new();
    for answer in answers().into_iter().chain(foreign_answers()) {
        let wire = emitted(|writer| answer.emit(writer));
        seen.insert(u32::from_be_bytes(*wire.first_chunk().unwrap()));
        let status = u32::from_be_bytes(wire[4..8].try_into().unwrap());
        assert_eq!(answer.status() as u32, status);
        survives(&wire, &answer, |reader, value| Ok(Answer::parse(reader)? == *value));
    }
    let served = Operation::ALL.iter().filter(|operation| operation.is_served());
    assert_eq!(seen, served.map(|operation| *operation as u32).collect());
}

#[test]
fn every_operation_may_fail_with_every_status() {
    for operation in Operation::ALL {
        for number in (1..=10_100).filter(|number| ![0, 10_010, 10_094].contains(number)) {
            let Some(status) = status(number) else { continue };
            let mut wire = [*operation as u32, number].map(u32::to_be_bytes).concat();
            if *operation == Operation::SetAttr {
                wire.extend([0; 4]);
            }
            let answer = Reader::new(&wire);
            let answer = Answer::parse(&mut answer.clone()).unwrap();
            assert_eq!(answer.status(), status);
            assert_eq!(emitted(|writer| answer.emit(writer)), wire);
        }
    }
}

fn status(number: u32) -> Option<Status4> {
    Reader::new(&number.to_be_bytes()).whole().ok()
}

#[test]
fn no_result_is_longer_than_its_bound_and_the_longest_ones_meet_it() {
    let mut met = BTreeSet::new();
    for answer in answers() {
        let wire = emitted(|writer| answer.emit(writer));
        let number = u32::from_be_bytes(*wire.first_chunk().unwrap());
        let of_number = |request: &Request<'_>| request.operation() as u32 == number;
        for request in requests().into_iter().filter(of_number) {
            let bound = request.reply_len_max(&LIMITS);
            // A TEST_STATEID of no stateids has no results for two.
            if !matches!(&request, Request::TestStateid(asked) if asked.is_empty()) {
                assert!(wire.len() <= bound, "{answer:?}: {} > {bound}", wire.len());
            }
            if wire.len() == bound {
                met.insert(number);
            }
        }
    }
    // Longer results need more than one sample: attributes, listings, stateids.
    let not_met: Vec<_> = Operation::ALL
        .iter()
        .filter(|operation| operation.is_served() && !met.contains(&(**operation as u32)))
        .collect();
    let expected = [
        Operation::GetAttr,
        Operation::ReadDir,
        Operation::SecInfoNoName,
        Operation::TestStateid,
        Operation::ListXattrs,
    ];
    assert_eq!(not_met, expected.iter().collect::<Vec<_>>());
}

#[test]
fn what_a_caller_asks_for_bounds_no_result_beyond_our_own_limits() {
    let read = |count| Read4Args { stateid: STATEID, offset: 0, count };
    let bound = |count| Request::Read(read(count)).reply_len_max(&LIMITS);
    assert_eq!(bound(5), 8 + 4 + 4 + 8);
    assert_eq!(bound(u32::MAX), bound(1 << 20));
    let stateids = [STATEID; 3];
    let test = Request::TestStateid(Array::of(&stateids)).reply_len_max(&LIMITS);
    assert_eq!(test, 8 + 4 + 3 * 4);
    let limits = ReplyLimits {
        read: u32::MAX,
        listing: u32::MAX,
        link: u32::MAX,
        xattr: u32::MAX,
        flavors: u32::MAX,
        handle: u32::MAX,
        user: u32::MAX,
    };
    for request in requests() {
        assert!(request.reply_len_max(&limits) >= 8, "{request:?}");
    }
}

fn callback_requests() -> Vec<CallbackRequest<'static>> {
    let calls = [ReferringCall { sequence: 1, slot: 2 }; 2].to_vec().leak();
    let referring = vec![ReferringCalls { session: SESSION, calls: Array::of(calls) }].leak();
    let owner = StateOwner { client_id: 1, owner: Text(b"owner") };
    vec![
        CallbackRequest::GetAttr(CbGetAttrArgs {
            file: Text(b"file"),
            attributes: Bitmap::of([3, 4]),
        }),
        CallbackRequest::Recall(CbRecallArgs {
            delegation: STATEID,
            truncate: true,
            file: Text(&[1; 128]),
        }),
        CallbackRequest::RecallAny(CbRecallAnyArgs { keep: 5, types: Bitmap::of([0, 1]) }),
        CallbackRequest::RecallSlot(7),
        CallbackRequest::Sequence(CbSequenceArgs {
            session: SESSION,
            sequence: 1,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
            referring: Array::of(referring),
        }),
        CallbackRequest::NotifyLock(CbNotifyLockArgs { file: Text(b"file"), owner }),
    ]
}

#[test]
fn all_callbacks_survive_and_every_cut_of_them_is_an_error() {
    let mut seen = Vec::new();
    for request in callback_requests() {
        let operation = request.operation();
        seen.push(operation);
        let wire = emitted(|writer| request.emit(writer));
        survives(&wire, &request, |reader, value| {
            reader.u32()?;
            let parsed = CallbackRequest::parse(operation, reader)?;
            Ok(parsed == *value)
        });
    }
    let served: Vec<_> = CallbackOperation::ALL.iter().filter(|one| one.is_served()).collect();
    assert_eq!(seen.iter().collect::<Vec<_>>(), served);
    let ok = CbSequenceOk {
        session: SESSION,
        sequence: 1,
        slot: 0,
        highest_slot: 15,
        target_highest_slot: 15,
    };
    let raw = RawAttributes { mask: Bitmap::of([4]), octets: &[0; 8] };
    let answers = [
        CallbackAnswer::Sequence(Ok(ok)),
        CallbackAnswer::GetAttr(Ok(raw)),
        CallbackAnswer::Recall(Err(Status4::BadHandle)),
        CallbackAnswer::RecallAny(Ok(())),
        CallbackAnswer::RecallSlot(Ok(())),
        CallbackAnswer::NotifyLock(Ok(())),
    ];
    for answer in answers {
        let wire = emitted(|writer| answer.emit(writer));
        survives(&wire, &answer, |reader, value| Ok(CallbackAnswer::parse(reader)? == *value));
    }
}

#[test]
fn items_that_a_chunk_may_carry_are_those_of_the_binding() {
    use stag_protocol::nfs::binding::Eligible;
    let eligible = |side| {
        let all = Operation::ALL.iter().copied();
        all.filter(|operation| operation.ddp_eligible() == Some(side)).collect::<Vec<_>>()
    };
    assert_eq!(eligible(Eligible::Argument), [Operation::Create, Operation::Write]);
    assert_eq!(eligible(Eligible::Result), [Operation::Read, Operation::ReadLink]);
}

#[test]
fn handles_and_owners_that_are_too_long_are_refused() {
    for (len, longest) in [(0, 128), (128, 128), (129, 128), (1024, 1024), (1025, 1024)] {
        let mut wire = vec![0; 4 + 1028];
        wire[..4].copy_from_slice(&(len as u32).to_be_bytes());
        let mut reader = Reader::new(&wire);
        let fits = match longest {
            128 => Handle4::parse(&mut reader).map(|handle| handle.0.len()),
            _ => Owner4::parse(&mut reader).map(|owner| owner.0.len()),
        };
        assert_eq!(fits, if len <= longest { Ok(len) } else { Err(Error::TooLong) });
    }
}

#[test]
fn special_stateids_are_those_of_the_text() {
    let wire = |stateid: Stateid| emitted(|writer| stateid.emit(writer));
    assert_eq!(wire(Stateid::ANONYMOUS), [0; 16]);
    assert_eq!(wire(Stateid::READ_BYPASS), [0xff; 16]);
    assert_eq!(wire(Stateid::CURRENT), [[0, 0, 0, 1], [0; 4], [0; 4], [0; 4]].concat());
    assert_eq!(wire(Stateid::INVALID), [[0xff; 4], [0; 4], [0; 4], [0; 4]].concat());
    let special = [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID];
    assert!(special.iter().all(Stateid::is_special));
    assert!(!STATEID.is_special());
    assert!(!Stateid { seqid: 0, other: *b"\0\0\0\0\0\0\0\0\0\0\0\x01" }.is_special());
}

#[test]
fn two_implementations_of_a_client_are_malformed() {
    let client = ClientOwner { verifier: [0; 8], owner: Text(b"") };
    let protection = StateProtection::None;
    let arguments = ExchangeIdArgs { client, flags: 0, protection, implementation: None };
    let mut wire = emitted(|writer| arguments.emit(writer));
    let count_at = wire.len() - 1;
    wire[count_at] = 2;
    wire.extend([0; 64]);
    let parsed = ExchangeIdArgs::parse(&mut Reader::new(&wire));
    assert_eq!(parsed, Err(Error::BadValue));
}
