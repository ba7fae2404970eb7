//! Two ends of one connection, over a stream of octets that is read in arbitrary pieces (checklist
//! 32, 58, 65, 68).

use std::collections::VecDeque;

use fastrand::Rng;
use stag_protocol::iwarp::fpdu::{self, Framer, Parsed};
use stag_protocol::iwarp::mpa::{
    self, Config, Frame, Initiator, Kind, Negotiated, Outcome, Request, RtrSet,
};
use stag_protocol::iwarp::rdmap::ReadHeader;
use stag_protocol::iwarp::stream::*;

use super::fpdu::written;
use super::{Bitwise, octets};

const MEMORY: usize = 1 << 14;

#[derive(Debug, PartialEq)]
enum Event {
    Sent { invalidate: Option<u32>, solicited: bool, message: Vec<u8> },
    Read { token: u64, data: Vec<u8> },
}

/// One end: its stream, what it has received, and memory that the other end may write and read.
struct End {
    stream: Stream<4, 4>,
    framer: Framer,
    crc: bool,
    staged: Vec<u8>,
    memory: Vec<u8>,
    expected: VecDeque<Event>,
    events: VecDeque<Event>,
    message: Vec<u8>,
    reading: Vec<u8>,
}

impl End {
    fn new(negotiated: &Negotiated, seed: u64) -> Self {
        Self {
            stream: Stream::new(negotiated),
            framer: Framer::new(negotiated),
            crc: negotiated.crc,
            staged: Vec::new(),
            memory: octets(&mut Rng::with_seed(seed), MEMORY),
            expected: VecDeque::new(),
            events: VecDeque::new(),
            message: Vec::new(),
            reading: Vec::new(),
        }
    }

    /// Segments a whole message into FPDUs.
    fn transmit(&mut self, mut message: Message, payload: &[u8], random: &mut Rng) -> Vec<u8> {
        let mut octets = Vec::new();
        while let Some(segment) = self.stream.poll_segment(&mut message, random.u16(128..3128)) {
            let (from, to) = (segment.offset as usize, (segment.offset + segment.len) as usize);
            let framed = self.framer.frame::<Bitwise, _>(&segment.header, [&payload[from..to]]);
            octets.extend(written(&framed, &segment.header, &payload[from..to]));
        }
        octets
    }

    fn receive(&mut self, octets: &[u8]) {
        self.staged.extend(octets);
        let mut staged = std::mem::take(&mut self.staged);
        while let Parsed::Fpdu { ulpdu, consumed } =
            fpdu::parse::<Bitwise>(&staged, self.crc).unwrap()
        {
            let inbound = self.stream.handle_ulpdu(&staged[ulpdu]).unwrap();
            match inbound {
                Inbound::Send(segment) => {
                    self.message.extend(segment.payload);
                    if segment.last {
                        let message = std::mem::take(&mut self.message);
                        let SendSegment { invalidate, solicited, .. } = segment;
                        self.events.push_back(Event::Sent { invalidate, solicited, message });
                    }
                }
                Inbound::Write(segment) => {
                    let to = segment.to as usize;
                    self.memory[to..to + segment.payload.len()].copy_from_slice(segment.payload);
                }
                Inbound::ReadResponse(segment) => {
                    assert_eq!(segment.offset as usize, self.reading.len());
                    self.reading.extend(segment.payload);
                    if segment.last {
                        let data = std::mem::take(&mut self.reading);
                        self.events.push_back(Event::Read { token: segment.token, data });
                    }
                }
                Inbound::ReadRequest | Inbound::Ready => {}
                other => panic!("{other:?}"),
            }
            staged.drain(..consumed);
        }
        self.staged = staged;
    }
}

/// Answers what `to` has asked `from` to read, out of the memory as it is at this moment.
fn answer_reads(from: &mut End, to: &mut End, random: &mut Rng) {
    while let Some(request) = from.stream.next_read() {
        let at = request.header.source_to as usize;
        let data = match request.header.len {
            0 => Vec::new(), // the source of nothing is not looked at
            len => from.memory[at..at + len as usize].to_vec(),
        };
        let Some(message) = from.stream.begin_read_response() else { return };
        let asked = to.stream.outstanding_reads().next().unwrap();
        assert_eq!((asked.msn, asked.len, asked.received), (request.msn, request.header.len, 0));
        let token = asked.token;
        let octets = from.transmit(message, &data, random);
        carry(&octets, to, random);
        to.expected.push_back(Event::Read { token, data });
    }
}

