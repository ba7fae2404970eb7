//! Set-up and FPDUs (RFC 5044, RFC 6581), and the private data of RFC 8797.

use crate::{
    answer::AnswerPattern,
    judge::Family,
    peer::{HostileFabric, dial, reset},
    play::{Defect, DefectLayer, DefectTable, dribble, observe, open_with, set_up},
    wire::*,
};
use std::{io::Write, time::Duration};

const STARTUP: &str = "RFC 5044 §7.1.2";
const FRAME: &str = "RFC 5044 §7.1.1";
const ENHANCED: &str = "RFC 6581 §9";
const CRC: &str = "RFC 5044 §8 code 2";
const LENGTH: &str = "RFC 5044 §8 code 3";
/// The deadline of a start-up is five seconds; one that has not ended after this time has none.
const STARTUP_MAX: Duration = Duration::from_secs(9);
/// The same for a connection without a first FPDU.
const FIRST_MAX: Duration = Duration::from_secs(14);

/// A good Request.
fn request() -> Vec<u8> {
    frame(REQUEST, C | S, 2, &data())
}

fn data() -> Vec<u8> {
    [&depths(32, 0)[..], &offer(1, 1, 3, 3)].concat()
}

fn with_data(data: &[u8]) -> Vec<u8> {
    frame(REQUEST, C | S, 2, &[&depths(32, 0)[..], data].concat())
}

/// A Send that calls NULL with XID 0.
fn null() -> Vec<u8> {
    RawUntagged::send(1).with(&RawHeader::msg(0).with(&call(0, NFS, 3, 0).0))
}

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Mpa);
    keys(&mut table);
    revisions_and_lengths(&mut table);
    negotiation(&mut table);
    private_data(&mut table);
    endings(&mut table);
    deadlines(&mut table);
    lengths(&mut table);
    crcs(&mut table);
    cuts(&mut table);
    table.into_defects()
}

fn keys(table: &mut DefectTable) {
    table.frame("key-zero", STARTUP, "closed", vec![0; 36]);
    table.frame(
        "key-random",
        STARTUP,
        "closed",
        (0..36_u8).map(|octet| octet.wrapping_mul(167) ^ 0x5A).collect(),
    );
    table.frame("key-of-a-reply", STARTUP, "closed", frame(REPLY, C | S, 2, &data()));
    table.frame("key-last-octet-wrong", STARTUP, "closed", flipped(request(), 15, 1));
    table.frame("key-first-octet-wrong", STARTUP, "closed", flipped(request(), 0, 0x20));
    table.frame("key-lower-case", STARTUP, "closed", request().to_ascii_lowercase());
    table.frame("http-request", STARTUP, "closed", b"GET / HTTP/1.1\r\nHost: nfs\r\n\r\n".to_vec());
    table.frame(
        "tls-hello",
        STARTUP,
        "closed",
        [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 64]].concat(),
    );
    table.frame("rpc-record", STARTUP, "closed", record(&call(9, NFS, 3, 0).0));
    table.frame(
        "rpcrdma-without-mpa",
        STARTUP,
        "closed",
        RawHeader::msg(9).with(&call(9, NFS, 3, 0).0),
    );
    table.frame("fpdu-first", STARTUP, "closed", fpdu(&null()));
}

fn revisions_and_lengths(table: &mut DefectTable) {
    for revision in [0, 3, 129, 255] {
        table.frame(
            &format!("revision-{revision}"),
            FRAME,
            "closed",
            flipped(request(), 17, 2 ^ revision),
        );
    }
    table.frame("private-data-513", FRAME, "closed", frame(REQUEST, C | S, 2, &[1; 513]));
    table.frame(
        "private-data-65535",
        FRAME,
        "closed",
        frame_of(REQUEST, FrameHead { flags: C | S, revision: 2, len: 65_535 }, &[1; 600]),
    );
    table.frame("private-data-512", FRAME, "accepted", with_data(&[0; 508])).not_for_kernels();
    for len in 0..4_u8 {
        let octets = frame(REQUEST, C | S, 2, &vec![0; len.into()]);
        table
            .frame(&format!("enhanced-with-{len}-octets"), ENHANCED, "closed", octets)
            .not_for_kernels();
    }
    table.frame("surplus-octet", STARTUP, "closed", [request(), vec![0]].concat());
    table.frame("fpdu-behind-request", STARTUP, "closed", [request(), fpdu(&null())].concat());
    table.frame("request-twice", STARTUP, "closed", [request(), request()].concat());
}

