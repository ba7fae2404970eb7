//! Operations (RFC 5040), and those of RFC 7306, which no provider here offers.

use crate::{
    answer::AnswerPattern,
    judge::Family,
    peer::{Heard, ReadResponder, Utterance, honest},
    play::{Defect, DefectLayer, DefectTable, ending, observe},
    wire::*,
};

const OPCODE: &str = "RFC 5040 §7.1, unexpected opcode";
const PULL: &str = "RFC 5040 §5.2, RFC 5041 §7.1";

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Rdmap);
    opcodes(&mut table);
    invalidations(&mut table);
    reads(&mut table);
    responses(&mut table);
    pulls(&mut table);
    terminates(&mut table);
    table.into_defects()
}

fn opcodes(table: &mut DefectTable) {
    for (version, bits) in [(0, 0x00), (2, 0x80), (3, 0xC0)] {
        let send = RawUntagged { rdmap: bits | 3, ..RawUntagged::send(1) }.with(b"x");
        table.ulpdu(
            &format!("version-{version}-in-a-send"),
            "RFC 5040 §7.1 0x05",
            "Terminate 0/2/05",
            send,
        );
        let write = RawTagged { rdmap: bits, ..RawTagged::write(1, 0) }.with(b"x");
        table.ulpdu(
            &format!("version-{version}-in-a-write"),
            "RFC 5040 §7.1 0x05",
            "Terminate 0/2/05",
            write,
        );
    }
    for opcode in 8..16_u8 {
        let untagged = RawUntagged::of(opcode, 0, 1).with(&[0; 52]);
        table.ulpdu(
            &format!("opcode-{opcode}-untagged"),
            "RFC 5040 §7.1, RFC 7306 §4",
            "Terminate 0/2/06",
            untagged,
        );
        let tagged = RawTagged { rdmap: 0x40 | opcode, ..RawTagged::write(1, 0) }.with(&[0; 8]);
        table.ulpdu(
            &format!("opcode-{opcode}-tagged"),
            "RFC 5040 §7.1, RFC 7306 §4",
            "Terminate 0/2/06",
            tagged,
        );
    }
    for (name, opcode) in
        [("read-request", 1), ("send", 3), ("send-invalidate", 4), ("terminate", 7)]
    {
        let ulpdu = RawTagged { rdmap: 0x40 | opcode, ..RawTagged::write(1, 0) }.with(&[0; 28]);
        table
            .ulpdu(&format!("{name}-with-a-tagged-header"), OPCODE, "Terminate 0/2/06", ulpdu)
            .not_for_kernels();
    }
    for (name, opcode) in [("write", 0), ("read-response", 2)] {
        let ulpdu = RawUntagged::of(opcode, 0, 1).with(&[0; 28]);
        table
            .ulpdu(&format!("{name}-with-an-untagged-header"), OPCODE, "Terminate 0/2/06", ulpdu)
            .not_for_kernels();
    }
    // Atomics go to a queue of their own, which does not exist either.
    let atomic = RawUntagged::of(10, 1, 1).with(&[0; 52]);
    table.ulpdu("atomic-request", "RFC 7306 §5", "Terminate 0/2/06", atomic);
    table.scene("solicited-send", "RFC 5040 §4.2", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
        fabric.say_ulpdu(&RawUntagged::of(5, 0, 1).with(&message))?;
        fabric.msn = 2;
        observe(&mut fabric, world, &message, Family::Rpc)
    });
}

