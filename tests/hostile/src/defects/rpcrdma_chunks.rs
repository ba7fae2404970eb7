//! Chunks (RFC 8166 §3.4, §3.5, §4.3; RFC 8267).

use super::rpcrdma::null;
use crate::{
    judge::Family,
    peer::{DEAD, HostileFabric},
    play::{DefectTable, observe},
    wire::*,
    world::HostileWorld,
};

const POSITION: &str = "RFC 8166 §3.4.5, §4.5.2";
const SEGMENT: &str = "RFC 8166 §3.4.3, §8.1.4";
const COUNT: &str = "RFC 8166 §3.4.4, RFC 8267 §6.4.2";
const ROOM: &str = "RFC 8166 §4.5.3";
const PAD: &str = "RFC 8166 §3.4.5.2";
const LONG: &str = "RFC 8166 §3.5.3";

pub(super) fn add(table: &mut DefectTable) {
    positions(table);
    read_segments(table);
    counts(table);
    arguments(table);
    position_zero(table);
    replies(table);
    write_chunks(table);
    aliases(table);
}

/// The inline part of a WRITE of `count` octets, up to and with the length word of its data.
fn write_head(world: &HostileWorld, xid: u32, count: u32) -> Vec<u8> {
    call(xid, NFS, 3, 7).opaque(&world.file).u64(0).words(&[count, 0, count]).0
}

fn read_call(world: &HostileWorld, xid: u32, count: u32) -> Vec<u8> {
    call(xid, NFS, 3, 6).opaque(&world.file).u64(0).u32(count).0
}

fn readdir_call(world: &HostileWorld, xid: u32, count: u32) -> Vec<u8> {
    call(xid, NFS, 3, 16).opaque(&world.large).u64(0).u64(0).u32(count).0
}

fn nowhere(length: u32) -> RawSegment {
    RawSegment { handle: DEAD, length, offset: 0x1000 }
}

fn positions(table: &mut DefectTable) {
    for position in [1, 2, 3, 41, u32::MAX] {
        table.message(&format!("position-{position}"), POSITION, "ERR_CHUNK", move |_, _, xid| {
            RawHeader::msg(xid).read(position, nowhere(16)).with(&null(xid))
        });
    }
    for (name, position) in
        [("beyond-the-payload", 0x1000), ("2-to-the-31", 1 << 31), ("max", u32::MAX - 3)]
    {
        table.message(&format!("position-{name}"), POSITION, "ERR_CHUNK", move |_, _, xid| {
            RawHeader::msg(xid).read(position, nowhere(16)).with(&null(xid))
        });
    }
    table.message("positions-overlap", POSITION, "ERR_CHUNK", |_, _, xid| {
        RawHeader::msg(xid).read(40, nowhere(64)).read(44, nowhere(64)).with(&null(xid))
    });
    table.call(
        "positions-overlap-by-the-pad",
        POSITION,
        "ERR_CHUNK | GARBAGE_ARGS",
        |fabric, world, xid| {
            let (one, other) = (fabric.memory.source(&[1; 5]), fabric.memory.source(&[2; 8]));
            let head = write_head(world, xid, 5);
            let at = word(head.len());
            RawHeader::msg(xid).read(at, one).read(at + 4, other).with(&head)
        },
    );
    table.call(
        "positions-descend",
        POSITION,
        "GARBAGE_ARGS | ERR_CHUNK | AUTH_BADCRED",
        |fabric, world, xid| {
            let (one, other) = (fabric.memory.source(&[1; 8]), fabric.memory.source(&[2; 8]));
            let head = write_head(world, xid, 8);
            RawHeader::msg(xid).read(word(head.len()), one).read(40, other).with(&head)
        },
    );
    table.call(
        "segments-of-one-position-not-adjacent",
        POSITION,
        "GARBAGE_ARGS | ERR_CHUNK | AUTH_BADCRED",
        |fabric, world, xid| {
            let source = fabric.memory.source(&[1; 24]);
            let head = write_head(world, xid, 16);
            let at = word(head.len());
            RawHeader::msg(xid)
                .read(at, source.of_len(8))
                .read(40, source.of_len(8))
                .read(at, source.skip(8).of_len(8))
                .with(&head)
        },
    );
}

