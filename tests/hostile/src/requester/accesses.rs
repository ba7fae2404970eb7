//! Accesses to memory that is not open, is open for something else, or is not so large: by every
//! kind of chunk.

use super::{AskedCall, CONTENT, CallKind, LEN, push, replies, table::ServerDefectTable};
use crate::{peer::HostileFabric, play::rule, wire::*};
use std::io;

const WRITES: &str = "RFC 5041 §7.1";
const READS: &str = "RFC 5040 §7.1, remote protection";

pub(super) fn add(table: &mut ServerDefectTable) {
    for (name, does) in [("write-chunk", CallKind::Read), ("reply-chunk", CallKind::List)] {
        writes(table, name, does);
    }
    reads(table);
    in_the_middle(table);
}

/// Wrong targets of a Write, seen from its segment.
fn writes(table: &mut ServerDefectTable, chunk: &str, does: CallKind) {
    type Place = fn(RawSegment) -> (u32, u64, usize);
    let places: [(&str, &str, Place); 9] = [
        ("behind-its-end", "Terminate 1/1/01", |it| {
            (it.handle, it.offset + u64::from(it.length), 1)
        }),
        ("far-behind-its-end", "Terminate 1/1/01", |it| (it.handle, it.offset + (1 << 40), 4)),
        ("over-its-end", "Terminate 1/1/01", |it| {
            (it.handle, it.offset + u64::from(it.length) - 4, 8)
        }),
        ("over-its-front", "Terminate 1/1/01", |it| (it.handle, it.offset - 4, 8)),
        ("at-zero", "Terminate 1/1/01", |it| (it.handle, 0, 8)),
        ("at-the-end-of-addresses", "Terminate 1/1/03 | Terminate 1/1/01", |it| {
            (it.handle, u64::MAX - 3, 8)
        }),
        ("with-the-next-variant", "Terminate 1/1/00", |it| {
            (it.handle.wrapping_add(1), it.offset, 8)
        }),
        ("with-another-index", "Terminate 1/1/00", |it| (it.handle ^ 0x100, it.offset, 8)),
        ("with-stag-zero", "Terminate 1/1/00", |it| (0, it.offset, 8)),
    ];
    for (name, wanted, place) in places {
        table.ulpdu(
            &format!("write-to-a-{chunk}-{name}"),
            rule(WRITES, wanted),
            does,
            move |asked| {
                let (stag, to, len) = place(asked.segment());
                RawTagged::write(stag, to).with(&vec![0x55; len])
            },
        );
    }
    table.script(
        &format!("write-of-nothing-to-a-{chunk}-and-elsewhere"),
        rule("RFC 5041 §5.2", "call succeeds"),
        does,
        |fabric, asked| {
            // Neither key nor place of a segment without octets is looked at.
            fabric.say_ulpdu(&RawTagged::write(0xDEAD_BE01, 77).with(b""))?;
            push(fabric, asked.segment(), b"")?;
            replies::reply(fabric, asked)
        },
    );
    for (name, len) in
        [("of-one-octet", 1_usize), ("of-seven-octets", 7), ("of-a-thousand-octets", 1_000)]
    {
        table.script(
            &format!("{chunk}-written-in-segments-{name}"),
            rule("RFC 5041 §5.2", "call succeeds"),
            does,
            move |fabric, asked| {
                let (content, segment) = (content(asked), asked.segment());
                let place = |number: usize| segment.offset + (number * len) as u64;
                let pieces = content.chunks(len).enumerate();
                let segments = pieces.flat_map(|(number, piece)| {
                    fpdu(&RawTagged::write(segment.handle, place(number)).with(piece))
                });
                fabric.say(&segments.collect::<Vec<_>>())?;
                tell(fabric, asked, content.len())
            },
        );
    }
    table.script(
        &format!("{chunk}-written-backwards"),
        rule("RFC 5041 §5.3", "call succeeds"),
        does,
        move |fabric, asked| {
            let content = content(asked);
            for (number, piece) in
                content.chunks(512).enumerate().collect::<Vec<_>>().into_iter().rev()
            {
                push(fabric, asked.segment().skip((number * 512) as u32), piece)?;
            }
            tell(fabric, asked, content.len())
        },
    );
}

/// The octets that a right reply writes.
pub(super) fn content(asked: &AskedCall) -> Vec<u8> {
    if asked.does == CallKind::Read { vec![CONTENT; LEN] } else { asked.results() }
}

/// A right reply, once `len` octets are written.
pub(super) fn tell(fabric: &mut HostileFabric, asked: &AskedCall, len: usize) -> io::Result<()> {
    match asked.does {
        CallKind::List => fabric.send(&asked.long_header(len).with(b"")),
        _ => fabric.send(&asked.header().with(&asked.results())),
    }
}

