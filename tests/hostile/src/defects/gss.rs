//! Contexts and headers of RPCSEC_GSS (RFC 2203 §5.2, §5.3.1, §5.3.3, §5.4). Bodies are in
//! `gss_bodies.rs`.
//!
//! A defect of [`DefectTable::protected`] leaves its context as it was: the context's call of
//! number 2 is served afterwards, whichever number the defect had.

use crate::{
    answer::{AnswerPattern, SeenAnswers},
    gss::*,
    judge::Family,
    play::{Defect, DefectLayer, DefectTable, Play, observe_stream},
    record::{RecordStream, StreamRecord},
    wire::*,
    world::HostileWorld,
};
use std::io;

const CONTEXT: &str = "RFC 2203 §5.3.3.3";
const CHECKSUM: &str = "RFC 2203 §5.3.3.4.2";
const CREDENTIAL: &str = "RFC 2203 §5.3.3.3, RFC 5531 §9";
const REPLAY: &str = "RFC 2203 §5.3.3.1";
const CREATION: &str = "RFC 2203 §5.2.2, §5.2.3";
const END: &str = "RFC 2203 §5.4";
const CREDPROBLEM: &str = "RPCSEC_GSS_CREDPROBLEM";
const CTXPROBLEM: &str = "RPCSEC_GSS_CTXPROBLEM";
const BADCRED: &str = "AUTH_BADCRED";
/// The first number that no call may have.
const MAXSEQ: u32 = 0x8000_0000;
/// The place of the sequence number, of the service and of the handle's length in a call.
const SEQUENCE_AT: usize = 40;
const SERVICE_AT: usize = 44;
const HANDLE_LEN_AT: usize = 48;
/// A number that moves a window beyond all that are tried afterwards.
const FAR: u32 = 1_000_000;

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Gss);
    checksums(&mut table);
    changed_headers(&mut table);
    handles(&mut table);
    words(&mut table);
    credentials(&mut table);
    replays(&mut table);
    ends(&mut table);
    requests(&mut table);
    crowds(&mut table);
    super::gss_bodies::fill(&mut table);
    table.into_defects()
}

fn root(world: &HostileWorld) -> Vec<u8> {
    Xdr::new().opaque(&world.root).0
}

/// A correct GETATTR of the root, with the header's protection alone.
fn getattr(context: &HostileContext, world: &HostileWorld, xid: u32, sequence: u32) -> Vec<u8> {
    context.call(xid, &context.words(sequence, 1), GETATTR, &root(world))
}

