//! Set-up: frames and negotiation (checklist 1 to 23).

use fastrand::Rng;
use stag_protocol::iwarp::mpa::*;
use stag_protocol::iwarp::rdmap::{Peer, Terminate};
use stag_protocol::iwarp::stream::Side;

use super::{hex, octets};

const WRITE_OR_READ: RtrSet = RtrSet { send: false, write: true, read: true };

fn frame(octets: &[u8], kind: Kind) -> Frame<'_> {
    match Frame::parse(octets, kind) {
        Ok(Parsed::Frame(frame, len)) if len == octets.len() => frame,
        other => panic!("{other:?}"),
    }
}

/// A frame as a peer sends it: flags, revision, and everything after PD_Length.
fn raw(kind: Kind, flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let key: &[u8] = if kind == Kind::Request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" };
    let len = (data.len() as u16).to_be_bytes();
    [key, &[flags, revision], &len, data].concat()
}

fn accept(request: &[u8], config: &Config, private_data: &[u8]) -> (FrameOctets, Negotiated) {
    Request::parse(request).unwrap().unwrap().accept(config, private_data)
}

fn initiator(rtr: Option<RtrSet>) -> Initiator {
    Initiator::new(Config { rtr, ..Config::default() })
}

fn accepted<'a>(initiator: &Initiator, reply: &'a [u8]) -> (Negotiated, &'a [u8]) {
    match initiator.handle_reply(&frame(reply, Kind::Reply)) {
        Ok(Outcome::Accepted(negotiated, private_data)) => (negotiated, private_data),
        other => panic!("{other:?}"),
    }
}

fn terminate(initiator: &Initiator, reply: &[u8]) -> Terminate {
    match initiator.handle_reply(&frame(reply, Kind::Reply)) {
        Err(Failure::Terminate(cause, _)) => cause,
        other => panic!("{other:?}"),
    }
}

const EVERY_RTR: [RtrSet; 8] = {
    let mut sets = [RtrSet { send: false, write: false, read: false }; 8];
    let mut i = 0;
    while i < 8 {
        sets[i] = RtrSet { send: i & 1 != 0, write: i & 2 != 0, read: i & 4 != 0 };
        i += 1;
    }
    sets
};

// 1
#[test]
fn revision_one_is_answered_with_revision_one_and_crc_is_on_when_either_side_asks() {
    for (theirs, ours) in [(false, false), (false, true), (true, false), (true, true)] {
        let request = raw(Kind::Request, if theirs { 0x40 } else { 0 }, 1, b"abc");
        let config = Config { crc: if ours { Crc::Auto } else { Crc::Never }, ..Config::default() };
        let (reply, negotiated) = accept(&request, &config, b"xy");
        let on = if theirs || ours { 0x40 } else { 0 };
        assert_eq!(*reply, *raw(Kind::Reply, on, 1, b"xy"));
        assert_eq!(negotiated.crc, theirs || ours);
        assert_eq!((negotiated.ird, negotiated.ord, negotiated.rtr), (16, 16, None));
        assert_eq!(negotiated.offered, None);

        let initiator = Initiator::new(Config { revision: Revision::One, ..config });
        assert_eq!(
            *initiator.request(b"abc"),
            *raw(Kind::Request, if ours { 0x40 } else { 0 }, 1, b"abc")
        );
        let reply = raw(Kind::Reply, if theirs { 0x40 } else { 0 }, 1, b"xy");
        let (negotiated, private_data) = accepted(&initiator, &reply);
        assert_eq!((negotiated.crc, private_data), (theirs || ours, &b"xy"[..]));
        assert_eq!((negotiated.rtr, negotiated.peer), (None, Peer::Hardware));
    }
}

// 2
#[test]
fn a_real_siw_request_is_answered_in_kind() {
    // Linux 6.1: the NFS client asks for IRD 128, ORD 0, with private data of RFC 8797.
    let request = hex("4d504120494420526571204672616d65 1002000c 00800000 f6ab0e1801010303");
    let config = Config { ird: 128, ord: 128, crc: Crc::Always, ..Config::default() };
    let (reply, negotiated) = accept(&request, &config, &hex("f6ab0e1801010303"));
    assert_eq!(*reply, *hex("4d504120494420526570204672616d65 5002000c 00000080 f6ab0e1801010303"));
    assert_eq!(
        negotiated,
        Negotiated {
            side: Side::Responder,
            revision: Revision::Two,
            crc: true,
            send_markers: false,
            ird: 0,
            ord: 128,
            rtr: None,
            peer: Peer::Siw,
            offered: Some(Enhanced { rtr: None, ird: 128, ord: 0 }),
        }
    );
}

