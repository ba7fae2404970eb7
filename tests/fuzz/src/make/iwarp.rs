//! Inputs of software iWARP.

use stag_protocol::iwarp::{
    ddp::{Header as Ddp, Tagged, Untagged},
    fpdu::{Crc32c, pad_len},
    mpa::{Enhanced, Frame, Kind, NOT_NEGOTIATED, Revision, RtrSet},
    rdmap::{Opcode, ReadHeader, Terminate, Violation},
};

use super::offer;
use crate::{crc::Table, mutate::push_part, random::FuzzRandom};

/// A set-up frame.
fn mpa_frame(random: &mut FuzzRandom, kind: Kind) -> Vec<u8> {
    let depth = |random: &mut FuzzRandom| {
        random.pick(&[0, 1, 2, 4, 16, 128, NOT_NEGOTIATED - 1, NOT_NEGOTIATED])
    };
    let set = RtrSet { send: random.one_in(2), write: random.one_in(2), read: random.one_in(2) };
    let words =
        Enhanced { rtr: random.one_in(2).then_some(set), ird: depth(random), ord: depth(random) };
    let enhanced = (!random.one_in(4)).then_some(words);
    let frame = Frame {
        kind,
        markers: random.one_in(8),
        crc: random.one_in(2),
        reject: kind == Kind::Reply && random.one_in(8),
        software: random.one_in(2),
        stag: random.one_in(2),
        revision: if enhanced.is_none() && random.one_in(2) {
            Revision::One
        } else {
            Revision::Two
        },
        enhanced,
        private_data: &offer(random),
    };
    frame.emit().to_vec()
}

/// Makes an input for MPA: the kind of frame that is expected, the configuration of the end, then a
/// frame.
pub fn mpa(random: &mut FuzzRandom) -> Vec<u8> {
    let kind = random.pick(&[Kind::Request, Kind::Reply]);
    let mut input = vec![u8::from(kind == Kind::Reply), random.u8(), 0, 0];
    input.extend(mpa_frame(random, kind));
    input
}

/// A DDP segment of RDMAP.
pub fn ulpdu(random: &mut FuzzRandom) -> Vec<u8> {
    let msn = random.pick(&[1, 1, 1, 2, 3, u32::MAX]);
    ulpdu_with(random, msn)
}

/// The same, with this number if it has one.
fn ulpdu_with(random: &mut FuzzRandom, msn: u32) -> Vec<u8> {
    let last = !random.one_in(4);
    let opcode = random.pick(&[
        Opcode::Write,
        Opcode::ReadRequest,
        Opcode::ReadResponse,
        Opcode::Send,
        Opcode::Send,
        Opcode::SendInvalidate,
        Opcode::SendSolicited,
        Opcode::SendSolicitedInvalidate,
        Opcode::Terminate,
    ]);
    let control = opcode.control();
    let mut payload = match opcode {
        Opcode::ReadRequest => read_header(random).emit().to_vec(),
        Opcode::Terminate => terminate(random)[1..].to_vec(),
        _ => {
            let len = random.pick(&[0, 1, 2, 28, 100, 300]);
            random.octets(len)
        }
    };
    let header = match opcode.queue() {
        None => Ddp::Tagged(Tagged { last, control, stag: 9, to: 100 + random.u64() % 2 }),
        Some(queue) => {
            let last = last || queue != 0;
            let msn = if queue == 2 { 1 } else { msn };
            Ddp::Untagged(Untagged { last, control, invalidate: random.word(), queue, msn, mo: 0 })
        }
    };
    let mut ulpdu = header.emit().to_vec();
    ulpdu.append(&mut payload);
    ulpdu
}

fn read_header(random: &mut FuzzRandom) -> ReadHeader {
    ReadHeader {
        sink_stag: random.u32(),
        sink_to: random.u64(),
        len: random.word(),
        source_stag: random.u32(),
        source_to: random.u64(),
    }
}

/// FPDUs, with or without right CRCs.
pub fn fpdus(random: &mut FuzzRandom) -> Vec<u8> {
    let mut input = vec![random.u8(), random.u8()];
    for _ in 0..random.below(8) {
        let fpdu = fpdu(&ulpdu(random));
        input.extend(fpdu);
    }
    input
}

/// The FPDU around an ULPDU, with a CRC.
fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
    fpdu.extend(ulpdu);
    fpdu.extend(vec![0; pad_len(ulpdu.len())]);
    let mut crc = Table::start();
    crc.update(&fpdu);
    fpdu.extend(crc.finish().to_le_bytes());
    fpdu
}

/// The payload of a Terminate, after an octet that says who sends it.
pub fn terminate(random: &mut FuzzRandom) -> Vec<u8> {
    let cause = random.pick(Terminate::ALL);
    let violation = match random.below(3) {
        0 => Violation::new(cause),
        1 => Violation::of_read(cause, random.word(), &read_header(random)),
        _ => {
            let stag = random.u32();
            let header =
                Tagged { last: true, control: Opcode::Write.control(), stag, to: random.u64() };
            Violation::of_segment(cause, &Ddp::Tagged(header), random.below(70_000))
        }
    };
    let mut input = vec![random.u8()];
    input.extend(violation.payload());
    if random.one_in(3) {
        // siw's bit order.
        input[1] = input[1].rotate_left(4);
        input[3] = input[3].reverse_bits();
    }
    input
}

/// A configuration, a set-up frame, then FPDUs and what the end does.
pub fn iwarp_connection(random: &mut FuzzRandom) -> Vec<u8> {
    let responds = random.one_in(2);
    let mut input = Vec::new();
    push_part(
        &mut input,
        &[random.u8(), u8::from(!responds), random.u8() & random.u8() & random.u8(), 0],
    );
    let kind = if responds { Kind::Request } else { Kind::Reply };
    let frame = mpa_frame(random, kind);
    push_part(&mut input, &frame);
    let mut msn = 1;
    for _ in 0..random.below(24) {
        let mut part = vec![random.u8() % 8];
        match part[0] {
            0 | 1 => {
                let mut octets = fpdu(&ulpdu_with(random, msn));
                if random.one_in(3) {
                    octets.truncate(random.below(octets.len()));
                }
                part.extend(octets);
            }
            2..=4 => {
                part.extend(ulpdu_with(random, msn));
                msn += u32::from(random.one_in(2));
            }
            _ => part.extend([random.u8(), random.u8(), random.u8() % 4, random.u8()]),
        }
        push_part(&mut input, &part);
    }
    input
}
