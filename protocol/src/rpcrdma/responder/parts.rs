//! The parts of a reply (RFC 8166 §3.4.6, §4.3.2): a message, and the items of its Write chunks.

use super::super::ListsFull;
use super::super::chunk::WRITES_MAX;

/// Items of one reply: as many as a call may have Write chunks.
pub const ITEMS_MAX: usize = WRITES_MAX;

/// A DDP-eligible item of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyItem {
    /// Octets of the message in front of it, items not counted; a multiple of four.
    pub position: u32,
    /// Its octets without padding. An empty item keeps the Write chunk of its place.
    pub len: u32,
}

/// A reply before it is sent: a message, and the DDP-eligible items that belong in it, in order.
/// Each item is followed by its padding. Lengths are in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyParts {
    message: u32,
    items: [ReplyItem; ITEMS_MAX],
    count: usize,
}

impl ReplyParts {
    /// A message of `message` octets without items; a multiple of four.
    pub const fn new(message: u32) -> Self {
        Self { message, items: [ReplyItem { position: 0, len: 0 }; ITEMS_MAX], count: 0 }
    }

    /// A message with one item between `head` and `tail`, which are multiples of four.
    pub fn with_item(head: u32, item: u32, tail: u32) -> Self {
        let mut parts = Self::new(head + tail);
        let pushed = parts.push(ReplyItem { position: head, len: item });
        debug_assert_eq!(pushed, Ok(()), "there is room for one");
        parts
    }

    /// Adds an item after the others.
    ///
    /// # Errors
    /// When there are [`ITEMS_MAX`] already.
    pub fn push(&mut self, item: ReplyItem) -> Result<(), ListsFull> {
        debug_assert!(
            item.position.is_multiple_of(4)
                && item.position <= self.message
                && self.items().last().is_none_or(|last| last.position <= item.position),
            "items are in their message, in order"
        );
        *self.items.get_mut(self.count).ok_or(ListsFull::Chunks)? = item;
        self.count += 1;
        Ok(())
    }

    /// Octets of the message without its items.
    pub const fn message(&self) -> u32 {
        self.message
    }

    /// The items, in order.
    pub fn items(&self) -> &[ReplyItem] {
        self.items.get(..self.count).unwrap_or_default()
    }
}
