//! Right and wrong replies that take their time: octet by octet, late, never; and ends at every
//! moment.

use super::{
    AskedCall, CallKind, Instead, PATIENCE, Speaks,
    accesses::{content, tell},
    good_reply, push, replies,
    table::ServerDefectTable,
};
use crate::{
    peer::{Heard, HostileFabric},
    play::rule,
    wire::*,
};
use std::{
    io, thread,
    time::{Duration, Instant},
};

const CALLS: [(&str, CallKind); 4] = [
    ("null", CallKind::Null),
    ("read", CallKind::Read),
    ("write", CallKind::Write),
    ("list", CallKind::List),
];
/// The deadline of calls that are meant to reach it.
const SHORT: Duration = Duration::from_millis(700);
/// No client gives up in less time.
const MOMENT: Duration = Duration::from_millis(5);
const GIVEN_UP: &str = "closed, and the call fails";
const DEADLINE: &str = "RFC 8166 §4.5.4, RFC 5042 §6.4";

pub(super) fn add(table: &mut ServerDefectTable) {
    set_up(table);
    slowly(table);
    never(table);
    ends(table);
}

/// Sends octets one by one, until the client ends the connection.
fn trickle(fabric: &mut HostileFabric, octets: &[u8], pause: Duration) -> io::Result<()> {
    for octet in octets {
        fabric.say(&[*octet])?;
        if pause < MOMENT {
            thread::sleep(pause);
        } else if matches!(fabric.hear(pause)?, Heard::Closed | Heard::Terminate(..)) {
            break;
        }
    }
    Ok(())
}

fn set_up(table: &mut ServerDefectTable) {
    for (name, pause, wanted) in [
        ("1-ms", Duration::from_millis(1), "accepted"),
        ("50-ms", Duration::from_millis(50), "closed"),
    ] {
        table.add(
            &format!("reply-octet-by-octet-every-{name}"),
            "RFC 5044 §7.1.2",
            wanted,
            Instead::ScriptOfSetUp(Box::new(move |fabric| {
                trickle(fabric, &good_reply(Speaks::One), pause)
            })),
        );
    }
    table.add(
        "reply-and-the-first-segment-at-once",
        "RFC 5044 §7.1.2",
        "accepted",
        Instead::ScriptOfSetUp(Box::new(|fabric| {
            // The connector sends first; octets after the Reply wait for that.
            let nobody = fpdu(&RawTagged::write(1, 0).with(b""));
            fabric.say(&[good_reply(Speaks::One), nobody].concat())
        })),
    );
}

/// Whatever is right is right however slowly it comes, before the deadline.
fn slowly(table: &mut ServerDefectTable) {
    let right = rule("RFC 5041 §5, RFC 5044 §5", "call succeeds");
    for (name, does) in CALLS {
        table.script(&format!("reply-to-a-{name}-200-ms-late"), right, does, |fabric, asked| {
            thread::sleep(Duration::from_millis(200));
            replies::reply(fabric, asked)
        });
    }
    for (name, does) in
        [("null", CallKind::Null), ("read", CallKind::Read), ("list", CallKind::List)]
    {
        table.script(
            &format!("reply-to-a-{name}-octet-by-octet"),
            right,
            does,
            move |fabric, asked| {
                let message = pushed_reply(fabric, asked, does)?;
                let octets = fpdu(&RawUntagged::send(fabric.msn).with(&message));
                fabric.msn += 1;
                trickle(fabric, &octets, Duration::from_micros(300))
            },
        );
        for size in [1_usize, 3, 16, 27] {
            table.script(
                &format!("reply-to-a-{name}-in-segments-of-{size}"),
                right,
                does,
                move |fabric, asked| {
                    let message = pushed_reply(fabric, asked, does)?;
                    in_segments(fabric, &message, size)
                },
            );
        }
    }
    for (name, does) in [("read", CallKind::Read), ("list", CallKind::List)] {
        table.script(
            &format!("what-a-{name}-wants-in-100-writes-a-millisecond-apart"),
            right,
            does,
            |fabric, asked| {
                let content = content(asked);
                for (number, piece) in content.chunks(content.len().div_ceil(100)).enumerate() {
                    let at = (number * content.len().div_ceil(100)) as u32;
                    push(fabric, asked.segment().skip(at), piece)?;
                    thread::sleep(Duration::from_millis(1));
                }
                tell(fabric, asked, content.len())
            },
        );
    }
}

/// Writes the right content where the call offered a place for some; returns the message that
/// replies to it.
fn pushed_reply(
    fabric: &mut HostileFabric,
    asked: &AskedCall,
    does: CallKind,
) -> io::Result<Vec<u8>> {
    let octets = content(asked);
    if does != CallKind::Null {
        push(fabric, asked.segment(), &octets)?;
    }
    Ok(match does {
        CallKind::List => asked.long_header(octets.len()).with(b""),
        _ => asked.header().with(&asked.results()),
    })
}

/// A Send in segments of `size` octets.
fn in_segments(fabric: &mut HostileFabric, message: &[u8], size: usize) -> io::Result<()> {
    let count = message.len().div_ceil(size);
    let mut octets = Vec::new();
    for (number, piece) in message.chunks(size).enumerate() {
        let segment = RawUntagged::send(fabric.msn).at((number * size) as u32);
        octets.extend(fpdu(&if number + 1 < count { segment.more() } else { segment }.with(piece)));
    }
    fabric.msn += 1;
    fabric.say(&octets)
}

