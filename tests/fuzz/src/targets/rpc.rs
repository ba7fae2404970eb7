//! ONC RPC: both headers, credentials, record marking.

use std::mem::discriminant;

use stag_protocol::{
    rpc::{
        Auth, CallHeader, Credential, MessageType, Outcome, Refusal, ReplyHeader, gss,
        record::{Assembler, Fault, Fragment, Step},
    },
    xdr::{Codec, Error, Reader, Writer},
};

use super::{InputVerdict, differs_in_padding_only, emitted};

/// A call's header, with whatever follows it.
pub fn call(input: &[u8]) -> InputVerdict {
    let mut reader = Reader::new(input);
    let header = match CallHeader::parse(&mut reader) {
        Ok(header) => header,
        Err(Refusal::Discard) => {
            let peeked = MessageType::peek(&Reader::new(input));
            assert!(!matches!(peeked, Ok((_, MessageType::Call))), "a call is answered");
            return InputVerdict::refused(&Refusal::Discard);
        }
        Err(Refusal::Answer(reply)) => {
            let (xid, kind) = MessageType::peek(&Reader::new(input)).unwrap();
            assert_eq!((reply.xid, kind), (xid, MessageType::Call), "the answer names the call");
            check_reply(&reply);
            let reason = match reply.outcome {
                Outcome::Accepted { status, .. } => super::class(discriminant(&status)),
                Outcome::Denied(denied) => super::class(format!("{denied:?}")),
            };
            return InputVerdict::Refused(reason);
        }
    };
    let consumed = input.len() - reader.remaining();
    // The body of AUTH_NONE means nothing, and is not kept (RFC 5531 §10.1).
    let len = match header.credential {
        Credential::None => 8 * 4 + 4 + 4 + padded_verifier(&header),
        _ => consumed,
    };
    let signed = input.get(..consumed - 8 - padded_verifier(&header));
    assert_eq!(gss::signed_header(&Reader::new(input)), signed);
    let out = emitted(len, |writer| header.emit(writer));
    if len == consumed {
        assert!(differs_in_padding_only(&out, &input[..consumed]));
    }
    let mut again = Reader::new(&out);
    assert_eq!(CallHeader::parse(&mut again).as_ref(), Ok(&header));
    assert_eq!(again.finish(), Ok(()));
    InputVerdict::accepted((discriminant(&header.credential), header.verifier.body.len().min(8)))
}

/// Octets of the verifier's body.
fn padded_verifier(header: &CallHeader<'_>) -> usize {
    header.verifier.body.len().next_multiple_of(4)
}

fn check_reply(header: &ReplyHeader<'_>) {
    let mut out = [0; 512];
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    let mut again = Reader::new(&out[..len]);
    assert_eq!(ReplyHeader::parse(&mut again).as_ref(), Ok(header));
    assert_eq!(again.finish(), Ok(()));
}

/// A reply's header, with whatever follows it.
pub fn reply(input: &[u8]) -> InputVerdict {
    let mut reader = Reader::new(input);
    let header = match ReplyHeader::parse(&mut reader) {
        Ok(header) => header,
        Err(error) => return InputVerdict::refused(&error),
    };
    let consumed = input.len() - reader.remaining();
    let out = emitted(consumed, |writer| header.emit(writer));
    assert!(differs_in_padding_only(&out, &input[..consumed]));
    check_reply(&header);
    assert!(ReplyHeader::parse(&mut Reader::new(&out[..consumed - 1])).is_err());
    match header.outcome {
        Outcome::Accepted { status, .. } => InputVerdict::accepted(discriminant(&status)),
        Outcome::Denied(denied) => InputVerdict::accepted((0, discriminant(&denied))),
    }
}

/// A credential.
pub fn auth(input: &[u8]) -> InputVerdict {
    let mut reader = Reader::new(input);
    let raw = Auth::parse(&mut Reader::new(input));
    let credential = match Credential::parse(&mut reader) {
        Ok(credential) => credential,
        Err(error) => return InputVerdict::refused(&error),
    };
    let raw = raw.expect("a credential is an authentication body");
    let consumed = input.len() - reader.remaining();
    let len = if credential == Credential::None { 8 } else { consumed };
    assert!(raw.body.len() <= Auth::BODY_MAX && consumed == 8 + raw.body.len().next_multiple_of(4));
    let out = emitted(len, |writer| credential.emit(writer));
    assert!(len != consumed || differs_in_padding_only(&out, &input[..consumed]));
    assert_eq!(Credential::parse(&mut Reader::new(&out)), Ok(credential));
    match credential {
        Credential::Sys(user) => {
            InputVerdict::accepted((1, user.gids.list().len(), user.machine_name.len() % 4))
        }
        other => InputVerdict::accepted(discriminant(&other)),
    }
}

/// Octets of the longest record in [`record`].
const RECORD_MAX: usize = 256;

/// A stream of records; the first octet says in which portions it comes, the second how much of it
/// is read straight to its place.
pub fn record(input: &[u8]) -> InputVerdict {
    let Some(([portion, direct], stream)) = input.split_first_chunk() else {
        return InputVerdict::refused(&Error::Short);
    };
    let portion = usize::from(*portion) + 1;
    let expected = records(stream);
    let in_portions = assemble(stream, portion, usize::from(*direct));
    assert_eq!(in_portions, expected);
    match expected {
        (records, Some(fault)) => {
            InputVerdict::Refused(super::class((records.len().min(4), discriminant(&fault))))
        }
        (records, None) => {
            InputVerdict::accepted((records.len().min(16), records.iter().any(Vec::is_empty)))
        }
    }
}

type FuzzRecords = (Vec<Vec<u8>>, Option<Fault>);

/// The records of a stream, by the words alone (RFC 5531 §11).
fn records(mut stream: &[u8]) -> FuzzRecords {
    let (mut records, mut record, mut empty) = (Vec::new(), Vec::new(), 0);
    while let Some((word, rest)) = stream.split_first_chunk() {
        let fragment = Fragment::parse(*word);
        assert_eq!(fragment.emit(), *word);
        let len = fragment.octets() as usize;
        if record.len() + len > RECORD_MAX {
            return (records, Some(Fault::TooLong));
        }
        empty += u8::from(len == 0 && !fragment.last);
        if empty > stag_protocol::rpc::record::EMPTY_FRAGMENTS_MAX {
            return (records, Some(Fault::EmptyFragments));
        }
        let Some((octets, rest)) = rest.split_at_checked(len) else { break };
        record.extend_from_slice(octets);
        stream = rest;
        if fragment.last {
            records.push(std::mem::take(&mut record));
            empty = 0;
        }
    }
    (records, None)
}

fn assemble(stream: &[u8], portion: usize, direct: usize) -> FuzzRecords {
    let mut assembler = Assembler::new(RECORD_MAX);
    let (mut records, mut record) = (Vec::new(), [0; RECORD_MAX]);
    for mut input in stream.chunks(portion) {
        loop {
            // As from a socket: some octets known to belong to the record do not pass through the
            // portion.
            if let Some((at, len)) = assembler.direct() {
                let len = len.min(direct).min(input.len());
                record[at..at + len].copy_from_slice(&input[..len]);
                assembler.placed(len);
                input = &input[len..];
            }
            match assembler.step(&mut input) {
                Ok(Step::More) => break assert!(input.is_empty()),
                Ok(Step::Copy { octets, at }) => {
                    record[at..at + octets.len()].copy_from_slice(octets)
                }
                Ok(Step::Complete(len)) => records.push(record[..len].to_vec()),
                Err(fault) => return (records, Some(fault)),
            }
        }
    }
    (records, None)
}