fn negotiation(table: &mut DefectTable) {
    table.frame("reserved-flags", FRAME, "accepted", flipped(request(), 16, 0x03));
    table
        .frame("reject-flag-in-request", FRAME, "accepted", flipped(request(), 16, R))
        .not_for_kernels();
    table
        .frame(
            "enhanced-flag-in-revision-1",
            "RFC 5044 §7.1.1, reserved there",
            "accepted",
            frame(REQUEST, C | S, 1, &offer(1, 1, 3, 3)),
        )
        .not_for_kernels();
    table.scene("markers-wanted", "RFC 5044 §4.3", "accepted | rejected", |world| {
        let mut fabric = HostileFabric::over(dial(world.target.rdma, world.target.patience)?, true);
        fabric.say(&flipped(request(), 16, M))?;
        Ok(fabric
            .hear_reply(world.target.patience)?
            .err()
            .unwrap_or(AnswerPattern::Accepted)
            .into())
    });
    for (name, ird, ord) in [
        ("depths-zero", 0, 0),
        ("depths-not-negotiated", 0x3FFF, 0x3FFF),
        ("depths-16382", 0x3FFE, 0x3FFE),
        ("rtr-offered-none", 0x8000 | 32, 0),
        ("rtr-without-peer-to-peer", 32, 0xC000),
    ] {
        let octets =
            frame(REQUEST, C | S, 2, &[&depths(ird, ord)[..], &offer(1, 1, 3, 3)].concat());
        table.frame(name, ENHANCED, "accepted", octets).not_for_kernels();
    }
    table.frame(
        "no-private-data",
        "RFC 8797 §4.2",
        "accepted",
        frame(REQUEST, C | S, 2, &depths(32, 0)),
    );
}

fn private_data(table: &mut DefectTable) {
    let clause = "RFC 8797 §5.2";
    for (name, data) in [
        ("private-data-random", (0..100_u8).map(|octet| octet.wrapping_mul(91)).collect()),
        ("private-data-cut", cut(offer(1, 1, 3, 3).to_vec(), 7)),
        ("private-data-version-2", offer(2, 1, 3, 3).to_vec()),
        ("private-data-reserved-flags", offer(1, 0xFF, 3, 3).to_vec()),
        ("private-data-at-odd-offset", [&[1, 2, 3][..], &offer(1, 1, 3, 3)].concat()),
        ("private-data-magic-twice", [offer(1, 1, 3, 3), offer(1, 0, 255, 255)].concat()),
    ] {
        table.frame(name, clause, "accepted", with_data(&data));
    }
    // A reply of 1,400 octets fits our receive if what we say of it is believed, and no more than
    // 1,024 octets if nothing is said.
    for (name, octets, expect) in [
        ("size-claimed-256-kib", offer(1, 1, 255, 255).to_vec(), "OK"),
        ("size-unsaid", Vec::new(), "ERR_CHUNK"),
        ("size-in-version-2", offer(2, 1, 3, 3).to_vec(), "ERR_CHUNK"),
    ] {
        table
            .scene(name, "RFC 8797 §4.2, §5.2", expect, move |world| {
                let mut fabric =
                    match open_with(world, |opening| opening.private_data = octets.clone())? {
                        Ok(fabric) => fabric,
                        Err(answer) => return Ok(answer.into()),
                    };
                let xid = world.xid();
                let read = Xdr::new().opaque(&world.file).u64(0).u32(1_200);
                let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 6).raw(&read.0).0);
                fabric.send(&message)?;
                observe(&mut fabric, world, &message, Family::Nfs)
            })
            .not_for_kernels();
    }
}