// 2
#[test]
fn a_real_siw_reply_is_taken_by_a_client_server_initiator() {
    let reply = hex("4d504120494420526570204672616d65 1002000c 00000080 f6ab0e1801010300");
    let initiator = Initiator::new(Config {
        crc: Crc::Never,
        rtr: None,
        ird: 128,
        ord: 0,
        ..Config::default()
    });
    let (negotiated, private_data) = accepted(&initiator, &reply);
    assert_eq!(
        (negotiated.crc, negotiated.ird, negotiated.ord, negotiated.rtr),
        (false, 128, 0, None)
    );
    assert_eq!(negotiated.offered, Some(Enhanced { rtr: None, ird: 0, ord: 128 }));
    assert_eq!(private_data, hex("f6ab0e1801010300"));
}

// 2
#[test]
fn depths_are_the_lesser_of_what_both_sides_want() {
    for (ird, ord) in [(0, 0), (1, 1), (4, 2), (100, 7), (128, 128), (0x3FFE, 0x3FFE)] {
        for own in [1, 2, 16, 100, 128] {
            let words = [u16::to_be_bytes(ird), u16::to_be_bytes(ord)].concat();
            let config = Config { ird: own, ord: own, ..Config::default() };
            let (reply, negotiated) = accept(&raw(Kind::Request, 0x50, 2, &words), &config, b"");
            let said = frame(&reply, Kind::Reply).enhanced.unwrap();
            assert_eq!((said.ird, said.ord, said.rtr), (negotiated.ird, negotiated.ord, None));
            assert_eq!(said.ord, ird.min(own), "our ORD is at most their IRD");
            assert!(said.ird <= own && (said.ird == 0 || said.ird.is_power_of_two()));
            assert!(said.ird >= ord || said.ird * 2 > own, "their ORD is met when it can be");
        }
    }
}

// 3
#[test]
fn the_responder_names_exactly_one_indication() {
    for set in EVERY_RTR {
        let ird = 0xC000u16 & if set.send { 0xC000 } else { 0x8000 };
        let ord = if set.write { 0x8000 } else { 0 } | if set.read { 0x4000u16 } else { 0 };
        let words = [ird.to_be_bytes(), ord.to_be_bytes()].concat();
        let (reply, negotiated) =
            accept(&raw(Kind::Request, 0x50, 2, &words), &Config::default(), b"");
        let said = frame(&reply, Kind::Reply).enhanced.unwrap();
        let (rtr, bits, granted) = match set {
            RtrSet { write: true, .. } => (Rtr::Write, (0x8000, 0x8000), 0),
            // The IRD is raised for it.
            RtrSet { read: true, .. } => (Rtr::Read, (0x8000, 0x4000), 1),
            RtrSet { send: true, .. } => (Rtr::Send, (0xC000, 0x0000), 0),
            // None offered: ours is named, the initiator terminates.
            _ => (Rtr::Write, (0x8000, 0x8000), 0),
        };
        assert_eq!(negotiated.rtr, Some(rtr));
        assert_eq!(said.ird, granted);
        let words = [u16::to_be_bytes(bits.0 | granted), u16::to_be_bytes(bits.1)].concat();
        assert_eq!(*reply, *raw(Kind::Reply, 0x50, 2, &words));
    }
}

// 3: an indication by Read gets its place even from a responder that serves no Reads.
#[test]
fn a_read_indication_raises_an_ird_of_zero() {
    let config = Config { ird: 0, ..Config::default() };
    let (_, negotiated) = accept(&raw(Kind::Request, 0x50, 2, &hex("8000 4000")), &config, b"");
    assert_eq!((negotiated.rtr, negotiated.ird), (Some(Rtr::Read), 1));
}

// 3
#[test]
fn our_request_offers_write_and_read_and_room_for_the_read() {
    let request = Initiator::new(Config { ird: 128, ord: 0, ..Config::default() }).request(b"");
    assert_eq!(*request, *raw(Kind::Request, 0x58, 2, &hex("8080 c001")));
}

