//! Mistakes of a server of version 2: the first message, the words of draft 001, errors, options.

use super::{AskedCall, CallKind, PATIENCE, Speaks, replies, table::ServerDefectTable};
use crate::{peer::Heard, play::rule, wire::*};
use std::io;

const FIRST: &str = "draft 000 §5";
const FALLS_BACK: &str = "draft 000 §5.2";
const WORDS: &str = "draft 001 §4.1";
const OPTIONS: &str = "draft 000 §3.1, §3.2";

pub(super) fn add(table: &mut ServerDefectTable) {
    first(table);
    errors(table);
    options(table);
    if table.speaks == Speaks::Directed { words(table) } else { plain(table) }
}

fn error(asked: &AskedCall, version: u32, words: &[u32]) -> Vec<u8> {
    RawHeader { procedure: ERROR, version, ..asked.bare() }.fixed().words(words).0
}

fn first(table: &mut ServerDefectTable) {
    use CallKind::{List, Null, Read, Write};
    for (name, does) in [("null", Null), ("read", Read), ("write", Write), ("list", List)] {
        table.script(
            &format!("first-message-with-a-{name}-dropped"),
            rule(FALLS_BACK, "closed"),
            does,
            |fabric, _| fabric.hear(PATIENCE).map(drop),
        );
        table.script(
            &format!("first-message-with-a-{name}-ends-the-connection"),
            rule(FALLS_BACK, "closed"),
            does,
            |fabric, _| {
                fabric.fin();
                Ok(())
            },
        );
        // Version 1 is among the versions: the call goes again, on the same connection.
        for (low, high) in [(1, 1), (0, 1), (1, 9), (0, u32::MAX)] {
            table.message(
                &format!("first-message-with-a-{name}-gets-err-vers-{low}-to-{high}"),
                rule(FALLS_BACK, "call succeeds"),
                does,
                move |asked| error(asked, 2, &[1, low, high]),
            );
        }
    }
    for (low, high) in [(0, 0), (2, 2), (2, 3), (3, 3), (1, 0), (9, 1), (u32::MAX, u32::MAX)] {
        table.message(
            &format!("err-vers-without-version-1-{low}-to-{high}"),
            rule(FALLS_BACK, "call fails"),
            Null,
            move |asked| error(asked, 2, &[1, low, high]),
        );
    }
    table.script("err-vers-twice", rule(FALLS_BACK, "call fails"), Null, |fabric, asked| {
        fabric.send(&error(asked, 2, &[1, 1, 1]))?;
        let again = fabric.hear(PATIENCE)?;
        if !matches!(&again, Heard::Message(message, _) if word_at(message, 4) == 1) {
            return Err(io::Error::other(format!(
                "the call does not go again by version 1: {again:?}"
            )));
        }
        fabric.send(&error(asked, 1, &[1, 1, 1]))
    });
    table.message(
        "reply-of-version-1-to-the-first-message",
        rule(FIRST, "discarded"),
        Null,
        |asked| RawHeader { version: 1, intent: None, ..asked.bare() }.with(&asked.results()),
    );
    table.message(
        "reply-of-version-3-to-the-first-message",
        rule(FIRST, "discarded"),
        Null,
        |asked| RawHeader { version: 3, ..asked.bare() }.with(&asked.results()),
    );
    for credits in [0, 1, 2, u32::MAX] {
        table.message(
            &format!("first-grant-of-{credits}"),
            rule("draft 000 §5, RFC 8166 §3.3.1", "call succeeds"),
            Null,
            move |asked| RawHeader { credits, ..asked.bare() }.with(&asked.results()),
        );
    }
    table.message(
        "call-before-the-first-reply",
        rule("RFC 8167 §5", "PROG_UNAVAIL"),
        Null,
        |asked| asked.calling(3).with(&call(3, 0x4000_0000, 1, 0).0),
    );
}

fn errors(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read};
    for (name, does) in [("null", Null), ("read", Read)] {
        for (what, code) in [("bad-header", 2), ("inval-option", 3)] {
            table.message(
                &format!("{what}-to-a-{name}"),
                rule("draft 000 §4.2, RFC 8166 §4.5", "call fails"),
                does,
                move |asked| error(asked, 2, &[code]),
            );
        }
    }
    for code in [0, 4, 5, 1 << 31, u32::MAX] {
        table.message(
            &format!("error-of-code-{code}"),
            rule("draft 000 §4.2, RFC 8166 §4.5", "discarded"),
            Null,
            move |asked| error(asked, 2, &[code]),
        );
    }
    for version in [0, 1, 3, u32::MAX] {
        table.message(
            &format!("bad-header-of-version-{version}"),
            rule("RFC 8166 §4.2, §4.5", "discarded"),
            Null,
            move |asked| error(asked, version, &[2]),
        );
    }
    for words in [0_usize, 1, 2] {
        table.message(
            &format!("err-vers-with-{words}-words"),
            rule("RFC 8166 §4.5", "discarded"),
            Null,
            move |asked| error(asked, 2, [1, 1].get(..words).unwrap_or_default()),
        );
    }
}

/// An RDMA_OPTIONAL: its type, the length that it claims, its content, what follows.
fn optional(asked: &AskedCall, opttype: u32, len: u32, content: &[u8]) -> Vec<u8> {
    RawHeader { procedure: 5, xid: 0x77, ..asked.bare() }
        .fixed()
        .words(&[opttype, len])
        .raw(content)
        .0
}

