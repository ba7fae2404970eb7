//! Room in a reply for its verifier, and around its results: in its own buffer, in that of its
//! item, or in another one.

use super::replies::STATUS_AT;
use crate::{
    app::{Answer, AnswerItem},
    config::HEAD_ROOM,
    item::Extents,
    memory::{Lane, Memory},
    payload::insert_parts,
};
use stag_gss::ProtectedRoom;
use stag_pools::Buf;
use stag_protocol::{
    rpc::ReplyHeader,
    xdr::{pad, padded},
};

/// Reason for which a reply got no room.
#[derive(Debug)]
pub(super) enum NoRoomYet {
    /// No buffer is free. The reply is as it was.
    Waits(Answer),
    /// It is longer than every buffer, or not one that an app may make.
    Never,
}

/// Room to be made in a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Widened {
    /// Octets of the verifier's body.
    pub(super) verifier: usize,
    /// Octets around the results.
    pub(super) room: ProtectedRoom,
    /// Its items become part of the message.
    pub(super) takes_items: bool,
}

impl Widened {
    /// Octets in front of the results that the reply gets.
    pub(super) const fn shift(&self) -> usize {
        self.verifier + self.room.front
    }

    /// Makes room in front of the status and around the results. Another buffer is taken only
    /// with a `lane`.
    pub(super) fn apply(
        &self,
        memory: &Memory,
        lane: Option<Lane>,
        mut answer: Answer,
    ) -> Result<Answer, NoRoomYet> {
        let items = answer.item.as_ref().filter(|_| self.takes_items);
        let items = items.into_iter().flat_map(AnswerItem::iter);
        let items: usize = items.map(|(_, octets)| padded(octets.len())).sum();
        let more = self.shift() + padded(self.room.back) + items;
        if answer.message.spare_len() >= more {
            if self.takes_items {
                insert_items(&mut answer);
            }
            self.widen(&mut answer.message);
            return Ok(answer);
        }
        let len = answer.message.len() + more;
        if items > 0
            && let Some(message) = self.move_to_item(memory, &mut answer, len)
        {
            return Ok(Answer { message, item: None });
        }
        if HEAD_ROOM + len > memory.slot_max() {
            return Err(NoRoomYet::Never);
        }
        let longer = lane.and_then(|lane| memory.take_to_protect(HEAD_ROOM + len, lane));
        let Some(mut longer) = longer else {
            return Err(NoRoomYet::Waits(answer));
        };
        longer.reset(HEAD_ROOM);
        longer.extend(len);
        let item = if self.takes_items { answer.item.take() } else { None };
        let items = item.iter().flat_map(AnswerItem::iter);
        let items = items.map(|(position, octets)| (position, ItemOctets::Copied(octets)));
        self.emit(&answer.message, items, &mut longer).ok_or(NoRoomYet::Never)?;
        answer.message = longer;
        Ok(answer)
    }

    /// Makes room in a message whose buffer has it.
    fn widen(&self, message: &mut Buf) {
        let old = message.len();
        message.extend(self.shift() + padded(self.room.back));
        message.copy_within(ReplyHeader::LEN..old, ReplyHeader::LEN + self.shift());
        message.copy_within(STATUS_AT..ReplyHeader::LEN, STATUS_AT + self.verifier);
    }

    /// Makes the message, `len` octets of it, in the buffer of its only item, if that has room and
    /// nothing else uses it.
    fn move_to_item(&self, memory: &Memory, answer: &mut Answer, len: usize) -> Option<Buf> {
        let AnswerItem { position, octets, more } = answer.item.take()?;
        if !more.is_empty() {
            answer.item = Some(AnswerItem { position, octets, more });
            return None;
        }
        let mut buf = match octets.try_into_buf(|extent| memory.has(extent)) {
            Ok(buf) if HEAD_ROOM + len <= buf.capacity() => buf,
            Ok(buf) => {
                answer.item = Some(AnswerItem::new(position, buf.freeze()));
                return None;
            }
            Err(octets) => {
                answer.item = Some(AnswerItem { position, octets, more });
                return None;
            }
        };
        let item = buf.head_room()..buf.head_room() + buf.len();
        buf.reset(0);
        buf.extend(buf.capacity());
        let len_of_item = item.len();
        buf.copy_within(item, HEAD_ROOM + self.shift() + position);
        buf.truncate(HEAD_ROOM + len);
        buf.trim_front(HEAD_ROOM);
        let there = std::iter::once((position, ItemOctets::There(len_of_item)));
        self.emit(&answer.message, there, &mut buf)?;
        Some(buf)
    }

    /// Writes the message with its room, and the items, to `longer`, which has its length.
    fn emit<'i>(
        &self,
        message: &[u8],
        items: impl Iterator<Item = (usize, ItemOctets<'i>)>,
        longer: &mut [u8],
    ) -> Option<()> {
        let mut to = Filling(longer);
        to.put(message.get(..STATUS_AT)?)?;
        to.skip(self.verifier)?;
        to.put(message.get(STATUS_AT..ReplyHeader::LEN)?)?;
        to.skip(self.room.front)?;
        let mut at = ReplyHeader::LEN;
        for (position, octets) in items {
            to.put(message.get(at..position)?)?;
            let len = match octets {
                ItemOctets::There(len) => {
                    to.skip(len)?;
                    len
                }
                ItemOctets::Copied(octets) => {
                    octets.iter().try_for_each(|part| to.put(part))?;
                    octets.len()
                }
            };
            to.put(PADDING.get(..pad(len))?)?;
            at = position;
        }
        to.put(message.get(at..)?)
    }
}

/// The octets of an item for a message.
enum ItemOctets<'a> {
    /// The octets are in their place; their number.
    There(usize),
    Copied(&'a Extents),
}

/// The rest of a message that is being filled.
struct Filling<'a>(&'a mut [u8]);

impl<'a> Filling<'a> {
    fn skip(&mut self, len: usize) -> Option<&'a mut [u8]> {
        let (skipped, rest) = std::mem::take(&mut self.0).split_at_mut_checked(len)?;
        self.0 = rest;
        Some(skipped)
    }

    fn put(&mut self, octets: &[u8]) -> Option<()> {
        self.skip(octets.len())?.copy_from_slice(octets);
        Some(())
    }
}

const PADDING: &[u8] = &[0; 3];

/// Makes the items part of the message, whose buffer has room for them.
fn insert_items(answer: &mut Answer) {
    let Some(item) = answer.item.take() else { return };
    let mut inserted = 0;
    for (position, octets) in item.iter() {
        let before = answer.message.len();
        insert_parts(&mut answer.message, position + inserted, octets.iter().map(|part| &part[..]));
        inserted += answer.message.len() - before;
    }
}
