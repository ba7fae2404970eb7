//! Messages that a server gets wrong: headers, chunks, errors, directions, credits, replies of RPC
//! and results of NFS.

use super::{AskedCall, CONTENT, CallKind, LEN, Speaks, push, replies, table::ServerDefectTable};
use crate::play::rule;
use crate::wire::*;

const HEADER: &str = "RFC 8166 §4.5";
const RETURNED: &str = "RFC 8166 §3.4.6, §4.5";
const NO_RESULT: &str = "draft 004 §3.8.1, RFC 1813 §3.3.6";
const ERRORS: &str = "RFC 8166 §4.5";
const RPC: &str = "RFC 5531 §9";
const NFS3: &str = "RFC 1813 §3.3.6, §3.3.7";

pub(super) fn add(table: &mut ServerDefectTable) {
    headers(table);
    lists(table);
    returned(table);
    errors(table);
    directions(table);
    credits(table);
    repetitions(table);
    rpc(table);
    results(table);
}

fn headers(table: &mut ServerDefectTable) {
    use CallKind::Null;
    for len in [0, 1, 4, 16, 27] {
        table.message(
            &format!("message-of-{len}-octets"),
            rule(HEADER, "discarded"),
            Null,
            move |asked| cut(asked.header().with(b""), len),
        );
    }
    for version in [0, 9, u32::MAX] {
        table.message(
            &format!("reply-of-version-{version}"),
            rule(HEADER, "discarded"),
            Null,
            move |asked| RawHeader { version, ..asked.header() }.with(&asked.results()),
        );
    }
    let is_new = table.speaks != Speaks::One;
    for procedure in [MSGP, DONE, 5, 77, u32::MAX] {
        // Procedure 5 is an option of version 2, and that one is unknown (draft 000 §3.1).
        let wanted = if procedure == 5 && is_new { "RDMA_ERROR 3" } else { "discarded" };
        table.message(
            &format!("reply-with-procedure-{procedure}"),
            rule(HEADER, wanted),
            Null,
            move |asked| RawHeader { procedure, ..asked.header() }.with(&asked.results()),
        );
    }
    table.message("reply-to-nobody", rule(HEADER, "discarded"), Null, |asked| {
        RawHeader { xid: asked.xid ^ 0x0100_0000, ..asked.bare() }
            .with(&success(asked.xid ^ 0x0100_0000).0)
    });
    table.message(
        "reply-whose-xids-differ",
        rule("RFC 8166 §4.2.1, §4.5", "discarded"),
        Null,
        |asked| asked.header().with(&success(asked.xid ^ 2).0),
    );
    table.message("reply-without-payload", rule(HEADER, "discarded"), Null, |asked| {
        asked.header().with(b"")
    });
    table.message("reply-with-7-octets-of-payload", rule(HEADER, "discarded"), Null, |asked| {
        asked.header().with(&cut(asked.results(), 7))
    });
    table.message(
        "nomsg-without-lists",
        rule("RFC 8166 §4.2.4, §4.5", "discarded"),
        Null,
        |asked| asked.bare_nomsg().with(b""),
    );
    table.message(
        "nomsg-with-inline-payload",
        rule("RFC 8166 §4.2.4, §4.5", "discarded"),
        Null,
        |asked| asked.bare_nomsg().with(&asked.results()),
    );
}

fn lists(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read};
    for (list, at) in [("read-list", 16), ("write-list", 20), ("reply-chunk", 24)] {
        table.message(
            &format!("{list}-discriminator-2"),
            rule("RFC 4506 §4.19, RFC 8166 §4.5", "discarded"),
            Null,
            move |asked| with_word(asked.header().with(&asked.results()), asked.at(at), 2),
        );
    }
    for (name, len) in [("write-list", 24), ("write-segment", 40), ("reply-chunk", 48)] {
        table.message(&format!("cut-in-{name}"), rule(HEADER, "discarded"), Read, move |asked| {
            cut(asked.header().with(b""), asked.at(len))
        });
    }
    table.message("read-list-in-a-reply", rule("RFC 8166 §4.3.1", "discarded"), Null, |asked| {
        asked
            .header()
            .read(28, RawSegment { handle: 5, length: 4, offset: 0 })
            .with(&asked.results())
    });
    for count in [17, 65, u32::MAX] {
        table.message(
            &format!("write-chunk-claims-{count}-segments"),
            rule(RETURNED, "discarded"),
            Read,
            move |asked| with_word(asked.header().with(&asked.results()), asked.at(24), count),
        );
    }
}

