//! Replies whose chunks are not as they were offered, and Long replies without a valid message.

use super::{AskedCall, CONTENT, CallKind, LEN, push, replies, table::ServerDefectTable};
use crate::play::rule;
use crate::wire::*;

const RETURNED: &str = "RFC 8166 §3.4.6, §4.3.3, §4.5";
const INNER: &str = "RFC 8166 §4.2.1, §4.5";

pub(super) fn add(table: &mut ServerDefectTable) {
    cuts(table);
    write_chunks(table);
    reply_chunks(table);
    read_lists(table);
    inner_messages(table);
    long_rpc(table);
}

/// A reply that ends after each of its words: in the header it is discarded, in the RPC message it
/// ends its call.
fn cuts(table: &mut ServerDefectTable) {
    for octets in (4..52_usize).step_by(4) {
        let wanted = if octets < 36 { "discarded" } else { "call fails" };
        table.message(
            &format!("reply-cut-behind-{octets}-octets"),
            rule("RFC 8166 §4.5, RFC 5531 §9", wanted),
            CallKind::Null,
            move |asked| {
                let at = if octets < 16 { octets } else { asked.at(octets) };
                cut(asked.header().with(&asked.results()), at)
            },
        );
    }
    for at in [16_usize, 20, 24] {
        for word in [2_u32, 0x8000_0000, u32::MAX] {
            table.message(
                &format!("list-word-{at}-of-{word:#x}"),
                rule("RFC 4506 §4.19, RFC 8166 §4.5", "discarded"),
                CallKind::Null,
                move |asked| with_word(asked.header().with(&asked.results()), asked.at(at), word),
            );
        }
    }
}

type ChangeSegments = fn(RawSegment) -> Vec<RawSegment>;

/// Changes of the one segment of a chunk that make it no answer to the call's.
const CHANGES: [(&str, ChangeSegments); 9] = [
    ("another-handle", |it| vec![RawSegment { handle: it.handle ^ 0x0100_0000, ..it }]),
    ("handle-zero", |it| vec![RawSegment { handle: 0, ..it }]),
    ("another-offset", |it| vec![RawSegment { offset: it.offset + 8, ..it }]),
    ("offset-zero", |it| vec![RawSegment { offset: 0, ..it }]),
    ("an-octet-more", |it| vec![RawSegment { length: it.length + 1, ..it }]),
    ("a-length-of-4-gib", |it| vec![RawSegment { length: u32::MAX, ..it }]),
    ("a-length-that-wraps", |it| vec![RawSegment { length: u32::MAX, offset: u64::MAX - 7, ..it }]),
    ("a-segment-twice", |it| vec![it, it]),
    ("an-empty-segment-in-front", |it| vec![it.of_len(0), it]),
];

fn write_chunks(table: &mut ServerDefectTable) {
    for (name, change) in CHANGES {
        table.script(
            &format!("write-chunk-of-a-read-has-{name}"),
            rule(RETURNED, "discarded"),
            CallKind::Read,
            move |fabric, asked| {
                push(fabric, asked.segment(), &[CONTENT; LEN])?;
                fabric.send(&asked.bare().write(&change(asked.segment())).with(&asked.results()))
            },
        );
    }
    table.message(
        "write-chunk-comes-as-a-reply-chunk",
        rule(RETURNED, "discarded"),
        CallKind::Read,
        |asked| asked.bare().reply(&[asked.segment()]).with(&asked.results()),
    );
    table.message(
        "write-chunk-and-a-reply-chunk",
        rule(RETURNED, "discarded"),
        CallKind::Read,
        |asked| asked.header().reply(&[asked.segment()]).with(&asked.results()),
    );
    for chunks in [2_usize, 8, 9, 60] {
        table.message(
            &format!("write-list-of-{chunks}-chunks"),
            rule(RETURNED, "discarded"),
            CallKind::Read,
            move |asked| {
                let segment = asked.segment();
                let list = (0..chunks).fold(asked.bare(), |header, _| header.write(&[segment]));
                list.with(&asked.results())
            },
        );
    }
    // A failed READ has no result: the contents of the Write list are ignored (draft 004 §3.8.1).
    for (name, header) in [
        (
            "with-its-chunk-empty",
            (|asked| asked.bare().write(&[asked.segment().of_len(0)]))
                as fn(&AskedCall) -> RawHeader,
        ),
        ("without-segments", |asked| asked.bare().write(&[])),
        ("without-its-write-list", AskedCall::bare),
    ] {
        table.message(
            &format!("failed-read-{name}"),
            rule("draft 004 §3.8.1, RFC 1813 §3.3.6", "call fails"),
            CallKind::Read,
            move |asked| header(asked).with(&success(asked.xid).words(&[70, 0]).0),
        );
    }
}

