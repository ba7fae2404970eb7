//! Arguments of RPCSEC_GSS under integrity and privacy (RFC 2203 §5.3.2), and chunks that reduce
//! them (RFC 8166 §8.2.2.3). Each header is right.

use crate::{
    answer::SeenAnswers,
    gss::{DATA, GETATTR, GssWords, HostileContext},
    judge::Family,
    play::{DefectTable, observe},
    wire::*,
    world::HostileWorld,
};
use stag_gss::GssRole;
use std::io;

const BODY: &str = "RFC 2203 §5.3.3.4.2";
const SEALED: &str = "RFC 2203 §5.3.3.4.3";
const GARBAGE: &str = "GARBAGE_ARGS";
const REDUCED: &str = "RFC 8166 §8.2.2.3";
/// The number of a defect's call.
const NUMBER: u32 = 7;
const INTEGRITY: u32 = 2;
const PRIVACY: u32 = 3;
/// Octets of a sealed token in front of its ciphertext (RFC 4121 §4.2.6.2).
const TOKEN_HEADER: usize = 16;

type Change = fn(Vec<u8>) -> Vec<u8>;

pub(super) fn fill(table: &mut DefectTable) {
    integrity(table);
    privacy(table);
    exchanged(table);
    reduced(table);
}

fn root(world: &HostileWorld) -> Vec<u8> {
    Xdr::new().opaque(&world.root).0
}

/// A GETATTR with this body under a service.
fn call_of(context: &HostileContext, xid: u32, service: u32, body: &[u8]) -> Vec<u8> {
    let words = GssWords { procedure: DATA, ..context.words(NUMBER, service) };
    [&context.head(xid, GETATTR, &words)[..], body].concat()
}

fn changed(
    table: &mut DefectTable,
    name: &str,
    clause: &'static str,
    service: u32,
    change: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) {
    table.protected(name, clause, GARBAGE, move |context, world, xid| {
        let body = context.body(NUMBER, service, &root(world));
        call_of(context, xid, service, &change(body))
    });
}

/// The place of the checksum in a body under integrity.
fn checksum_at(body: &[u8]) -> usize {
    4 + word_at(body, 0).next_multiple_of(4) as usize
}

fn integrity(table: &mut DefectTable) {
    for len in [0, 3, 4, 7, 8, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("integrity-length-{len}");
        changed(table, &name, BODY, INTEGRITY, move |body| with_word(body, 0, len));
    }
    for (name, more) in [("4-more", 4), ("1-more", 1), ("1-less", u32::MAX), ("4-less", !3)] {
        let name = format!("integrity-length-{name}");
        changed(table, &name, BODY, INTEGRITY, move |body| {
            let len = word_at(&body, 0).wrapping_add(more);
            with_word(body, 0, len)
        });
    }
    for len in [0, 4, 39, 41, 44, 400, 401, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("integrity-checksum-length-{len}");
        changed(table, &name, BODY, INTEGRITY, move |body| {
            let at = checksum_at(&body);
            with_word(body, at, len)
        });
    }
    for number in [0, NUMBER - 1, NUMBER + 1, 0x8000_0000, u32::MAX] {
        let name = format!("integrity-number-{number}");
        table.protected(&name, "RFC 2203 §5.3.3.1", GARBAGE, move |context, world, xid| {
            let body = context.body(number, INTEGRITY, &root(world));
            call_of(context, xid, INTEGRITY, &body)
        });
    }
    let changes: [(&str, Change); 6] = [
        ("and-4-octets", |body| [body, vec![0; 4]].concat()),
        ("of-nothing", |_| Vec::new()),
        ("without-a-checksum", |body| {
            let at = checksum_at(&body);
            cut(body, at)
        }),
        ("argument-changed", |body| flipped(body, 12, 1)),
        ("number-changed", |body| flipped(body, 7, 1)),
        ("checksum-changed", |body| {
            let at = checksum_at(&body);
            flipped(body, at + 4 + 20, 1)
        }),
    ];
    for (name, change) in changes {
        changed(table, &format!("integrity-{name}"), BODY, INTEGRITY, change);
    }
}

fn privacy(table: &mut DefectTable) {
    for len in [0, 1, 15, 16, 47, 60, 0x7FFF_FFFF, 0x8000_0000, u32::MAX - 3, u32::MAX] {
        let name = format!("privacy-length-{len}");
        changed(table, &name, SEALED, PRIVACY, move |body| with_word(body, 0, len));
    }
    for (name, more) in [("4-more", 4), ("1-more", 1), ("1-less", u32::MAX), ("4-less", !3)] {
        let name = format!("privacy-length-{name}");
        changed(table, &name, SEALED, PRIVACY, move |body| {
            let len = word_at(&body, 0).wrapping_add(more);
            with_word(body, 0, len)
        });
    }
    // Tokens that are short for what is in each: header, confounder, checksum.
    for len in [0, 1, 8, 15, 16, 17, 32, 56, 71] {
        let name = format!("privacy-token-of-{len}-octets");
        changed(table, &name, SEALED, PRIVACY, move |body| {
            let token = body.get(4..4 + len).unwrap_or_default();
            Xdr::new().opaque(token).0
        });
    }
    // EC is at 4 of the token, RRC at 6; nothing covers RRC, and any value of it turns the token.
    for (name, at, value) in [
        ("extra-count-1", 4, 1_u16),
        ("extra-count-16", 4, 16),
        ("extra-count-17", 4, 17),
        ("extra-count-max", 4, u16::MAX),
        ("rotation-1", 6, 1),
        ("rotation-28", 6, 28),
        ("rotation-max", 6, u16::MAX),
    ] {
        let name = format!("privacy-{name}");
        changed(table, &name, "RFC 4121 §4.2.4, §4.2.5", PRIVACY, move |mut body| {
            if let Some(two) = body.get_mut(4 + at..4 + at + 2) {
                two.copy_from_slice(&value.to_be_bytes());
            }
            body
        });
    }
    for (name, at) in [("id", 0), ("flags", 2), ("filler", 3), ("number", 15)] {
        changed(table, &format!("privacy-token-{name}"), "RFC 4121 §4.2.6.2", PRIVACY, {
            move |body| flipped(body, 4 + at, 1)
        });
    }
    for at in [0, 16, 40] {
        let name = format!("privacy-ciphertext-octet-{at}");
        changed(table, &name, SEALED, PRIVACY, move |body| {
            flipped(body, 4 + TOKEN_HEADER + at, 0x10)
        });
    }
    for number in [0, NUMBER - 1, NUMBER + 1, u32::MAX] {
        let name = format!("privacy-number-{number}");
        table.protected(&name, "RFC 2203 §5.3.3.1", GARBAGE, move |context, world, xid| {
            let body = context.body(number, PRIVACY, &root(world));
            call_of(context, xid, PRIVACY, &body)
        });
    }
    changed(table, "privacy-and-4-octets", SEALED, PRIVACY, |body| [body, vec![0; 4]].concat());
    changed(table, "privacy-of-nothing", SEALED, PRIVACY, |_| Vec::new());
}

