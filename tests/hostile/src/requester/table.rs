//! Defects of a server, from set-up to the end of connections; the messages themselves are in
//! [`messages`].

use super::{
    AskedCall, CONTENT, CallKind, Instead, LEN, ServerDefect, Speaks, accesses, good_reply,
    messages, push, raw_send, replies, results, returned, segments, timing, version2,
};
use crate::{
    peer::HostileFabric,
    play::{BrokenRule, rule},
    wire::*,
};
use stag_engine::config::INLINE_LEN;
use std::{io, time::Duration};

const REPLY_FRAME: &str = "RFC 5044 §7.1.2";
const ENHANCED: &str = "RFC 6581 §9";

/// The defects, and the version that defects added next speak.
#[derive(Default)]
pub(super) struct ServerDefectTable {
    defects: Vec<ServerDefect>,
    pub(super) speaks: Speaks,
}

impl ServerDefectTable {
    pub(super) fn add(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        instead: Instead,
    ) {
        let (speaks, timeout) = (self.speaks, super::PATIENCE);
        let name = format!("server-{}{name}", speaks.prefix());
        self.defects.push(ServerDefect { name, clause, expect, instead, speaks, timeout });
    }

    /// The call of the latest one may take so long.
    pub(super) fn within(&mut self, timeout: Duration) {
        if let Some(defect) = self.defects.last_mut() {
            defect.timeout = timeout;
        }
    }

    pub(super) fn frame(
        &mut self,
        name: &str,
        clause: &'static str,
        expect: &'static str,
        octets: Vec<u8>,
    ) {
        self.add(name, clause, expect, Instead::OfSetUp(octets));
    }

    pub(super) fn script(
        &mut self,
        name: &str,
        rule: BrokenRule,
        does: CallKind,
        script: impl Fn(&mut HostileFabric, &AskedCall) -> io::Result<()> + Send + Sync + 'static,
    ) {
        self.add(name, rule.clause, rule.expect, Instead::OfReply(does, Box::new(script)));
    }

    /// One message instead of the reply.
    pub(super) fn message(
        &mut self,
        name: &str,
        rule: BrokenRule,
        does: CallKind,
        message: impl Fn(&AskedCall) -> Vec<u8> + Send + Sync + 'static,
    ) {
        self.script(name, rule, does, move |fabric, asked| fabric.send(&message(asked)));
    }

    /// An RPC message after a right header; the item is pushed.
    pub(super) fn results(
        &mut self,
        name: &str,
        rule: BrokenRule,
        does: CallKind,
        results: impl Fn(&AskedCall) -> Vec<u8> + Send + Sync + 'static,
    ) {
        self.script(name, rule, does, move |fabric, asked| {
            if does == CallKind::Read {
                push(fabric, asked.segment(), &[CONTENT; LEN])?;
            }
            if does == CallKind::List {
                return replies::long_reply(fabric, asked, &results(asked));
            }
            fabric.send(&asked.header().with(&results(asked)))
        });
    }

    /// One ULPDU instead of the reply.
    pub(super) fn ulpdu(
        &mut self,
        name: &str,
        rule: BrokenRule,
        does: CallKind,
        ulpdu: impl Fn(&AskedCall) -> Vec<u8> + Send + Sync + 'static,
    ) {
        self.script(name, rule, does, move |fabric, asked| fabric.say_ulpdu(&ulpdu(asked)));
    }
}

/// All defects of a server, from set-up up.
pub fn all() -> Vec<ServerDefect> {
    let mut table = ServerDefectTable::default();
    set_up(&mut table);
    negotiation(&mut table);
    segments(&mut table);
    accesses(&mut table);
    endings(&mut table);
    segments::add(&mut table);
    accesses::add(&mut table);
    results::add(&mut table);
    timing::add(&mut table);
    for speaks in Speaks::ALL {
        table.speaks = speaks;
        messages::add(&mut table);
        returned::add(&mut table);
        invalidations(&mut table);
    }
    for speaks in Speaks::NEW {
        table.speaks = speaks;
        version2::add(&mut table);
    }
    table.defects
}

