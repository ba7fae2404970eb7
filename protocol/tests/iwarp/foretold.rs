//! Segments that are judged by their header alone, before they have arrived: each has the same
//! effect as one that is judged after all of it arrived.

use fastrand::Rng;
use stag_protocol::iwarp::ddp::{self, Tagged, Untagged};
use stag_protocol::iwarp::rdmap::{Opcode, ReadHeader};
use stag_protocol::iwarp::stream::{Inbound, LandingPlace, SendSegment};

use super::inbound::{READ, TestStream, open, read_request, stream, tagged, write};

/// The header of some Send: mostly the next one, else near it.
fn any_send(random: &mut Rng, msn: u32) -> Untagged {
    let opcodes = [Opcode::Send, Opcode::SendSolicited, Opcode::SendInvalidate];
    let rarely = |random: &mut Rng| random.usize(..8) == 0;
    Untagged {
        last: !rarely(random),
        control: if rarely(random) { opcodes[random.usize(..3)] } else { Opcode::Send }.control(),
        invalidate: if rarely(random) { 7 } else { 0 },
        queue: if rarely(random) { random.u32(..3) } else { ddp::QUEUE_SEND },
        msn: if rarely(random) { random.u32(..) } else { msn },
        mo: if rarely(random) { 5 } else { 0 },
    }
}

/// Both ways judge `header`, each on a stream of its own. Returns true if it was foretold.
fn compare(quick: &mut TestStream, general: &mut TestStream, header: &[u8; 18]) -> bool {
    let before = format!("{general:?}");
    let octets = [&header[..], b"payload"].concat();
    let judged = general.handle_ulpdu(&octets);
    let is_next = quick.is_next_send(header);
    assert_eq!(format!("{quick:?}"), before, "a look changes nothing");
    if is_next {
        let msn = u32::from_be_bytes(*header[10..].first_chunk().unwrap());
        let segment = SendSegment {
            msn,
            offset: 0,
            last: true,
            solicited: false,
            invalidate: None,
            payload: b"payload",
        };
        assert_eq!(judged, Ok(Inbound::Send(segment)));
        quick.handle_next_send();
    } else {
        assert_eq!(quick.handle_ulpdu(&octets), judged);
    }
    assert_eq!(format!("{quick:?}"), format!("{general:?}"));
    is_next
}

#[test]
fn a_foretold_send_is_the_send_that_the_fields_say() {
    let mut random = Rng::with_seed(0xF0);
    let mut foretold = 0;
    for _ in 0..2_000 {
        let (mut quick, mut general) = (open(), open());
        let mut msn = 1;
        while !general.is_ended() && msn < 40 {
            if random.usize(..6) == 0 {
                let tagged = write(random.bool(), 1, 0, b"x");
                assert_eq!(quick.handle_ulpdu(&tagged), general.handle_ulpdu(&tagged));
            }
            let header = any_send(&mut random, msn);
            foretold += usize::from(compare(&mut quick, &mut general, &header.emit()));
            msn += u32::from(header.last);
        }
    }
    assert!(foretold > 2_000, "{foretold} were foretold");
}

#[test]
fn every_other_bit_of_the_header_is_judged_by_its_fields() {
    let next = any_header();
    assert!(open().is_next_send(&next));
    for bit in 0..8 * next.len() {
        let mut header = next;
        header[bit / 8] ^= 1 << (bit % 8);
        assert!(!compare(&mut open(), &mut open(), &header), "bit {bit}");
    }
}

#[test]
fn nothing_is_foretold_before_the_gate_is_open_or_behind_an_end() {
    assert!(!stream().is_next_send(&any_header()), "the first FPDU opens the gate");
    let mut ended = open();
    ended.handle_ulpdu(b"").unwrap_err();
    assert!(!ended.is_next_send(&any_header()));
    let mut amid = open();
    let first = Untagged { last: false, ..next_send() }.emit();
    amid.handle_ulpdu(&first).unwrap();
    assert!(!amid.is_next_send(&any_header()), "the message of that number has begun");
    let mut reading = open();
    reading.handle_ulpdu(&read_request(1, &ReadHeader::default())).unwrap();
    assert!(reading.is_next_send(&any_header()), "a Read Request has its own numbers");
}

const fn next_send() -> Untagged {
    Untagged {
        last: true,
        control: Opcode::Send.control(),
        invalidate: 0,
        queue: ddp::QUEUE_SEND,
        msn: 1,
        mo: 0,
    }
}