fn read_segments(table: &mut DefectTable) {
    table.call("read-segment-of-nothing", SEGMENT, "OK", |fabric, world, xid| {
        let source = fabric.memory.source(&[3; 4_096]);
        let head = write_head(world, xid, 4_096);
        let at = word(head.len());
        RawHeader::msg(xid).read(at, source.of_len(0)).read(at, source).with(&head)
    });
    for len in [1, 3, 17] {
        table.call(
            &format!("read-chunk-of-{len}-octets"),
            SEGMENT,
            "OK",
            move |fabric, world, xid| {
                let source = fabric.memory.source(&vec![3; len]);
                let head = write_head(world, xid, word(len));
                RawHeader::msg(xid).read(word(head.len()), source).with(&head)
            },
        );
    }
    table.call("read-chunk-of-7-segments-of-odd-length", SEGMENT, "OK", |fabric, world, xid| {
        let source = fabric.memory.source(&[3; 7 * 13]);
        let head = write_head(world, xid, 7 * 13);
        let at = word(head.len());
        let split = (0..7).map(|index| source.skip(index * 13).of_len(13));
        split.fold(RawHeader::msg(xid), |header, segment| header.read(at, segment)).with(&head)
    });
    for (name, length) in [("2-to-the-31", 1 << 31), ("max", u32::MAX), ("2-mib", 2 << 20)] {
        table.message(
            &format!("read-segment-of-{name}"),
            SEGMENT,
            "ERR_CHUNK",
            move |_, _, xid| RawHeader::msg(xid).read(40, nowhere(length)).with(&null(xid)),
        );
    }
    table.message("read-lengths-wrap-in-32-bits", SEGMENT, "ERR_CHUNK", |_, _, xid| {
        (0..16)
            .fold(RawHeader::msg(xid), |header, _| header.read(40, nowhere(1 << 28)))
            .with(&null(xid))
    });
    table.message("read-lengths-of-two-chunks-too-much", SEGMENT, "ERR_CHUNK", |_, _, xid| {
        RawHeader::msg(xid).read(40, nowhere(1 << 20)).read(44, nowhere(1 << 20)).with(&null(xid))
    });
    table.message("read-offset-wraps", SEGMENT, "ERR_CHUNK | closed", |_, _, xid| {
        RawHeader::msg(xid)
            .read(40, RawSegment { handle: DEAD, length: 16, offset: u64::MAX - 7 })
            .with(&null(xid))
    });
    table.message("write-offset-wraps", SEGMENT, "ERR_CHUNK | closed", |_, world, xid| {
        RawHeader::msg(xid)
            .write(&[RawSegment { handle: DEAD, length: 16, offset: u64::MAX - 7 }])
            .with(&read_call(world, xid, 16))
    });
    table.message("reply-offset-wraps", SEGMENT, "ERR_CHUNK | closed", |_, _, xid| {
        RawHeader::msg(xid)
            .reply(&[RawSegment { handle: DEAD, length: u32::MAX, offset: u64::MAX - 7 }])
            .with(&null(xid))
    });
}

/// More than every server has to take. One that takes them finds that the handle is dead.
const FEW: &str = "ERR_CHUNK | closed";

fn counts(table: &mut DefectTable) {
    for count in [65, 150] {
        table.message(&format!("read-list-of-{count}-segments"), COUNT, FEW, move |_, _, xid| {
            (0..count)
                .fold(RawHeader::msg(xid), |header, _| header.read(40, nowhere(4)))
                .with(&null(xid))
        });
    }
    table.message("read-list-of-40-positions", COUNT, FEW, |_, _, xid| {
        (0..40)
            .fold(RawHeader::msg(xid), |header, index| header.read(40 + index * 4, nowhere(4)))
            .with(&null(xid))
    });
    for (name, count) in
        [("65", 65), ("1000000", 1_000_000), ("2-to-the-31", 1 << 31), ("max", u32::MAX)]
    {
        table.message(
            &format!("write-chunk-claims-{name}-segments"),
            COUNT,
            FEW,
            move |_, world, xid| {
                let segments = vec![nowhere(64); 65];
                with_word(
                    RawHeader::msg(xid).write(&segments).with(&read_call(world, xid, 16)),
                    24,
                    count,
                )
            },
        );
        table.message(
            &format!("reply-chunk-claims-{name}-segments"),
            COUNT,
            FEW,
            move |_, _, xid| {
                let segments = vec![nowhere(64); 65];
                with_word(RawHeader::msg(xid).reply(&segments).with(&null(xid)), 28, count)
            },
        );
    }
    table.message("write-list-of-100-chunks", COUNT, FEW, |_, world, xid| {
        (0..100)
            .fold(RawHeader::msg(xid), |header, _| header.write(&[nowhere(4)]))
            .with(&read_call(world, xid, 16))
    });
}

