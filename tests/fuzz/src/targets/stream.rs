//! A whole connection of software iWARP: set-up, then octets of the stream and what this end does.

use std::mem::discriminant;

use stag_protocol::iwarp::{
    ddp::{self, Header},
    fpdu::{self, Framer, LENGTH_LEN},
    mpa::{Config, Frame, Kind, Negotiated, Parsed, Request},
    rdmap::{ReadHeader, Terminate, Violation},
    stream::{self, Inbound, Message, SendFault, TaggedFault},
};

use super::{
    InputVerdict,
    iwarp::{DEPTH, FuzzStream, adopt, append, check_violation, config},
};
use crate::{crc::Table, mutate::parts};

/// One end of a connection, and what it has to keep to.
struct StreamEnd {
    stream: FuzzStream,
    negotiated: Negotiated,
    framer: Framer,
    /// A stream that takes what this end sends.
    mirror: FuzzStream,
    arrived: Vec<u8>,
    has_seen_fpdu: bool,
    /// Sends delivered: the number of the one that is open, and its octets so far.
    send: (u32, u32),
    /// Octets of our Reads that were answered, by token.
    reads: Vec<(u32, u32)>,
    /// Read Requests of the peer that are not answered.
    asked: usize,
    /// True once our Terminate went out, or the peer's came.
    ended: bool,
    /// Number of events of each kind.
    events: [u8; 8],
    cause: Option<Terminate>,
}

/// A whole connection. The first part is `[own, who, accepts, ...]`: a configuration, the side,
/// what memory accepts; the second one the peer's set-up frame. The first octet of each further
/// part says what it is: octets of the stream as they are, an ULPDU for which the frame is made
/// here, or something that this end does.
pub fn connection(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input);
    let Some([own, who, accepts, ..]) = parts.next().and_then(|set_up| set_up.first_chunk::<4>())
    else {
        return InputVerdict::Refused(0);
    };
    let Some(negotiated) = set_up(&config(*own), who & 1 == 0, parts.next().unwrap_or_default())
    else {
        return InputVerdict::Refused(1);
    };
    let mut end = StreamEnd::new(negotiated);
    end.send_rtr();
    for part in parts {
        let Some((what, octets)) = part.split_first() else { continue };
        match what % 8 {
            0 | 1 => end.receive(octets, *accepts),
            2..=4
                if octets.len() >= ddp::TAGGED_LEN
                    && octets.len() >= ddp::header_len(octets[0]) =>
            {
                let mut framed = Vec::new();
                append(&mut Framer::with(negotiated.crc, false), octets, &mut framed);
                end.receive(&framed, *accepts);
            }
            5 => end.act(octets),
            _ => end.answer_read(octets),
        }
        end.check();
    }
    let class = (end.events, end.cause, negotiated.rtr.map(|rtr| discriminant(&rtr)));
    if end.events[..5] == [0; 5] {
        InputVerdict::Refused(super::class(class))
    } else {
        InputVerdict::accepted(class)
    }
}

fn set_up(config: &Config, responds: bool, frame: &[u8]) -> Option<Negotiated> {
    if responds {
        return Request::parse(frame).ok().flatten().map(|request| request.accept(config, b"").1);
    }
    match Frame::parse(frame, Kind::Reply) {
        Ok(Parsed::Frame(frame, _)) => adopt(&frame, config),
        _ => None,
    }
}

impl StreamEnd {
    fn new(negotiated: Negotiated) -> Self {
        let other = match negotiated.side {
            stream::Side::Initiator => stream::Side::Responder,
            stream::Side::Responder => stream::Side::Initiator,
        };
        let depth = DEPTH as u16;
        let mirrored = Negotiated { side: other, rtr: None, ird: depth, ord: depth, ..negotiated };
        Self {
            stream: FuzzStream::new(&negotiated),
            negotiated,
            framer: Framer::with(negotiated.crc, false),
            mirror: FuzzStream::new(&mirrored),
            arrived: Vec::new(),
            has_seen_fpdu: false,
            send: (1, 0),
            reads: Vec::new(),
            asked: 0,
            ended: false,
            events: [0; 8],
            cause: None,
        }
    }

    fn check(&self) {
        assert!(self.asked <= usize::from(self.negotiated.ird), "the IRD is kept");
        let outstanding: Vec<_> = self.stream.outstanding_reads().collect();
        assert!(outstanding.len() <= usize::from(self.negotiated.ord), "the ORD is kept");
        for read in outstanding {
            let (len, received) = self.reads[read.token as usize];
            assert_eq!((read.len, read.received), (len, received));
            assert!(received <= len);
        }
        assert_eq!(self.stream.is_ended(), self.ended);
        assert!(!(self.stream.may_send() && self.ended));
    }