fn invalidations(table: &mut DefectTable) {
    let clause = "RFC 5040 §7.1 0x09, RFC 5042 §6.4.5";
    let wanted = "Terminate 0/2/09 | Terminate 0/1/09 | Terminate 0/1/00";
    for (name, opcode, stag) in [
        ("zero", 4, 0),
        ("unknown", 4, 0xDEAD_BE01),
        ("ones", 4, u32::MAX),
        ("guessed-index", 4, 0x100),
        ("unknown-solicited", 6, 0xDEAD_BE01),
    ] {
        let ulpdu = RawUntagged { invalidate: stag, ..RawUntagged::of(opcode, 0, 1) }
            .with(&RawHeader::msg(0).with(&call(0, NFS, 3, 0).0));
        table.ulpdu(&format!("invalidate-{name}"), clause, wanted, ulpdu);
    }
    table
        .scene("invalidate-the-peers-read-sink", clause, wanted, |world| {
            let mut fabric = world.fabric()?;
            // The sink's STag is learnt from the Read Request itself.
            fabric.responder = |ask, octets| {
                let kill =
                    RawUntagged { invalidate: ask.sink.0, ..RawUntagged::of(4, 0, 2) }.with(b"");
                [vec![Utterance::Ulpdu(kill)], honest(ask, octets)].concat()
            };
            pull(&mut fabric, world)
        })
        .not_for_kernels();
    table
        .scene(
            "write-into-the-peers-read-sink",
            "RFC 5041 §7.1, RFC 5042 §6.3.5",
            "Terminate 1/1/00",
            |world| {
                let mut fabric = world.fabric()?;
                fabric.responder = |ask, octets| {
                    let write = RawTagged::write(ask.sink.0, ask.sink.1).with(b"not asked for");
                    [vec![Utterance::Ulpdu(write)], honest(ask, octets)].concat()
                };
                pull(&mut fabric, world)
            },
        )
        .not_for_kernels();
}

fn reads(table: &mut DefectTable) {
    let protection = "RFC 5040 §7.1, remote protection";
    let ask = |len, stag, to| ReadAsk { sink: (1, 0), len, source: (stag, to) };
    for (name, ask) in [
        ("stag-zero", ask(16, 0, 0)),
        ("stag-unknown", ask(16, 0xDEAD_BE01, 0)),
        ("stag-ones", ask(16, u32::MAX, 0)),
        ("of-4-gib", ask(u32::MAX, 0xDEAD_BE01, 0)),
        ("offset-wraps", ask(16, 1, u64::MAX - 3)),
    ] {
        let expect = if name == "offset-wraps" {
            "Terminate 0/1/04 | Terminate 0/1/00"
        } else {
            "Terminate 0/1/00"
        };
        let ulpdu = RawUntagged::read(1).with(&ask.header());
        table.ulpdu(&format!("read-{name}"), protection, expect, ulpdu).not_for_kernels();
    }
    table
        .scene("read-of-nothing", "RFC 5040 §4.4", "OK", move |world| {
            let mut fabric = world.fabric()?;
            fabric
                .say_ulpdu(&RawUntagged::read(1).with(&ask(0, 0xDEAD_BE01, u64::MAX).header()))?;
            Ok(match fabric.hear(world.target.patience)? {
                Heard::Response(octets) if octets.is_empty() => AnswerPattern::Ok,
                other => ending(&fabric, &other),
            }
            .into())
        })
        .not_for_kernels();
    let whole = ask(16, 0xDEAD_BE01, 0).header();
    for len in [0, 27, 29, 56] {
        let mut header = whole.clone();
        header.resize(len, 0);
        let expect = "Terminate 0/2/ff | Terminate 2/0/03 | closed";
        table
            .ulpdu(
                &format!("read-request-of-{len}-octets"),
                "RFC 5040 §4.4",
                expect,
                RawUntagged::read(1).with(&header),
            )
            .not_for_kernels();
    }
    let more = RawUntagged::read(1).more().with(&whole);
    table
        .ulpdu(
            "read-request-unfinished",
            "RFC 5040 §4.4",
            "Terminate 0/2/ff | Terminate 0/2/06",
            more,
        )
        .not_for_kernels();
    table
        .ulpdu(
            "read-request-msn-2-first",
            "RFC 5041 §7.2 0x03",
            "Terminate 1/2/03",
            RawUntagged::read(2).with(&whole),
        )
        .not_for_kernels();
    table
        .ulpdu(
            "read-request-at-offset-4",
            "RFC 5041 §7.2 0x04",
            "Terminate 1/2/04",
            RawUntagged::read(1).at(4).with(&whole),
        )
        .not_for_kernels();
    let flood =
        (1..=2_000).map(|msn| RawUntagged::read(msn).with(&ask(16, 0xDEAD_BE01, 0).header()));
    table
        .ulpdus(
            "two-thousand-reads",
            "RFC 5042 §6.4.3.3",
            "Terminate 0/1/00 | Terminate 0/2/07",
            flood.collect(),
        )
        .not_for_kernels();
}