fn options(table: &mut ServerDefectTable) {
    use CallKind::Null;
    const ASK: u32 = 0x5374_6101;
    const TELL: u32 = 0x5374_6102;
    for opttype in [0, 1, ASK - 1, TELL + 1, 1 << 31, u32::MAX] {
        table.message(
            &format!("option-{opttype:#x}"),
            rule(OPTIONS, "RDMA_ERROR 3"),
            Null,
            move |asked| optional(asked, opttype, 0, b""),
        );
        table.message(
            &format!("option-{opttype:#x}-with-content"),
            rule(OPTIONS, "RDMA_ERROR 3"),
            Null,
            move |asked| optional(asked, opttype, 4, b"abcd"),
        );
    }
    for (name, len, content) in [
        ("claims-4-octets-more", 8, &b"abcd"[..]),
        ("claims-4-gib", u32::MAX, b"abcd"),
        ("claims-an-octet-and-has-none", 1, b""),
    ] {
        table.message(
            &format!("option-that-{name}"),
            rule(OPTIONS, "RDMA_ERROR 3"),
            Null,
            move |asked| optional(asked, 7, len, content),
        );
    }
    // Its type is enough to refuse it by.
    for (len, does) in [(16_usize, "discarded"), (20, "RDMA_ERROR 3"), (23, "RDMA_ERROR 3")] {
        table.message(
            &format!("option-of-{len}-octets"),
            rule(OPTIONS, does),
            Null,
            move |asked| cut(optional(asked, 7, 0, b""), len),
        );
    }
    table.message("health-told-to-who-did-not-ask", rule(OPTIONS, "discarded"), Null, |asked| {
        optional(asked, TELL, 8, &[0; 8])
    });
    for len in [0_u32, 4, 12, 20] {
        table.message(
            &format!("health-told-in-{len}-octets"),
            rule(OPTIONS, "discarded"),
            Null,
            move |asked| optional(asked, TELL, len, &vec![0; len as usize]),
        );
    }
    table.message("health-asked-with-content", rule(OPTIONS, "ERR_CHUNK"), Null, |asked| {
        optional(asked, ASK, 4, &[0; 4])
    });
    table.message("health-asked-with-a-payload", rule(OPTIONS, "ERR_CHUNK"), Null, |asked| {
        [optional(asked, ASK, 0, b""), asked.results()].concat()
    });
    table.script("health-asked", rule(OPTIONS, "call succeeds"), Null, |fabric, asked| {
        fabric.send(&optional(asked, ASK, 0, b""))?;
        let Heard::Message(answer, None) = fabric.hear(PATIENCE)? else {
            return Err(io::Error::other("the question is not answered"));
        };
        // Two words: the amount granted to the asker, and the amount in use. Nothing of others.
        let said: Vec<u32> = (0..8).map(|word| word_at(&answer, 4 * word)).collect();
        if answer.len() != 32 || said.get(3..6) != Some(&[5, TELL, 8]) || said.last() != Some(&0) {
            return Err(io::Error::other(format!("the answer is {said:?}")));
        }
        replies::reply(fabric, asked)
    });
}

/// The two words before the lists.
fn words(table: &mut ServerDefectTable) {
    use CallKind::{List, Null, Read};
    for word in [2, 3, 1 << 31, u32::MAX] {
        table.message(
            &format!("message-type-{word:#x}"),
            rule(WORDS, "discarded"),
            Null,
            move |asked| {
                RawHeader { intent: Some([word, 0]), ..asked.bare() }.with(&asked.results())
            },
        );
    }
    table.message("reply-that-says-call", rule(WORDS, "ERR_CHUNK"), Null, |asked| {
        RawHeader { intent: Some([0, 0]), ..asked.bare() }.with(&asked.results())
    });
    table.message("call-that-says-reply", rule(WORDS, "discarded"), Null, |asked| {
        RawHeader { xid: 9, ..asked.bare() }.with(&call(9, 0x4000_0000, 1, 0).0)
    });
    table.message("long-reply-that-says-call", rule(WORDS, "ERR_CHUNK"), List, |asked| {
        RawHeader { intent: Some([0, 0]), ..asked.long_header(100) }.with(b"")
    });
    for (name, does) in [("null", Null), ("read", Read), ("list", List)] {
        for handle in [0, 1, 0xDEAD_BE00, u32::MAX] {
            table.script(
                &format!("reply-to-a-{name}-copies-handle-{handle:#x}"),
                rule(WORDS, "call succeeds"),
                does,
                move |fabric, asked| {
                    replies::reply(fabric, &AskedCall { named: handle, ..asked.clone() })
                },
            );
        }
    }
    table.message("reply-without-the-words", rule(WORDS, "ERR_CHUNK | discarded"), Null, |asked| {
        RawHeader { intent: None, ..asked.bare() }.with(&asked.results())
    });
}

/// Mistakes on a connection that did not agree on the words of draft 001.
fn plain(table: &mut ServerDefectTable) {
    for (name, does) in [("null", CallKind::Null), ("read", CallKind::Read)] {
        for handle in [0, 7] {
            table.message(
                &format!("reply-to-a-{name}-with-words-that-were-not-agreed-on-{handle}"),
                rule(WORDS, "discarded"),
                does,
                move |asked| {
                    RawHeader { intent: Some([1, handle]), ..asked.header() }.with(&asked.results())
                },
            );
        }
    }
}
