//! Headers of RPC-over-RDMA (RFC 8166 §4), credits, directions.

use super::rpcrdma_chunks;
use crate::{
    answer::{AnswerPattern, SeenAnswers},
    judge::{self, Family},
    peer::{Heard, is_error},
    play::{Defect, DefectLayer, DefectTable, ending, observe},
    wire::*,
    world::HostileWorld,
};

const SHORT: &str = "RFC 8166 §4.5";
const VERSION: &str = "RFC 8166 §4.5.1";
const XDR: &str = "RFC 8166 §4.5.2";
const CREDITS: &str = "RFC 8166 §3.3.1";

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::RpcRdma);
    lengths(&mut table);
    fixed_fields(&mut table);
    payloads(&mut table);
    discriminators(&mut table);
    credits(&mut table);
    directions(&mut table);
    duplicates(&mut table);
    rpcrdma_chunks::add(&mut table);
    table.into_defects()
}

/// NULL with this XID.
pub(super) fn null(xid: u32) -> Vec<u8> {
    call(xid, NFS, 3, 0).0
}

fn lengths(table: &mut DefectTable) {
    for len in [1, 4, 15, 16, 20, 27] {
        table.message(&format!("message-of-{len}-octets"), SHORT, "discarded", move |_, _, xid| {
            cut(RawHeader::msg(xid).with(b""), len)
        });
    }
    table.message("message-of-20-octets-version-9", SHORT, "discarded", |_, _, xid| {
        cut(RawHeader { version: 9, ..RawHeader::msg(xid) }.with(b""), 20)
    });
}

fn fixed_fields(table: &mut DefectTable) {
    for version in [0, 3, 0x0100_0000, u32::MAX] {
        table.message(&format!("version-{version}"), VERSION, "ERR_VERS", move |_, _, xid| {
            RawHeader { version, ..RawHeader::msg(xid) }.with(&null(xid))
        });
    }
    // A call of version 2 (draft 000), from a client that announced nothing more. A peer of version
    // 1 names its own and goes on; one of version 2 answers in version 2.
    table.scene(
        "version-2-call",
        "RFC 8166 §4.5.1, draft 000 §5",
        "ERR_VERS 1..1 | OK",
        |world| {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let message = Xdr::new().words(&[xid, 2, 32, MSG, 0, 0, 0]).raw(&null(xid)).0;
            fabric.send(&message)?;
            match fabric.hear(world.target.patience)? {
                Heard::Message(back, _) if word_at(&back, 4) == 2 && word_at(&back, 12) == MSG => {
                    Ok(judge::rpc(back.get(28..).unwrap_or_default(), xid, Family::Rpc).into())
                }
                Heard::Message(back, _) => {
                    let answer = judge::message(&message, &back, &fabric.memory, Family::Rpc);
                    let goes_on = fabric.is_served(world.xid(), world.target.patience)?;
                    Ok(SeenAnswers { answer, closed: !goes_on })
                }
                other => Ok(ending(&fabric, &other).into()),
            }
        },
    );
    table.message("version-9-and-nothing-else-right", VERSION, "ERR_VERS", |_, _, xid| {
        RawHeader { version: 9, procedure: 77, ..RawHeader::msg(xid) }.fixed().words(&[9; 20]).0
    });
    for (name, procedure) in [("msgp", MSGP), ("5", 5), ("6", 6), ("256", 256), ("max", u32::MAX)] {
        table.message(
            &format!("procedure-{name}"),
            "RFC 8166 §4.2.4, §4.5.2, §4.6",
            "ERR_CHUNK",
            move |_, _, xid| RawHeader { procedure, ..RawHeader::msg(xid) }.with(&null(xid)),
        );
    }
    table.message("done", "RFC 8166 §4.6", "discarded", |_, _, xid| {
        RawHeader { procedure: DONE, ..RawHeader::msg(xid) }.with(b"")
    });
    for (name, words) in [
        ("err-chunk", vec![2, 0, 0]),
        ("err-vers", vec![1, 1, 1]),
        ("unknown", vec![7, 0, 0]),
        ("without-code", vec![]),
        ("long", vec![2; 200]),
    ] {
        table.message(
            &format!("error-{name}-to-a-responder"),
            "RFC 8166 §4.2.4, §4.5",
            "discarded",
            move |_, _, xid| {
                RawHeader { procedure: ERROR, ..RawHeader::msg(xid) }.fixed().words(&words).0
            },
        );
    }
}

