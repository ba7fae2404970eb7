//! Calls (RFC 5531 §9), credentials (§8.2, Appendix A) and records (§11).

use crate::{
    answer::AnswerPattern,
    judge::Family,
    play::{Defect, DefectLayer, DefectTable, Play, observe_stream},
    record::StreamRecord,
    wire::*,
};
use std::time::Duration;

const CALL: &str = "RFC 5531 §9";
const AUTH: &str = "RFC 5531 §8.2, §9";
const SYS: &str = "RFC 5531 Appendix A";
const RECORD: &str = "RFC 5531 §11";
const BAD_CREDENTIAL: &str = "AUTH_BADCRED | GARBAGE_ARGS";
const PORTMAPPER: u32 = 100_000;

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Rpc);
    headers(&mut table);
    cuts(&mut table);
    credentials(&mut table);
    unix(&mut table);
    verifiers(&mut table);
    records(&mut table);
    streams(&mut table);
    table.into_defects()
}

fn null(xid: u32) -> Vec<u8> {
    call(xid, NFS, 3, 0).0
}

/// GETATTR of the root: NULL may be called by anybody, this may not.
fn getattr(root: &[u8], xid: u32) -> Vec<u8> {
    call(xid, NFS, 3, 1).opaque(root).0
}

fn headers(table: &mut DefectTable) {
    for version in [0, 1, 3, u32::MAX] {
        table.rpc(&format!("version-{version}"), CALL, "RPC_MISMATCH 2..2", move |_, xid| {
            with_word(null(xid), 8, version)
        });
    }
    table.rpc("version-3-and-nothing-else", CALL, "RPC_MISMATCH 2..2", |_, xid| {
        Xdr::new().words(&[xid, 0, 3]).0
    });
    for program in [0, PORTMAPPER + 1, 100_021, 0x4000_0000, u32::MAX] {
        table.rpc(&format!("program-{program}"), CALL, "PROG_UNAVAIL", move |_, xid| {
            call(xid, program, 3, 0).0
        });
    }
    for version in [0, 1, 5, u32::MAX] {
        table.rpc(&format!("nfs-version-{version}"), CALL, "PROG_MISMATCH", move |_, xid| {
            call(xid, NFS, version, 0).0
        });
    }
    for procedure in [22, 23, 0x0100_0000, u32::MAX] {
        table.rpc(&format!("nfs-procedure-{procedure}"), CALL, "PROC_UNAVAIL", move |_, xid| {
            call(xid, NFS, 3, procedure).0
        });
    }
    table.rpc("null-with-arguments", CALL, "GARBAGE_ARGS | OK", |_, xid| {
        [null(xid), vec![1; 64]].concat()
    });
    table.rpc("arguments-followed-by-4-octets", CALL, "GARBAGE_ARGS | OK", |world, xid| {
        [getattr(&world.root, xid), vec![0; 4]].concat()
    });
    table.rpc("arguments-followed-by-2000-octets", CALL, "GARBAGE_ARGS | OK", |world, xid| {
        [getattr(&world.root, xid), vec![0xA5; 2_000]].concat()
    });
}

/// A call that ends too early. Where the XID and the type are there, RPC can answer.
fn cuts(table: &mut DefectTable) {
    for (name, len) in [("version", 8), ("program", 12), ("program-version", 16), ("procedure", 20)]
    {
        table.rpc(
            &format!("cut-before-{name}"),
            CALL,
            "GARBAGE_ARGS | closed | discarded",
            move |_, xid| cut(null(xid), len),
        );
    }
    for (name, len) in [
        ("credential", 24),
        ("credential-length", 28),
        ("credential-body", 32),
        ("machine-name", 44),
    ] {
        table.rpc(
            &format!("cut-before-{name}"),
            AUTH,
            "AUTH_BADCRED | GARBAGE_ARGS | closed",
            move |_, xid| cut(null(xid), len),
        );
    }
    table.rpc(
        "cut-before-verifier",
        AUTH,
        "AUTH_BADVERF | AUTH_BADCRED | GARBAGE_ARGS | closed",
        |_, xid| {
            let len = null(xid).len();
            cut(null(xid), len - 8)
        },
    );
    table.rpc(
        "cut-in-verifier",
        AUTH,
        "AUTH_BADVERF | AUTH_BADCRED | GARBAGE_ARGS | closed",
        |_, xid| {
            let len = null(xid).len();
            cut(null(xid), len - 4)
        },
    );
    table.rpc("cut-in-arguments", CALL, "GARBAGE_ARGS", |world, xid| {
        let len = getattr(&world.root, xid).len();
        cut(getattr(&world.root, xid), len - 4)
    });
    table.octet("reply-to-a-server", "RFC 5531 §9", "discarded | closed", |_, xid| {
        record(&success(xid).0)
    });
    table.octet("message-type-2", "RFC 5531 §9", "discarded | closed", |_, xid| {
        record(&with_word(null(xid), 4, 2))
    });
    for len in [0, 1, 3, 4, 7] {
        table.octet(
            &format!("record-of-{len}-octets"),
            RECORD,
            "discarded | closed",
            move |_, xid| record(&cut(null(xid), len)),
        );
    }
}