// 3
#[test]
fn the_initiator_prefers_the_write_indication_and_takes_the_read() {
    let initiator = initiator(Some(WRITE_OR_READ));
    for (words, rtr) in [
        ("8010 8010", Rtr::Write), // siw
        ("8010 4010", Rtr::Read),  // cxgb4
        ("8010 c010", Rtr::Write), // irdma names both
        ("c010 8010", Rtr::Write),
    ] {
        assert_eq!(accepted(&initiator, &raw(Kind::Reply, 0x50, 2, &hex(words))).0.rtr, Some(rtr));
    }
}

// 4
#[test]
fn a_client_server_answer_to_a_peer_to_peer_request_terminates() {
    let initiator = initiator(Some(WRITE_OR_READ));
    for words in ["0010 0010", "0010 c010", "4010 c010"] {
        let reply = raw(Kind::Reply, 0x50, 2, &hex(words));
        assert_eq!(terminate(&initiator, &reply), Terminate::MPA_NO_RTR);
    }
}

// 5
#[test]
fn an_indication_that_was_not_offered_terminates() {
    for offered in EVERY_RTR {
        for answered in EVERY_RTR {
            let initiator = initiator(Some(offered));
            let ird = 0x8001 | if answered.send { 0x4000u16 } else { 0 };
            let ord =
                if answered.write { 0x8000 } else { 0 } | if answered.read { 0x4000u16 } else { 0 };
            let reply = raw(Kind::Reply, 0x50, 2, &[ird.to_be_bytes(), ord.to_be_bytes()].concat());
            let both = (
                offered.write && answered.write,
                offered.read && answered.read,
                offered.send && answered.send,
            );
            let rtr = match both {
                (true, _, _) => Rtr::Write,
                (_, true, _) => Rtr::Read,
                (_, _, true) => Rtr::Send,
                _ => {
                    assert_eq!(terminate(&initiator, &reply), Terminate::MPA_NO_RTR);
                    continue;
                }
            };
            assert_eq!(accepted(&initiator, &reply).0.rtr, Some(rtr));
        }
    }
}

// 5: irdma would answer so; a Read that has no place at the peer cannot be the indication.
#[test]
fn a_read_indication_beside_an_ird_of_zero_terminates() {
    let reply = raw(Kind::Reply, 0x50, 2, &hex("8000 4000"));
    assert_eq!(terminate(&initiator(Some(WRITE_OR_READ)), &reply), Terminate::MPA_NO_RTR);
}

// 6
#[test]
fn a_responder_that_wants_more_reads_than_we_serve_is_terminated() {
    let initiator = Initiator::new(Config { rtr: None, ird: 16, ord: 16, ..Config::default() });
    assert_eq!(accepted(&initiator, &raw(Kind::Reply, 0x50, 2, &hex("0010 0010"))).0.ird, 16);
    for ord in ["0011", "3ffe"] {
        let words = [hex("0010"), hex(ord)].concat();
        let reply = raw(Kind::Reply, 0x50, 2, &words);
        assert_eq!(terminate(&initiator, &reply), Terminate::MPA_INSUFFICIENT_IRD);
    }
}

// 7
#[test]
fn a_depth_that_is_not_to_be_negotiated_is_echoed_in_the_opposite_word() {
    let config = Config { ird: 8, ord: 4, ..Config::default() };
    for (asked, said, depths) in [
        ("3fff 0002", "0002 3fff", (2, 4)),
        ("0002 3fff", "3fff 0002", (8, 2)),
        ("3fff 3fff", "3fff 3fff", (8, 4)),
    ] {
        let (reply, negotiated) = accept(&raw(Kind::Request, 0x50, 2, &hex(asked)), &config, b"");
        assert_eq!(*reply, *raw(Kind::Reply, 0x50, 2, &hex(said)));
        assert_eq!((negotiated.ird, negotiated.ord), depths);
    }
    let initiator = Initiator::new(Config { rtr: None, ..config });
    let (negotiated, _) = accepted(&initiator, &raw(Kind::Reply, 0x50, 2, &hex("3fff 3fff")));
    assert_eq!((negotiated.ird, negotiated.ord), (8, 4));
}