    fn count(&mut self, event: usize) {
        self.events[event] = (self.events[event] + 1).min(3);
    }

    /// Takes octets of the stream.
    fn receive(&mut self, octets: &[u8], accepts: u8) {
        self.arrived.extend_from_slice(octets);
        let arrived = std::mem::take(&mut self.arrived);
        let mut at = 0;
        while !self.ended {
            match fpdu::parse::<Table>(&arrived[at..], self.negotiated.crc) {
                Ok(fpdu::Parsed::NeedMore(_)) => break,
                Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) => {
                    self.judge(&arrived[at..][ulpdu], accepts);
                    at += consumed;
                }
                Err(cause) => {
                    let violation = self.stream.refuse_fpdu(cause);
                    self.terminate(&violation);
                }
            }
        }
        self.arrived = arrived[at..].to_vec();
    }

    fn judge(&mut self, ulpdu: &[u8], accepts: u8) {
        let could_send = self.stream.may_send();
        self.has_seen_fpdu = true;
        let inbound = match self.stream.handle_ulpdu(ulpdu) {
            Ok(inbound) => inbound,
            Err(violation) => return self.terminate(&violation),
        };
        assert!(self.stream.may_send() || !could_send || matches!(inbound, Inbound::Terminated(_)));
        match inbound {
            Inbound::Send(segment) => {
                assert_eq!(
                    (segment.msn, segment.offset),
                    self.send,
                    "Sends come in order, without gaps"
                );
                assert_eq!(segment.payload, &ulpdu[ddp::UNTAGGED_LEN..]);
                let sent = self.send.1 + segment.payload.len() as u32;
                self.send = if segment.last {
                    (self.send.0.wrapping_add(1), 0)
                } else {
                    (self.send.0, sent)
                };
                self.count(0);
                // A receive of 4 KiB, if any.
                if sent > 4096 || accepts & 1 == 1 {
                    let fault = [SendFault::NoBuffer, SendFault::TooLong][usize::from(sent > 4096)];
                    let violation = self.stream.refuse_send(&segment, fault);
                    self.terminate(&violation);
                }
            }
            Inbound::Write(segment) => {
                assert!(
                    segment.to.checked_add(segment.payload.len() as u64).is_some(),
                    "F26: no sum wraps"
                );
                assert_eq!(segment.payload, &ulpdu[ddp::TAGGED_LEN..]);
                self.count(1);
                if accepts & 2 == 2 && !segment.payload.is_empty() {
                    let violation = self.stream.refuse_write(&segment, TaggedFault::Bounds);
                    self.terminate(&violation);
                }
            }
            Inbound::ReadRequest => {
                self.asked += 1;
                self.count(2);
            }
            Inbound::ReadResponse(segment) => {
                let (len, received) = &mut self.reads[segment.token as usize];
                assert_eq!(segment.offset, *received);
                *received += segment.payload.len() as u32;
                assert_eq!(
                    segment.last,
                    received == len,
                    "F28: no answer is longer than was asked for"
                );
                self.count(3);
            }
            Inbound::Ready => {
                assert_eq!(self.send, (1, 0));
                self.send = (2, 0);
                self.count(4);
            }
            Inbound::Terminated(told) => {
                let _ = self.stream.blamed_read(&told);
                self.ended = true;
                self.count(5);
                assert!(
                    self.stream
                        .begin_terminate(&Violation::new(Terminate::RDMAP_UNSPECIFIED))
                        .is_none()
                );
            }
            Inbound::Dropped => panic!("it has not ended"),
        }
    }

    /// The first violation is reported once, and nothing happens any more.
    fn terminate(&mut self, violation: &Violation) {
        assert!(Terminate::ALL.contains(&violation.terminate) && self.stream.is_ended());
        check_violation(violation);
        let begun = self.stream.begin_terminate(violation);
        // A responder says nothing before it has seen an FPDU (RFC 5044 §7.1.2).
        assert_eq!(
            begun.is_some(),
            self.has_seen_fpdu || self.negotiated.side == stream::Side::Initiator
        );
        if let Some(mut message) = begun {
            let segment = self.stream.poll_segment(&mut message, fpdu::MULPDU_MIN).unwrap();
            assert!(segment.last && segment.header.ends_with(violation.payload()));
            assert!(self.stream.poll_segment(&mut message, fpdu::MULPDU_MIN).is_none());
        }
        assert!(self.stream.begin_terminate(violation).is_none());
        assert!(
            self.stream.begin_send(1, None, false).is_err() && self.stream.next_read().is_none()
        );
        assert_eq!(self.stream.handle_ulpdu(&[0x41; 20]), Ok(Inbound::Dropped));
        self.ended = true;
        self.cause = Some(violation.terminate);
    }

    fn send_rtr(&mut self) {
        self.reads.push((0, 0));
        if let Some(message) = self.stream.begin_rtr(0) {
            assert!(self.stream.begin_rtr(0).is_none());
            self.send_all(message, 256);
        }
    }

    /// Sends something.
    fn act(&mut self, octets: &[u8]) {
        let Some([what, size, high, low]) = octets.first_chunk() else { return };
        let len = u32::from(u16::from_be_bytes([*high, *low]));
        let message = match what % 3 {
            0 => self.stream.begin_send(len, (what & 4 == 4).then_some(7), what & 8 == 8),
            1 => self.stream.begin_write(len, 7, u64::MAX - u64::from(len)),
            _ => {
                let header =
                    ReadHeader { sink_stag: 9, sink_to: 100, len, source_stag: 3, source_to: 5 };
                let read = self.stream.begin_read(header, self.reads.len() as u64);
                self.reads.extend(read.is_ok().then_some((len, 0)));
                read
            }
        };
        match message {
            Ok(message) => {
                assert!(!self.ended);
                self.send_all(message, 128 + u16::from(*size) * 16);
            }
            Err(stream::Refused::Ended) => assert!(self.ended),
            Err(stream::Refused::OrdFull) => {
                assert_eq!(
                    self.stream.outstanding_reads().count(),
                    usize::from(self.negotiated.ord).min(DEPTH)
                );
            }
            Err(stream::Refused::Gate) => assert!(!self.stream.may_send() && !self.ended),
        }
    }

    /// Answers the oldest Read of the peer, or refuses it.
    fn answer_read(&mut self, octets: &[u8]) {
        let Some(request) = self.stream.next_read() else {
            assert!(self.asked == 0 || self.ended);
            return;
        };
        let refuses = octets.first().is_some_and(|octet| octet & 1 == 1);
        // The memory has 64 KiB.
        if refuses || request.header.len > 1 << 16 {
            let violation = self.stream.refuse_read(&request, 0, TaggedFault::Bounds);
            return self.terminate(&violation);
        }
        let Some(mut message) = self.stream.begin_read_response() else {
            assert!(!self.stream.may_send());
            return;
        };
        assert_eq!(message.remaining(), request.header.len);
        let mut answered = 0;
        while let Some(segment) = self.stream.poll_segment(&mut message, 4096) {
            assert_eq!(segment.offset, answered);
            answered += segment.len;
            let (Header::Tagged(header), _) = Header::parse(&segment.header[LENGTH_LEN..]).unwrap()
            else {
                panic!()
            };
            let to = request.header.sink_to.wrapping_add(u64::from(segment.offset));
            assert_eq!(
                (header.stag, header.to, header.last),
                (request.header.sink_stag, to, segment.last)
            );
        }
        assert_eq!(answered, request.header.len);
        self.asked -= 1;
        self.count(6);
    }

    /// Checks that the other end accepts every segment that this end sends.
    fn send_all(&mut self, mut message: Message, mulpdu: u16) {
        static CONTENT: [u8; 1 << 16] = [0x77; 1 << 16];
        let (len, mut sent) = (message.remaining(), 0);
        while let Some(segment) = self.stream.poll_segment(&mut message, mulpdu) {
            assert_eq!(segment.offset, sent);
            sent += segment.len;
            assert_eq!(segment.last, sent == len);
            let mut wire = Vec::new();
            let ulpdu = [&segment.header[LENGTH_LEN..], &CONTENT[..segment.len as usize]].concat();
            assert!(ulpdu.len() <= usize::from(mulpdu));
            append(&mut self.framer, &ulpdu, &mut wire);
            let Ok(fpdu::Parsed::Fpdu { ulpdu, .. }) =
                fpdu::parse::<Table>(&wire, self.negotiated.crc)
            else {
                panic!("our own FPDU")
            };
            match self.mirror.handle_ulpdu(&wire[ulpdu]) {
                // The response is not sent to us.
                Ok(Inbound::ReadRequest) => {
                    if let Some(mut message) = self.mirror.begin_read_response() {
                        while self.mirror.poll_segment(&mut message, 4096).is_some() {}
                    }
                }
                Ok(_) => {}
                Err(violation) => panic!("{violation:?}"),
            }
        }
        assert_eq!(sent, len);
    }
}