fn responses(table: &mut DefectTable) {
    let clause = "RFC 5040 §5.2";
    let wanted = "Terminate 1/0/00 | Terminate 1/1/00 | Terminate 0/2/06 | Terminate 0/2/ff";
    table.ulpdu("response-to-nothing", clause, wanted, RawTagged::response(1, 0).with(b"octets"));
    table.ulpdu(
        "response-of-nothing-to-nothing",
        clause,
        wanted,
        RawTagged::response(1, 0).with(b""),
    );
    table
        .ulpdu(
            "response-of-64000-octets",
            clause,
            wanted,
            RawTagged::response(0x1234, 0).with(&vec![9; 64_000]),
        )
        .not_for_kernels();
}

/// A call whose argument the peer has to pull, with what our answer to its Read makes of it: a
/// WRITE of 8,192 octets.
pub(super) fn pull(
    fabric: &mut crate::peer::HostileFabric,
    world: &crate::world::HostileWorld,
) -> std::io::Result<crate::answer::SeenAnswers> {
    let xid = world.xid();
    let data = fabric.memory.source(&[0x77; 8_192]);
    let arguments = call(xid, NFS, 3, 7).opaque(&world.file).u64(0).words(&[8_192, 0, 8_192]);
    let message = RawHeader::msg(xid).read(word(arguments.0.len()), data).with(&arguments.0);
    fabric.send(&message)?;
    observe(fabric, world, &message, Family::Nfs)
}

fn pulls(table: &mut DefectTable) {
    let cases: [(&str, &'static str, ReadResponder); 14] = [
        ("answered-well", "OK", honest),
        ("stag-wrong", "Terminate 1/1/00", |ask, octets| {
            vec![Utterance::Ulpdu(RawTagged::response(ask.sink.0 ^ 0x100, ask.sink.1).with(octets))]
        }),
        ("key-wrong", "Terminate 1/1/00", |ask, octets| {
            vec![Utterance::Ulpdu(RawTagged::response(ask.sink.0 ^ 1, ask.sink.1).with(octets))]
        }),
        ("offset-wrong", "Terminate 1/1/01 | Terminate 1/1/00", |ask, octets| {
            vec![Utterance::Ulpdu(
                RawTagged::response(ask.sink.0, ask.sink.1.wrapping_add(8)).with(octets),
            )]
        }),
        ("offset-before-the-sink", "Terminate 1/1/01 | Terminate 1/1/00", |ask, octets| {
            vec![Utterance::Ulpdu(
                RawTagged::response(ask.sink.0, ask.sink.1.wrapping_sub(8)).with(octets),
            )]
        }),
        ("longer-by-one", "Terminate 1/1/01", |ask, octets| {
            vec![Utterance::Ulpdu(
                RawTagged::response(ask.sink.0, ask.sink.1).with(&[octets, &[1]].concat()),
            )]
        }),
        ("longer-by-48-kib", "Terminate 1/1/01", |ask, octets| {
            vec![Utterance::Ulpdu(
                RawTagged::response(ask.sink.0, ask.sink.1).with(&[octets, &[1; 49_152]].concat()),
            )]
        }),
        ("shorter-by-one", "Terminate 1/1/01", |ask, octets| {
            let short = octets.split_last().map_or(octets, |(_, rest)| rest);
            vec![Utterance::Ulpdu(RawTagged::response(ask.sink.0, ask.sink.1).with(short))]
        }),
        ("without-last", "Terminate 1/1/01", |ask, octets| {
            vec![
                Utterance::Ulpdu(RawTagged::response(ask.sink.0, ask.sink.1).more().with(octets)),
                Utterance::Ulpdu(
                    RawTagged::response(ask.sink.0, ask.sink.1.wrapping_add(octets.len() as u64))
                        .with(b"x"),
                ),
            ]
        }),
        // A server that is quick carries the call out before the second answer comes.
        ("twice", "Terminate 1/0/00 | Terminate 1/1/00 | Terminate 0/2/06 | OK, closed", {
            |ask, octets| [honest(ask, octets), honest(ask, octets)].concat()
        }),
        ("segments-repeated", "Terminate 1/1/01", |ask, octets| {
            let (front, back) = octets.split_at(octets.len() / 2);
            let first = RawTagged::response(ask.sink.0, ask.sink.1).more().with(front);
            vec![
                Utterance::Ulpdu(first.clone()),
                Utterance::Ulpdu(first),
                Utterance::Ulpdu(RawTagged::response(ask.sink.0, ask.sink.1).with(back)),
            ]
        }),
        ("fin", "closed | Terminate", |_, _| vec![Utterance::Fin]),
        ("fin-in-the-middle", "closed | Terminate", |ask, octets| {
            let half = octets.len() / 2;
            let front = octets.get(..half).unwrap_or_default();
            vec![
                Utterance::Ulpdu(RawTagged::response(ask.sink.0, ask.sink.1).more().with(front)),
                Utterance::Fin,
            ]
        }),
        ("reset", "closed", |_, _| vec![Utterance::Reset]),
    ];
    for (name, expect, responder) in cases {
        table
            .scene(&format!("pull-{name}"), PULL, expect, move |world| {
                let mut fabric = world.fabric()?;
                fabric.responder = responder;
                pull(&mut fabric, world)
            })
            .not_for_kernels();
    }
    table
        .scene("pull-terminated", "RFC 5040 §4.8", "closed", |world| {
            let mut fabric = world.fabric()?;
            fabric.responder =
                |_, _| vec![Utterance::Ulpdu(RawUntagged::terminate().with(&[0x01, 0, 0, 0]))];
            pull(&mut fabric, world)
        })
        .not_for_kernels();
    // The Read may wait for half a minute: until then the connection carries other calls.
    table.scene("pull-never-answered", "RFC 8166 §4.5", "discarded", |world| {
        let mut fabric = world.fabric()?;
        fabric.responder = |_, _| Vec::new();
        pull(&mut fabric, world)
    });
    table.scene("pull-from-a-dead-handle", "RFC 8166 §4.5.3", "closed", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let dead = RawSegment { handle: 0x0BAD_0001, length: 4_096, offset: 0 };
        let arguments = call(xid, NFS, 3, 7).opaque(&world.file).u64(0).words(&[4_096, 0, 4_096]);
        let message = RawHeader::msg(xid).read(word(arguments.0.len()), dead).with(&arguments.0);
        fabric.send(&message)?;
        observe(&mut fabric, world, &message, Family::Nfs)
    });
}