fn set_up(table: &mut ServerDefectTable) {
    let good = good_reply(Speaks::One);
    table.frame(
        "reply-key-of-a-request",
        REPLY_FRAME,
        "closed",
        flipped(good.clone(), 9, b'p' ^ b'q'),
    );
    table.frame(
        "reply-is-a-request",
        REPLY_FRAME,
        "closed",
        frame(REQUEST, C | S, 2, &depths(0x8000 | 32, 0x8000 | 32)),
    );
    table.frame(
        "reply-random",
        REPLY_FRAME,
        "closed",
        (0..40_u8).map(|octet| octet.wrapping_mul(73) ^ 0x11).collect(),
    );
    table.frame("reply-http", REPLY_FRAME, "closed", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec());
    table.frame("reply-rpc", REPLY_FRAME, "closed", record(&success(1).0));
    for revision in [0, 3, 129] {
        table.frame(
            &format!("reply-revision-{revision}"),
            REPLY_FRAME,
            "closed",
            flipped(good.clone(), 17, 2 ^ revision),
        );
    }
    table.frame("reply-private-data-513", REPLY_FRAME, "closed", frame(REPLY, C | S, 2, &[0; 513]));
    for len in [0_u8, 3] {
        table.frame(
            &format!("reply-enhanced-with-{len}-octets"),
            ENHANCED,
            "closed",
            frame(REPLY, C | S, 2, &vec![0; len.into()]),
        );
    }
    table.frame(
        "reply-not-enhanced",
        "RFC 6581 §10",
        "closed",
        frame(REPLY, C, 2, &offer(1, 1, 3, 3)),
    );
    table.frame("reply-rejects", REPLY_FRAME, "closed", flipped(good.clone(), 16, R));
    table.frame(
        "reply-rejects-with-data",
        REPLY_FRAME,
        "closed",
        frame(REPLY, C | S | R, 2, &[0x80, 32, 0x80, 32, 1, 2, 3]),
    );
    table.add("reply-never", "RFC 5044 §7.1.2", "closed", Instead::Silence);
    table.frame("reply-cut-for-good", "RFC 5044 §7.1.2", "closed", cut(good, 30));
}

fn negotiation(table: &mut ServerDefectTable) {
    let reply =
        |ird, ord| frame(REPLY, C | S, 2, &[&depths(ird, ord)[..], &offer(1, 1, 3, 3)].concat());
    table.frame("peer-to-peer-refused", ENHANCED, "Terminate 2/0/07", reply(32, 32));
    table.frame("no-indication", ENHANCED, "Terminate 2/0/07", reply(0x8000 | 32, 32));
    table.frame(
        "indication-that-was-not-offered",
        ENHANCED,
        "Terminate 2/0/07",
        reply(0xC000 | 32, 32),
    );
    table.frame(
        "more-reads-than-we-take",
        "RFC 6581 §9.1",
        "Terminate 2/0/06",
        reply(0x8000 | 32, 0x8000 | 0x3FFE),
    );
    table.frame(
        "reserved-flags-in-reply",
        "RFC 5044 §7.1.1",
        "accepted",
        flipped(good_reply(Speaks::One), 16, 0x03),
    );
    for (name, data) in [
        ("private-data-random", vec![0x5A; 60]),
        ("private-data-cut", cut(offer(1, 1, 3, 3).to_vec(), 5)),
        ("private-data-version-9", offer(9, 1, 3, 3).to_vec()),
        ("private-data-claims-256-kib", offer(1, 1, 255, 255).to_vec()),
    ] {
        let octets =
            frame(REPLY, C | S, 2, &[&depths(0x8000 | 32, 0x8000 | 32)[..], &data].concat());
        table.frame(name, "RFC 8797 §5.2", "accepted", octets);
    }
}

