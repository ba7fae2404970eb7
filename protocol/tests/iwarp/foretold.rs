//! A Send whose header is known before it arrives has the same effect as one judged by its fields.

use fastrand::Rng;
use stag_protocol::iwarp::ddp::{self, Untagged};
use stag_protocol::iwarp::rdmap::{Opcode, ReadHeader};
use stag_protocol::iwarp::stream::{Inbound, SendSegment};

use super::inbound::{TestStream, open, read_request, stream, write};

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