/// A call of GETATTR with this credential.
fn with_credential(root: &[u8], xid: u32, flavor: u32, len: u32, body: &[u8]) -> Vec<u8> {
    let fixed = Xdr::new().words(&[xid, 0, 2, NFS, 3, 1]);
    auth(fixed, flavor, len, body).words(&[0, 0]).opaque(root).0
}

fn credentials(table: &mut DefectTable) {
    let weak = "AUTH_TOOWEAK | AUTH_BADCRED | AUTH_REJECTEDCRED";
    for (name, flavor) in
        [("short", 2), ("dh", 3), ("7", 7), ("390003", 390_003), ("max", u32::MAX)]
    {
        table.rpc(&format!("flavor-{name}"), AUTH, weak, move |world, xid| {
            with_credential(&world.root, xid, flavor, 8, &[1; 8])
        });
    }
    // RPCSEC_GSS without what it needs: refused, and nothing of its lengths is believed.
    for (name, body) in [
        ("gss-init", Xdr::new().words(&[1, 1, 0, 1, 0]).0),
        ("gss-context-of-4-gib", Xdr::new().words(&[1, 0, 1, 1, u32::MAX]).0),
        ("gss-version-0", Xdr::new().words(&[0, 0, 1, 1, 0]).0),
        ("gss-of-nothing", vec![]),
    ] {
        table
            .rpc(
                name,
                "RFC 2203 §5, RFC 5531 §9",
                "AUTH_TOOWEAK | AUTH_BADCRED | AUTH_REJECTEDCRED | AUTH_ERROR (another)",
                move |world, xid| with_credential(&world.root, xid, 6, word(body.len()), &body),
            )
            .not_for_kernels();
    }
    for len in [401, 404, 1_000] {
        table.rpc(
            &format!("credential-of-{len}-octets"),
            AUTH,
            BAD_CREDENTIAL,
            move |world, xid| {
                with_credential(
                    &world.root,
                    xid,
                    1,
                    len,
                    &vec![0; (len as usize).next_multiple_of(4)],
                )
            },
        );
    }
    for len in [0x7FFF_FFFF, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        table.rpc(
            &format!("credential-claims-{len}-octets"),
            "RFC 5531 §8.2, RFC 4506 §4.10",
            BAD_CREDENTIAL,
            move |world, xid| with_credential(&world.root, xid, 1, len, &[0; 20]),
        );
    }
}