fn segments(table: &mut ServerDefectTable) {
    use CallKind::Null;
    let send = |asked: &AskedCall| asked.header().with(&asked.results());
    table.script(
        "crc-wrong",
        rule("RFC 5044 §8 code 2", "Terminate 2/0/02"),
        Null,
        move |fabric, asked| {
            let octets = fpdu(&RawUntagged::send(fabric.msn).with(&send(asked)));
            fabric.say(&flipped(octets, 40, 2))
        },
    );
    table.script(
        "fpdu-of-5-octets",
        rule("RFC 5044 §8 code 3", "Terminate 2/0/03"),
        Null,
        |fabric, _| fabric.say(&fpdu(&[0xC1, 0x40, 0, 0, 0])),
    );
    table.script(
        "reply-with-msn-7",
        rule("RFC 5041 §7.2 0x03", "Terminate 1/2/03"),
        Null,
        move |fabric, asked| raw_send(fabric, |segment| segment.msn = 7, &send(asked)),
    );
    table.script(
        "reply-at-offset-4",
        rule("RFC 5041 §7.2 0x04", "Terminate 1/2/04"),
        Null,
        move |fabric, asked| raw_send(fabric, |segment| segment.mo = 4, &send(asked)),
    );
    table.script(
        "reply-on-queue-3",
        rule("RFC 5041 §7.2 0x01", "Terminate 1/2/01"),
        Null,
        move |fabric, asked| raw_send(fabric, |segment| segment.queue = 3, &send(asked)),
    );
    table.script(
        "reply-with-opcode-9",
        rule("RFC 5040 §7.1", "Terminate 0/2/06"),
        Null,
        move |fabric, asked| raw_send(fabric, |segment| segment.rdmap = 0x49, &send(asked)),
    );
    table.script(
        "reply-with-rdmap-version-3",
        rule("RFC 5040 §7.1 0x05", "Terminate 0/2/05"),
        Null,
        move |fabric, asked| raw_send(fabric, |segment| segment.rdmap = 0xC3, &send(asked)),
    );
    table.message(
        "reply-longer-than-a-receive",
        rule("RFC 5041 §7.2 0x05", "Terminate 1/2/05"),
        Null,
        |_| vec![0; INLINE_LEN + 1],
    );
    table.message(
        "reply-of-60000-octets",
        rule("RFC 5041 §7.2 0x05", "Terminate 1/2/05"),
        Null,
        |_| vec![0; 60_000],
    );
}