/// Replies whose chunks are not those of the call.
fn returned(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read, Write};
    let some = RawSegment { handle: 9, length: 16, offset: 64 };
    table.message(
        "write-chunk-that-was-not-offered",
        rule(RETURNED, "discarded"),
        Null,
        move |asked| asked.header().write(&[some]).with(&asked.results()),
    );
    table.message("write-chunk-for-a-write", rule(RETURNED, "discarded"), Write, move |asked| {
        asked.header().write(&[some]).with(&asked.results())
    });
    table.message(
        "reply-chunk-that-was-not-offered",
        rule(RETURNED, "discarded"),
        Null,
        move |asked| asked.header().reply(&[some]).with(&asked.results()),
    );
    table.message(
        "nomsg-with-a-reply-chunk-that-was-not-offered",
        rule(RETURNED, "discarded"),
        Null,
        move |asked| asked.bare_nomsg().reply(&[some]).with(b""),
    );
    // A requester ignores the list of a reply without a result (draft 004 §3.8.1). This one
    // has a result, and nothing of it.
    table.message("write-list-missing", rule(NO_RESULT, "call fails"), Read, |asked| {
        asked.bare().with(&asked.results())
    });
    table.message("write-chunk-twice", rule(RETURNED, "discarded"), Read, |asked| {
        asked.header().write(&[asked.segment()]).with(&asked.results())
    });
    table.message("write-chunk-empty", rule(NO_RESULT, "call fails"), Read, |asked| {
        asked.bare().write(&[]).with(&asked.results())
    });
    let change =
        |table: &mut ServerDefectTable, name: &str, change: fn(RawSegment) -> RawSegment| {
            table.message(
                &format!("write-chunk-with-another-{name}"),
                rule(RETURNED, "discarded"),
                Read,
                move |asked| asked.bare().write(&[change(asked.segment())]).with(&asked.results()),
            );
        };
    change(table, "handle", |segment| RawSegment { handle: segment.handle ^ 0x100, ..segment });
    change(table, "offset", |segment| RawSegment { offset: segment.offset + 4, ..segment });
    change(table, "longer-length", |segment| RawSegment { length: segment.length + 1, ..segment });
    change(table, "length-max", |segment| RawSegment { length: u32::MAX, ..segment });
    table.message(
        "write-chunk-with-one-segment-more",
        rule(RETURNED, "discarded"),
        Read,
        |asked| {
            asked.bare().write(&[asked.segment(), asked.segment().of_len(0)]).with(&asked.results())
        },
    );
}

fn errors(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read, Write};
    let error = |asked: &AskedCall, words: &[u32]| {
        RawHeader { procedure: ERROR, ..asked.bare() }.fixed().words(words).0
    };
    for (name, does) in [("null", Null), ("read", Read), ("write", Write)] {
        table.message(
            &format!("err-chunk-to-a-{name}"),
            rule(ERRORS, "call fails"),
            does,
            move |asked| error(asked, &[2]),
        );
    }
    let is_new = table.speaks != Speaks::One;
    for (name, low, high) in [("1-to-1", 1, 1), ("2-to-3", 2, 3), ("9-to-9", 9, 9)] {
        // The call goes again, by version 1 (draft 000 §5.2).
        let wanted = if low == 1 && is_new { "call succeeds" } else { "call fails" };
        table.message(
            &format!("err-vers-{name}"),
            rule("RFC 8166 §4.5.1", wanted),
            Null,
            move |asked| error(asked, &[1, low, high]),
        );
    }
    table.message(
        "err-vers-downwards",
        rule("RFC 8166 §4.5.1", "call fails | discarded"),
        Null,
        move |asked| error(asked, &[1, 5, 2]),
    );
    for code in [0, 3, 77, u32::MAX] {
        let wanted = if code == 3 && is_new { "call fails" } else { "discarded" };
        table.message(&format!("error-code-{code}"), rule(ERRORS, wanted), Null, move |asked| {
            error(asked, &[code])
        });
    }
    table.message("error-without-code", rule(ERRORS, "discarded"), Null, move |asked| {
        error(asked, &[])
    });
    table.message("err-vers-without-versions", rule(ERRORS, "discarded"), Null, move |asked| {
        error(asked, &[1])
    });
    table.message("err-vers-without-high", rule(ERRORS, "discarded"), Null, move |asked| {
        error(asked, &[1, 1])
    });
    table.message("err-chunk-to-nobody", rule(ERRORS, "discarded"), Null, |asked| {
        let xid = asked.xid ^ 0x0100_0000;
        RawHeader { procedure: ERROR, xid, ..asked.bare() }.fixed().u32(2).0
    });
}

