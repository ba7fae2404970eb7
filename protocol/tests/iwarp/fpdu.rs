//! Framing: length, pad, CRC, markers (checklist 24 to 33).

use fastrand::Rng;
use stag_protocol::iwarp::fpdu::*;
use stag_protocol::iwarp::rdmap::Terminate;

use super::{Bitwise, crc32c, hex, octets};

/// Whole FPDUs with CRC, without markers.
pub const KNOWN: [&str; 9] = [
    "002a4143 00000000 00000000 00000001 00000000 000000000000000000000000000000000000000000000000 \
     b7243ec3",
    "000ec140 00000001 0000000000000000 ebd34c5f",
    "00124143 00000000 00000000 00000001 00000000 587be8c4",
    "0013c14011223344010203040506070868656c6c6f0000001fb1004d",
    "00164144deadbe0100000000000000020000000070696e67f8935d04",
    "002e414100000000000000010000000100000000aabbcc01000000000000100000002000\
     11223344000000000000200003ad55bf",
    "0016c142aabbcc0100000000000010000001020304050607b428c867",
    "00264147000000000000000200000001000000001100c0000013c14011223344000000000000200037188626",
    "0016414700000000000000020000000100000000200200007fe42585",
];

fn parse(octets: &[u8]) -> Result<Parsed, Terminate> {
    stag_protocol::iwarp::fpdu::parse::<Bitwise>(octets, true)
}

/// An FPDU made by hand.
pub fn closed(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets.extend(crc32c(&octets).to_le_bytes());
    octets
}

/// Assembles the octets that go on the wire, and checks how they are cut.
pub fn written(framed: &Framed, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    for part in framed.parts() {
        assert!(!part.is_empty());
        match part {
            Part::Marker(marker) => octets.extend(marker),
            Part::Header(range) => octets.extend(&header[range]),
            Part::Payload(range) => octets.extend(&payload[range]),
            Part::Trailer(range) => octets.extend(&framed.trailer[range]),
        }
    }
    assert_eq!(octets.len(), framed.wire_len());
    octets
}

fn framed(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let header = [&(ulpdu.len() as u16).to_be_bytes(), &ulpdu[..4]].concat();
    let framed = framer.frame::<Bitwise, _>(&header, [&ulpdu[4..]]);
    written(&framed, &header, &ulpdu[4..])
}

/// A receiver with markers, written from RFC 5044 §4.3: takes them out of a stream that starts with
/// one, checks every pointer and CRC, and returns the ULPDUs.
pub fn unmarked(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut ulpdus = Vec::new();
    let (mut at, mut begin) = (0, 0);
    let (mut covered, mut data): (Vec<u8>, Vec<u8>) = Default::default();
    while at < stream.len() {
        if at % MARKER_INTERVAL == 0 {
            let pointer = if data.is_empty() { 0 } else { at - begin };
            assert_eq!(stream[at..at + 4], (pointer as u32).to_be_bytes(), "marker at {at}");
            assert_eq!(pointer % 4, 0);
            covered.extend(&stream[at..at + 4]);
            at += 4;
            continue;
        }
        if data.is_empty() {
            begin = at;
        }
        data.push(stream[at]);
        covered.push(stream[at]);
        at += 1;
        let Some(length) = data.first_chunk() else { continue };
        let length = u16::from_be_bytes(*length);
        if data.len() == fpdu_len(length) {
            let sum = covered.split_off(covered.len() - CRC_LEN);
            assert_eq!(crc32c(&covered).to_le_bytes(), sum[..]);
            ulpdus.push(data[LENGTH_LEN..LENGTH_LEN + usize::from(length)].to_vec());
            covered.clear();
            data.clear();
        }
    }
    assert!(data.is_empty(), "the stream ends with an FPDU");
    ulpdus
}