fn accesses(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read, Write};
    let tagged = "RFC 5041 §7.1";
    let write = |stag, to, octets: &[u8]| RawTagged::write(stag, to).with(octets);
    table.ulpdu("write-to-an-unknown-stag", rule(tagged, "Terminate 1/1/00"), Null, move |_| {
        write(0xDEAD_BE01, 0, b"x")
    });
    table.ulpdu("write-with-another-key", rule(tagged, "Terminate 1/1/00"), Read, move |asked| {
        write(asked.segment().handle ^ 1, asked.segment().offset, b"x")
    });
    table.ulpdu(
        "write-one-octet-behind-the-chunk",
        rule(tagged, "Terminate 1/1/01"),
        Read,
        move |asked| write(asked.segment().handle, asked.segment().offset, &[0; LEN + 1]),
    );
    table.ulpdu(
        "write-at-the-end-of-the-chunk",
        rule(tagged, "Terminate 1/1/01"),
        Read,
        move |asked| write(asked.segment().handle, asked.segment().offset + LEN as u64, b"x"),
    );
    table.ulpdu("write-before-the-chunk", rule(tagged, "Terminate 1/1/01"), Read, move |asked| {
        write(asked.segment().handle, asked.segment().offset.wrapping_sub(8), &[0; 16])
    });
    table.ulpdu(
        "write-that-wraps",
        rule(tagged, "Terminate 1/1/03 | Terminate 1/1/01"),
        Read,
        move |asked| write(asked.segment().handle, u64::MAX - 2, &[0; 16]),
    );
    table.ulpdu(
        "write-into-what-may-be-read-only",
        rule("RFC 5042 §6.3.5", "Terminate 1/1/00"),
        Write,
        move |asked| write(asked.segment().handle, asked.segment().offset, b"x"),
    );
    let protection = "RFC 5040 §7.1, remote protection";
    let read =
        |source, len| RawUntagged::read(1).with(&ReadAsk { sink: (1, 0), len, source }.header());
    table.ulpdu("read-of-an-unknown-stag", rule(protection, "Terminate 0/1/00"), Null, move |_| {
        read((0xDEAD_BE01, 0), 16)
    });
    table.ulpdu(
        "read-of-what-may-be-written-only",
        rule("RFC 5042 §6.3.5", "Terminate 0/1/02"),
        Read,
        move |asked| read((asked.segment().handle, asked.segment().offset), 16),
    );
    table.ulpdu(
        "read-one-octet-too-much",
        rule(protection, "Terminate 0/1/01"),
        Write,
        move |asked| read((asked.segment().handle, asked.segment().offset), LEN as u32 + 1),
    );
    table.ulpdu("read-of-4-gib", rule(protection, "Terminate 0/1/01"), Write, move |asked| {
        read((asked.segment().handle, asked.segment().offset), u32::MAX)
    });
    table.ulpdu(
        "read-before-the-chunk",
        rule(protection, "Terminate 0/1/01"),
        Write,
        move |asked| read((asked.segment().handle, asked.segment().offset.wrapping_sub(64)), 64),
    );
    table.ulpdu(
        "read-that-wraps",
        rule(protection, "Terminate 0/1/04 | Terminate 0/1/01"),
        Write,
        move |asked| read((asked.segment().handle, u64::MAX - 2), 16),
    );
    table.script(
        "hundred-reads",
        rule("RFC 5042 §6.4.3.3", "Terminate 0/2/07 | discarded"),
        Write,
        |fabric, asked| {
            let (segment, mut octets) = (asked.segment(), Vec::new());
            for _ in 0..100 {
                let ask = ReadAsk {
                    sink: (1, 0),
                    len: segment.length,
                    source: (segment.handle, segment.offset),
                };
                octets.extend(fpdu(&RawUntagged::read(fabric.read_msn).with(&ask.header())));
                fabric.read_msn += 1;
            }
            fabric.say(&octets)
        },
    );
    table.ulpdu(
        "read-response-to-nothing",
        rule("RFC 5040 §5.2", "Terminate 1/0/00 | Terminate 1/1/00 | Terminate 0/2/06"),
        Null,
        |_| RawTagged::response(1, 0).with(b"x"),
    );
    // A Write after the reply finds its key dead: the next call goes out on another connection.
    table.script(
        "write-behind-the-reply",
        rule("RFC 8166 §8.1.3, §4.4.1", "Terminate 1/1/00"),
        Read,
        |fabric, asked| {
            answer_and_await_the_next(fabric, asked)?;
            push(fabric, asked.segment(), &[0; 16])
        },
    );
    table.script(
        "read-behind-the-reply",
        rule("RFC 8166 §8.1.3, §4.4.1", "Terminate 0/1/00"),
        Write,
        |fabric, asked| {
            answer_and_await_the_next(fabric, asked)?;
            let ask = ReadAsk {
                sink: (1, 0),
                len: 16,
                source: (asked.segment().handle, asked.segment().offset),
            };
            fabric.say_ulpdu(&RawUntagged::read(fabric.read_msn).with(&ask.header()))
        },
    );
}

/// Answers well, and takes the next call: the one before is over then. It gets no answer here.
fn answer_and_await_the_next(fabric: &mut HostileFabric, asked: &AskedCall) -> io::Result<()> {
    replies::reply(fabric, asked)?;
    fabric.hear(super::PATIENCE).map(drop)
}

