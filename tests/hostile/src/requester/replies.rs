//! Correct replies.

use super::{AskedCall, CONTENT, CallKind, LEN, push};
use crate::{
    peer::{Heard, HostileFabric},
    wire::{RawUntagged, ReadAsk, success},
};
use std::io;

/// Names in the directory. Their list fits no inline message.
pub(super) const NAMES: usize = 40;

/// The RPC message of a right reply, its item excepted.
pub(super) fn results(asked: &AskedCall) -> Vec<u8> {
    let reply = success(asked.xid);
    match asked.does {
        CallKind::Null => reply,
        // Status, no attributes, count, end of file, length of the data.
        CallKind::Read | CallKind::ReadAgain => reply.words(&[0, 0, LEN as u32, 1, LEN as u32]),
        // Status, no attributes before and after, count, FILE_SYNC, verifier.
        CallKind::Write => reply.words(&[0, 0, 0, LEN as u32, 2]).u64(7),
        // Status, no attributes, verifier, the names, end of the directory.
        CallKind::List => {
            let entry = |number: usize| format!("{number:0>200}").into_bytes();
            let names = (1..=NAMES).fold(reply.words(&[0, 0]).u64(9), |xdr, number| {
                xdr.u32(1).u64(number as u64).opaque(&entry(number)).u64(number as u64)
            });
            names.words(&[0, 1])
        }
        // Status; a file of mode 0644 and one link, its owner, size, use, device, system, number
        // and three times.
        CallKind::Stat => reply
            .words(&[0, 1, 0o644, 1, 0, 0])
            .u64(5)
            .u64(4_096)
            .u64(0)
            .u64(1)
            .u64(2)
            .words(&[3; 6]),
        // Status, handle, no attributes of either.
        CallKind::Look => reply.u32(0).opaque(&[9; 16]).words(&[0, 0]),
        // Status, no attributes, path.
        CallKind::Link => reply.words(&[0, 0]).opaque(b"somewhere"),
        // Status, no attributes, sizes, the largest file, the grain of times, properties.
        CallKind::Info => {
            reply.words(&[0, 0]).words(&[1 << 20; 7]).u64(1 << 40).words(&[0, 1, 0x1B])
        }
        // Status, no attributes before and after, verifier.
        CallKind::Commit => reply.words(&[0, 0, 0]).u64(7),
    }
    .0
}

/// Answers a call well: pushes what it reads, pulls what it writes.
pub(super) fn reply(fabric: &mut HostileFabric, asked: &AskedCall) -> io::Result<()> {
    match asked.does {
        CallKind::Read | CallKind::ReadAgain => push(fabric, asked.segment(), &[CONTENT; LEN])?,
        CallKind::Write => pull(fabric, asked)?,
        CallKind::List => return long_reply(fabric, asked, &asked.results()),
        _ => {}
    }
    fabric.send(&asked.header().with(&asked.results()))
}

/// Answers by a message in the Reply chunk.
pub(super) fn long_reply(
    fabric: &mut HostileFabric,
    asked: &AskedCall,
    message: &[u8],
) -> io::Result<()> {
    push(fabric, asked.segment(), message)?;
    fabric.send(&asked.long_header(message.len()).with(b""))
}

/// Reads what a WRITE offers.
fn pull(fabric: &mut HostileFabric, asked: &AskedCall) -> io::Result<()> {
    let segment = asked.segment();
    let ask =
        ReadAsk { sink: (1, 0), len: segment.length, source: (segment.handle, segment.offset) };
    fabric.say_ulpdu(&RawUntagged::read(fabric.read_msn).with(&ask.header()))?;
    fabric.read_msn += 1;
    let mut left = segment.length as usize;
    while left > 0 {
        match fabric.hear(super::PATIENCE)? {
            Heard::Response(octets) if octets.len() <= left => left -= octets.len(),
            _ => return Ok(()),
        }
    }
    Ok(())
}