fn directions(table: &mut ServerDefectTable) {
    let clause = "RFC 8167 §4.1, §5";
    let segment = RawSegment { handle: 9, length: 16, offset: 64 };
    // Where a header states its direction, chunks go both ways: a pull of memory that is not there
    // gets a Terminate of ours.
    let has_chunks = table.speaks == Speaks::Directed;
    let chunks_clause = "RFC 8167 §5.3, draft 001 §4.1";
    let pulled = if has_chunks { "closed" } else { "ERR_CHUNK | discarded" };
    table.message(
        "call-in-reverse",
        rule(clause, "PROG_UNAVAIL | discarded"),
        CallKind::Null,
        |asked| asked.calling(asked.xid).with(&call(asked.xid, 0x4000_0000, 1, 0).0),
    );
    table.message(
        "call-in-reverse-of-nfs",
        rule(clause, "PROG_UNAVAIL | discarded"),
        CallKind::Read,
        |asked| asked.calling(7).with(&call(7, NFS, 3, 0).0),
    );
    table.message(
        "call-in-reverse-with-a-reply-chunk",
        rule(
            "RFC 8167 §5.3, draft 001 §4.1",
            if has_chunks { "PROG_UNAVAIL" } else { "ERR_CHUNK | discarded" },
        ),
        CallKind::Null,
        move |asked| asked.calling(7).reply(&[segment]).with(&call(7, 0x4000_0000, 1, 0).0),
    );
    table.message(
        "call-in-reverse-with-a-read-chunk",
        rule(chunks_clause, pulled),
        CallKind::Null,
        move |asked| asked.calling(7).read(28, segment).with(&call(7, 0x4000_0000, 1, 0).0),
    );
    table.message(
        "long-call-in-reverse",
        rule(chunks_clause, pulled),
        CallKind::Null,
        move |asked| RawHeader { procedure: NOMSG, ..asked.calling(7) }.read(0, segment).with(b""),
    );
    table.script(
        "hundred-calls-in-reverse",
        rule("RFC 8167 §4.3", "PROG_UNAVAIL | discarded | closed"),
        CallKind::Null,
        |fabric, asked| {
            (0..100).try_for_each(|xid| {
                fabric.send(&asked.calling(xid).with(&call(xid, 0x4000_0000, 1, 0).0))
            })
        },
    );
}

fn credits(table: &mut ServerDefectTable) {
    let clause = "RFC 8166 §3.3.1";
    for (name, credits) in [("zero", 0), ("65536", 65_536), ("max", u32::MAX)] {
        table.message(
            &format!("grant-of-{name}"),
            rule(clause, "call succeeds"),
            CallKind::Null,
            move |asked| RawHeader { credits, ..asked.header() }.with(&asked.results()),
        );
    }
    table.message(
        "grant-in-a-message-for-nobody",
        rule("RFC 8166 §4.5, RFC 8167 §4.1", "discarded"),
        CallKind::Null,
        |asked| {
            RawHeader { credits: u32::MAX, xid: asked.xid ^ 0x0100_0000, ..asked.bare() }
                .with(&success(asked.xid ^ 0x0100_0000).0)
        },
    );
}

fn repetitions(table: &mut ServerDefectTable) {
    for (name, does) in [("null", CallKind::Null), ("read", CallKind::Read)] {
        table.script(
            &format!("reply-to-a-{name}-twice"),
            rule("RFC 8166 §4.5", "call succeeds"),
            does,
            |fabric, asked| {
                replies::reply(fabric, asked)?;
                fabric.send(&asked.header().with(&asked.results()))
            },
        );
    }
    table.script(
        "reply-behind-an-error",
        rule("RFC 8166 §4.5", "call fails"),
        CallKind::Null,
        |fabric, asked| {
            fabric.send(&RawHeader { procedure: ERROR, ..asked.bare() }.fixed().u32(2).0)?;
            replies::reply(fabric, asked)
        },
    );
    table.script(
        "error-behind-a-reply",
        rule("RFC 8166 §4.5", "call succeeds"),
        CallKind::Null,
        |fabric, asked| {
            replies::reply(fabric, asked)?;
            fabric.send(&RawHeader { procedure: ERROR, ..asked.bare() }.fixed().u32(2).0)
        },
    );
    table.script(
        "thousand-replies-to-nobody",
        rule("RFC 8166 §4.5", "discarded"),
        CallKind::Null,
        |fabric, asked| {
            let octets = |msn: u32| {
                fpdu(
                    &RawUntagged::send(msn).with(
                        &RawHeader { xid: asked.xid ^ 0x0200_0000, ..asked.bare() }
                            .with(&success(asked.xid ^ 0x0200_0000).0),
                    ),
                )
            };
            let first = fabric.msn;
            fabric.msn += 1_000;
            fabric.say(&(first..first + 1_000).flat_map(octets).collect::<Vec<_>>())
        },
    );
}