/// Wrong sources of a Read, seen from the segment of a Read chunk.
fn reads(table: &mut ServerDefectTable) {
    type Place = fn(RawSegment) -> (u32, u64, u32);
    let places: [(&str, &str, Place); 9] = [
        ("behind-its-end", "Terminate 0/1/01", |it| {
            (it.handle, it.offset + u64::from(it.length), 1)
        }),
        ("over-its-end", "Terminate 0/1/01", |it| {
            (it.handle, it.offset + u64::from(it.length) - 4, 8)
        }),
        ("over-its-front", "Terminate 0/1/01", |it| (it.handle, it.offset - 4, 8)),
        ("at-zero", "Terminate 0/1/01", |it| (it.handle, 0, 8)),
        ("at-the-end-of-addresses", "Terminate 0/1/04 | Terminate 0/1/01", |it| {
            (it.handle, u64::MAX - 3, 8)
        }),
        ("with-the-next-variant", "Terminate 0/1/00", |it| {
            (it.handle.wrapping_add(1), it.offset, 8)
        }),
        ("with-another-index", "Terminate 0/1/00", |it| (it.handle ^ 0x100, it.offset, 8)),
        ("with-stag-zero", "Terminate 0/1/00", |it| (0, it.offset, 8)),
        ("of-2-gib", "Terminate 0/1/01", |it| (it.handle, it.offset, 1 << 31)),
    ];
    for (name, wanted, place) in places {
        table.ulpdu(
            &format!("read-of-a-read-chunk-{name}"),
            rule(READS, wanted),
            CallKind::Write,
            move |asked| {
                let (stag, at, len) = place(asked.segment());
                RawUntagged::read(1)
                    .with(&ReadAsk { sink: (1, 0), len, source: (stag, at) }.header())
            },
        );
    }
    for does in [CallKind::Read, CallKind::List] {
        table.ulpdu(
            &format!(
                "read-of-a-chunk-to-write-{}",
                if does == CallKind::Read { "write" } else { "reply" }
            ),
            rule("RFC 5042 §6.3.5", "Terminate 0/1/02"),
            does,
            |asked| {
                let segment = asked.segment();
                let source = (segment.handle, segment.offset);
                RawUntagged::read(1).with(&ReadAsk { sink: (1, 0), len: 16, source }.header())
            },
        );
    }
    let ask = |asked: &AskedCall, len: u32| {
        let segment = asked.segment();
        ReadAsk { sink: (1, 0), len, source: (segment.handle, segment.offset) }.header()
    };
    for (name, msn) in [("0", 0), ("2", 2), ("ones", u32::MAX)] {
        table.ulpdu(
            &format!("read-with-msn-{name}"),
            rule("RFC 5041 §7.2 0x03", "Terminate 1/2/03"),
            CallKind::Write,
            move |asked| RawUntagged::read(msn).with(&ask(asked, 16)),
        );
    }
    for len in [0_usize, 4, 12, 27] {
        table.ulpdu(
            &format!("read-request-of-{len}-octets"),
            rule("RFC 5040 §4.4, §7.1", "Terminate | closed"),
            CallKind::Write,
            move |asked| RawUntagged::read(1).with(&cut(ask(asked, 16), len)),
        );
    }
    table.ulpdu(
        "read-request-with-octets-behind-it",
        rule("RFC 5040 §4.4, RFC 5041 §7.2 0x05", "Terminate"),
        CallKind::Write,
        move |asked| RawUntagged::read(1).with(&[ask(asked, 16), vec![0; 8]].concat()),
    );
    table.ulpdu(
        "read-on-the-send-queue",
        rule("RFC 5040 §4.1, §7.1", "Terminate"),
        CallKind::Write,
        move |asked| RawUntagged { queue: 0, ..RawUntagged::read(1) }.with(&ask(asked, 16)),
    );
    for count in [0_u32, 1, 2] {
        table.script(
            &format!("read-of-{count}-octets-and-the-reply"),
            rule("RFC 5040 §4.4", "call succeeds"),
            CallKind::Write,
            move |fabric, asked| {
                fabric.say_ulpdu(&RawUntagged::read(fabric.read_msn).with(&ask(asked, count)))?;
                fabric.read_msn += 1;
                fabric.send(&asked.header().with(&asked.results()))
            },
        );
    }
}

/// A Write that stops in the middle of its message while something else goes on.
fn in_the_middle(table: &mut ServerDefectTable) {
    table.script(
        "write-without-its-last-segment-before-the-reply",
        rule("RFC 5041 §5.2", "call succeeds | Terminate | closed"),
        CallKind::Read,
        |fabric, asked| {
            let segment = asked.segment();
            let write = RawTagged::write(segment.handle, segment.offset).more();
            fabric.say_ulpdu(&write.with(&[CONTENT; LEN]))?;
            fabric.send(&asked.header().with(&asked.results()))
        },
    );
    table.script(
        "reply-in-whose-middle-a-write-stands",
        rule("RFC 5040 §5.5, RFC 5041 §5.3", "call succeeds | Terminate | closed"),
        CallKind::Read,
        |fabric, asked| {
            let message = asked.header().with(&asked.results());
            let (front, rest) = message.split_at(40);
            fabric.say_ulpdu(&RawUntagged::send(fabric.msn).more().with(front))?;
            push(fabric, asked.segment(), &[CONTENT; LEN])?;
            fabric.say_ulpdu(&RawUntagged::send(fabric.msn).at(40).with(rest))?;
            fabric.msn += 1;
            Ok(())
        },
    );
}