/// Pad and CRC, with CRCs and without: the short way and the general one agree on every octet.
#[test]
fn an_fpdu_written_at_once_is_the_one_framed_in_parts() {
    for (crc, len) in [true, false]
        .into_iter()
        .flat_map(|crc| (0..=64u16).chain(250..=262).map(move |len| (crc, len)))
    {
        let payload: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
        let header = [&(4 + len).to_be_bytes()[..], &[0xc1, 0x40, 7, 9]].concat();
        let header: &[u8; 6] = header.first_chunk().unwrap();
        let framed = Framer::with(crc, false).frame::<Bitwise, _>(header, [&payload[..]]);
        let wanted = written(&framed, header, &payload);
        let mut framer = Framer::with(crc, false);
        let mut out = vec![0xee; wanted.len() + 4];
        assert_eq!(framer.write::<Bitwise, _>(header, &payload, &mut out), Some(wanted.len()));
        let (fpdu, behind) = out.split_at_mut(wanted.len());
        assert_eq!(fpdu, wanted, "{len} octets, CRC {crc}");
        assert_eq!(behind, [0xee; 4]);
        let short = wanted.len() - 1;
        assert_eq!(framer.write::<Bitwise, _>(header, &payload, &mut fpdu[..short]), None);
        assert_eq!(Framer::with(crc, true).write::<Bitwise, _>(header, &payload, &mut out), None);
    }
}

// 24
#[test]
fn the_first_fpdu_of_rfc_5044_figure_5() {
    let mut ulpdu = hex("4143 00000000 00000000 00000001 00000000");
    ulpdu.resize(42, 0);
    let octets = framed(&mut Framer::with(true, true), &ulpdu);
    assert_eq!(octets, [hex("00000000 002a"), ulpdu, hex("52239983")].concat());
}

// 24
#[test]
fn the_second_fpdu_of_rfc_5044_figure_6() {
    let mut framer = Framer::with(true, true);
    // 492 octets, the marker included, stand before it.
    let mut first = hex("4143 00000000 00000000 00000001 00000000");
    first.resize(492 - 4 - 6, 0);
    assert_eq!(framed(&mut framer, &first).len(), 0x1ec);
    let mut ulpdu = hex("4143 00000000 00000000 00000002 00000000");
    let header = ulpdu.clone();
    ulpdu.resize(42, 0);
    let expected =
        [&hex("002a")[..], &header, &hex("00000014"), &[0; 24], &hex("84925898")].concat();
    assert_eq!(framed(&mut framer, &ulpdu), expected);
}

// 25
#[test]
fn the_known_fpdus_parse_and_come_out_the_same() {
    for known in KNOWN {
        let octets = hex(known);
        let Ok(Parsed::Fpdu { ulpdu, consumed }) = parse(&octets) else { panic!("{known}") };
        assert_eq!(consumed, octets.len());
        let ulpdu = &octets[ulpdu];
        assert_eq!(closed(ulpdu), octets);
        assert_eq!(framed(&mut Framer::with(true, false), ulpdu), octets);
    }
}

// 26
#[test]
fn every_length_has_its_pad() {
    for len in (14..=64usize).chain([511, 512, 513, 1428, 64_768]) {
        let mut ulpdu = hex("c140 00000001 0000000000000000");
        ulpdu.resize(len, 0xEE);
        let mut octets = framed(&mut Framer::with(true, false), &ulpdu);
        assert_eq!(octets.len() % 4, 0);
        assert_eq!(octets.len(), fpdu_len(len as u16));
        assert!(octets[2 + len..octets.len() - 4].iter().all(|pad| *pad == 0));
        octets.extend([0xFF; 9]);
        let Ok(Parsed::Fpdu { ulpdu: range, consumed }) = parse(&octets) else { panic!() };
        assert_eq!((&octets[range], consumed), (&ulpdu[..], octets.len() - 9));
    }
}

// 27
#[test]
fn pad_octets_may_have_any_value_under_a_right_crc() {
    let mut octets = hex("0013c14011223344010203040506070868656c6c6f aabbcc");
    octets.extend(crc32c(&octets).to_le_bytes());
    assert_eq!(parse(&octets), Ok(Parsed::Fpdu { ulpdu: 2..21, consumed: 28 }));
}

// 28
#[test]
fn without_crc_the_field_is_ignored_and_sent_as_zero() {
    let mut octets = hex(KNOWN[3]);
    octets[24..].copy_from_slice(&[1, 2, 3, 4]);
    let parsed = stag_protocol::iwarp::fpdu::parse::<Bitwise>(&octets, false);
    assert_eq!(parsed, Ok(Parsed::Fpdu { ulpdu: 2..21, consumed: 28 }));
    let sent = framed(&mut Framer::with(false, false), &octets[2..21]);
    assert_eq!((&sent[..24], &sent[24..]), (&octets[..24], &[0; 4][..]));
}