/// Moves `octets` in pieces of random size.
fn carry(octets: &[u8], to: &mut End, random: &mut Rng) {
    let mut rest = octets;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(random.usize(1..=2000).min(rest.len()));
        to.receive(piece);
        rest = behind;
    }
}

fn ends(rtr: Option<RtrSet>, crc: bool, seed: u64) -> (End, End) {
    let config = Config {
        crc: if crc { mpa::Crc::Always } else { mpa::Crc::Never },
        rtr,
        ird: 4,
        ord: 4,
        ..Config::default()
    };
    let initiator = Initiator::new(config);
    let request = initiator.request(b"");
    let (reply, responder) = Request::parse(&request).unwrap().unwrap().accept(&config, b"");
    let Ok(mpa::Parsed::Frame(frame, _)) = Frame::parse(&reply, Kind::Reply) else { panic!() };
    let Ok(Outcome::Accepted(initiator, _)) = initiator.handle_reply(&frame) else { panic!() };
    (End::new(&initiator, seed), End::new(&responder, seed + 1))
}

#[test]
fn whatever_one_end_sends_the_other_receives() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let rtr = match seed % 4 {
            0 => None,
            1 => Some(RtrSet { write: true, ..RtrSet::default() }),
            2 => Some(RtrSet { read: true, ..RtrSet::default() }),
            _ => Some(RtrSet { send: true, ..RtrSet::default() }),
        };
        let (mut left, mut right) = ends(rtr, seed % 3 > 0, seed);
        if let Some(message) = left.stream.begin_rtr(u64::MAX) {
            let octets = left.transmit(message, &[], &mut random);
            carry(&octets, &mut right, &mut random);
            answer_reads(&mut right, &mut left, &mut random);
            assert_eq!(!left.events.is_empty(), seed % 4 == 2);
        }
        if seed % 4 == 0 {
            let message = left.stream.begin_write(0, 1, 0).unwrap();
            let octets = left.transmit(message, &[], &mut random);
            carry(&octets, &mut right, &mut random);
        }
        assert!(left.stream.may_send() && right.stream.may_send());
        for step in 0..60u64 {
            if random.bool() {
                operate(&mut left, &mut right, step, &mut random);
            } else {
                operate(&mut right, &mut left, step, &mut random);
            }
        }
        answer_reads(&mut right, &mut left, &mut random);
        answer_reads(&mut left, &mut right, &mut random);
        for end in [&left, &right] {
            assert_eq!(end.events, end.expected, "seed {seed}");
            assert_eq!(end.stream.outstanding_reads().count(), 0);
            assert!(end.staged.is_empty());
        }
    }
}

/// One operation from `from` to `to`, with what must come of it.
fn operate(from: &mut End, to: &mut End, token: u64, random: &mut Rng) {
    let len = [0, random.usize(..40), random.usize(..5000)][random.usize(..3)];
    let at = random.usize(..MEMORY - len);
    let payload = octets(random, len);
    match random.usize(..6) {
        0 => {
            let message = from.stream.begin_write(len as u32, 1, at as u64).unwrap();
            let mut expected = to.memory.clone();
            expected[at..at + len].copy_from_slice(&payload);
            let octets = from.transmit(message, &payload, random);
            carry(&octets, to, random);
            assert_eq!(to.memory, expected);
        }
        1 => {
            let header = ReadHeader {
                sink_stag: random.u32(..),
                sink_to: random.u64(..),
                len: len as u32,
                source_stag: 1,
                source_to: at as u64,
            };
            let mut begun = from.stream.begin_read(header, token);
            if begun.is_err() {
                // All places are taken: answers free them.
                answer_reads(to, from, random);
                begun = from.stream.begin_read(header, token);
            }
            let octets = from.transmit(begun.unwrap(), &[], random);
            carry(&octets, to, random);
        }
        2 => answer_reads(to, from, random),
        _ => {
            let invalidate = random.bool().then(|| random.u32(..));
            let solicited = random.bool();
            let message = from.stream.begin_send(len as u32, invalidate, solicited).unwrap();
            let octets = from.transmit(message, &payload, random);
            carry(&octets, to, random);
            to.expected.push_back(Event::Sent { invalidate, solicited, message: payload });
        }
    }
}