fn invalidations(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read};
    let clause = "RFC 5040 §7.1 0x09, RFC 8797 §4.1";
    let wanted = "Terminate 0/2/09 | Terminate 0/1/09 | closed";
    for (name, stag) in [("unknown", 0xDEAD_BE01), ("zero", 0), ("ones", u32::MAX)] {
        table.script(
            &format!("invalidates-stag-{name}"),
            rule(clause, wanted),
            Null,
            move |fabric, asked| {
                fabric.send_invalidate(stag, &asked.header().with(&asked.results()))
            },
        );
    }
    table.script(
        "invalidates-another-key-of-the-place",
        rule(clause, wanted),
        Read,
        |fabric, asked| {
            fabric
                .send_invalidate(asked.segment().handle ^ 1, &asked.header().with(&asked.results()))
        },
    );
    table.script(
        "invalidates-the-right-key",
        rule("RFC 8797 §4.1", "call succeeds"),
        Read,
        |fabric, asked| {
            push(fabric, asked.segment(), &[CONTENT; LEN])?;
            fabric.send_invalidate(asked.segment().handle, &asked.header().with(&asked.results()))
        },
    );
    // The first reply is right, and its caller may be gone before the second one is looked at.
    let late = "call succeeds | Terminate 0/2/09 | Terminate 0/1/09 | closed";
    table.script("invalidates-twice", rule(clause, late), Read, |fabric, asked| {
        push(fabric, asked.segment(), &[CONTENT; LEN])?;
        fabric.send_invalidate(asked.segment().handle, &asked.header().with(&asked.results()))?;
        fabric.send_invalidate(asked.segment().handle, &asked.header().with(&asked.results()))
    });
    table.script(
        "invalidates-in-a-message-for-nobody",
        rule("RFC 8797 §4.1", "closed | Terminate"),
        Read,
        |fabric, asked| {
            let stray = RawHeader { xid: asked.xid ^ 0x0100_0000, ..asked.bare() }
                .with(&success(asked.xid ^ 0x0100_0000).0);
            fabric.send_invalidate(asked.segment().handle, &stray)
        },
    );
    // The message answers no call, and alone is a reason to close: which comes first depends on how
    // both arrive.
    table.script(
        "invalidates-and-writes-on",
        rule(clause, "Terminate 1/1/00 | closed"),
        Read,
        |fabric, asked| {
            fabric.send_invalidate(asked.segment().handle, &[0; 8])?;
            push(fabric, asked.segment(), &[CONTENT; LEN])
        },
    );
}

fn endings(table: &mut ServerDefectTable) {
    use CallKind::{Null, Read};
    table.script(
        "terminate-instead-of-a-reply",
        rule("RFC 5040 §4.8", "closed"),
        Null,
        |fabric, _| fabric.say_ulpdu(&RawUntagged::terminate().with(&[0x20, 2, 0, 0])),
    );
    table.script(
        "terminate-in-the-form-of-siw",
        rule("RFC 5040 §4.8", "closed"),
        Null,
        |fabric, _| fabric.say_ulpdu(&RawUntagged::terminate().with(&[2, 2, 0, 0])),
    );
    table.script(
        "fin-instead-of-a-reply",
        rule("RFC 8166 §4.5.4", "closed"),
        Null,
        |fabric, _| {
            fabric.fin();
            Ok(())
        },
    );
    table.script(
        "fin-in-a-reply",
        rule("RFC 5044 §8 code 1", "closed | Terminate"),
        Read,
        |fabric, asked| {
            let octets =
                fpdu(&RawUntagged::send(fabric.msn).with(&asked.header().with(&asked.results())));
            fabric.say(&cut(octets, 50))?;
            fabric.fin();
            Ok(())
        },
    );
    table.script(
        "fin-between-write-and-reply",
        rule("RFC 8166 §4.5.4", "closed"),
        Read,
        |fabric, asked| {
            push(fabric, asked.segment(), &[0; LEN])?;
            fabric.fin();
            Ok(())
        },
    );
}