fn rpc(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read};
    let accepted = |asked: &AskedCall, words: &[u32]| {
        Xdr::new().words(&[asked.xid, 1, 0, 0, 0]).words(words).0
    };
    for (name, words) in [
        ("prog-unavail", vec![1]),
        ("prog-mismatch", vec![2, 4, 4]),
        ("prog-mismatch-without-versions", vec![2]),
        ("proc-unavail", vec![3]),
        ("garbage-args", vec![4]),
        ("system-err", vec![5]),
        ("accept-stat-9", vec![9]),
        ("accept-stat-missing", vec![]),
    ] {
        let results = move |asked: &AskedCall| accepted(asked, &words);
        table.results(name, rule(RPC, "call fails"), Null, results.clone());
        table.results(&format!("{name}-to-a-read"), rule(RPC, "call fails"), Read, results);
    }
    let denied =
        |asked: &AskedCall, words: &[u32]| Xdr::new().words(&[asked.xid, 1, 1]).words(words).0;
    for (name, words) in [
        ("rpc-mismatch", vec![0, 3, 3]),
        ("auth-error", vec![1, 5]),
        ("reject-stat-9", vec![9]),
        ("auth-stat-99", vec![1, 99]),
        ("reject-stat-missing", vec![]),
    ] {
        table.results(name, rule(RPC, "call fails"), Null, move |asked| denied(asked, &words));
    }
    table.results("reply-stat-7", rule(RPC, "call fails"), Null, |asked| {
        Xdr::new().words(&[asked.xid, 1, 7, 0, 0, 0]).0
    });
    for len in [401, 0x7FFF_FFFF, u32::MAX] {
        table.results(
            &format!("verifier-claims-{len}-octets"),
            rule("RFC 5531 §8.2", "call fails"),
            Null,
            move |asked| Xdr::new().words(&[asked.xid, 1, 0, 0, len, 0]).0,
        );
    }
    table.results(
        "octets-behind-the-results-of-null",
        rule("RFC 5531 §9", "call fails | call succeeds"),
        Null,
        |asked| [asked.results(), vec![1; 64]].concat(),
    );
}

fn results(table: &mut ServerDefectTable) {
    use CallKind::{Read, Write};
    let read = |asked: &AskedCall, words: &[u32]| success(asked.xid).words(words).0;
    for (name, words) in [
        ("read-status-99", vec![99, 0]),
        ("read-status-missing", vec![]),
        ("read-of-a-stale-handle", vec![70, 0]),
        ("read-attributes-cut", vec![0, 1, 5]),
        ("read-attributes-discriminator-2", vec![0, 2, LEN as u32, 1, LEN as u32]),
        ("read-eof-2", vec![0, 0, LEN as u32, 2, LEN as u32]),
        ("read-count-above-its-data", vec![0, 0, LEN as u32 + 1, 1, LEN as u32]),
        ("read-count-below-its-data", vec![0, 0, 5, 1, LEN as u32]),
        ("read-data-claims-4-gib", vec![0, 0, u32::MAX, 1, u32::MAX]),
        ("read-data-longer-than-the-chunk", vec![0, 0, LEN as u32 + 4, 1, LEN as u32 + 4]),
    ] {
        table.results(name, rule(NFS3, "call fails"), Read, move |asked| read(asked, &words));
    }
    table.script(
        "read-data-shorter-than-it-says",
        rule(NFS3, "call fails"),
        Read,
        |fabric, asked| {
            push(fabric, asked.segment(), &[CONTENT; 100])?;
            let header = asked.bare().write(&[asked.segment().of_len(100)]);
            fabric.send(&header.with(&asked.results()))
        },
    );
    for (name, words) in [
        ("write-count-above-what-was-sent", vec![0, 0, 0, LEN as u32 + 1, 2, 0, 7]),
        ("write-committed-5", vec![0, 0, 0, LEN as u32, 5, 0, 7]),
        ("write-less-stable-than-asked", vec![0, 0, 0, LEN as u32, 0, 0, 7]),
        ("write-verifier-cut", vec![0, 0, 0, LEN as u32, 2, 0]),
    ] {
        table.results(name, rule(NFS3, "call fails"), Write, move |asked| read(asked, &words));
    }
}