fn endings(table: &mut DefectTable) {
    for (name, len) in [("fin-in-key", 9), ("fin-in-header", 18), ("fin-in-private-data", 25)] {
        table
            .scene(name, STARTUP, "closed", move |world| {
                let mut fabric =
                    HostileFabric::over(dial(world.target.rdma, world.target.patience)?, true);
                fabric.say(&cut(request(), len))?;
                fabric.fin();
                set_up(&mut fabric, world)
            })
            .not_for_kernels();
    }
    table
        .scene("reset-behind-request", STARTUP, "left", |world| {
            let mut stream = dial(world.target.rdma, world.target.patience)?;
            stream.write_all(&request())?;
            reset(&stream);
            Ok(AnswerPattern::Left.into())
        })
        .not_for_kernels();
    table
        .scene("connects-and-leaves", STARTUP, "left", |world| {
            for _ in 0..50 {
                drop(dial(world.target.rdma, world.target.patience)?);
            }
            Ok(AnswerPattern::Left.into())
        })
        .not_for_kernels();
    table
        .scene("request-octet-by-octet", "RFC 5044 §7.1.2", "accepted", |world| {
            let mut fabric =
                HostileFabric::over(dial(world.target.rdma, world.target.patience)?, true);
            for octet in request() {
                fabric.say(&[octet])?;
                std::thread::yield_now();
            }
            set_up(&mut fabric, world)
        })
        .not_for_kernels();
}

fn deadlines(table: &mut DefectTable) {
    let clause = "RFC 5044 §7.1.2, RFC 5042 §6.4.2";
    for (name, octets, every) in [
        ("silence", vec![], 200),
        ("slow-loris", request(), 250),
        ("half-a-request", cut(request(), 22), 1),
    ] {
        table
            .scene(name, clause, "closed", move |world| {
                let mut stream = dial(world.target.rdma, world.target.patience)?;
                let closed =
                    dribble(&mut stream, &octets, Duration::from_millis(every), STARTUP_MAX)?;
                Ok(if closed { AnswerPattern::Closed } else { AnswerPattern::Nothing }.into())
            })
            .slow();
    }
    table
        .scene("request-and-nothing-more", clause, "closed", |world| {
            let mut stream = dial(world.target.rdma, world.target.patience)?;
            stream.write_all(&request())?;
            let closed = dribble(&mut stream, &[], Duration::from_millis(250), FIRST_MAX)?;
            Ok(if closed { AnswerPattern::Closed } else { AnswerPattern::Nothing }.into())
        })
        .not_for_kernels()
        .slow();
    table
        .scene("first-fpdu-never-ends", clause, "closed | Terminate", |world| {
            let mut stream = dial(world.target.rdma, world.target.patience)?;
            stream.write_all(&request())?;
            let fpdu = fpdu(&null());
            let closed =
                dribble(&mut stream, &cut(fpdu, 60), Duration::from_millis(250), FIRST_MAX)?;
            Ok(if closed { AnswerPattern::Closed } else { AnswerPattern::Nothing }.into())
        })
        .not_for_kernels()
        .slow();
}

/// FPDUs whose length is not that of what they hold.
fn lengths(table: &mut DefectTable) {
    for len in [0, 1, 2, 13] {
        let octets = fpdu(&cut(RawTagged::write(1, 0).with(b""), len));
        table
            .octets(&format!("fpdu-of-{len}-octets-tagged"), LENGTH, "Terminate 2/0/03", octets)
            .not_for_kernels();
    }
    for len in [1, 2, 17] {
        let octets = fpdu(&cut(null(), len));
        table
            .octets(&format!("fpdu-of-{len}-octets-untagged"), LENGTH, "Terminate 2/0/03", octets)
            .not_for_kernels();
    }
    let longest = RawTagged::write(1, 0).with(&vec![7; 65_535 - 14]);
    table
        .octets("fpdu-of-65535-octets", "RFC 5044 §4.5", "Terminate 1/1/00", fpdu(&longest))
        .not_for_kernels();
    table
        .scene("pad-not-zero", "RFC 5044 §4.1", "OK", |world| {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
            let (front, back) = message.split_at(29);
            let mut padded = open_fpdu(&RawUntagged::send(1).more().with(front));
            let len = padded.len();
            for octet in padded.iter_mut().skip(len - 3) {
                *octet = 0xFF;
            }
            fabric.say(&sealed(padded))?;
            fabric.say_ulpdu(&RawUntagged::send(1).at(29).with(back))?;
            fabric.msn = 2;
            observe(&mut fabric, world, &message, Family::Rpc)
        })
        .not_for_kernels();
}