/// Chunks in which an argument does not fit its call.
fn arguments(table: &mut DefectTable) {
    let clause = "RFC 8166 §4.5.2, RFC 8267 §6.4";
    for (name, len, expect) in [
        ("with-its-pad", 8, "OK"),
        ("without-its-pad", 5, "OK"),
        ("shorter-than-the-count", 3, "GARBAGE_ARGS"),
        ("longer-than-the-count", 64, "GARBAGE_ARGS"),
        ("of-nothing", 0, "GARBAGE_ARGS | ERR_CHUNK"),
    ] {
        table.call(&format!("read-chunk-{name}"), PAD, expect, move |fabric, world, xid| {
            let source = fabric.memory.source(&vec![4; len]);
            let head = write_head(world, xid, 5);
            RawHeader::msg(xid).read(word(head.len()), source).with(&head)
        });
    }
    table.call(
        "handle-in-a-chunk",
        clause,
        "GARBAGE_ARGS | ERR_CHUNK | OK",
        |fabric, world, xid| {
            let source = fabric.memory.source(&world.root);
            let head = call(xid, NFS, 3, 1).u32(word(world.root.len())).0;
            RawHeader::msg(xid).read(word(head.len()), source).with(&head)
        },
    );
    table.call(
        "chunk-before-the-arguments",
        clause,
        "GARBAGE_ARGS | ERR_CHUNK",
        |fabric, world, xid| {
            let source = fabric.memory.source(&[4; 64]);
            let head = call(xid, NFS, 3, 1).opaque(&world.root).0;
            RawHeader::msg(xid)
                .read(word(head.len() - world.root.len()).next_multiple_of(4) - 4, source)
                .with(&head)
        },
    );
    table.call(
        "chunk-inside-the-rpc-header",
        clause,
        "GARBAGE_ARGS | ERR_CHUNK | AUTH_BADCRED | AUTH_BADVERF | PROG_UNAVAIL | RPC_MISMATCH",
        |fabric, world, xid| {
            let source = fabric.memory.source(&[4; 64]);
            RawHeader::msg(xid).read(8, source).with(&call(xid, NFS, 3, 1).opaque(&world.root).0)
        },
    );
    table.call("chunk-behind-the-arguments", clause, "GARBAGE_ARGS | OK", |fabric, world, xid| {
        let source = fabric.memory.source(&[4; 64]);
        let head = call(xid, NFS, 3, 1).opaque(&world.root).0;
        RawHeader::msg(xid).read(word(head.len()), source).with(&head)
    });
    table.call(
        "two-chunks-for-one-argument",
        clause,
        "GARBAGE_ARGS | ERR_CHUNK",
        |fabric, world, xid| {
            let source = fabric.memory.source(&[4; 64]);
            let head = write_head(world, xid, 8);
            let at = word(head.len());
            RawHeader::msg(xid)
                .read(at, source.of_len(8))
                .read(at + 8, source.of_len(8))
                .with(&head)
        },
    );
    table.call(
        "data-inline-and-in-a-chunk",
        clause,
        "GARBAGE_ARGS | ERR_CHUNK",
        |fabric, world, xid| {
            let source = fabric.memory.source(&[4; 8]);
            let head = write_head(world, xid, 8);
            let at = word(head.len());
            RawHeader::msg(xid).read(at, source).with(&[head, vec![5; 8]].concat())
        },
    );
    table.call("path-of-a-link-in-a-chunk", "RFC 8267 §4.3", "OK", |fabric, world, xid| {
        let source = fabric.memory.source(b"abcd");
        let head = call(xid, NFS, 3, 10)
            .opaque(&world.dir)
            .opaque(b"made")
            .words(&[0, 0, 0, 0, 0, 0, 4])
            .0;
        RawHeader::msg(xid).read(word(head.len()), source).with(&head)
    });
}

