//! Both ends of a plain TCP socket: one speaks iWARP and RPC-over-RDMA, the other RPC in records.
//! Blocking, with a deadline everywhere.

use crate::{
    answer::AnswerPattern,
    wire::{
        C, ERROR, MSG, NFS, NOMSG, REPLY, REQUEST, RawHeader, RawSegment, RawTagged, RawUntagged,
        ReadAsk, S, call, crc32c, depths, fpdu, frame, hyper_at, offer, open_fpdu, word_at,
    },
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Octets of one FPDU's payload when memory of ours is read.
const RESPONSE_LEN: usize = 32_768;
/// Address of the first exposed octet: not zero, so that a forgotten offset is noticed.
const BASE: u64 = 0x7000_0000_1000;

/// An STag that is offered and names nothing: a Write to it gets a Terminate, as from an adapter.
pub const DEAD: u32 = 0x7777_0001;

/// Message or event that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A Send, and the STag it invalidates.
    Message(Vec<u8>, Option<u32>),
    /// A Read Response that answers a Read of ours.
    Response(Vec<u8>),
    /// A Terminate, then the end.
    Terminate(u8, u8, u8),
    /// The end.
    Closed,
    /// Nothing in time.
    Nothing,
    /// Octets that no peer may send.
    Nonsense,
}

/// Part of the answer to a Read of the peer.
#[derive(Clone, Debug)]
pub enum Utterance {
    /// An ULPDU in a right FPDU.
    Ulpdu(Vec<u8>),
    /// Our FIN.
    Fin,
    /// A reset.
    Reset,
}

/// Function that answers a Read of the peer: takes the request, and the octets that are there.
pub type ReadResponder = fn(ReadAsk, &[u8]) -> Vec<Utterance>;

/// Memory that the peer may reach.
#[derive(Debug, Default)]
pub struct ExposedMemory(Vec<ExposedRegion>);

#[derive(Debug)]
struct ExposedRegion {
    stag: u32,
    octets: Vec<u8>,
    is_sink: bool,
}

impl ExposedMemory {
    /// Exposes octets for reading.
    pub fn source(&mut self, octets: &[u8]) -> RawSegment {
        self.expose(octets.to_vec(), false)
    }

    /// Exposes `len` octets for writing.
    pub fn sink(&mut self, len: usize) -> RawSegment {
        self.expose(vec![0xEE; len], true)
    }

    fn expose(&mut self, octets: Vec<u8>, is_sink: bool) -> RawSegment {
        let stag = 0x5A00_0001 + crate::wire::word(self.0.len()) * 0x100;
        let length = crate::wire::word(octets.len());
        self.0.push(ExposedRegion { stag, octets, is_sink });
        RawSegment { handle: stag, length, offset: BASE }
    }

    /// The octets of a segment. None when they are not there.
    pub fn octets(&self, segment: RawSegment) -> Option<&[u8]> {
        let region = self.0.iter().find(|region| region.stag == segment.handle)?;
        let at = usize::try_from(segment.offset.checked_sub(BASE)?).ok()?;
        region.octets.get(at..at.checked_add(segment.length as usize)?)
    }

    /// Takes what the peer writes. False when it may not.
    fn write(&mut self, stag: u32, to: u64, payload: &[u8]) -> bool {
        let Some(region) = self.0.iter_mut().find(|region| region.stag == stag && region.is_sink)
        else {
            return false;
        };
        let at = to.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| region.octets.get_mut(at..at.checked_add(payload.len())?));
        place.map(|place| place.copy_from_slice(payload)).is_some()
    }
}

/// Answers a Read as it should be.
pub fn honest(ask: ReadAsk, octets: &[u8]) -> Vec<Utterance> {
    if octets.is_empty() {
        return vec![Utterance::Ulpdu(RawTagged::response(ask.sink.0, ask.sink.1).with(b""))];
    }
    let count = octets.len().div_ceil(RESPONSE_LEN);
    let pieces = octets.chunks(RESPONSE_LEN).enumerate();
    let say = pieces.map(|(index, piece)| {
        let segment =
            RawTagged::response(ask.sink.0, ask.sink.1.wrapping_add((index * RESPONSE_LEN) as u64));
        Utterance::Ulpdu(if index + 1 == count { segment } else { segment.more() }.with(piece))
    });
    say.collect()
}