/// The same with another verifier: `make` has the octets that it covers.
fn with_verifier(
    context: &HostileContext,
    world: &HostileWorld,
    xid: u32,
    make: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Vec<u8> {
    let header = header(xid, GETATTR, &context.words(FAR, 1).body());
    [make(&header), root(world)].concat()
}

fn checksums(table: &mut DefectTable) {
    for at in [0, 2, 8, 15, 16, 27, 39] {
        let name = format!("checksum-octet-{at}-wrong");
        table.protected(&name, CHECKSUM, CREDPROBLEM, move |context, world, xid| {
            with_verifier(context, world, xid, |header| {
                flipped(context.signed(header), header.len() + 8 + at, 1)
            })
        });
    }
    for len in [0, 4, 16, 36, 44, 400] {
        let name = format!("checksum-of-{len}-octets");
        table.protected(&name, CHECKSUM, CREDPROBLEM, move |context, world, xid| {
            with_verifier(context, world, xid, |header| {
                let signed = context.signed(header);
                let mut mic = signed.get(header.len() + 8..).unwrap_or_default().to_vec();
                mic.resize(len, 0);
                verified(header, GSS, &mic)
            })
        });
    }
    let cut_short = "AUTH_BADVERF | AUTH_BADCRED | GARBAGE_ARGS";
    for len in [401, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("checksum-claims-{len}-octets");
        table.protected(&name, CHECKSUM, cut_short, move |context, world, xid| {
            with_verifier(context, world, xid, |header| {
                with_word(context.signed(header), header.len() + 4, len)
            })
        });
    }
    for (name, flavor) in [("none", 0), ("sys", 1), ("max", u32::MAX)] {
        let (name, wanted) = (format!("verifier-{name}"), "RPCSEC_GSS_CREDPROBLEM | AUTH_BADVERF");
        table.protected(&name, CHECKSUM, wanted, move |context, world, xid| {
            with_verifier(context, world, xid, |header| {
                with_word(context.signed(header), header.len(), flavor)
            })
        });
    }
    table.protected("checksum-of-a-server", CHECKSUM, CREDPROBLEM, |context, world, xid| {
        with_verifier(context, world, xid, |header| context.signed_as_server(header))
    });
    table.scene("checksum-of-another-context", CHECKSUM, CREDPROBLEM, |world| {
        let (own, other) = (HostileContext::open(world)?, HostileContext::open(world)?);
        let xid = world.xid();
        let call = with_verifier(&own, world, xid, |header| other.signed(header));
        and_is_served(&own, world, &call, xid)
    });
}

/// Plays a call over TCP, and looks if the context serves its client afterwards.
fn and_is_served(
    context: &HostileContext,
    world: &HostileWorld,
    call: &[u8],
    xid: u32,
) -> io::Result<SeenAnswers> {
    let mut stream = world.stream()?;
    stream.say(&record(call))?;
    let seen = observe_stream(&mut stream, world, xid, Family::Rpc)?;
    let is_served = context.is_served(world, 2)?;
    Ok(if is_served { seen } else { AnswerPattern::ContextLost.into() })
}

/// Headers that were signed and then changed, by a peer that lacks the key.
fn changed_headers(table: &mut DefectTable) {
    for (name, at, value) in [
        ("program", 12, 100_005),
        ("version", 16, 4),
        ("procedure", 20, 0),
        ("number-high", SEQUENCE_AT, FAR),
        ("number-low", SEQUENCE_AT, 0),
        ("service-integrity", SERVICE_AT, 2),
        ("service-privacy", SERVICE_AT, 3),
    ] {
        let name = format!("changed-{name}");
        table.protected(&name, CHECKSUM, CREDPROBLEM, move |context, world, xid| {
            with_word(getattr(context, world, xid, 7), at, value)
        });
    }
    // It was signed under integrity or privacy, and its arguments are not.
    for (name, service) in [("krb5i", 2), ("krb5p", 3)] {
        let name = format!("changed-from-{name}-to-krb5");
        table.protected(&name, CHECKSUM, CREDPROBLEM, move |context, world, xid| {
            let call = context.call(xid, &context.words(7, service), GETATTR, &root(world));
            with_word(call, SERVICE_AT, 1)
        });
    }
    table.protected("changed-xid", CHECKSUM, CREDPROBLEM, |context, world, xid| {
        with_word(getattr(context, world, xid ^ 1, 7), 0, xid)
    });
    table.protected("changed-to-destroy", CHECKSUM, CREDPROBLEM, |context, _, xid| {
        let null = context.head(xid, 0, &context.words(7, 1));
        with_word(null, 36, DESTROY)
    });
}

fn handles(table: &mut DefectTable) {
    for len in [0, 1, 4, 12, 15, 17, 32, 376] {
        let name = format!("handle-of-{len}-octets");
        let wanted = "RPCSEC_GSS_CREDPROBLEM | AUTH_BADCRED";
        table.protected(&name, CONTEXT, wanted, move |context, world, xid| {
            let mut words = context.words(7, 1);
            words.handle.resize(len, 0);
            [context.head(xid, GETATTR, &words), root(world)].concat()
        });
    }
    for (name, at) in [("index", 3), ("index-high", 0), ("generation", 7), ("run", 15)] {
        let name = format!("handle-of-another-{name}");
        table.protected(&name, CONTEXT, CREDPROBLEM, move |context, world, xid| {
            let mut words = context.words(7, 1);
            words.handle = flipped(words.handle, at, 0x80);
            [context.head(xid, GETATTR, &words), root(world)].concat()
        });
    }
    for len in [17, 377, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("handle-claims-{len}-octets");
        table.protected(&name, CREDENTIAL, BADCRED, move |context, world, xid| {
            let changed = with_word(context.words(7, 1).body(), HANDLE_LEN_AT - 32, len);
            [context.signed(&header(xid, GETATTR, &changed)), root(world)].concat()
        });
    }
    table.scene("handle-of-another-client", CONTEXT, CREDPROBLEM, |world| {
        let (own, other) = (HostileContext::open(world)?, HostileContext::open(world)?);
        let words = GssWords { handle: other.handle.clone(), ..own.words(FAR, 1) };
        let xid = world.xid();
        let call = [own.head(xid, GETATTR, &words), root(world)].concat();
        and_is_served(&other, world, &call, xid)
    });
    table.scene("handle-of-a-destroyed-context", CONTEXT, CREDPROBLEM, |world| {
        let context = HostileContext::open(world)?;
        let mut stream = world.stream()?;
        let words = GssWords { procedure: DESTROY, ..context.words(1, 1) };
        stream.results(&context.head(world.xid(), 0, &words), world.target.patience)?;
        let xid = world.xid();
        stream.say(&record(&getattr(&context, world, xid, 2)))?;
        observe_stream(&mut stream, world, xid, Family::Rpc)
    });
}

/// Words that the specification does not have, with a right checksum.
fn words(table: &mut DefectTable) {
    type Change = fn(&mut GssWords, u32);
    let mut each = |name, values: &[u32], clause, wanted, change: Change| {
        for value in values.iter().copied() {
            let name = format!("{name}-{value}");
            table.protected(&name, clause, wanted, move |context, world, xid| {
                let mut words = context.words(7, 1);
                change(&mut words, value);
                [context.head(xid, GETATTR, &words), root(world)].concat()
            });
        }
    };
    // Version 2 is that of RFC 5403, and 3 that of RFC 7861.
    let version = "AUTH_REJECTEDCRED | AUTH_BADCRED";
    each("version", &[0, 2, 3, u32::MAX], "RFC 2203 §5.1", version, |words, value| {
        words.version = value
    });
    each("procedure", &[4, 5, u32::MAX], CREDENTIAL, BADCRED, |words, value| {
        words.procedure = value
    });
    each("service", &[0, 4, 5, u32::MAX], CREDENTIAL, BADCRED, |words, value| {
        words.service = value
    });
    let high = [MAXSEQ, MAXSEQ + 1, u32::MAX];
    each("number", &high, CONTEXT, CTXPROBLEM, |words, value| words.sequence = value);
}

fn credentials(table: &mut DefectTable) {
    for len in [0, 4, 8, 12, 16, 20, 24, 32] {
        let name = format!("credential-of-{len}-octets");
        table.protected(&name, CREDENTIAL, BADCRED, move |context, world, xid| {
            let body = cut(context.words(7, 1).body(), len);
            [context.signed(&header(xid, GETATTR, &body)), root(world)].concat()
        });
    }
    table.protected("credential-and-4-octets", CREDENTIAL, BADCRED, |context, world, xid| {
        let body = Xdr(context.words(7, 1).body()).u32(0).0;
        [context.signed(&header(xid, GETATTR, &body)), root(world)].concat()
    });
    for (name, procedure) in [("init", INIT), ("continue-init", CONTINUE_INIT)] {
        for (of, nfs) in [("null", 0), ("getattr", GETATTR)] {
            let name = format!("{name}-of-a-context-in-a-{of}");
            table.protected(&name, CREDENTIAL, BADCRED, move |context, _, xid| {
                let words = GssWords { procedure, ..context.words(7, 1) };
                Xdr(context.head(xid, nfs, &words)).opaque(b"key of another").0
            });
        }
    }
}

/// Plays calls of one context on a connection; the last one's answer counts.
fn last_of(
    world: &HostileWorld,
    calls: impl FnOnce(&HostileContext, &HostileWorld) -> Vec<Vec<u8>>,
) -> io::Result<SeenAnswers> {
    let context = HostileContext::open(world)?;
    let mut stream = world.stream()?;
    let mut calls = calls(&context, world);
    let last = calls.pop().unwrap_or_default();
    for call in calls {
        stream.say(&record(&call))?;
        let StreamRecord::Whole(_) = stream.hear(world.target.patience)? else {
            return Ok(AnswerPattern::Nothing.into());
        };
    }
    stream.say(&record(&last))?;
    observe_stream(&mut stream, world, word_at(&last, 0), Family::Rpc)
}

fn replays(table: &mut DefectTable) {
    for (name, service) in SERVICES {
        table.scene(&format!("replay-under-{name}"), REPLAY, "discarded", move |world| {
            last_of(world, |context, world| {
                let call =
                    context.call(world.xid(), &context.words(5, service), GETATTR, &root(world));
                vec![call.clone(), call]
            })
        });
        let name = format!("number-below-the-window-under-{name}");
        table.scene(&name, REPLAY, "discarded", move |world| {
            last_of(world, |context, world| {
                let call = |sequence| {
                    context.call(
                        world.xid(),
                        &context.words(sequence, service),
                        GETATTR,
                        &root(world),
                    )
                };
                vec![call(600), call(88)]
            })
        });
    }
    table.scene("number-at-the-window's-end", REPLAY, "OK", |world| {
        last_of(world, |context, world| {
            let call = |sequence| getattr(context, world, world.xid(), sequence);
            vec![call(600), call(89)]
        })
    });
    table.scene("replay-of-the-last-number", REPLAY, "discarded", |world| {
        last_of(world, |context, world| {
            let call = getattr(context, world, world.xid(), MAXSEQ - 1);
            vec![call.clone(), call]
        })
    });
    table.scene("number-after-the-last-one", CONTEXT, CTXPROBLEM, |world| {
        last_of(world, |context, world| {
            let call = |sequence| getattr(context, world, world.xid(), sequence);
            vec![call(MAXSEQ - 1), call(MAXSEQ)]
        })
    });
    table.scene("replay-over-another-connection", REPLAY, "discarded", |world| {
        let context = HostileContext::open(world)?;
        let xid = world.xid();
        let call = getattr(&context, world, xid, 5);
        world.stream()?.results(&call, world.target.patience)?;
        let mut fabric = world.fabric()?;
        let octets = RawHeader::msg(xid).with(&call);
        fabric.send(&octets)?;
        crate::play::observe(&mut fabric, world, &octets, Family::Rpc)
    });
    table.scene("replay-with-another-xid", CHECKSUM, CREDPROBLEM, |world| {
        last_of(world, |context, world| {
            let call = getattr(context, world, world.xid(), 5);
            vec![call.clone(), with_word(call, 0, world.xid())]
        })
    });
    // The number was used up by a body that was changed on its way.
    table.scene("number-of-a-refused-body", REPLAY, "discarded", |world| {
        last_of(world, |context, world| {
            let call = context.call(world.xid(), &context.words(5, 2), GETATTR, &root(world));
            let last = call.len() - 1;
            vec![flipped(call.clone(), last, 1), call]
        })
    });
}

fn ends(table: &mut DefectTable) {
    type Make = fn(&HostileContext, u32) -> Vec<u8>;
    let words = |context: &HostileContext| GssWords { procedure: DESTROY, ..context.words(FAR, 1) };
    let cases: [(&str, &str, Make); 3] = [
        ("without-a-verifier", "RPCSEC_GSS_CREDPROBLEM | AUTH_BADVERF", |context, xid| {
            let words = GssWords { procedure: DESTROY, ..context.words(FAR, 1) };
            Xdr(header(xid, 0, &words.body())).words(&[0, 0]).0
        }),
        ("with-a-wrong-checksum", CREDPROBLEM, |context, xid| {
            let words = GssWords { procedure: DESTROY, ..context.words(FAR, 1) };
            let call = context.head(xid, 0, &words);
            let last = call.len() - 1;
            flipped(call, last, 0x80)
        }),
        ("in-a-getattr", BADCRED, |context, xid| {
            let words = GssWords { procedure: DESTROY, ..context.words(FAR, 1) };
            context.head(xid, GETATTR, &words)
        }),
    ];
    for (name, wanted, make) in cases {
        let name = format!("destroy-{name}");
        table.protected(&name, END, wanted, move |context, _, xid| make(context, xid));
    }
    table.scene("destroy-by-another-client", END, CREDPROBLEM, move |world| {
        let (own, other) = (HostileContext::open(world)?, HostileContext::open(world)?);
        let xid = world.xid();
        let call = own.head(xid, 0, &words(&other));
        and_is_served(&other, world, &call, xid)
    });
    table.scene("destroy-twice", END, CREDPROBLEM, |world| {
        last_of(world, |context, world| {
            let end = |sequence| GssWords { procedure: DESTROY, ..context.words(sequence, 1) };
            vec![context.head(world.xid(), 0, &end(1)), context.head(world.xid(), 0, &end(2))]
        })
    });
}

/// Requests for contexts: their token's length is believed no further than the message goes.
fn requests(table: &mut DefectTable) {
    let header = |xid| Xdr(header(xid, 0, &init_words().body())).words(&[0, 0]);
    for (len, of) in [(0, "OK"), (4, "OK"), (1_000, "OK")] {
        let name = format!("token-of-{len}-octets");
        table.rpc(&name, CREATION, of, move |_, xid| init(xid, &vec![b'x'; len]));
    }
    table
        .octet("token-of-64-kib", CREATION, "OK", |_, xid| record(&init(xid, &vec![b'x'; 65_536])));
    table.octet("token-of-64-kib-and-1", CREATION, "GARBAGE_ARGS", |_, xid| {
        record(&init(xid, &vec![b'x'; 65_537]))
    });
    for claimed in [8, 5, 65_536, 65_537, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("token-of-4-octets-claims-{claimed}");
        table
            .rpc(&name, CREATION, "GARBAGE_ARGS", move |_, xid| header(xid).words(&[claimed, 0]).0);
    }
    table.rpc("token-missing", CREATION, "GARBAGE_ARGS", move |_, xid| header(xid).0);
    table.rpc("token-length-cut", CREATION, "GARBAGE_ARGS", move |_, xid| {
        header(xid).raw(&[0, 0]).0
    });
    table.rpc("token-and-4-octets", CREATION, "GARBAGE_ARGS", |_, xid| {
        Xdr(init(xid, b"some")).u32(0).0
    });
    table.rpc("token-with-wrong-padding", CREATION, "GARBAGE_ARGS | OK", |_, xid| {
        let mut call = init(xid, b"some5");
        if let Some(last) = call.last_mut() {
            *last = 1;
        }
        call
    });
    table.rpc("init-in-a-getattr", CREATION, BADCRED, |world, xid| {
        [with_word(init(xid, b"some"), 20, GETATTR), root(world)].concat()
    });
    table.rpc("init-with-any-number-and-service", CREATION, "OK", |_, xid| {
        with_word(with_word(init(xid, b"some"), SEQUENCE_AT, u32::MAX), SERVICE_AT, u32::MAX)
    });
    table.rpc("continue-init-of-nothing", CREATION, "AUTH_BADCRED | RPCSEC_GSS_CREDPROBLEM", {
        |_, xid| with_word(init(xid, b"some"), 36, CONTINUE_INIT)
    });
    // The token is no item that may be reduced (RFC 8166 §8.2.1): read all the same, or refused.
    table.add(
        "token-in-a-chunk",
        "RFC 8166 §8.2.1",
        "OK | ERR_CHUNK | GARBAGE_ARGS",
        Play::Message(
            Box::new(move |fabric, _, xid| {
                let token = fabric.memory.source(&[b'x'; 600]);
                let head = header(xid).u32(600).0;
                RawHeader::msg(xid).read(word(head.len()), token).with(&head)
            }),
            Family::Rpc,
        ),
    );
}

/// Many requests at once, or half of each: another client gets its context meanwhile.
fn crowds(table: &mut DefectTable) {
    table.scene("requests-half-sent", CREATION, "OK", |world| {
        let half = record(&init(world.xid(), &vec![b'x'; 60_000]));
        let half = cut(half, 30_000);
        let waiting: Vec<_> = (0..32).map(|_| said(world, &half)).collect::<Result<_, _>>()?;
        served_next_to(world, waiting)
    });
    table.scene("requests-whose-clients-leave", CREATION, "OK", |world| {
        for _ in 0..64 {
            drop(said(world, &record(&init(world.xid(), b"key of one that leaves")))?);
        }
        served_next_to(world, Vec::new())
    });
    table.scene("requests-of-contexts-that-are-dropped", CREATION, "OK", |world| {
        for _ in 0..600 {
            HostileContext::open(world)?;
        }
        served_next_to(world, Vec::new())
    });
}

fn said(world: &HostileWorld, octets: &[u8]) -> io::Result<RecordStream> {
    let mut stream = world.stream()?;
    stream.say(octets)?;
    Ok(stream)
}

/// Sets a context up and uses it.
fn served_next_to(world: &HostileWorld, waiting: Vec<RecordStream>) -> io::Result<SeenAnswers> {
    let is_served = HostileContext::open(world)?.is_served(world, 1)?;
    drop(waiting);
    let lost = AnswerPattern::ContextLost;
    Ok(if is_served { AnswerPattern::Ok } else { lost }.into())
}