fn unix(table: &mut DefectTable) {
    let cases: [(&str, Vec<u8>, &'static str); 11] = [
        ("of-nothing", vec![], BAD_CREDENTIAL),
        ("of-4-octets", vec![0; 4], BAD_CREDENTIAL),
        ("machine-name-256", sys(&[b'm'; 256], &[]), BAD_CREDENTIAL),
        ("machine-name-claims-4-gib", with_word(sys(b"abcd", &[]), 4, u32::MAX), BAD_CREDENTIAL),
        ("machine-name-behind-the-end", with_word(sys(b"abcd", &[]), 4, 255), BAD_CREDENTIAL),
        ("17-groups", sys(b"abcd", &[5; 17]), BAD_CREDENTIAL),
        ("groups-claim-4-gib", with_word(sys(b"abcd", &[]), 20, u32::MAX), BAD_CREDENTIAL),
        ("groups-claim-2-to-the-30", with_word(sys(b"abcd", &[]), 20, 1 << 30), BAD_CREDENTIAL),
        ("groups-behind-the-end", with_word(sys(b"abcd", &[1]), 20, 2), BAD_CREDENTIAL),
        ("16-groups", sys(b"abcd", &[5; 16]), "OK"),
        (
            "followed-by-octets",
            [sys(b"abcd", &[]), vec![0; 8]].concat(),
            "AUTH_BADCRED | GARBAGE_ARGS | OK",
        ),
    ];
    for (name, body, expect) in cases {
        table.rpc(&format!("sys-{name}"), SYS, expect, move |world, xid| {
            with_credential(&world.root, xid, 1, word(body.len()), &body)
        });
    }
    // A short credential after a long one must not be read with the long one's length.
    table
        .scene("sys-long-then-short-on-one-connection", SYS, "AUTH_BADCRED", |world| {
            let mut stream = world.stream()?;
            let (first, second) = (world.xid(), world.xid());
            let long = sys(&[b'm'; 200], &[7; 16]);
            let good = with_credential(&world.root, first, 1, word(long.len()), &long);
            let bad =
                with_credential(&world.root, second, 1, 12, &Xdr::new().words(&[7, 200, 0]).0);
            stream.say(&record(&good))?;
            let StreamRecord::Whole(_) = stream.hear(world.target.patience)? else {
                return Ok(AnswerPattern::Closed.into());
            };
            stream.say(&record(&bad))?;
            observe_stream(&mut stream, world, second, Family::Rpc)
        })
        .expect = BAD_CREDENTIAL;
}

fn verifiers(table: &mut DefectTable) {
    let verified = |root: &[u8], xid: u32, flavor: u32, len: u32, body: &[u8]| {
        let fixed = Xdr::new().words(&[xid, 0, 2, NFS, 3, 1]);
        let body_of_caller = sys(b"hostile", &[]);
        let caller = auth(fixed, 1, word(body_of_caller.len()), &body_of_caller);
        auth(caller, flavor, len, body).opaque(root).0
    };
    let bad = "AUTH_BADVERF | AUTH_BADCRED | GARBAGE_ARGS";
    for len in [401, 0x8000_0000, u32::MAX] {
        table.rpc(&format!("verifier-claims-{len}-octets"), AUTH, bad, move |world, xid| {
            verified(&world.root, xid, 0, len, &[])
        });
    }
    table.rpc(
        "verifier-of-another-flavor",
        AUTH,
        "OK | AUTH_BADVERF | AUTH_BADCRED | AUTH_REJECTEDVERF",
        move |world, xid| verified(&world.root, xid, 1, 8, &[0; 8]),
    );
    table.rpc(
        "verifier-none-with-a-body",
        AUTH,
        "OK | AUTH_BADVERF | AUTH_BADCRED",
        move |world, xid| verified(&world.root, xid, 0, 400, &[0; 400]),
    );
}

fn records(table: &mut DefectTable) {
    table.octet("fragments-of-one-octet", RECORD, "OK", |_, xid| {
        let message = null(xid);
        let count = message.len();
        let pieces = message.iter().enumerate();
        pieces.flat_map(|(index, octet)| fragment(&[*octet], index + 1 == count)).collect()
    });
    table.octet("empty-last-fragment", RECORD, "OK", |_, xid| {
        [fragment(&null(xid), false), fragment(b"", true)].concat()
    });
    table.octet("one-empty-fragment-first", RECORD, "OK", |_, xid| {
        [fragment(b"", false), record(&null(xid))].concat()
    });
    table.octet("thousand-empty-fragments", RECORD, "closed", |_, xid| {
        [fragment(b"", false).repeat(1_000), record(&null(xid))].concat()
    });
    table.octet("fragment-of-2-gib", RECORD, "closed", |_, xid| {
        [Xdr::new().u32(u32::MAX).0, null(xid)].concat()
    });
    table.octet("fragment-of-64-mib", RECORD, "closed", |_, xid| {
        [Xdr::new().u32(1 << 31 | 64 << 20).0, null(xid)].concat()
    });
    table.octet("fragments-add-up-to-too-much", RECORD, "closed", |_, _| {
        fragment(&vec![0; 1 << 20], false).repeat(3)
    });
    table.octet("fragment-lengths-wrap", RECORD, "closed", |_, xid| {
        [fragment(&null(xid), false), Xdr::new().u32(0x7FFF_FFFF).0].concat()
    });
    let spoken = "closed | discarded";
    table.octet("http-request", RECORD, spoken, |_, _| {
        b"GET / HTTP/1.1\r\nHost: nfs\r\n\r\n".to_vec()
    });
    table.octet("mpa-request", RECORD, spoken, |_, _| frame(REQUEST, C | S, 2, &depths(32, 0)));
    table.octet("tls-hello", RECORD, spoken, |_, _| {
        [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 64]].concat()
    });
    table.add(
        "rpc-message-without-a-mark",
        RECORD,
        spoken,
        Play::Octet(Box::new(|_, xid| null(xid | 1 << 31)), Family::Rpc),
    );
}