// 29
#[test]
fn one_flipped_bit_is_found_wherever_it_is() {
    for known in KNOWN {
        let whole = hex(known);
        for bit in 0..whole.len() * 8 {
            let mut octets = whole.clone();
            octets[bit / 8] ^= 0x80 >> (bit % 8);
            match parse(&octets) {
                Err(Terminate::MPA_CRC) => {}
                // A length may become too small to be valid, or exceed the octets there are.
                Err(Terminate::MPA_LENGTH) => assert!(bit < 16 && octets[..2] < [0, 14][..]),
                Ok(Parsed::NeedMore(len)) => assert!(bit < 16 && len > octets.len()),
                other => panic!("{known} {bit}: {other:?}"),
            }
        }
    }
}

// 29: the same without CRC: anything but a panic, and nothing outside the octets.
#[test]
fn flipped_bits_and_cuts_stay_inside_the_octets_without_crc() {
    for known in KNOWN {
        let whole = hex(known);
        for bit in 0..whole.len() * 8 {
            let mut octets = whole.clone();
            octets[bit / 8] ^= 0x80 >> (bit % 8);
            for cut in 0..=octets.len() {
                match stag_protocol::iwarp::fpdu::parse::<Bitwise>(&octets[..cut], false) {
                    Ok(Parsed::Fpdu { ulpdu, consumed }) => {
                        assert!(ulpdu.end < consumed && consumed <= cut)
                    }
                    Ok(Parsed::NeedMore(len)) => assert!(len > cut && len <= FPDU_MAX),
                    Err(cause) => assert_eq!(cause, Terminate::MPA_LENGTH),
                }
            }
        }
    }
}

// 30
#[test]
fn an_fpdu_too_short_for_its_header_is_refused() {
    for len in 0..14u16 {
        assert_eq!(parse(&len.to_be_bytes()), Err(Terminate::MPA_LENGTH), "at once");
    }
    for len in 14..18 {
        assert_eq!(parse(&closed(&vec![0x41; len])), Err(Terminate::MPA_LENGTH), "untagged");
        assert!(parse(&closed(&vec![0xC1; len])).is_ok(), "tagged");
    }
    assert!(parse(&closed(&[0x41; 18])).is_ok());
}

// 31
#[test]
fn the_largest_lengths_are_taken() {
    for len in [64_768, 65_534, 65_535] {
        let octets = closed(&vec![0xC1; len]);
        assert!(octets.len() <= FPDU_MAX);
        assert_eq!(parse(&octets[..2]), Ok(Parsed::NeedMore(octets.len())));
        let consumed = octets.len();
        assert_eq!(parse(&octets), Ok(Parsed::Fpdu { ulpdu: 2..2 + len, consumed }));
    }
}

// 32
#[test]
fn every_cut_of_an_fpdu_asks_for_the_rest() {
    for known in KNOWN {
        let octets = hex(known);
        for cut in 0..octets.len() {
            let need = if cut < 2 { 2 } else { octets.len() };
            assert_eq!(parse(&octets[..cut]), Ok(Parsed::NeedMore(need)));
        }
    }
}

// 32
#[test]
fn random_reads_find_what_one_read_finds() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let ulpdus: Vec<Vec<u8>> = (0..20)
            .map(|_| {
                let limit = if random.usize(..8) == 0 { 3000 } else { 60 };
                let len = 18 + random.usize(..limit);
                octets(&mut random, len)
            })
            .collect();
        let stream: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| closed(ulpdu)).collect();
        let (mut staged, mut read, mut found) = (Vec::new(), 0, Vec::new());
        while read < stream.len() {
            let len = random.usize(1..=700).min(stream.len() - read);
            staged.extend(&stream[read..read + len]);
            read += len;
            while let Parsed::Fpdu { ulpdu, consumed } = parse(&staged).unwrap() {
                found.push(staged[ulpdu].to_vec());
                staged.drain(..consumed);
            }
        }
        assert!(staged.is_empty());
        assert_eq!(found, ulpdus, "seed {seed}");
    }
}

