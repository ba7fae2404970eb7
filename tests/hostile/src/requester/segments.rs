//! Octets that are not FPDUs, segments that are not of DDP or RDMAP: every field of their headers,
//! value by value.

use super::{
    AskedCall, CONTENT, CallKind, LEN, Speaks, good_reply, push, raw_send, table::ServerDefectTable,
};
use crate::play::rule;
use crate::wire::*;

const FRAME: &str = "RFC 5044 §7.1.2";
const DDP: &str = "RFC 5041 §4.3, §7.2";
const RDMAP: &str = "RFC 5040 §4.1, §7.1";

pub(super) fn add(table: &mut ServerDefectTable) {
    frames(table);
    untagged(table);
    tagged(table);
    fpdus(table);
    terminates(table);
}

/// An MPA Reply with each octet of its key wrong, and one that ends in each of its fields.
fn frames(table: &mut ServerDefectTable) {
    let good = good_reply(Speaks::One);
    for at in 0..16 {
        table.frame(
            &format!("reply-key-octet-{at}-wrong"),
            FRAME,
            "closed",
            flipped(good.clone(), at, 0x20),
        );
    }
    for len in [1, 8, 15, 16, 17, 18, 19, 20, 22, 24, 31] {
        table.frame(
            &format!("reply-ends-behind-{len}-octets"),
            FRAME,
            "closed",
            cut(good.clone(), len),
        );
    }
    for (name, len) in [("too-long", 13_u16), ("of-512", 512), ("of-65535", u16::MAX)] {
        let frame = frame_of(
            REPLY,
            FrameHead { flags: C | S, revision: 2, len },
            good.get(20..).unwrap_or_default(),
        );
        table.frame(&format!("reply-claims-a-length-{name}"), FRAME, "closed", frame);
    }
    for (name, data) in
        [("zeros", vec![0; 508]), ("ones", vec![0xFF; 100]), ("of-an-odd-length", vec![7; 33])]
    {
        let data = [&depths(0x8000 | 32, 0x8000 | 32)[..], &data].concat();
        table.frame(
            &format!("private-data-{name}"),
            "RFC 8797 §5.2",
            "accepted",
            frame(REPLY, C | S, 2, &data),
        );
    }
}

/// A reply as a segment with one wrong field.
fn untagged(table: &mut ServerDefectTable) {
    use CallKind::Null;
    let send = |asked: &AskedCall| asked.header().with(&asked.results());
    let mut field = |name: String, rule, change: fn(&mut RawUntagged, u32), value: u32| {
        table.script(&name, rule, Null, move |fabric, asked| {
            raw_send(fabric, |segment| change(segment, value), &send(asked))
        });
    };
    for queue in [3, 4, 255, u32::MAX] {
        let broken = rule(DDP, "Terminate 1/2/01");
        field(
            format!("reply-on-queue-{queue:#x}"),
            broken,
            |segment, to| segment.queue = to,
            queue,
        );
    }
    for msn in [0, 2, 3, 1 << 31, u32::MAX] {
        let broken = rule("RFC 5041 §7.2 0x03", "Terminate 1/2/03");
        field(format!("reply-with-msn-{msn:#x}"), broken, |segment, to| segment.msn = to, msn);
    }
    for mo in [1, 3, 1 << 12, u32::MAX] {
        let broken = rule("RFC 5041 §7.2 0x04, 0x05", "Terminate 1/2/04 | Terminate 1/2/05");
        field(format!("reply-at-offset-{mo:#x}"), broken, |segment, to| segment.mo = to, mo);
    }
    for opcode in [0, 2, 8, 9, 10, 11, 12, 13, 14, 15] {
        let broken = rule(RDMAP, "Terminate 0/2/06");
        field(
            format!("reply-with-opcode-{opcode:#x}"),
            broken,
            |segment, to| segment.rdmap = 0x40 | to as u8,
            opcode,
        );
    }
    for version in [0, 2, 3] {
        let broken = rule("RFC 5040 §7.1 0x05", "Terminate 0/2/05");
        field(
            format!("reply-of-rdmap-version-{version}"),
            broken,
            |segment, to| segment.rdmap = 3 | (to as u8) << 6,
            version,
        );
        let broken = rule("RFC 5041 §7.1, §7.2 0x06", "Terminate 1/2/06");
        field(
            format!("reply-of-ddp-version-{version}"),
            broken,
            |segment, to| segment.ddp = 0x40 | to as u8,
            version,
        );
    }
    // Differences from a usual reply that break no rule.
    let right = rule("RFC 5040 §4.1, RFC 5041 §4.1", "call succeeds");
    field("reply-with-solicited-event".into(), right, |segment, _| segment.rdmap = 0x45, 0);
    for bits in [0x04, 0x20, 0x3C] {
        field(
            format!("reply-with-reserved-ddp-bits-{bits:#x}"),
            right,
            |segment, to| segment.ddp |= to as u8,
            bits,
        );
    }
}