fn payloads(table: &mut DefectTable) {
    table.message("nomsg-without-lists", XDR, "ERR_CHUNK", |_, _, xid| {
        RawHeader::nomsg(xid).with(b"")
    });
    table.message("nomsg-with-inline-payload-only", XDR, "ERR_CHUNK", |_, _, xid| {
        RawHeader::nomsg(xid).with(&null(xid))
    });
    table.message("xid-differs", XDR, "ERR_CHUNK", |_, _, xid| {
        RawHeader::msg(xid).with(&null(xid ^ 1))
    });
    table.message("xid-of-the-payload-zero", XDR, "ERR_CHUNK", |_, _, xid| {
        RawHeader::msg(xid).with(&null(0))
    });
    table.message("msg-without-payload", XDR, "ERR_CHUNK", |_, _, xid| {
        RawHeader::msg(xid).with(b"")
    });
    for len in [3, 4, 7] {
        table.message(&format!("payload-of-{len}-octets"), XDR, "ERR_CHUNK", move |_, _, xid| {
            RawHeader::msg(xid).with(&cut(null(xid), len))
        });
    }
    for kind in [2, u32::MAX] {
        table.message(
            &format!("message-type-{kind}"),
            "RFC 5531 §9, RFC 8166 §4.5.2",
            "ERR_CHUNK | discarded",
            move |_, _, xid| RawHeader::msg(xid).with(&with_word(null(xid), 4, kind)),
        );
    }
    table.message("xid-zero", "RFC 8166 §4.2.1", "OK", |_, _, _| RawHeader::msg(0).with(&null(0)));
    table.message("xid-max", "RFC 8166 §4.2.1", "OK", |_, _, _| {
        RawHeader::msg(u32::MAX).with(&null(u32::MAX))
    });
}

fn discriminators(table: &mut DefectTable) {
    let clause = "RFC 4506 §4.19, RFC 8166 §4.5.2";
    for (list, at) in [("read-list", 16), ("write-list", 20), ("reply-chunk", 24)] {
        for value in [2, 0x0100_0000, u32::MAX] {
            table.message(
                &format!("{list}-discriminator-{value}"),
                clause,
                "ERR_CHUNK",
                move |_, _, xid| with_word(RawHeader::msg(xid).with(&null(xid)), at, value),
            );
        }
    }
    let segment = RawSegment { handle: 1, length: 16, offset: 0x1000 };
    for (name, len) in [
        ("read-segment", 24 + 16),
        ("read-list", 16 + 24),
        ("write-count", 16 + 24 + 4 + 4),
        ("write-segment", 56),
        ("write-list", 68),
        ("reply-count", 76),
        ("reply-segment", 84),
    ] {
        table.message(&format!("cut-in-{name}"), XDR, "ERR_CHUNK", move |_, _, xid| {
            cut(
                RawHeader::msg(xid).read(8, segment).write(&[segment]).reply(&[segment]).with(b""),
                len,
            )
        });
    }
}

fn credits(table: &mut DefectTable) {
    for (name, credits) in [("zero", 0), ("one", 1), ("65536", 65_536), ("max", u32::MAX)] {
        table.scene(&format!("credits-{name}"), CREDITS, "OK", move |world| {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let message = RawHeader { credits, ..RawHeader::msg(xid) }.with(&null(xid));
            fabric.send(&message)?;
            // The grant is clamped, never an echo of the wish (a peer believes it).
            match fabric.hear(world.target.patience)? {
                Heard::Message(back, _) if word_at(&back, 8) > 16_384 => {
                    Ok(AnswerPattern::Trespass.into())
                }
                Heard::Message(back, _) => {
                    Ok(judge::message(&message, &back, &fabric.memory, Family::Rpc).into())
                }
                other => Ok(ending(&fabric, &other).into()),
            }
        });
    }
    table.scene("two-calls-before-the-first-grant", "RFC 8166 §3.3.3", "OK | closed", |world| {
        burst(world, 2)
    });
    // Written at once, so that nothing of it is answered before all has arrived: far more than is
    // ever granted at first.
    table
        .scene("thousand-calls-at-once", CREDITS, "closed | OK", |world| burst(world, 1_000))
        .not_for_kernels();
    table.scene("calls-without-taking-replies", CREDITS, "left", |world| {
        let mut fabric = world.fabric()?;
        for _ in 0..300 {
            let xid = world.xid();
            fabric.send(&RawHeader::msg(xid).with(&null(xid)))?;
            std::thread::yield_now();
        }
        drop(fabric);
        Ok(AnswerPattern::Left.into())
    });
}