fn reply_chunks(table: &mut ServerDefectTable) {
    for (name, change) in CHANGES {
        table.script(
            &format!("reply-chunk-has-{name}"),
            rule(RETURNED, "discarded"),
            CallKind::List,
            move |fabric, asked| {
                let message = asked.results();
                push(fabric, asked.segment(), &message)?;
                let whole = asked.segment();
                fabric.send(&asked.bare_nomsg().reply(&change(whole)).with(b""))
            },
        );
    }
    table.message(
        "reply-chunk-of-no-octets",
        rule(RETURNED, "discarded"),
        CallKind::List,
        |asked| asked.long_header(0).with(b""),
    );
    table.message(
        "reply-chunk-without-segments",
        rule(RETURNED, "discarded"),
        CallKind::List,
        |asked| asked.bare_nomsg().reply(&[]).with(b""),
    );
    table.message("reply-chunk-missing", rule(RETURNED, "discarded"), CallKind::List, |asked| {
        asked.bare_nomsg().with(b"")
    });
    table.message(
        "reply-chunk-comes-as-a-write-chunk",
        rule(RETURNED, "discarded"),
        CallKind::List,
        |asked| asked.bare_nomsg().write(&[asked.segment()]).with(b""),
    );
    table.script(
        "reply-chunk-used-and-inline-too",
        rule(RETURNED, "discarded"),
        CallKind::List,
        |fabric, asked| {
            let message = asked.results();
            push(fabric, asked.segment(), &message)?;
            let header = RawHeader { procedure: MSG, ..asked.long_header(message.len()) };
            fabric.send(&header.with(&success(asked.xid).0))
        },
    );
    table.script(
        "long-reply-with-octets-behind-it",
        rule(RETURNED, "discarded"),
        CallKind::List,
        |fabric, asked| {
            let message = asked.results();
            push(fabric, asked.segment(), &message)?;
            fabric.send(&asked.long_header(message.len()).with(&success(asked.xid).0))
        },
    );
    // Nothing is wrong with a short reply that leaves the chunk unused.
    for (name, header) in [
        ("and-an-unused-reply-chunk", AskedCall::header as fn(&AskedCall) -> RawHeader),
        ("and-no-reply-chunk", AskedCall::bare),
        ("and-a-reply-chunk-without-segments", |asked| asked.bare().reply(&[])),
    ] {
        table.message(
            &format!("short-failure-{name}"),
            rule("RFC 8166 §4.3.3, RFC 1813 §3.3.16", "call fails"),
            CallKind::List,
            move |asked| header(asked).with(&success(asked.xid).words(&[70, 0]).0),
        );
    }
}

/// A reply has no Read list, whatever is in it.
fn read_lists(table: &mut ServerDefectTable) {
    let clause = "RFC 8166 §4.3.1";
    for (name, does) in
        [("null", CallKind::Null), ("read", CallKind::Read), ("write", CallKind::Write)]
    {
        table.message(
            &format!("read-list-in-the-reply-to-a-{name}"),
            rule(clause, "discarded"),
            does,
            |asked| {
                asked
                    .header()
                    .read(28, RawSegment { length: 4, ..asked.segment() })
                    .with(&asked.results())
            },
        );
    }
    table.message(
        "read-list-of-the-call-comes-back",
        rule(clause, "discarded"),
        CallKind::Write,
        |asked| {
            let back = asked.lists.reads.iter();
            back.fold(asked.header(), |header, (at, segment)| header.read(*at, *segment))
                .with(&asked.results())
        },
    );
    table.message(
        "position-zero-read-chunk-in-a-reply",
        rule(clause, "discarded"),
        CallKind::Null,
        |asked| {
            asked
                .bare()
                .read(0, RawSegment { handle: 7, length: 64, offset: 0 })
                .with(&asked.results())
        },
    );
}