// 33
#[test]
fn mulpdu_follows_the_segment_size() {
    assert_eq!(mulpdu(1460, false), 1454);
    assert_eq!(mulpdu(1448, false), 1442);
    assert_eq!(mulpdu(1447, false), 1447 - 6 - 3);
    assert_eq!(mulpdu(1460, true), 1460 - 6 - 12);
    assert_eq!(mulpdu(65_483, false), 64_768);
    for emss in [0, 1, 5, 128, 133] {
        assert_eq!(mulpdu(emss, false), 128);
        assert_eq!(mulpdu(emss, true), 128);
    }
    assert_eq!(mulpdu(usize::MAX, true), 64_768);
    for emss in 160..5000 {
        assert!(fpdu_len(mulpdu(emss, false)) <= emss);
        let marked = 4 * emss.div_ceil(512);
        assert!(fpdu_len(mulpdu(emss, true)) + marked <= emss);
    }
}

#[test]
fn markers_stand_at_every_512th_octet_wherever_fpdus_end() {
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let mut framer = Framer::with(true, true);
        let (mut stream, mut ulpdus) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let limit = if random.usize(..6) == 0 { 6000 } else { 700 };
            let len = 18 + random.usize(..limit);
            let ulpdu = octets(&mut random, len);
            stream.extend(framed(&mut framer, &ulpdu));
            ulpdus.push(ulpdu);
        }
        assert_eq!(unmarked(&stream), ulpdus, "seed {seed}");
    }
}

// Every distance between an FPDU and the next marker, for every pad: before the length, in header,
// payload and pad's neighbourhood, between pad and CRC, after the CRC.
#[test]
fn markers_fall_anywhere_in_an_fpdu() {
    let mut between_pad_and_crc = 0;
    for before in (14..=530).step_by(4) {
        for len in 40..44 {
            let mut framer = Framer::with(true, true);
            let (first, second) = (vec![0xC1; before], vec![0x41; len]);
            let header = [&(len as u16).to_be_bytes(), &second[..18]].concat();
            let mut stream = framed(&mut framer, &first);
            let framed = framer.frame::<Bitwise, _>(&header, [&second[18..]]);
            let parts: Vec<Part> = framed.parts().collect();
            if matches!(parts[..], [.., Part::Marker(_), Part::Trailer(_)]) {
                between_pad_and_crc += 1;
            }
            stream.extend(written(&framed, &header, &second[18..]));
            assert_eq!(unmarked(&stream), [first, second]);
        }
    }
    assert!(between_pad_and_crc > 0);
}

#[test]
fn the_largest_fpdu_with_markers_keeps_its_pointers() {
    let mut framer = Framer::with(true, true);
    let ulpdu = vec![0xC1; usize::from(MULPDU_MAX)];
    let mut stream = framed(&mut framer, &[0xC1; 14]);
    stream.extend(framed(&mut framer, &ulpdu));
    assert_eq!(unmarked(&stream)[1], ulpdu);
}

#[test]
fn payload_in_pieces_is_payload() {
    let mut random = Rng::with_seed(7);
    for markers in [false, true] {
        let (mut whole, mut pieces) = (Framer::with(true, markers), Framer::with(true, markers));
        for _ in 0..300 {
            let len = random.usize(..1500);
            let payload = octets(&mut random, len);
            let header = [&(len as u16 + 14).to_be_bytes()[..], &[0xC1; 14]].concat();
            let (a, rest) = payload.split_at(random.usize(..=len));
            let (b, c) = rest.split_at(random.usize(..=rest.len()));
            let expected = whole.frame::<Bitwise, _>(&header, [&payload[..]]);
            assert_eq!(pieces.frame::<Bitwise, _>(&header, [a, &[], b, c]), expected);
        }
    }
}

#[test]
fn without_markers_an_fpdu_is_at_most_three_parts() {
    let header = [&21u16.to_be_bytes()[..], &[0xC1; 14]].concat();
    let framed = Framer::with(true, false).frame::<Bitwise, _>(&header, [&[1; 7][..]]);
    let parts: Vec<Part> = framed.parts().collect();
    assert_eq!(parts, [Part::Header(0..16), Part::Payload(0..7), Part::Trailer(0..5)]);
    let header = [&14u16.to_be_bytes()[..], &[0xC1; 14]].concat();
    let framed = Framer::with(true, false).frame::<Bitwise, _>(&header, []);
    let parts: Vec<Part> = framed.parts().collect();
    assert_eq!(parts, [Part::Header(0..16), Part::Trailer(0..4)]);
}
