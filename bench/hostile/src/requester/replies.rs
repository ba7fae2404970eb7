//! Replies as they should be.

use super::{Asked, CONTENT, Does, LEN, push};
use crate::{
    peer::{Fabric, Heard},
    wire::{Ask, Untagged},
};
use std::io;

/// Answers a call well: pushes what it reads, pulls what it writes.
pub(super) fn reply(fabric: &mut Fabric, asked: &Asked) -> io::Result<()> {
    match asked.does {
        Does::Null => {}
        Does::Read => push(fabric, asked.segment(), &[CONTENT; LEN])?,
        Does::Write => pull(fabric, asked)?,
    }
    fabric.send(&asked.header().with(&asked.results()))
}

/// Reads what a WRITE offers.
fn pull(fabric: &mut Fabric, asked: &Asked) -> io::Result<()> {
    let segment = asked.segment();
    let ask = Ask { sink: (1, 0), len: segment.length, source: (segment.handle, segment.offset) };
    fabric.say_ulpdu(&Untagged::read(fabric.read_msn).with(&ask.header()))?;
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
