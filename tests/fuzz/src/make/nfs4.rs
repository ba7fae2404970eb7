//! Compounds of NFS version 4, their results, and attributes.

use stag_protocol::{
    nfs::v4::{
        Answer, AnswerSet, Attribute, AttributeValues, Bitmap, CallbackAnswer, CallbackHead,
        CallbackOperation, CallbackRequest, CompoundHead, Operation, Request, Status4, Text,
    },
    xdr::{Codec, Reader},
};

use super::{drawn, some_words};
use crate::{octets::written, random::FuzzRandom, targets::STATE_STEP};

/// A tag, which real clients leave empty.
fn tag(random: &mut FuzzRandom) -> &'static [u8] {
    if random.one_in(4) { b"a tag" } else { b"" }
}

/// Operations with arguments, and how many.
pub(super) fn arguments(random: &mut FuzzRandom) -> (u32, Vec<u8>) {
    let (count, mut body) = (random.below(4), Vec::new());
    for _ in 0..count {
        let operation = random.pick(Operation::ALL);
        body.extend((operation as u32).to_be_bytes());
        if operation.is_served() {
            body.extend(drawn(random, |octets| {
                let mut reader = Reader::new(octets);
                Request::parse(operation, &mut reader)?;
                reader.finish()
            }));
        }
    }
    (count as u32, body)
}

/// Arguments of COMPOUND.
pub fn nfs4_compound(random: &mut FuzzRandom) -> Vec<u8> {
    let (operations, body) = arguments(random);
    let minor_version = random.pick(&[1, 2, 2, 0]);
    let head = CompoundHead { tag: Text(tag(random)), minor_version, operations };
    let mut input = written(|writer| head.emit(writer));
    input.extend(body);
    input
}

/// Head of results, and the results: all but the last are OK.
fn results<O: Copy + Into<u32>>(
    random: &mut FuzzRandom,
    operations: &[O],
    parse: impl Fn(&[u8]) -> Result<Status4, stag_protocol::xdr::Error>,
) -> Vec<u8> {
    let (count, mut body, mut status) = (random.below(4), Vec::new(), Status4::Inval);
    for at in 0..count {
        let number: u32 = random.pick(operations).into();
        let wanted = if at + 1 == count && random.one_in(2) { Status4::Delay } else { Status4::Ok };
        let front = [number, wanted as u32].map(u32::to_be_bytes).concat();
        let rest = drawn(random, |octets| parse(&[&front[..], octets].concat()).map(|_| ()));
        status = wanted;
        body.extend(front);
        body.extend(rest);
    }
    let mut input = (status as u32).to_be_bytes().to_vec();
    input.extend(written(|writer| writer.opaque(tag(random))));
    input.extend((count as u32).to_be_bytes());
    input.extend(body);
    input
}

/// Results of COMPOUND.
pub fn nfs4_reply(random: &mut FuzzRandom) -> Vec<u8> {
    results(random, Operation::ALL, |octets| {
        let mut reader = Reader::new(octets);
        let answer = Answer::parse(&mut reader)?;
        reader.finish().map(|()| answer.status())
    })
}

/// Arguments or results of CB_COMPOUND, after a word that says which.
pub fn nfs4_callback(random: &mut FuzzRandom) -> Vec<u8> {
    if random.one_in(2) {
        let mut input = vec![0, 0, 0, 1];
        input.extend(results(random, CallbackOperation::ALL, |octets| {
            let mut reader = Reader::new(octets);
            let answer = CallbackAnswer::parse(&mut reader)?;
            reader.finish().map(|()| answer.status())
        }));
        return input;
    }
    let (operations, mut body) = (random.below(4) as u32, Vec::new());
    for _ in 0..operations {
        let operation = random.pick(CallbackOperation::ALL);
        body.extend((operation as u32).to_be_bytes());
        if operation.is_served() {
            body.extend(drawn(random, |octets| {
                let mut reader = Reader::new(octets);
                CallbackRequest::parse(operation, &mut reader)?;
                reader.finish()
            }));
        }
    }
    let head = CallbackHead { tag: Text(tag(random)), minor_version: 1, ident: 0, operations };
    let mut input = vec![0; 4];
    input.extend(written(|writer| head.emit(writer)));
    input.extend(body);
    input
}

/// Attributes with values.
pub fn nfs4_attributes(random: &mut FuzzRandom) -> Vec<u8> {
    let (mut mask, mut values) = (Bitmap::EMPTY, Vec::new());
    for attribute in Attribute::ALL {
        if !random.one_in(8) {
            continue;
        }
        mask.insert(*attribute as u32);
        values.extend(drawn(random, |octets| {
            let mut reader = Reader::new(octets);
            AttributeValues::default().parse(*attribute, &mut reader)?;
            reader.finish()
        }));
    }
    if random.one_in(8) {
        mask.insert(random.u32() % 256);
        values.extend(some_words(random, 1));
    }
    written(|writer| {
        mask.emit(writer)?;
        writer.opaque(&values)
    })
}

/// Steps of clients that have state.
pub fn nfs4_state(random: &mut FuzzRandom) -> Vec<u8> {
    let steps = 1 + random.below(64);
    (0..steps).flat_map(|_| random.octets(STATE_STEP)).collect()
}