fn crcs(table: &mut DefectTable) {
    for (name, octets) in [
        ("first-fpdu-with-a-wrong-crc", flipped(fpdu(&null()), 30, 1)),
        ("first-fpdu-of-0-octets", fpdu(b"")),
        ("first-fpdu-of-13-octets", fpdu(&cut(RawTagged::write(1, 0).with(b""), 13))),
    ] {
        table
            .scene(name, "RFC 5044 §7.1.2, nothing before a valid FPDU", "closed", move |world| {
                let mut fabric = world.fabric()?;
                fabric.say(&octets)?;
                observe(&mut fabric, world, &[], Family::Rpc)
            })
            .not_for_kernels();
    }
    let good = fpdu(&null());
    let len = good.len();
    for (name, at) in
        [("length", 1), ("control", 2), ("queue", 11), ("payload", 30), ("crc", len - 1)]
    {
        // A longer length would only wait for more.
        let mask = if name == "length" { 4 } else { 1 };
        let octets = flipped(good.clone(), at, mask);
        let octets = if name == "length" { [octets, vec![0; 64]].concat() } else { octets };
        table
            .octets(&format!("bit-flipped-in-{name}"), CRC, "Terminate 2/0/02", octets)
            .not_for_kernels();
    }
    let open = open_fpdu(&null());
    let big = [open.clone(), crc32c(&open).to_be_bytes().to_vec()].concat();
    table.octets("crc-in-the-other-order", CRC, "Terminate 2/0/02", big).not_for_kernels();
    table
        .octets("crc-zero", CRC, "Terminate 2/0/02", [open.clone(), vec![0; 4]].concat())
        .not_for_kernels();
    let bare = crc32c(open.get(2..).unwrap_or_default()).to_le_bytes();
    table
        .octets("crc-without-length", CRC, "Terminate 2/0/02", [open, bare.to_vec()].concat())
        .not_for_kernels();
    table
        .scene("crc-wrong-in-second-fpdu", CRC, "Terminate 2/0/02", |world| {
            let mut fabric = world.fabric()?;
            let served = fabric.is_served(world.xid(), world.target.patience)?;
            let bad = flipped(fpdu(&RawUntagged::send(fabric.msn).with(b"x")), 21, 0x80);
            fabric.say(&bad)?;
            let seen = observe(&mut fabric, world, &[], Family::Rpc)?;
            Ok(if served { seen } else { AnswerPattern::Nothing.into() })
        })
        .not_for_kernels();
}

fn cuts(table: &mut DefectTable) {
    for (name, len) in
        [("fin-in-fpdu-length", 1), ("fin-in-fpdu-header", 12), ("fin-in-fpdu-payload", 40)]
    {
        table.scene(name, "RFC 5044 §8 code 1", "closed | Terminate", move |world| {
            let mut fabric = world.fabric()?;
            fabric.say(&cut(fpdu(&null()), len))?;
            fabric.fin();
            let heard = fabric.hear(world.target.patience)?;
            Ok(crate::play::ending(&fabric, &heard).into())
        });
    }
    table.scene("reset-in-fpdu", "RFC 5044 §8 code 1", "left", |world| {
        let mut fabric = world.fabric()?;
        fabric.say(&cut(fpdu(&null()), 40))?;
        fabric.reset();
        Ok(AnswerPattern::Left.into())
    });
    table
        .scene("fpdu-octet-by-octet", "RFC 5044 §6", "OK", |world| {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
            for octet in fpdu(&RawUntagged::send(1).with(&message)) {
                fabric.say(&[octet])?;
                std::thread::yield_now();
            }
            fabric.msn = 2;
            observe(&mut fabric, world, &message, Family::Rpc)
        })
        .not_for_kernels();
}