/// A Write with one wrong field, before a right reply.
fn tagged(table: &mut ServerDefectTable) {
    for version in [0_u8, 2, 3] {
        table.ulpdu(
            &format!("write-of-ddp-version-{version}"),
            rule("RFC 5041 §7.1 0x04", "Terminate 1/1/04"),
            CallKind::Read,
            move |asked| {
                let segment = asked.segment();
                RawTagged {
                    ddp: 0xC0 | version,
                    ..RawTagged::write(segment.handle, segment.offset)
                }
                .with(b"x")
            },
        );
        table.ulpdu(
            &format!("write-of-rdmap-version-{version}"),
            rule("RFC 5040 §7.1 0x05", "Terminate 0/2/05"),
            CallKind::Read,
            move |asked| {
                let segment = asked.segment();
                RawTagged {
                    rdmap: version << 6,
                    ..RawTagged::write(segment.handle, segment.offset)
                }
                .with(b"x")
            },
        );
    }
    for opcode in [1_u8, 3, 4, 5, 6, 7, 8, 15] {
        table.ulpdu(
            &format!("tagged-segment-of-opcode-{opcode:#x}"),
            rule(RDMAP, "Terminate 0/2/06"),
            CallKind::Read,
            move |asked| {
                let segment = asked.segment();
                RawTagged {
                    rdmap: 0x40 | opcode,
                    ..RawTagged::write(segment.handle, segment.offset)
                }
                .with(b"x")
            },
        );
    }
    for (name, octets) in [("nothing", 0_usize), ("a-quarter", LEN / 4), ("all-but-one", LEN - 1)] {
        table.script(
            &format!("read-of-which-{name}-is-written-and-all-is-claimed"),
            rule("RFC 8166 §3.4.6", "call fails"),
            CallKind::ReadAgain,
            move |fabric, asked| {
                push(fabric, asked.segment(), &vec![CONTENT; octets])?;
                fabric.send(&asked.header().with(&asked.results()))
            },
        );
    }
    table.script(
        "read-of-which-the-end-is-written-and-all-is-claimed",
        rule("RFC 8166 §3.4.6", "call fails"),
        CallKind::ReadAgain,
        |fabric, asked| {
            push(fabric, asked.segment().skip(LEN as u32 - 8), &[CONTENT; 8])?;
            fabric.send(&asked.header().with(&asked.results()))
        },
    );
}

/// FPDUs that are too short for what they should hold, and a CRC with each octet wrong.
fn fpdus(table: &mut ServerDefectTable) {
    for len in 0..14_usize {
        table.script(
            &format!("fpdu-of-{len}-octets-of-a-tagged-segment"),
            rule("RFC 5044 §8 code 3", "Terminate 2/0/03"),
            CallKind::Read,
            move |fabric, asked| {
                let segment = asked.segment();
                let whole = RawTagged::write(segment.handle, segment.offset).with(b"");
                fabric.say(&fpdu(&cut(whole, len)))
            },
        );
    }
    for len in [2_usize, 6, 10, 14, 17] {
        table.script(
            &format!("fpdu-of-{len}-octets-of-an-untagged-segment"),
            rule("RFC 5044 §8 code 3", "Terminate 2/0/03"),
            CallKind::Null,
            move |fabric, _| {
                let whole = RawUntagged::send(fabric.msn).with(b"");
                fabric.say(&fpdu(&cut(whole, len)))
            },
        );
    }
    for from_end in 1..=4_usize {
        table.script(
            &format!("crc-octet-{from_end}-wrong"),
            rule("RFC 5044 §8 code 2", "Terminate 2/0/02"),
            CallKind::Null,
            move |fabric, asked| {
                let octets = fpdu(
                    &RawUntagged::send(fabric.msn).with(&asked.header().with(&asked.results())),
                );
                let at = octets.len() - from_end;
                fabric.say(&flipped(octets, at, 1))
            },
        );
    }
    for at in [0_usize, 1, 2, 3, 12, 20, 30, 60] {
        table.script(
            &format!("octet-{at}-changed-under-the-crc"),
            rule("RFC 5044 §8 code 2", "Terminate 2/0/02 | Terminate 2/0/03 | closed"),
            CallKind::Null,
            move |fabric, asked| {
                let octets = fpdu(
                    &RawUntagged::send(fabric.msn).with(&asked.header().with(&asked.results())),
                );
                fabric.say(&flipped(octets, at, 4))?;
                // A length that is changed takes what follows along.
                if at < 2 { fabric.say(&[0; 2_048]) } else { Ok(()) }
            },
        );
    }
}

/// Terminates of each layer and type instead of a reply.
fn terminates(table: &mut ServerDefectTable) {
    for (layer, kind, code) in [
        (0, 0, 0),
        (0, 1, 0),
        (0, 1, 9),
        (0, 2, 5),
        (0, 2, 0xFF),
        (1, 0, 0),
        (1, 1, 0),
        (1, 2, 2),
        (2, 0, 2),
        (2, 0, 7),
        (3, 0, 0),
        (15, 15, 255),
    ] {
        table.script(
            &format!("terminate-{layer:x}-{kind:x}-{code:02x}"),
            rule("RFC 5040 §4.8", "closed"),
            CallKind::Read,
            move |fabric, _| {
                fabric.say_ulpdu(&RawUntagged::terminate().with(&[(layer << 4) | kind, code, 0, 0]))
            },
        );
    }
    for len in [0, 1, 3] {
        table.script(
            &format!("terminate-of-{len}-octets"),
            rule("RFC 5040 §4.8", "closed | Terminate"),
            CallKind::Null,
            move |fabric, _| fabric.say_ulpdu(&RawUntagged::terminate().with(&vec![0; len])),
        );
    }
    for (name, queue) in [("0", 0), ("1", 1), ("3", 3)] {
        table.script(
            &format!("terminate-on-queue-{name}"),
            rule("RFC 5040 §4.8, RFC 5041 §7.2", "Terminate | closed"),
            CallKind::Null,
            move |fabric, _| {
                fabric.say_ulpdu(
                    &RawUntagged { queue, ..RawUntagged::terminate() }.with(&[0x20, 2, 0, 0]),
                )
            },
        );
    }
}