/// The octets in the Reply chunk are not the reply to this call. Its key is dead when that is seen,
/// so the connection ends and the call goes again.
fn inner_messages(table: &mut ServerDefectTable) {
    type MakeInner = fn(&AskedCall) -> Vec<u8>;
    let inner: [(&str, MakeInner); 9] = [
        ("the-next-xid", |asked| with_word(asked.results(), 0, asked.xid + 1)),
        ("xid-zero", |asked| with_word(asked.results(), 0, 0)),
        ("the-xid-turned-around", |asked| with_word(asked.results(), 0, asked.xid.swap_bytes())),
        ("a-call", |asked| call(asked.xid, NFS, 3, 0).0),
        ("a-call-of-another-xid", |asked| call(asked.xid ^ 1, NFS, 3, 0).0),
        ("a-message-of-type-2", |asked| with_word(asked.results(), 4, 2)),
        ("a-message-of-type-ones", |asked| with_word(asked.results(), 4, u32::MAX)),
        ("four-octets", |asked| cut(asked.results(), 4)),
        ("seven-octets", |asked| cut(asked.results(), 7)),
    ];
    for (name, message) in inner {
        table.script(
            &format!("reply-chunk-holds-{name}"),
            rule(INNER, "closed"),
            CallKind::List,
            move |fabric, asked| replies::long_reply(fabric, asked, &message(asked)),
        );
    }
    for (name, front) in [("nothing", 0_usize), ("one-octet", 1), ("the-xid-alone", 4)] {
        table.script(
            &format!("reply-chunk-claims-a-message-and-holds-{name}"),
            rule(INNER, "closed"),
            CallKind::List,
            move |fabric, asked| {
                let message = asked.results();
                push(fabric, asked.segment(), &cut(message.clone(), front))?;
                fabric.send(&asked.long_header(message.len()).with(b""))
            },
        );
    }
    for front in [8_usize, 24, 100] {
        table.script(
            &format!("reply-chunk-claims-a-message-and-holds-{front}-octets-of-it"),
            rule("RFC 8166 §3.4.6, RFC 5531 §9", "call fails"),
            CallKind::List,
            move |fabric, asked| {
                let message = asked.results();
                push(fabric, asked.segment(), &cut(message.clone(), front))?;
                fabric.send(&asked.long_header(message.len()).with(b""))
            },
        );
    }
}

/// Mistakes of RPC and NFS inside a Reply chunk.
fn long_rpc(table: &mut ServerDefectTable) {
    let accepted = |asked: &AskedCall, words: &[u32]| {
        Xdr::new().words(&[asked.xid, 1, 0, 0, 0]).words(words).0
    };
    for (name, words) in [
        ("prog-unavail", vec![1]),
        ("prog-mismatch", vec![2, 2, 3]),
        ("proc-unavail", vec![3]),
        ("garbage-args", vec![4]),
        ("system-err", vec![5]),
        ("accept-stat-77", vec![77]),
        ("nothing-behind-the-verifier", vec![]),
    ] {
        table.results(
            &format!("long-{name}"),
            rule("RFC 5531 §9", "call fails"),
            CallKind::List,
            move |asked| accepted(asked, &words),
        );
    }
    for len in [24_usize, 28, 32, 40, 44, 48, 56, 60, 4_000] {
        table.results(
            &format!("long-reply-cut-behind-{len}-octets"),
            rule("RFC 1813 §3.3.16", "call fails"),
            CallKind::List,
            move |asked| cut(asked.results(), len),
        );
    }
    for (name, at, word) in [
        ("status-99", 24, 99),
        ("attributes-discriminator-7", 28, 7),
        ("entry-discriminator-2", 40, 2),
        ("name-of-4-gib", 52, u32::MAX),
        ("name-of-2-gib", 52, 1 << 31),
    ] {
        table.results(
            &format!("listing-with-{name}"),
            rule("RFC 1813 §3.3.16, RFC 4506 §4", "call fails"),
            CallKind::List,
            move |asked| with_word(asked.results(), at, word),
        );
    }
}
