//! Segments (RFC 5041).

use crate::{
    answer::AnswerPattern,
    judge::Family,
    play::{Defect, DefectLayer, DefectTable, observe},
    wire::*,
};

const TAGGED: &str = "RFC 5041 §7.1, tagged";
const ZERO: &str = "RFC 5041 §5.2";

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Ddp);
    versions(&mut table);
    queues(&mut table);
    offsets(&mut table);
    tagged(&mut table);
    messages(&mut table);
    table.into_defects()
}

/// A whole Send that calls nothing that exists.
fn send(change: impl FnOnce(&mut RawUntagged)) -> Vec<u8> {
    let mut segment = RawUntagged::send(1);
    change(&mut segment);
    segment.with(&RawHeader::msg(0).with(&call(0, NFS, 3, 0).0))
}

fn versions(table: &mut DefectTable) {
    for version in [0, 2, 3] {
        let ulpdu = send(|segment| segment.ddp = 0x40 | version);
        table.ulpdu(
            &format!("untagged-version-{version}"),
            "RFC 5041 §7.2 0x06",
            "Terminate 1/2/06",
            ulpdu,
        );
        let ulpdu = RawTagged { ddp: 0xC0 | version, ..RawTagged::write(1, 0) }.with(b"x");
        table.ulpdu(
            &format!("tagged-version-{version}"),
            "RFC 5041 §7.2 0x04",
            "Terminate 1/1/04",
            ulpdu,
        );
    }
    table.scene("reserved-bits-untagged", "RFC 5041 §4.3", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
        fabric.say_ulpdu(
            &RawUntagged { ddp: 0x7D, rdmap: 0x73, ..RawUntagged::send(1) }.with(&message),
        )?;
        fabric.msn = 2;
        observe(&mut fabric, world, &message, Family::Rpc)
    });
    table.ulpdu(
        "reserved-bits-tagged",
        "RFC 5041 §4.2",
        "discarded",
        RawTagged { ddp: 0xFD, rdmap: 0x70, ..RawTagged::write(1, 0) }.with(b""),
    );
}

fn queues(table: &mut DefectTable) {
    for queue in [3, 7, u32::MAX] {
        let ulpdu = send(|segment| segment.queue = queue);
        table.ulpdu(&format!("queue-{queue}"), "RFC 5041 §7.2 0x01", "Terminate 1/2/01", ulpdu);
    }
    table.ulpdu(
        "send-on-the-queue-of-reads",
        "RFC 5040 §7.1",
        "Terminate 1/2/01 | Terminate 0/2/06",
        send(|segment| segment.queue = 1),
    );
    table.ulpdu(
        "send-on-the-queue-of-terminates",
        "RFC 5040 §7.1",
        "Terminate 1/2/01 | Terminate 0/2/06",
        send(|segment| segment.queue = 2),
    );
    let msn = "RFC 5041 §7.2 0x03";
    for number in [0, 2, 3, 0x8000_0000, u32::MAX] {
        table.ulpdu(
            &format!("msn-{number}-first"),
            msn,
            "Terminate 1/2/03 | Terminate 1/2/02",
            send(|segment| segment.msn = number),
        );
    }
    table.scene("msn-repeated", msn, "Terminate 1/2/03 | Terminate 1/2/02", |world| {
        let mut fabric = world.fabric()?;
        let served = fabric.is_served(world.xid(), world.target.patience)?;
        fabric.say_ulpdu(&send(|_| ()))?;
        let seen = observe(&mut fabric, world, &[], Family::Rpc)?;
        Ok(if served { seen } else { AnswerPattern::Nothing.into() })
    });
}

fn offsets(table: &mut DefectTable) {
    let offset = "RFC 5041 §7.2 0x04";
    for mo in [1, 4, 4_096, 0x8000_0000, u32::MAX] {
        table.ulpdu(
            &format!("offset-{mo}-first"),
            offset,
            "Terminate 1/2/04 | Terminate 1/2/05",
            send(|segment| segment.mo = mo),
        );
    }
    let first = RawUntagged::send(1).more().with(&[0; 16]);
    for (name, mo) in [("gap", 20), ("overlap", 8), ("repeated", 0)] {
        let second = RawUntagged::send(1).at(mo).with(&[0; 16]);
        table.ulpdus(
            &format!("offset-{name}"),
            offset,
            "Terminate 1/2/04",
            vec![first.clone(), second],
        );
    }
    let long = "RFC 5041 §7.2 0x05";
    let too_long = "Terminate 1/2/05 | Terminate 1/2/02";
    table.ulpdu(
        "message-longer-than-any-receive",
        long,
        too_long,
        RawUntagged::send(1).with(&vec![0; 60_000]),
    );
    table
        .ulpdu(
            "message-one-octet-too-long",
            long,
            too_long,
            RawUntagged::send(1).with(&vec![0; 4_097]),
        )
        .not_for_kernels();
    let endless =
        (0..40_u32).map(|index| RawUntagged::send(1).more().at(index * 1_024).with(&[0; 1_024]));
    table.ulpdus("message-that-never-ends", long, too_long, endless.collect());
    table.scene(
        "message-as-long-as-the-receive",
        "RFC 8166 §3.3.2",
        "GARBAGE_ARGS | OK",
        |world| {
            let mut fabric = world.fabric()?;
            let xid = world.xid();
            let mut message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
            message.resize(4_096, 0);
            fabric.send(&message)?;
            observe(&mut fabric, world, &message, Family::Rpc)
        },
    );
}