/// Waits until the client gives up.
fn outlast(fabric: &mut HostileFabric) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        match fabric.hear(Duration::from_millis(100))? {
            Heard::Closed | Heard::Terminate(..) => return Ok(()),
            _ => {}
        }
    }
    Ok(())
}

/// Replies that never come to an end before the deadline: the connection ends, and memory is back.
fn never(table: &mut ServerDefectTable) {
    for (name, does) in CALLS {
        table.script(
            &format!("no-reply-to-a-{name}"),
            rule(DEADLINE, GIVEN_UP),
            does,
            |fabric, _| outlast(fabric),
        );
        table.within(SHORT);
        table.script(
            &format!("reply-to-a-{name}-that-trickles-beyond-the-deadline"),
            rule(DEADLINE, GIVEN_UP),
            does,
            |fabric, asked| {
                let octets = fpdu(
                    &RawUntagged::send(fabric.msn).with(&asked.header().with(&asked.results())),
                );
                trickle(fabric, &cut(octets, 50), Duration::from_millis(25))?;
                outlast(fabric)
            },
        );
        table.within(SHORT);
    }
    for (name, does) in [("read", CallKind::Read), ("list", CallKind::List)] {
        table.script(
            &format!("what-a-{name}-wants-trickles-beyond-the-deadline"),
            rule(DEADLINE, GIVEN_UP),
            does,
            |fabric, asked| {
                for octet in 0..100 {
                    push(fabric, asked.segment().skip(octet), b"B")?;
                    if matches!(fabric.hear(Duration::from_millis(25))?, Heard::Closed) {
                        return Ok(());
                    }
                }
                outlast(fabric)
            },
        );
        table.within(SHORT);
        table.script(
            &format!("what-a-{name}-wants-is-written-and-never-told-of"),
            rule(DEADLINE, GIVEN_UP),
            does,
            |fabric, asked| {
                push(fabric, asked.segment(), &content(asked))?;
                outlast(fabric)
            },
        );
        table.within(SHORT);
    }
    table.script(
        "item-read-an-octet-at-a-time",
        rule(DEADLINE, GIVEN_UP),
        CallKind::Write,
        |fabric, asked| {
            let segment = asked.segment();
            for octet in 0..100 {
                let source = (segment.handle, segment.offset + octet);
                let ask = ReadAsk { sink: (1, 0), len: 1, source };
                fabric.say_ulpdu(&RawUntagged::read(fabric.read_msn).with(&ask.header()))?;
                fabric.read_msn += 1;
                if matches!(fabric.hear(Duration::from_millis(25))?, Heard::Closed) {
                    return Ok(());
                }
                thread::sleep(Duration::from_millis(15));
            }
            outlast(fabric)
        },
    );
    table.within(SHORT);
    table.script(
        "replies-to-nobody-until-the-deadline",
        rule(DEADLINE, GIVEN_UP),
        CallKind::Null,
        |fabric, asked| {
            for _ in 0..200 {
                let xid = asked.xid ^ 0x0100_0000;
                fabric.send(&RawHeader { xid, ..asked.bare() }.with(&success(xid).0))?;
                if matches!(fabric.hear(Duration::from_millis(10))?, Heard::Closed) {
                    return Ok(());
                }
            }
            outlast(fabric)
        },
    );
    table.within(SHORT);
}

/// The end of what we say, at every moment of a reply. The call goes again over the next
/// connection.
fn ends(table: &mut ServerDefectTable) {
    for (name, does) in CALLS {
        table.script(
            &format!("fin-instead-of-the-reply-to-a-{name}"),
            rule("RFC 8166 §4.5.4", "closed"),
            does,
            |fabric, _| {
                fabric.fin();
                Ok(())
            },
        );
        for len in [1_usize, 2, 6, 20, 40] {
            table.script(
                &format!("fin-behind-{len}-octets-of-the-reply-to-a-{name}"),
                rule("RFC 5044 §8 code 1", "closed | Terminate"),
                does,
                move |fabric, asked: &AskedCall| {
                    let message = asked.header().with(&asked.results());
                    let octets = fpdu(&RawUntagged::send(fabric.msn).with(&message));
                    fabric.say(&cut(octets, len))?;
                    fabric.fin();
                    Ok(())
                },
            );
        }
    }
    for (name, does) in [("read", CallKind::Read), ("list", CallKind::List)] {
        table.script(
            &format!("fin-between-what-a-{name}-wants-and-its-reply"),
            rule("RFC 8166 §4.5.4", "closed"),
            does,
            |fabric, asked| {
                push(fabric, asked.segment(), &content(asked))?;
                fabric.fin();
                Ok(())
            },
        );
        table.script(
            &format!("fin-in-the-middle-of-what-a-{name}-wants"),
            rule("RFC 5044 §8 code 1", "closed | Terminate"),
            does,
            |fabric, asked| {
                let segment = asked.segment();
                let octets =
                    fpdu(&RawTagged::write(segment.handle, segment.offset).with(&content(asked)));
                fabric.say(&cut(octets, 3_000))?;
                fabric.fin();
                Ok(())
            },
        );
    }
}