// 7: we never send the reserved value ourselves.
#[test]
fn a_large_wish_does_not_turn_into_not_negotiated() {
    let config = Config { ird: u16::MAX, ord: u16::MAX, rtr: None, ..Config::default() };
    let request = Initiator::new(config).request(b"");
    assert_eq!(*request, *raw(Kind::Request, 0x58, 2, &hex("2000 3ffe")));
    let (reply, _) = accept(&raw(Kind::Request, 0x50, 2, &hex("3ffe 3ffe")), &config, b"");
    assert_eq!(*reply, *raw(Kind::Reply, 0x50, 2, &hex("2000 3ffe")));
}

// 8: siw rounds the depth up and uses all of it.
#[test]
fn inbound_reads_are_granted_in_powers_of_two() {
    for (asked, own, granted) in
        [(0, 128, 0), (1, 128, 1), (3, 128, 4), (100, 128, 128), (129, 128, 128), (100, 100, 64)]
    {
        let words = [u16::to_be_bytes(1), u16::to_be_bytes(asked)].concat();
        let config = Config { ird: own, ..Config::default() };
        assert_eq!(accept(&raw(Kind::Request, 0x50, 2, &words), &config, b"").1.ird, granted);
    }
    assert_eq!(
        frame(
            &Initiator::new(Config { ird: 100, ..Config::default() }).request(b""),
            Kind::Request
        )
        .enhanced
        .unwrap()
        .ird,
        64
    );
}

// 9
#[test]
fn a_rejection_carries_private_data_both_ways() {
    for len in [0, 8, PRIVATE_DATA_MAX] {
        let data = vec![0xA5; len];
        let request = raw(Kind::Request, 0xD0, 2, &hex("8010 c010"));
        let reply = Request::parse(&request).unwrap().unwrap().reject(&Config::default(), &data);
        let said = frame(&reply, Kind::Reply);
        assert!(said.reject && !said.markers && said.enhanced.is_some());
        let outcome = initiator(Some(WRITE_OR_READ)).handle_reply(&said).unwrap();
        assert_eq!(outcome, Outcome::Rejected(said.enhanced, &data));

        let request = raw(Kind::Request, 0, 1, &[]);
        let reply = Request::parse(&request).unwrap().unwrap().reject(&Config::default(), &data);
        assert_eq!(*reply, *raw(Kind::Reply, 0x60, 1, &data));
    }
}

// 9: RFC 6581 §9.2 asks for the same control flags in every Reply.
#[test]
fn a_rejection_names_the_connection_model_as_an_acceptance_does() {
    for (asked, said) in [
        ("8010 8010", "8010 8010"),
        ("8010 4010", "8010 4010"),
        ("c010 0010", "c010 0010"),
        ("8010 0010", "8010 8010"),
        ("0010 0010", "0010 0010"),
    ] {
        let request = raw(Kind::Request, 0x50, 2, &hex(asked));
        let request = Request::parse(&request).unwrap().unwrap();
        let config = Config::default();
        assert_eq!(*request.reject(&config, b""), *raw(Kind::Reply, 0x70, 2, &hex(said)));
        assert_eq!(*request.accept(&config, b"").0, *raw(Kind::Reply, 0x50, 2, &hex(said)));
    }
}

// 9: the bit means nothing in a Request.
#[test]
fn a_request_cannot_reject() {
    assert!(!frame(&raw(Kind::Request, 0x20, 1, b""), Kind::Request).reject);
}

// 10
#[test]
fn private_data_up_to_the_limit_is_taken() {
    for kind in [Kind::Request, Kind::Reply] {
        for len in [0, 1, 4, 248, 252, 256, 257, 512] {
            let data = vec![7; len];
            assert_eq!(frame(&raw(kind, 0, 1, &data), kind).private_data, data);
        }
        for len in [513, 514, 0x8000, 0xFFFF] {
            let whole = raw(kind, 0, 1, &vec![7; len]);
            assert_eq!(Frame::parse(&whole, kind), Err(FrameError::TooLong(len as u16)));
            assert_eq!(
                Frame::parse(&whole[..20], kind),
                Err(FrameError::TooLong(len as u16)),
                "at once"
            );
        }
    }
}

// 11
#[test]
fn enhanced_data_that_is_not_there_closes() {
    for kind in [Kind::Request, Kind::Reply] {
        for len in 0..4 {
            let octets = raw(kind, 0x10, 2, &vec![0; len]);
            assert_eq!(Frame::parse(&octets, kind), Err(FrameError::NoEnhancedData));
        }
        // In revision 1 the bit is reserved and not looked at.
        assert_eq!(frame(&raw(kind, 0x10, 1, b"abc"), kind).enhanced, None);
    }
}