fn long(fabric: &mut HostileFabric, xid: u32, message: &[u8]) -> Vec<u8> {
    let source = fabric.memory.source(message);
    RawHeader::nomsg(xid).read(0, source).with(b"")
}

fn position_zero(table: &mut DefectTable) {
    table.message("long-call", LONG, "OK", |fabric, _, xid| long(fabric, xid, &null(xid)));
    table.message(
        "long-call-with-another-xid",
        "RFC 8166 §4.2.1, §4.5.2",
        "ERR_CHUNK",
        |fabric, _, xid| long(fabric, xid, &null(xid ^ 2)),
    );
    for len in [1, 3, 4, 7] {
        table.message(
            &format!("long-call-of-{len}-octets"),
            "RFC 8166 §4.5.2",
            "ERR_CHUNK | GARBAGE_ARGS | closed",
            move |fabric, _, xid| long(fabric, xid, &cut(null(xid), len)),
        );
    }
    table.message("long-call-of-nothing", "RFC 8166 §4.5.2", "ERR_CHUNK", |fabric, _, xid| {
        long(fabric, xid, b"")
    });
    table.message(
        "long-call-that-is-a-reply",
        "RFC 8166 §4.5.2",
        "ERR_CHUNK | discarded | closed",
        |fabric, _, xid| long(fabric, xid, &success(xid).0),
    );
    table.message(
        "long-call-followed-by-garbage",
        "RFC 8166 §4.5.2",
        "GARBAGE_ARGS | OK",
        |fabric, world, xid| {
            let message = [call(xid, NFS, 3, 1).opaque(&world.root).0, vec![0xA5; 500]].concat();
            long(fabric, xid, &message)
        },
    );
    table.message("long-call-in-a-msg", LONG, "ERR_CHUNK | OK", |fabric, _, xid| {
        let source = fabric.memory.source(&null(xid));
        RawHeader::msg(xid).read(0, source).with(&null(xid))
    });
    table.message("long-call-and-inline-octets", LONG, "ERR_CHUNK", |fabric, _, xid| {
        let source = fabric.memory.source(&null(xid));
        RawHeader::nomsg(xid).read(0, source).with(&[1; 8])
    });
    table.call("long-call-with-a-chunk", "RFC 8267 §6.4.2", "OK", |fabric, world, xid| {
        let head = write_head(world, xid, 16);
        let (zero, data) = (fabric.memory.source(&head), fabric.memory.source(&[6; 16]));
        RawHeader::nomsg(xid).read(0, zero).read(word(head.len()), data).with(b"")
    });
    table.message("long-call-with-a-chunk-beyond", POSITION, "ERR_CHUNK", |fabric, _, xid| {
        let zero = fabric.memory.source(&null(xid));
        RawHeader::nomsg(xid).read(0, zero).read(0x1000, nowhere(16)).with(b"")
    });
    table.message(
        "nomsg-with-a-write-list-only",
        "RFC 8166 §4.2.4",
        "ERR_CHUNK",
        |fabric, world, xid| {
            let sink = fabric.memory.sink(64);
            RawHeader::nomsg(xid).write(&[sink]).with(&read_call(world, xid, 16))
        },
    );
    table.message(
        "nomsg-with-a-chunk-but-not-at-zero",
        "RFC 8166 §3.5.3",
        "ERR_CHUNK",
        |_, _, xid| RawHeader::nomsg(xid).read(40, nowhere(16)).with(b""),
    );
}