/// Sends `count` calls in one write. OK when all are answered, closed when the connection ends
/// before.
fn burst(world: &HostileWorld, count: u32) -> std::io::Result<SeenAnswers> {
    let mut fabric = world.fabric()?;
    let mut octets = Vec::new();
    for _ in 0..count {
        let xid = world.xid();
        let ulpdu = RawUntagged::send(fabric.msn).with(&RawHeader::msg(xid).with(&null(xid)));
        octets.extend(if fabric.crc {
            fpdu(&ulpdu)
        } else {
            [open_fpdu(&ulpdu), vec![0; 4]].concat()
        });
        fabric.msn += 1;
    }
    fabric.say(&octets)?;
    for _ in 0..count {
        match fabric.hear(world.target.patience)? {
            Heard::Message(message, _) if !is_error(&message) => {}
            other => return Ok(ending(&fabric, &other).into()),
        }
    }
    Ok(AnswerPattern::Ok.into())
}

fn directions(table: &mut DefectTable) {
    let clause = "RFC 8166 §4.5, RFC 8167 §4.1";
    table.message("reply-to-a-server", clause, "discarded", |_, _, xid| {
        RawHeader::msg(xid).with(&success(xid).0)
    });
    table.message("reply-with-another-xid", clause, "discarded", |_, _, xid| {
        RawHeader::msg(xid).with(&success(xid ^ 4).0)
    });
    table.message("reply-with-credits-max", clause, "discarded", |_, _, xid| {
        RawHeader { credits: u32::MAX, ..RawHeader::msg(xid) }.with(&success(xid).0)
    });
    table.message("reply-with-a-reply-chunk", clause, "discarded", |_, _, xid| {
        let segment = RawSegment { handle: 3, length: 64, offset: 0 };
        RawHeader::msg(xid).reply(&[segment]).with(&success(xid).0)
    });
    table.message(
        "reply-of-8-octets",
        "RFC 8167 §4.1, a look behind the end",
        "discarded",
        |_, _, xid| RawHeader::msg(xid).with(&cut(success(xid).0, 8)),
    );
}

fn duplicates(table: &mut DefectTable) {
    table.scene("same-xid-twice-on-one-connection", "RFC 1813 §4.5", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let message = RawHeader::msg(xid).with(&null(xid));
        fabric.send(&message)?;
        fabric.send(&message)?;
        for _ in 0..2 {
            match fabric.hear(world.target.patience)? {
                Heard::Message(back, _) if word_at(&back, 0) == xid => {}
                other => return Ok(ending(&fabric, &other).into()),
            }
        }
        Ok(AnswerPattern::Ok.into())
    });
    table.scene("create-twice-with-one-xid", "RFC 1813 §4.5", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        // GUARDED: carried out a second time it would say NFS3ERR_EXIST.
        let arguments = crate::world::mode(crate::world::place(&world.dir, b"twice").u32(1), 0o644);
        let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 8).raw(&arguments.0).0);
        fabric.send(&message)?;
        let first = observe(&mut fabric, world, &message, Family::Nfs)?;
        fabric.send(&message)?;
        let second = observe(&mut fabric, world, &message, Family::Nfs)?;
        Ok(if first == second { second } else { AnswerPattern::Several.into() })
    });
    table.scene("hangs-up-with-a-call-open", "RFC 8166 §4.5.4", "left", |world| {
        for _ in 0..20 {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let sink = fabric.memory.sink(65_536);
            let arguments = call(xid, NFS, 3, 6).opaque(&world.file).u64(0).u32(65_536);
            fabric.send(&RawHeader::msg(xid).write(&[sink]).with(&arguments.0))?;
            fabric.reset();
        }
        Ok(AnswerPattern::Left.into())
    });
}