// 11
#[test]
fn we_never_send_the_enhanced_flag_without_its_data() {
    let request = raw(Kind::Request, 0x10, 2, &[0; 4]);
    let request = Request::parse(&request).unwrap().unwrap();
    for reply in
        [request.accept(&Config::default(), b"").0, request.reject(&Config::default(), b"")]
    {
        assert_eq!(reply[16] & 0x10, 0x10);
        assert_eq!(u16::from_be_bytes([reply[18], reply[19]]), 4);
    }
    // A request of revision 2 without the data gets a reply without.
    let (reply, negotiated) = accept(&raw(Kind::Request, 0, 2, b""), &Config::default(), b"");
    assert_eq!((*reply).to_vec(), raw(Kind::Reply, 0x40, 2, b""));
    assert_eq!((negotiated.rtr, negotiated.ird), (None, 16));
}

// 12, 14
#[test]
fn a_wrong_key_shows_at_its_first_wrong_octet() {
    for kind in [Kind::Request, Kind::Reply] {
        let whole = raw(kind, 0, 1, b"");
        for at in 0..16 {
            for bit in 0..8 {
                let mut octets = whole.clone();
                octets[at] ^= 1 << bit;
                let error = match octets[9] {
                    b'q' | b'p' if at == 9 && octets[9] != whole[9] => FrameError::WrongKind,
                    _ => FrameError::NotMpa,
                };
                assert_eq!(Frame::parse(&octets[..=at], kind), Err(error));
                assert!(Frame::parse(&octets, kind).is_err());
            }
        }
    }
    assert_eq!(Frame::parse(b"GET / HTTP/1.1\r\n\r\n", Kind::Request), Err(FrameError::NotMpa));
}

// 13
#[test]
fn two_initiators_and_two_responders_notice_each_other() {
    let config = Config::default();
    let request = Initiator::new(config).request(b"");
    assert_eq!(Frame::parse(&request, Kind::Reply), Err(FrameError::WrongKind));
    let (reply, _) = accept(&request, &config, b"");
    assert_eq!(Frame::parse(&reply, Kind::Request), Err(FrameError::WrongKind));
}

// 15
#[test]
fn only_revisions_one_and_two_are_spoken() {
    for kind in [Kind::Request, Kind::Reply] {
        for revision in 0..=255 {
            let octets = raw(kind, 0, revision, b"");
            match revision {
                1 | 2 => assert!(Frame::parse(&octets, kind).is_ok()),
                _ => assert_eq!(Frame::parse(&octets, kind), Err(FrameError::Revision(revision))),
            }
        }
    }
}

// 16: RFC 5044 §4.3 obliges every sender; we ask for none ourselves.
#[test]
fn a_peer_that_asks_for_markers_gets_them() {
    let (reply, negotiated) = accept(&raw(Kind::Request, 0x80, 1, b""), &Config::default(), b"");
    assert_eq!((reply[16] & 0x80, negotiated.send_markers), (0, true));
    let asking = raw(Kind::Reply, 0x90, 2, &hex("8010 8010"));
    assert!(accepted(&initiator(Some(WRITE_OR_READ)), &asking).0.send_markers);
    assert_eq!(initiator(None).request(b"")[16] & 0x80, 0);
}

// 17
#[test]
fn frames_arrive_octet_by_octet() {
    for data in [&b""[..], &hex("8010 8010 0102030405")] {
        for kind in [Kind::Request, Kind::Reply] {
            let whole = raw(kind, 0x50, if data.is_empty() { 1 } else { 2 }, data);
            for cut in 0..whole.len() {
                match Frame::parse(&whole[..cut], kind) {
                    Ok(Parsed::NeedMore(len)) => {
                        assert_eq!(len, if cut < 20 { 20 } else { whole.len() });
                    }
                    other => panic!("{cut}: {other:?}"),
                }
            }
            frame(&whole, kind);
        }
    }
}

// 18: siw's responder may send at once.
#[test]
fn octets_behind_a_reply_belong_to_the_caller() {
    let reply = raw(Kind::Reply, 0x10, 2, &hex("0010 0010 ffff"));
    let glued = [&reply[..], &hex("00124143")].concat();
    let Ok(Parsed::Frame(frame, len)) = Frame::parse(&glued, Kind::Reply) else { panic!() };
    assert_eq!((len, frame.private_data), (reply.len(), &[0xFF, 0xFF][..]));
}