fn replies(table: &mut DefectTable) {
    table.call("reply-too-long-and-no-chunk", ROOM, "ERR_CHUNK", |_, world, xid| {
        RawHeader::msg(xid).with(&readdir_call(world, xid, 32_768))
    });
    table.call("read-of-64-kib-and-no-chunk", ROOM, "ERR_CHUNK", |_, world, xid| {
        RawHeader::msg(xid).with(&read_call(world, xid, 65_536))
    });
    for len in [1, 4, 600, 4_000] {
        table.call(
            &format!("reply-chunk-of-{len}-octets"),
            ROOM,
            "ERR_CHUNK",
            move |fabric, world, xid| {
                let sink = fabric.memory.sink(len);
                RawHeader::msg(xid).reply(&[sink]).with(&readdir_call(world, xid, 32_768))
            },
        );
    }
    for segments in [1, 5, 16] {
        table.call(
            &format!("reply-chunk-too-small-by-1-octet-in-{segments}-segments"),
            ROOM,
            "ERR_CHUNK",
            move |fabric, world, xid| {
                // A READ that goes into the Reply chunk: 128 octets of head, the data and no tail
                // (RFC 1813 §3.3.6).
                let room = 24 + 4 + 4 + 84 + 4 + 4 + 4 + 8_192 - 1;
                let sink = fabric.memory.sink(room as usize);
                RawHeader::msg(xid)
                    .reply(&split(sink, segments))
                    .with(&read_call(world, xid, 8_192))
            },
        );
        table.call(
            &format!("reply-chunk-exactly-full-in-{segments}-segments"),
            "RFC 8166 §4.3.3",
            "OK",
            move |fabric, world, xid| {
                let room = 24 + 4 + 4 + 84 + 4 + 4 + 4 + 8_192;
                let sink = fabric.memory.sink(room as usize);
                RawHeader::msg(xid)
                    .reply(&split(sink, segments))
                    .with(&read_call(world, xid, 8_192))
            },
        );
    }
    table.message(
        "reply-chunk-without-segments",
        "RFC 8166 §3.4.4, §4.3.3",
        "OK | ERR_CHUNK",
        |_, _, xid| RawHeader::msg(xid).reply(&[]).with(&null(xid)),
    );
    table.call(
        "reply-chunk-without-segments-and-a-long-reply",
        ROOM,
        "ERR_CHUNK",
        |_, world, xid| RawHeader::msg(xid).reply(&[]).with(&readdir_call(world, xid, 32_768)),
    );
    table.call("reply-chunk-of-empty-segments", ROOM, "ERR_CHUNK", |fabric, world, xid| {
        let sink = fabric.memory.sink(64);
        RawHeader::msg(xid).reply(&[sink.of_len(0); 4]).with(&readdir_call(world, xid, 32_768))
    });
    table.call("reply-chunk-with-a-dead-handle", ROOM, "closed", |_, world, xid| {
        RawHeader::msg(xid).reply(&[nowhere(65_536)]).with(&readdir_call(world, xid, 32_768))
    });
}

/// The octets of a segment in `count` segments.
fn split(sink: RawSegment, count: u32) -> Vec<RawSegment> {
    let each = sink.length / count;
    let piece = |index| {
        let rest = sink.skip(index * each);
        if index + 1 == count { rest } else { rest.of_len(each) }
    };
    (0..count).map(piece).collect()
}