/// Bodies that are right for something else.
fn exchanged(table: &mut DefectTable) {
    for (name, service) in [("integrity", INTEGRITY), ("privacy", PRIVACY)] {
        let named = |what: &str| format!("{name}-{what}");
        table.protected(&named("arguments-in-clear"), BODY, GARBAGE, move |context, world, xid| {
            call_of(context, xid, service, &root(world))
        });
        table.protected(&named("of-the-other-service"), BODY, GARBAGE, {
            move |context, world, xid| {
                let other = if service == INTEGRITY { PRIVACY } else { INTEGRITY };
                let body = context.body(NUMBER, other, &root(world));
                call_of(context, xid, service, &body)
            }
        });
        table.protected(&named("of-a-server"), BODY, GARBAGE, move |context, world, xid| {
            let body = context.body_by(GssRole::Acceptor, NUMBER, service, &root(world));
            call_of(context, xid, service, &body)
        });
        table.scene(&named("of-another-context"), BODY, GARBAGE, move |world| {
            let (own, other) = (HostileContext::open(world)?, HostileContext::open(world)?);
            let xid = world.xid();
            let body = other.body(NUMBER, service, &root(world));
            let mut stream = world.stream()?;
            stream.say(&record(&call_of(&own, xid, service, &body)))?;
            crate::play::observe_stream(&mut stream, world, xid, Family::Rpc)
        });
        // The protection is right, and inside of it the arguments are not.
        for (what, arguments) in [
            ("arguments-cut", Xdr::new().u32(64).0),
            ("arguments-of-nothing", Vec::new()),
            ("handle-claims-4-gib", Xdr::new().words(&[u32::MAX, 0]).0),
        ] {
            table.protected(&named(what), "RFC 5531 §9", GARBAGE, move |context, _, xid| {
                let body = context.body(NUMBER, service, &arguments);
                call_of(context, xid, service, &body)
            });
        }
    }
}

/// READ, with room for its data in a Write chunk, and WRITE with its data in a Read chunk.
fn reduced(table: &mut DefectTable) {
    for (name, service) in [("integrity", INTEGRITY), ("privacy", PRIVACY)] {
        table.scene(&format!("{name}-with-a-write-chunk"), REDUCED, "ERR_CHUNK", move |world| {
            let mut fabric = world.fabric()?;
            let context = HostileContext::open(world)?;
            let sink = fabric.memory.sink(4_096);
            let read = Xdr::new().opaque(&world.file).u64(0).u32(4_096).0;
            let xid = world.xid();
            let call = context.call(xid, &context.words(NUMBER, service), 6, &read);
            let octets = RawHeader::msg(xid).write(&[sink]).with(&call);
            over(&mut fabric, world, &octets)
        });
        table.scene(&format!("{name}-with-a-read-chunk"), REDUCED, "ERR_CHUNK", move |world| {
            let mut fabric = world.fabric()?;
            let context = HostileContext::open(world)?;
            let item = fabric.memory.source(&[5; 4_096]);
            let write = Xdr::new().opaque(&world.file).u64(0).words(&[4_096, 2, 4_096]).0;
            let xid = world.xid();
            let call = context.call(xid, &context.words(NUMBER, service), 7, &write);
            let octets = RawHeader::msg(xid).read(word(call.len()), item).with(&call);
            over(&mut fabric, world, &octets)
        });
        // A message in a Read chunk of position zero, and an item of it in another one.
        table.scene(&format!("{name}-long-with-an-item"), REDUCED, "ERR_CHUNK", move |world| {
            let mut fabric = world.fabric()?;
            let context = HostileContext::open(world)?;
            let write = Xdr::new().opaque(&world.file).u64(0).words(&[4_096, 2, 4_096]).0;
            let xid = world.xid();
            let call = context.call(xid, &context.words(NUMBER, service), 7, &write);
            let whole = fabric.memory.source(&call);
            let item = fabric.memory.source(&[5; 4_096]);
            let header = RawHeader::nomsg(xid).read(0, whole).read(word(call.len()), item);
            over(&mut fabric, world, &header.with(b""))
        });
    }
}

fn over(
    fabric: &mut crate::peer::HostileFabric,
    world: &HostileWorld,
    octets: &[u8],
) -> io::Result<SeenAnswers> {
    fabric.send(octets)?;
    observe(fabric, world, octets, Family::Rpc)
}