// 19
#[test]
fn octets_behind_a_request_close_the_connection() {
    let mut glued = raw(Kind::Request, 0x10, 2, &hex("0010 0010"));
    assert!(Request::parse(&glued).unwrap().is_some());
    glued.push(0);
    assert_eq!(Request::parse(&glued).err(), Some(FrameError::Surplus));
}

// 23
#[test]
fn a_reply_may_turn_crc_on() {
    let initiator = Initiator::new(Config { crc: Crc::Never, rtr: None, ..Config::default() });
    for (flags, crc) in [(0x10, false), (0x50, true)] {
        assert_eq!(accepted(&initiator, &raw(Kind::Reply, flags, 2, &hex("0010 0010"))).0.crc, crc);
    }
}

#[test]
fn a_reply_is_enhanced_exactly_when_its_request_was() {
    let closed = Err(Failure::Close(FrameError::EnhancementMismatch));
    let two = initiator(None);
    for plain in [
        raw(Kind::Reply, 0, 1, b""),
        raw(Kind::Reply, 0, 2, b""),
        raw(Kind::Reply, 0x10, 1, &[0; 4]),
    ] {
        assert_eq!(two.handle_reply(&frame(&plain, Kind::Reply)), closed);
    }
    let one = Initiator::new(Config { revision: Revision::One, ..Config::default() });
    let enhanced = raw(Kind::Reply, 0x10, 2, &[0; 4]);
    assert_eq!(one.handle_reply(&frame(&enhanced, Kind::Reply)), closed);
}

#[test]
fn the_peer_is_known_by_its_frames() {
    let ask = |flags, words| {
        accept(&raw(Kind::Request, flags, 2, &hex(words)), &Config::default(), b"").1
    };
    assert_eq!(ask(0x10, "0080 0000").peer, Peer::Siw);
    assert_eq!(ask(0x50, "8020 4020").peer, Peer::Hardware, "cxgb4");
    assert_eq!(ask(0x50, "803f c03f").peer, Peer::Hardware, "irdma");
    assert_eq!(ask(0x90, "0080 0000").peer, Peer::Hardware, "siw asks for no markers");
    assert_eq!(ask(0x58, "8010 c010").peer, Peer::Stag);
    let initiator = initiator(Some(WRITE_OR_READ));
    let answer = |flags| accepted(&initiator, &raw(Kind::Reply, flags, 2, &hex("8010 8010"))).0;
    assert_eq!(answer(0x58).peer, Peer::Siw, "siw echoes the flags as they came");
    assert_eq!(answer(0x50).peer, Peer::Hardware);
    assert_eq!(answer(0x54).peer, Peer::Hardware);
    assert_eq!(answer(0x5C).peer, Peer::Stag);
    assert_eq!(answer(0x50).fpdu_size(), FpduSize::Segment);
    assert_eq!(answer(0x58).fpdu_size(), FpduSize::Full);
    assert_eq!(answer(0x58).mulpdu(FpduSize::Full, 1448), 64_768);
    assert_eq!(answer(0x58).mulpdu(FpduSize::Segment, 1460), 1456 - 6);
}