/// Parameters with which a connection begins.
#[derive(Clone, Debug)]
pub struct Opening {
    /// MPA flags.
    pub flags: u8,
    /// Private data after the words of revision 2.
    pub private_data: Vec<u8>,
}

impl Opening {
    /// Revision 2, both sizes 4,096 octets and remote invalidation announced.
    pub fn new(crc: bool) -> Self {
        Self { flags: if crc { C | S } else { S }, private_data: offer(1, 1, 3, 3).to_vec() }
    }

    /// The Request.
    pub fn request(&self) -> Vec<u8> {
        frame(REQUEST, self.flags, 2, &[&depths(32, 32)[..], &self.private_data].concat())
    }
}

/// A connection of RPC-over-RDMA.
#[derive(Debug)]
pub struct HostileFabric {
    /// The socket.
    pub stream: TcpStream,
    /// Octets that are not looked at yet.
    held: Vec<u8>,
    /// True if CRCs are sent and checked.
    pub crc: bool,
    /// True if the peer is Linux' siw, whose Terminates are to be read differently.
    pub is_siw: bool,
    /// Number of the next Send.
    pub msn: u32,
    /// Number of the next Read Request.
    pub read_msn: u32,
    /// Memory that the peer may reach.
    pub memory: ExposedMemory,
    /// Function that answers the peer's Reads.
    pub responder: ReadResponder,
    /// Private data of the peer.
    pub private_data: Vec<u8>,
    /// True once the peer wrote outside the memory that it may write.
    pub trespassed: bool,
    message: Vec<u8>,
    has_ended: bool,
}

impl HostileFabric {
    /// Speaks over a socket whose set-up is done.
    pub fn over(stream: TcpStream, crc: bool) -> Self {
        Self {
            stream,
            held: Vec::new(),
            crc,
            is_siw: false,
            msn: 1,
            read_msn: 1,
            memory: ExposedMemory::default(),
            responder: honest,
            private_data: Vec::new(),
            trespassed: false,
            message: Vec::new(),
            has_ended: false,
        }
    }

    /// Connects and sets up; what the peer said instead, if it did not accept.
    pub fn open(
        at: SocketAddr,
        opening: &Opening,
        patience: Duration,
    ) -> io::Result<Result<Self, AnswerPattern>> {
        let stream = dial(at, patience)?;
        let mut fabric = Self::over(stream, opening.flags & C != 0);
        fabric.say(&opening.request())?;
        Ok(fabric.hear_reply(patience)?.map(|()| fabric))
    }

    /// Reads an MPA Reply.
    pub fn hear_reply(&mut self, patience: Duration) -> io::Result<Result<(), AnswerPattern>> {
        let until = Instant::now() + patience;
        while self.held.len() < 20 && self.fill(until)? {}
        if self.held.is_empty() {
            return Ok(Err(if self.has_ended {
                AnswerPattern::Closed
            } else {
                AnswerPattern::Nothing
            }));
        }
        let Some(header) = self.held.first_chunk::<20>().copied() else {
            return Ok(Err(AnswerPattern::Nonsense));
        };
        let [.., flags, revision, l0, l1] = header;
        if !header.starts_with(REPLY) || !(1..=2).contains(&revision) {
            return Ok(Err(AnswerPattern::Nonsense));
        }
        let whole = 20 + usize::from(u16::from_be_bytes([l0, l1]));
        while self.held.len() < whole && self.fill(until)? {}
        let data: Vec<u8> = self.held.drain(..whole.min(self.held.len())).skip(20).collect();
        self.crc |= flags & C != 0;
        let words = if flags & S != 0 { 4 } else { 0 };
        self.private_data = data.get(words..).unwrap_or_default().to_vec();
        Ok(if flags & crate::wire::R != 0 { Err(AnswerPattern::Rejected) } else { Ok(()) })
    }