fn any_header() -> [u8; 18] {
    next_send().emit()
}

const fn plain_write() -> Tagged {
    Tagged { last: true, control: Opcode::Write.control(), stag: 7, to: 0x10 }
}

#[test]
fn a_whole_write_is_foretold_by_its_first_two_octets() {
    let write = plain_write();
    let plain = write.emit();
    assert_eq!(open().whole_write(&plain), Some(write));
    for bit in 0..16 {
        let mut header = plain;
        header[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open().whole_write(&header), None, "bit {bit}");
    }
    for bit in 16..8 * plain.len() {
        let mut header = plain;
        header[bit / 8] ^= 1 << (bit % 8);
        let foretold = open().whole_write(&header).expect("its window judges the rest");
        let octets = [&header[..], b"payload"].concat();
        let Ok(Inbound::Write(segment)) = open().handle_ulpdu(&octets) else {
            panic!("bit {bit}: no Write");
        };
        assert_eq!((foretold.stag, foretold.to), (segment.stag, segment.to), "bit {bit}");
    }
}

#[test]
fn no_write_is_foretold_amid_a_message_or_outside_an_open_stream() {
    let plain = plain_write().emit();
    assert_eq!(stream().whole_write(&plain), None, "the first FPDU opens the gate");
    let mut amid = open();
    amid.handle_ulpdu(&write(false, 1, 0, b"x")).unwrap();
    assert_eq!(amid.whole_write(&plain), None, "the Write before has not ended");
    let mut ended = open();
    ended.fail();
    assert_eq!(ended.whole_write(&plain), None);
}

/// A tagged header that is often right.
fn any_tagged(random: &mut Rng) -> (Tagged, usize) {
    let rarely = |random: &mut Rng| random.usize(..6) == 0;
    let opcodes = [Opcode::Write, Opcode::ReadResponse, Opcode::Send, Opcode::ReadRequest];
    let opcode = if rarely(random) { random.usize(..4) } else { random.usize(..2) };
    let header = Tagged {
        last: random.bool(),
        control: opcodes[opcode].control(),
        stag: if rarely(random) { 1 } else { READ.sink_stag },
        to: if rarely(random) { u64::MAX - 2 } else { READ.sink_to },
    };
    (header, [4, 8][random.usize(..2)])
}

/// A stream with a Read of eight octets, often in the middle of a tagged message.
fn reading(random: &mut Rng) -> TestStream {
    let mut stream = open();
    stream.begin_read(ReadHeader { len: 8, ..READ }, 1).unwrap();
    if random.bool() {
        stream.handle_ulpdu(&write(false, 1, 0, b"x")).unwrap();
    }
    stream
}

#[test]
fn a_place_is_foreseen_for_what_would_be_accepted_and_for_nothing_else() {
    let mut random = Rng::with_seed(0xF1);
    let (mut foreseen, mut refused) = (0, 0);
    for _ in 0..4_000 {
        let (header, len) = any_tagged(&mut random);
        let payload = &[5; 8][..len];
        let mut quick = reading(&mut random);
        let mut general = quick.clone();
        let octets = [&header.emit()[..], payload].concat();
        let judged = general.handle_ulpdu(&octets);
        let place = quick.foresee(&header, len);
        assert_eq!(place.is_some(), judged.is_ok(), "{header:?}, {len} octets");
        match place {
            None => refused += 1,
            Some(place) => {
                let is_sink = matches!(judged, Ok(Inbound::ReadResponse(_)));
                assert_eq!(place == LandingPlace::Sink { token: 1 }, is_sink);
                assert_eq!(quick.handle_landed(&header, payload), judged);
                assert_eq!(format!("{quick:?}"), format!("{general:?}"));
                foreseen += 1;
            }
        }
    }
    assert!(foreseen > 1_000 && refused > 1_000, "{foreseen} foreseen, {refused} refused");
}

#[test]
fn what_has_landed_after_an_error_is_dropped() {
    let header = plain_write();
    let mut stream = open();
    assert_eq!(stream.foresee(&header, 4), Some(LandingPlace::Window));
    // The stream ends for another reason while the payload arrives.
    stream.fail();
    assert_eq!(stream.handle_landed(&header, b"1234"), Ok(Inbound::Dropped));
    assert_eq!(stream.foresee(&header, 4), None);
    let later = tagged(Opcode::Write, true, 7, 0x10, b"1234");
    assert_eq!(stream.handle_ulpdu(&later), Ok(Inbound::Dropped));
}