fn streams(table: &mut DefectTable) {
    table.scene("fin-in-a-mark", RECORD, "closed", |world| half(world, 2));
    table.scene("fin-in-a-record", RECORD, "closed", |world| half(world, 30));
    table.scene("reset-in-a-record", RECORD, "left", |world| {
        let mut stream = world.stream()?;
        stream.say(&cut(record(&null(world.xid())), 30))?;
        crate::peer::reset(&stream.stream);
        Ok(AnswerPattern::Left.into())
    });
    table
        .scene("fin-behind-a-call", RECORD, "OK, closed", |world| {
            let mut stream = world.stream()?;
            let xid = world.xid();
            stream.say(&record(&null(xid)))?;
            stream.stream.shutdown(std::net::Shutdown::Write)?;
            let answer = match stream.hear(world.target.patience)? {
                StreamRecord::Whole(reply) => crate::judge::rpc(&reply, xid, Family::Rpc),
                StreamRecord::Closed => AnswerPattern::Closed,
                StreamRecord::Nothing => AnswerPattern::Nothing,
            };
            let closed = answer == AnswerPattern::Ok
                && stream.hear(world.target.patience)? == StreamRecord::Closed;
            Ok(crate::answer::SeenAnswers { answer, closed })
        })
        .expect = "OK, closed | closed";
    table.scene("two-records-in-one-segment", RECORD, "OK", |world| {
        let mut stream = world.stream()?;
        let (first, second) = (world.xid(), world.xid());
        stream.say(&[record(&null(first)), record(&null(second))].concat())?;
        let StreamRecord::Whole(_) = stream.hear(world.target.patience)? else {
            return Ok(AnswerPattern::Closed.into());
        };
        observe_stream(&mut stream, world, second, Family::Rpc)
    });
    table.scene("record-octet-by-octet", RECORD, "OK", |world| {
        let mut stream = world.stream()?;
        let xid = world.xid();
        for octet in record(&null(xid)) {
            stream.say(&[octet])?;
            std::thread::yield_now();
        }
        observe_stream(&mut stream, world, xid, Family::Rpc)
    });
    // It announces much and sends little: no other client may notice.
    table.scene("hundred-records-that-never-end", "RFC 5042 §6.4.2", "OK", |world| {
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut stream = world.stream()?;
            stream.say(&[Xdr::new().u32(1 << 31 | 1 << 20).0, vec![0; 100]].concat())?;
            waiting.push(stream);
        }
        let mut stream = world.stream()?;
        let xid = world.xid();
        stream.say(&record(&null(xid)))?;
        let seen = observe_stream(&mut stream, world, xid, Family::Rpc)?;
        drop(waiting);
        Ok(seen)
    });
    table.scene("calls-without-taking-replies", "RFC 5042 §6.4.3", "OK", |world| {
        let mut deaf = world.stream()?;
        deaf.stream.set_write_timeout(Some(Duration::from_millis(300)))?;
        let read = |xid| record(&call(xid, NFS, 3, 6).opaque(&world.file).u64(0).u32(65_536).0);
        for _ in 0..200 {
            deaf.say(&read(world.xid()))?;
        }
        let mut stream = world.stream()?;
        let xid = world.xid();
        stream.say(&record(&null(xid)))?;
        let seen = observe_stream(&mut stream, world, xid, Family::Rpc)?;
        drop(deaf);
        Ok(seen)
    });
}

/// A record that ends with our FIN after `len` octets.
fn half(
    world: &crate::world::HostileWorld,
    len: usize,
) -> std::io::Result<crate::answer::SeenAnswers> {
    let mut stream = world.stream()?;
    stream.say(&cut(record(&null(world.xid())), len))?;
    stream.stream.shutdown(std::net::Shutdown::Write)?;
    Ok(match stream.hear(world.target.patience)? {
        StreamRecord::Closed => AnswerPattern::Closed,
        StreamRecord::Nothing => AnswerPattern::Nothing,
        StreamRecord::Whole(_) => AnswerPattern::Nonsense,
    }
    .into())
}