fn tagged(table: &mut DefectTable) {
    let stag = "RFC 5041 §7.2 0x00";
    for (name, key) in [
        ("zero", 0),
        ("one", 1),
        ("random", 0x9C2F_5E11),
        ("ones", u32::MAX),
        ("index-without-key", 0x0000_0100),
    ] {
        table.ulpdu(
            &format!("write-to-stag-{name}"),
            stag,
            "Terminate 1/1/00",
            RawTagged::write(key, 0).with(b"octets"),
        );
    }
    table
        .ulpdu(
            "write-of-65000-octets",
            stag,
            "Terminate 1/1/00",
            RawTagged::write(0x1234, 0).with(&vec![1; 65_000]),
        )
        .not_for_kernels();
    table.ulpdu(
        "write-offset-wraps",
        TAGGED,
        "Terminate 1/1/03 | Terminate 1/1/00",
        RawTagged::write(1, u64::MAX - 2).with(b"octets"),
    );
    table.ulpdu(
        "write-ends-at-2-to-the-64",
        TAGGED,
        "Terminate 1/1/03 | Terminate 1/1/00",
        RawTagged::write(1, u64::MAX - 5).with(b"octets"),
    );
    for (name, key, to) in [
        ("to-nothing", 0, 0),
        ("to-an-unknown-stag", 0xDEAD_BEEF, 7),
        ("at-the-end-of-all", 1, u64::MAX),
    ] {
        let ulpdu = RawTagged::write(key, to).with(b"");
        table.ulpdu(&format!("write-of-nothing-{name}"), ZERO, "discarded", ulpdu);
    }
    let more = RawTagged::write(1, 0).more().with(b"");
    table.ulpdus("write-of-nothing-unfinished", ZERO, "discarded", vec![more]).not_for_kernels();
    table
        .scene("hundred-guesses-of-a-stag", "RFC 5042 §6.1.1", "Terminate 1/1/00", |world| {
            let mut seen = AnswerPattern::Nothing.into();
            for guess in 1..=100_u32 {
                let mut fabric = world.fabric()?;
                fabric.say_ulpdu(&RawTagged::write(guess << 8, 0).with(b"guess"))?;
                seen = observe(&mut fabric, world, &[], Family::Rpc)?;
                if seen != AnswerPattern::Terminate(1, 1, 0).into() {
                    break;
                }
            }
            Ok(seen)
        })
        .not_for_kernels();
}

fn messages(table: &mut DefectTable) {
    let opcode = "RFC 5040 §7.1, RFC 5041 §5.3";
    let first = RawUntagged::send(1).more().with(&[0; 16]);
    let other = RawUntagged { rdmap: 0x44, ..RawUntagged::send(1) }.at(16).with(&[0; 16]);
    table
        .ulpdus(
            "opcode-changes-in-a-message",
            opcode,
            "Terminate 0/2/06",
            vec![first.clone(), other],
        )
        .not_for_kernels();
    let next = RawUntagged::send(2).with(&[0; 16]);
    table
        .ulpdus(
            "messages-interleave",
            opcode,
            "Terminate 0/2/06 | Terminate 1/2/03",
            vec![first.clone(), next],
        )
        .not_for_kernels();
    let read = RawUntagged::read(1).with(&ReadAsk::default().header());
    table
        .ulpdus("read-request-inside-a-send", opcode, "Terminate 0/2/06", vec![first, read])
        .not_for_kernels();
    table.scene("send-in-32-segments", "RFC 5041 §5.1", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
        let count = message.len().div_ceil(4);
        for (index, piece) in message.chunks(4).enumerate() {
            let segment = RawUntagged::send(1).at(word(index * 4));
            fabric.say_ulpdu(
                &if index + 1 == count { segment } else { segment.more() }.with(piece),
            )?;
        }
        fabric.msn = 2;
        observe(&mut fabric, world, &message, Family::Rpc)
    });
    table.scene("writes-of-nothing-inside-a-send", "RFC 5041 §5.3", "OK", |world| {
        let mut fabric = world.fabric()?;
        let xid = world.xid();
        let message = RawHeader::msg(xid).with(&call(xid, NFS, 3, 0).0);
        let (front, back) = message.split_at(40);
        fabric.say_ulpdu(&RawUntagged::send(1).more().with(front))?;
        fabric.say_ulpdu(&RawTagged::write(1, 0).with(b""))?;
        fabric.say_ulpdu(&RawUntagged::send(1).at(40).with(back))?;
        fabric.msn = 2;
        observe(&mut fabric, world, &message, Family::Rpc)
    });
    table.message("send-of-nothing", "RFC 5041 §5.2, RFC 8166 §4.5", "discarded", |_, _, _| {
        Vec::new()
    });
}