fn terminates(table: &mut DefectTable) {
    let clause = "RFC 5040 §4.8, §5.4";
    let bad = "Terminate 0/2/ff | Terminate 1/2/05 | Terminate 1/2/03 | Terminate 1/2/04 | closed";
    for (name, content, expect) in [
        ("without-headers", vec![0x20, 0x02, 0, 0], "closed"),
        (
            "with-headers",
            [&[0x11, 0, 0xC0, 0, 0, 19][..], &RawTagged::write(9, 0).with(b"")].concat(),
            "closed",
        ),
        ("of-an-unknown-cause", vec![0xF7, 0x99, 0, 0], "closed"),
        ("in-the-form-of-siw", vec![0x21, 0x03, 0x03, 0, 0, 20], "closed"),
        ("empty", vec![], bad),
        ("of-3-octets", vec![0x20, 0x02, 0], bad),
        ("whose-headers-are-cut", vec![0x11, 0, 0xE0, 0, 0, 19, 1, 2], "closed | Terminate"),
        ("of-4000-octets", vec![0x20; 4_000], "closed | Terminate"),
    ] {
        table
            .ulpdu(
                &format!("terminate-{name}"),
                clause,
                expect,
                RawUntagged::terminate().with(&content),
            )
            .not_for_kernels();
    }
    let good = [0x20, 0x02, 0, 0];
    table
        .ulpdu(
            "terminate-msn-2",
            "RFC 5041 §7.2 0x03",
            bad,
            RawUntagged { msn: 2, ..RawUntagged::terminate() }.with(&good),
        )
        .not_for_kernels();
    table
        .ulpdu(
            "terminate-at-offset-4",
            "RFC 5041 §7.2 0x04",
            bad,
            RawUntagged::terminate().at(4).with(&good),
        )
        .not_for_kernels();
    let twice = RawUntagged::terminate().with(&good);
    table
        .ulpdus("terminate-twice", clause, "closed", vec![twice.clone(), twice.clone()])
        .not_for_kernels();
    let send = RawUntagged::send(1).with(&RawHeader::msg(0).with(&call(0, NFS, 3, 0).0));
    table.ulpdus("send-behind-terminate", clause, "closed", vec![twice, send]).not_for_kernels();
}