    /// Reads an MPA Request. False when none comes.
    pub fn hear_request(&mut self, patience: Duration) -> io::Result<bool> {
        let until = Instant::now() + patience;
        while self.held.len() < 20 && self.fill(until)? {}
        let Some(header) = self.held.first_chunk::<20>().copied() else { return Ok(false) };
        let [.., l0, l1] = header;
        let whole = 20 + usize::from(u16::from_be_bytes([l0, l1]));
        while self.held.len() < whole && self.fill(until)? {}
        let is_whole = header.starts_with(REQUEST) && self.held.len() >= whole;
        self.held.drain(..whole.min(self.held.len()));
        Ok(is_whole)
    }

    /// Sends octets. A peer that is gone is seen when it is heard.
    pub fn say(&mut self, octets: &[u8]) -> io::Result<()> {
        match self.stream.write_all(octets) {
            Err(error) if is_end(&error) || error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Sends an ULPDU in a right FPDU.
    pub fn say_ulpdu(&mut self, ulpdu: &[u8]) -> io::Result<()> {
        let octets = if self.crc { fpdu(ulpdu) } else { [open_fpdu(ulpdu), vec![0; 4]].concat() };
        self.say(&octets)
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let segment = RawUntagged::send(self.msn);
        self.msn = self.msn.wrapping_add(1);
        self.say_ulpdu(&segment.with(message))
    }

    /// Sends a message that invalidates.
    pub fn send_invalidate(&mut self, stag: u32, message: &[u8]) -> io::Result<()> {
        let segment = RawUntagged::send_invalidate(self.msn, stag);
        self.msn = self.msn.wrapping_add(1);
        self.say_ulpdu(&segment.with(message))
    }

    /// The end of what we say.
    pub fn fin(&self) {
        // A peer that is gone needs no FIN.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// A reset, once this is dropped.
    pub fn reset(&self) {
        reset(&self.stream);
    }

    /// Reads once. False at the end, and when nothing comes before `until`.
    fn fill(&mut self, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || self.has_ended {
            return Ok(false);
        }
        self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut room = vec![0; 65_536];
        match self.stream.read(&mut room) {
            Ok(0) => self.has_ended = true,
            Ok(len) => self.held.extend(room.iter().take(len)),
            Err(error) if is_end(&error) => self.has_ended = true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Takes an FPDU out of what arrived: its ULPDU, and whether its CRC is right.
    fn take_fpdu(&mut self) -> Option<(Vec<u8>, bool)> {
        let length = usize::from(u16::from_be_bytes(*self.held.first_chunk()?));
        let covered = (2 + length).next_multiple_of(4);
        let (body, crc) = self.held.get(..covered + 4)?.split_at(covered);
        let is_right = !self.crc || crc == crc32c(body).to_le_bytes();
        let ulpdu = body.get(2..2 + length)?.to_vec();
        self.held.drain(..covered + 4);
        Some((ulpdu, is_right))
    }

    /// Waits for the next message. Reads of the peer are answered on the way, and its Writes are
    /// taken.
    pub fn hear(&mut self, patience: Duration) -> io::Result<Heard> {
        let until = Instant::now() + patience;
        loop {
            while let Some((ulpdu, is_right)) = self.take_fpdu() {
                if !is_right {
                    return Ok(Heard::Nonsense);
                }
                if let Some(heard) = self.take_ulpdu(&ulpdu, until)? {
                    return Ok(heard);
                }
            }
            if !self.fill(until)? {
                return Ok(if self.has_ended { Heard::Closed } else { Heard::Nothing });
            }
            if self.has_ended && self.held.is_empty() {
                return Ok(Heard::Closed);
            }
        }
    }

    fn take_ulpdu(&mut self, ulpdu: &[u8], until: Instant) -> io::Result<Option<Heard>> {
        let [ddp, rdmap, ..] = *ulpdu else { return Ok(Some(Heard::Nonsense)) };
        let (is_tagged, is_last, opcode) = (ddp & 0x80 != 0, ddp & 0x40 != 0, rdmap & 0xF);
        let payload = ulpdu.get(if is_tagged { 14 } else { 18 }..).unwrap_or_default();
        match (is_tagged, opcode) {
            (true, 0) => {
                let stag = word_at(ulpdu, 2);
                if stag == DEAD && !payload.is_empty() {
                    return self.refuse(&[0x11, 0, 0, 0], until).map(Some);
                }
                let lands =
                    payload.is_empty() || self.memory.write(stag, hyper_at(ulpdu, 6), payload);
                self.trespassed |= !lands;
                Ok(None)
            }
            (true, 2) => Ok(Some(Heard::Response(payload.to_vec()))),
            (false, 1) => self.answer_read(ReadAsk::parse(payload), until),
            (false, 3..=6) => {
                self.message.extend_from_slice(payload);
                let invalidated = matches!(opcode, 4 | 6).then(|| word_at(ulpdu, 2));
                Ok(is_last.then(|| Heard::Message(std::mem::take(&mut self.message), invalidated)))
            }
            (false, 7) => {
                let (layer, kind, code) = cause(payload, self.is_siw);
                while !self.has_ended && self.fill(until)? {}
                Ok(Some(Heard::Terminate(layer, kind, code)))
            }
            _ => Ok(Some(Heard::Nonsense)),
        }
    }

    /// Refuses an access to memory that is not exposed, as an adapter does: sends a Terminate, then
    /// takes nothing more.
    fn refuse(&mut self, cause: &[u8; 4], until: Instant) -> io::Result<Heard> {
        self.say_ulpdu(&RawUntagged::terminate().with(cause))?;
        self.fin();
        while !self.has_ended && self.fill(until)? {}
        self.held.clear();
        Ok(if self.has_ended { Heard::Closed } else { Heard::Nothing })
    }

    fn answer_read(&mut self, ask: ReadAsk, until: Instant) -> io::Result<Option<Heard>> {
        let segment = RawSegment { handle: ask.source.0, length: ask.len, offset: ask.source.1 };
        let octets = self.memory.octets(segment).map(<[u8]>::to_vec);
        let Some(octets) = octets.or_else(|| (ask.len == 0).then(Vec::new)) else {
            // RDMAP's "base or bounds" if the STag is known, else "invalid STag".
            let known = self.memory.octets(segment.of_len(0)).is_some();
            return self.refuse(&[0x01, u8::from(known), 0, 0], until).map(Some);
        };
        for say in (self.responder)(ask, &octets) {
            match say {
                Utterance::Ulpdu(ulpdu) => self.say_ulpdu(&ulpdu)?,
                Utterance::Fin => self.fin(),
                Utterance::Reset => {
                    self.reset();
                    self.has_ended = true;
                    self.stream.shutdown(Shutdown::Both).ok();
                }
            }
        }
        Ok(None)
    }

    /// Calls NULL; whether its reply is the next thing that comes.
    pub fn is_served(&mut self, xid: u32, patience: Duration) -> io::Result<bool> {
        self.send(&RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0))?;
        Ok(matches!(self.hear(patience)?, Heard::Message(message, _) if word_at(&message, 0) == xid
            && matches!(word_at(&message, 12), MSG | NOMSG)))
    }
}

/// Returns true if a message is an RDMA_ERROR.
pub fn is_error(message: &[u8]) -> bool {
    word_at(message, 12) == ERROR
}

/// Layer, type and code of a Terminate (RFC 5040 §4.8). Linux' siw swaps the first two on a
/// little-endian host.
fn cause(payload: &[u8], is_siw: bool) -> (u8, u8, u8) {
    let [first, code, ..] = *payload else { return (0xF, 0xF, 0xFF) };
    let (high, low) = (first >> 4, first & 0xF);
    if is_siw { (low, high, code) } else { (high, low, code) }
}

/// Connects.
pub fn dial(at: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&at, patience)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Makes the end of a socket a reset.
pub fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

pub(crate) fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
    )
}
