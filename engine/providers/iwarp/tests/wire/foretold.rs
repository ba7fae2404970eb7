//! The next Send is placed by one comparison of its header. The FPDUs of a peer that sets a
//! reserved bit, which is ignored (RFC 5041 §4.1), are checked field by field. The same input of
//! both peers has to have the same effect, even on an end that looks before it polls.

use crate::{
    peer::*,
    support::{End, LIMITS, PATIENCE, config, pattern},
};
use fastrand::Rng;
use stag_iwarp::{Crc, IwarpConfig};
use stag_pools::{Access, Buf, Window};
use stag_verbs::{Event, Provider};
use std::time::Instant;

/// A reserved bit of the DDP control octet.
const RESERVED: u8 = 0x04;

/// One of the ends, with its peer.
struct Foretold {
    end: End,
    peer: Peer,
    windows: [Window; 2],
    /// Bits that the peer sets in the first octet of each ULPDU.
    mark: u8,
    said: u64,
    receives: Vec<Buf>,
    has_ended: bool,
}

impl Foretold {
    fn new(config: IwarpConfig, mark: u8, looks: bool) -> Self {
        let request = frame(REQUEST, S, 2, &words(128, 128));
        let (mut end, mut peer, qp) = accepted_by(config, &request);
        let windows = [Access::RemoteRead, Access::RemoteWrite].map(|access| {
            let buf = end.buf(&pattern(300, 1));
            end.iwarp.bind(qp, buf, 0..300, access).unwrap()
        });
        peer.held.clear();
        end.looks = looks;
        let said = end.iwarp.stats().octets_in;
        Self { end, peer, windows, mark, said, receives: Vec::new(), has_ended: false }
    }

    /// Sends `fpdus`, of which `spoil` flips a bit. Returns the events, as far as they are the same
    /// for all ends.
    fn hear(&mut self, ulpdus: &[Vec<u8>], spoil: Option<Spoil>) -> Vec<String> {
        let mut octets = Vec::new();
        for (place, ulpdu) in ulpdus.iter().enumerate() {
            let mut ulpdu = ulpdu.clone();
            ulpdu[0] |= self.mark;
            let mut fpdu = open_fpdu(&ulpdu);
            let spoil = spoil.filter(|spoil| spoil.fpdu == place);
            if let Some(spoil) = spoil.filter(|spoil| spoil.is_noticed_later) {
                spoil.flip(&mut fpdu);
            }
            fpdu.extend_from_slice(&crc32c(&fpdu).to_le_bytes());
            if let Some(spoil) = spoil.filter(|spoil| !spoil.is_noticed_later) {
                spoil.flip(&mut fpdu);
            }
            octets.extend(fpdu);
        }
        self.said += octets.len() as u64;
        self.peer.say(&mut self.end, &octets);
        self.settle()
    }

    /// Waits until the end has read all input, and for its end if it reports one.
    fn settle(&mut self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        loop {
            self.end.pump();
            while let Some(event) = self.end.events.pop_front() {
                heard.push(self.tell(event));
            }
            let stats = self.end.iwarp.stats();
            let owes = stats.terminates_sent.total() > 0;
            let has_read = stats.octets_in == self.said || stats.stalled > 0;
            if self.has_ended || (has_read && !owes) {
                return heard;
            }
            assert!(Instant::now() < deadline, "{heard:?}");
        }
    }

    fn tell(&mut self, event: Event) -> String {
        match event {
            Event::Received { buf, invalidated, .. } => {
                let told = format!("{:02x?} {:?}", &buf[..], invalidated.map(|it| it.key()));
                self.receives.push(buf);
                told
            }
            Event::Unbound { fenced, .. } => {
                format!("{:?} {:02x?}", fenced.key(), &fenced.into_buf()[..])
            }
            Event::Disconnected { cause, .. } => {
                self.has_ended = true;
                format!("{cause:?}")
            }
            other => panic!("{other:?}"),
        }
    }

    /// Octets that the peer received: answers, and a Terminate without the bits that differ in the
    /// header it carries.
    fn answers(&mut self) -> Vec<u8> {
        if !self.has_ended {
            return Vec::new(); // neither of the two: no answer is owed
        }
        let mut octets = self.peer.hear_all(&mut self.end);
        mask_terminate(&mut octets);
        octets
    }

    /// Counters of the received input and its handling.
    fn counts(&self) -> String {
        let stats = self.end.iwarp.stats();
        let sent: Vec<u64> = stats.terminates_sent.iter().map(|(_, count)| count).collect();
        format!(
            "{} {} {} {} {} {} {sent:?} {:?} {}",
            stats.fpdus_in,
            stats.octets_placed,
            stats.crc_errors,
            stats.parked,
            stats.stalled,
            stats.fpdus_out,
            stats.disconnects,
            self.end.iwarp.receives_posted(),
        )
    }
}