// 1 to 8: two ends of ours agree for all their settings.
#[test]
fn two_ends_of_ours_always_agree() {
    let depths = [0, 1, 3, 16, 100, 0x3FFF];
    for bits in 0..32u32 {
        let crc = (bits & 1 != 0, bits & 2 != 0);
        let revision = if bits & 4 != 0 { Revision::Two } else { Revision::One };
        for rtr in EVERY_RTR.into_iter().skip(1).map(Some).chain([None]) {
            for ird in depths {
                for ord in depths {
                    let wants = |crc| if crc { Crc::Always } else { Crc::Never };
                    let left = Config { crc: wants(crc.0), revision, rtr, ird, ord };
                    let right = Config { crc: wants(crc.1), revision, rtr, ird: ord, ord: ird };
                    let initiator = Initiator::new(left);
                    let request = initiator.request(b"to");
                    let (reply, responder) = accept(&request, &right, b"fro");
                    let (initiator, private_data) = accepted(&initiator, &reply);
                    assert_eq!(private_data, b"fro");
                    assert_eq!(
                        (initiator.side, responder.side),
                        (Side::Initiator, Side::Responder)
                    );
                    assert_eq!((initiator.crc, initiator.rtr), (responder.crc, responder.rtr));
                    assert_eq!(initiator.crc, crc.0 || crc.1);
                    if revision == Revision::Two {
                        assert_eq!(initiator.rtr.is_some(), rtr.is_some());
                        assert!(initiator.ord <= responder.ird && responder.ord <= initiator.ird);
                        assert_eq!((initiator.peer, responder.peer), (Peer::Stag, Peer::Stag));
                    }
                }
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_frame_has_a_defined_meaning() {
    let request = raw(Kind::Request, 0x58, 2, &hex("8010 c010 f6ab0e1801010303"));
    let reply = raw(Kind::Reply, 0x5C, 2, &hex("8010 8010 f6ab0e1801010303"));
    for (whole, kind) in [(&request, Kind::Request), (&reply, Kind::Reply)] {
        for bit in 0..whole.len() * 8 {
            let mut octets = whole.clone();
            octets[bit / 8] ^= 0x80 >> (bit % 8);
            for cut in 0..=octets.len() {
                match Frame::parse(&octets[..cut], kind) {
                    Ok(Parsed::NeedMore(len)) => assert!(len > cut),
                    Ok(Parsed::Frame(frame, len)) => {
                        assert!(len <= cut && bit >= 128);
                        if kind == Kind::Request {
                            let (reply, _) = Request { frame }.accept(&Config::default(), b"");
                            assert!(matches!(
                                Frame::parse(&reply, Kind::Reply),
                                Ok(Parsed::Frame(..))
                            ));
                        } else {
                            let _ = initiator(Some(WRITE_OR_READ)).handle_reply(&frame);
                        }
                    }
                    Err(_) => assert!(bit < 128 || bit / 8 == 17 || bit / 8 == 18 || bit / 8 == 19),
                }
            }
        }
    }
}

#[test]
fn random_words_never_break_the_bounds() {
    let mut random = Rng::with_seed(44);
    for _ in 0..100_000 {
        let words = octets(&mut random, 4);
        let own = Config { ird: random.u16(..), ord: random.u16(..), ..Config::default() };
        let (reply, negotiated) = accept(&raw(Kind::Request, 0x50, 2, &words), &own, b"");
        let said = frame(&reply, Kind::Reply).enhanced.unwrap();
        let asked = negotiated.offered.unwrap();
        assert!(negotiated.ird <= own.ird.max(1) && negotiated.ord <= own.ord);
        assert!(asked.ird == NOT_NEGOTIATED || negotiated.ord <= asked.ird);
        assert_eq!(asked.ird == NOT_NEGOTIATED, said.ord == NOT_NEGOTIATED);
        assert_eq!(asked.ord == NOT_NEGOTIATED, said.ird == NOT_NEGOTIATED);
        let initiator = Initiator::new(own);
        if let Ok(Outcome::Accepted(negotiated, _)) =
            initiator.handle_reply(&frame(&raw(Kind::Reply, 0x50, 2, &words), Kind::Reply))
        {
            assert!(negotiated.ird <= own.ird && negotiated.ord <= own.ord.max(1));
            assert!(asked.ord == NOT_NEGOTIATED || asked.ord <= negotiated.ird);
            assert!(asked.ird == NOT_NEGOTIATED || negotiated.ord <= asked.ird);
        }
    }
}

#[test]
fn a_siw_client_that_asks_for_no_crc_is_given_none_unless_we_insist() {
    // Revision 2, S, no CRC, no indication: what Linux 6.1 sends.
    let octets = raw(Kind::Request, 0x10, 2, &hex("0080 0000"));
    let Ok(Some(request)) = Request::parse(&octets) else { panic!("a Request") };
    for (crc, given) in [(Crc::Always, true), (Crc::Auto, false), (Crc::Never, false)] {
        let (_, negotiated) = request.accept(&Config { crc, ..Config::default() }, b"");
        assert_eq!((negotiated.peer, negotiated.crc), (Peer::Siw, given));
    }
    // Anybody else is given one.
    let octets = raw(Kind::Request, 0x10, 2, &hex("c080 0000"));
    let Ok(Some(request)) = Request::parse(&octets) else { panic!("a Request") };
    assert!(request.accept(&Config::default(), b"").1.crc);
}