fn write_chunks(table: &mut DefectTable) {
    let clause = "RFC 8166 §3.4.6, §4.3.2";
    for segments in [1, 3, 16] {
        table.call(
            &format!("write-chunk-too-small-by-1-octet-in-{segments}-segments"),
            ROOM,
            "ERR_CHUNK",
            move |fabric, world, xid| {
                let sink = fabric.memory.sink(8_191);
                RawHeader::msg(xid)
                    .write(&split(sink, segments))
                    .with(&read_call(world, xid, 8_192))
            },
        );
        table.call(
            &format!("write-chunk-exactly-full-in-{segments}-segments"),
            clause,
            "OK",
            move |fabric, world, xid| {
                let sink = fabric.memory.sink(8_192);
                RawHeader::msg(xid)
                    .write(&split(sink, segments))
                    .with(&read_call(world, xid, 8_192))
            },
        );
    }
    table.call("write-chunk-without-segments", "RFC 8166 §4.3.2.3", "OK", |_, world, xid| {
        RawHeader::msg(xid).write(&[]).with(&read_call(world, xid, 512))
    });
    table.call("write-chunk-of-empty-segments", ROOM, "ERR_CHUNK | OK", |fabric, world, xid| {
        let sink = fabric.memory.sink(64);
        RawHeader::msg(xid).write(&[sink.of_len(0); 2]).with(&read_call(world, xid, 512))
    });
    table.call(
        "write-chunk-for-a-call-without-result",
        "RFC 8166 §4.3.2.2",
        "OK",
        |fabric, world, xid| {
            let sink = fabric.memory.sink(4_096);
            RawHeader::msg(xid).write(&[sink]).with(&call(xid, NFS, 3, 1).opaque(&world.root).0)
        },
    );
    table.call(
        "more-write-chunks-than-results",
        "RFC 8166 §4.3.2.2",
        "OK",
        |fabric, world, xid| {
            let (one, other) = (fabric.memory.sink(8_192), fabric.memory.sink(8_192));
            RawHeader::msg(xid)
                .write(&[one])
                .write(&[other])
                .write(&[])
                .with(&read_call(world, xid, 8_192))
        },
    );
    table.call(
        "write-chunk-and-reply-chunk",
        "RFC 8166 §4.3.2, §4.3.3",
        "OK",
        |fabric, world, xid| {
            let (one, other) = (fabric.memory.sink(8_192), fabric.memory.sink(8_192));
            RawHeader::msg(xid).write(&[one]).reply(&[other]).with(&read_call(world, xid, 8_192))
        },
    );
    table.call(
        "write-chunk-and-a-failed-call",
        "RFC 8166 §4.3.2.2",
        "NFS3ERR_ISDIR | NFS3ERR_INVAL | NFS3ERR_ACCES",
        |fabric, world, xid| {
            let sink = fabric.memory.sink(8_192);
            let arguments = call(xid, NFS, 3, 6).opaque(&world.dir).u64(0).u32(8_192);
            RawHeader::msg(xid).write(&[sink]).with(&arguments.0)
        },
    );
    table.call("write-chunk-of-4-gib", SEGMENT, "OK | ERR_CHUNK", |fabric, world, xid| {
        let sink = fabric.memory.sink(1_024);
        RawHeader::msg(xid).write(&[sink.of_len(u32::MAX)]).with(&read_call(world, xid, 1_024))
    });
    table.call("write-chunk-with-a-dead-handle", ROOM, "closed", |_, world, xid| {
        RawHeader::msg(xid).write(&[nowhere(8_192)]).with(&read_call(world, xid, 8_192))
    });
}

fn aliases(table: &mut DefectTable) {
    let clause = "RFC 5042 §6.3.6";
    table.call("one-segment-in-all-lists", clause, "OK", |fabric, world, xid| {
        let sink = fabric.memory.sink(8_192);
        RawHeader::msg(xid).write(&[sink]).reply(&[sink]).with(&read_call(world, xid, 8_192))
    });
    table.call("one-segment-five-times", clause, "OK", |fabric, world, xid| {
        let sink = fabric.memory.sink(2_048);
        RawHeader::msg(xid).write(&[sink; 5]).with(&read_call(world, xid, 8_192))
    });
    table.call("argument-of-one-segment-eight-times", clause, "OK", |fabric, world, xid| {
        let source = fabric.memory.source(&[8; 512]);
        let head = write_head(world, xid, 4_096);
        let at = word(head.len());
        (0..8).fold(RawHeader::msg(xid), |header, _| header.read(at, source)).with(&head)
    });
    table.scene("many-long-calls-at-once", "RFC 5042 §6.4.3.1", "OK | closed", |world| {
        let mut fabric = world.fabric()?;
        // The grant of a first reply says how many.
        fabric.is_served(world.xid(), world.target.patience)?;
        let (mut last, mut sent) = (Vec::new(), 0);
        while sent < 4 {
            let xid = world.xid();
            let source = fabric.memory.source(&[9; 65_536]);
            let head = write_head(world, xid, 65_536);
            last = RawHeader::msg(xid).read(word(head.len()), source).with(&head);
            fabric.send(&last)?;
            sent += 1;
        }
        while sent > 1 {
            if !matches!(fabric.hear(world.target.patience)?, crate::peer::Heard::Message(..)) {
                return Ok(crate::answer::AnswerPattern::Closed.into());
            }
            sent -= 1;
        }
        observe(&mut fabric, world, &last, Family::Nfs)
    });
}