/// Clears the reserved bits of the DDP header that a Terminate at the end of `octets` carries, and
/// its CRC.
fn mask_terminate(octets: &mut [u8]) {
    let mut at = 0;
    while at + 2 <= octets.len() {
        let len = usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
        let ends = at + (2 + len).next_multiple_of(4) + 4;
        let is_terminate = octets.get(at + 3).is_some_and(|control| control & 0xF == 7);
        // Length, untagged header, control, length of the segment.
        if is_terminate && len > 18 + 4 + 2 {
            octets[at + 2 + 18 + 4 + 2] &= !RESERVED;
            octets[ends - 4..ends].fill(0);
        }
        at = ends;
    }
}

/// One bit of one FPDU that is flipped.
#[derive(Clone, Copy)]
struct Spoil {
    fpdu: usize,
    bit: usize,
    /// The CRC is right nevertheless.
    is_noticed_later: bool,
}

impl Spoil {
    fn flip(&self, octets: &mut [u8]) {
        let place = self.bit % (8 * octets.len());
        // The length stays, so that everything is read; so does the bit that distinguishes the
        // ends.
        if place >= 16 && !(place / 8 == 2 && 1 << (place % 8) == RESERVED) {
            octets[place / 8] ^= 1 << (place % 8);
        }
    }
}

/// Some FPDUs, mostly Sends, each of them the next.
fn some_ulpdus(random: &mut Rng, msn: &mut u32, [_, write_to]: [Window; 2]) -> Vec<Vec<u8>> {
    let mut ulpdus = Vec::new();
    for _ in 0..1 + random.usize(..4) {
        let longest = if random.usize(..10) == 0 { LIMITS.receive_len + 3 } else { 200 };
        let payload = pattern(random.usize(..longest), random.usize(..9));
        let part = payload.len() / 2;
        match random.usize(..16) {
            0 => ulpdus.push(write(write_to.key.0, write_to.offset, &payload[..part.min(300)])),
            1 => {
                let first = Untagged { last: false, ..send_header(*msn) };
                let rest = Untagged { mo: part as u32, ..send_header(*msn) };
                ulpdus.extend([first.with(&payload[..part]), rest.with(&payload[part..])]);
                *msn += 1;
            }
            2 => {
                ulpdus.push(Untagged { opcode: 5, ..send_header(*msn) }.with(&payload));
                *msn += 1;
            }
            4 => {
                let (front, rest) = payload.split_at(part.min(100));
                let to = write_to.offset;
                let first = tagged(0, false, write_to.key.0, to, front);
                // Now and then the message does not continue, or its rest is outside.
                let goes_on = random.usize(..12) > 0;
                let next = to + front.len() as u64;
                let rest = write(write_to.key.0, next, &rest[..rest.len().min(201)]);
                ulpdus.extend([Some(first), goes_on.then_some(rest)].into_iter().flatten());
            }
            3 if random.usize(..6) == 0 => {
                ulpdus.push(send_invalidate(*msn, write_to.key.0, &payload));
                *msn += 1;
            }
            _ => {
                ulpdus.push(send(*msn, &payload));
                *msn += 1;
            }
        }
    }
    ulpdus
}

#[test]
fn a_send_that_is_compared_has_the_effect_of_one_that_is_judged() {
    let mut random = Rng::with_seed(0x5e4d);
    let mut ends = 0;
    for round in 0..150 {
        let crc = if round % 3 == 0 { Crc::Never } else { Crc::Always };
        let config = IwarpConfig { crc, ..config() };
        let kinds = [(0, false), (RESERVED, false), (0, true), (RESERVED, true)];
        let mut all = kinds.map(|(mark, looks)| Foretold::new(config.clone(), mark, looks));
        let windows = all[0].windows;
        assert_eq!(windows, all[1].windows, "the same seed gives the same keys");
        let mut msn = 1;
        for _ in 0..8 {
            let ulpdus = some_ulpdus(&mut random, &mut msn, windows);
            let spoil = (random.usize(..6) == 0).then(|| Spoil {
                fpdu: random.usize(..ulpdus.len()),
                bit: random.usize(..1_200),
                is_noticed_later: random.bool(),
            });
            expect_same(all.each_mut().map(|each| each.hear(&ulpdus, spoil)), round);
            expect_same(all.each_ref().map(Foretold::counts), round);
            if all[0].has_ended {
                ends += 1;
                break;
            }
            if random.usize(..3) == 0 {
                all.iter_mut().for_each(repost);
            }
        }
        expect_same(all.each_mut().map(Foretold::answers), round);
    }
    assert!((20..140).contains(&ends), "{ends} of 150 end");
}

fn expect_same<T: PartialEq + std::fmt::Debug>([quick, rest @ ..]: [T; 4], round: usize) {
    rest.iter().for_each(|other| assert_eq!(quick, *other, "round {round}"));
}

/// Posts the receives of handled messages again.
fn repost(foretold: &mut Foretold) {
    for buf in std::mem::take(&mut foretold.receives) {
        foretold.end.iwarp.post_receive(buf).unwrap();
    }
}
