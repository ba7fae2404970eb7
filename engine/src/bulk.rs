//! Accounting of the memory of long replies.

use crate::{
    account::SMALL_MAX,
    call::{Answer, AnswerItem},
    item::Extents,
};

/// The memory that a reply occupies beyond its message until it is sent, packed in the 32 bits that
/// [`Work`](crate::work::Work) has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    /// Pages of [`Bulk::PAGE`] octets in buffers that are in use until then.
    held: u16,
    /// Lines of [`Bulk::LINE`] octets that are pushed to the peer.
    pushed: u16,
}

impl Bulk {
    const PAGE: u64 = 4_096;
    const LINE: u64 = 64;

    /// The memory of a reply that is not sent yet. None for a reply without long buffers.
    pub(crate) fn of(answer: &Answer) -> Option<Self> {
        match (Self::of_message(answer), Self::of_items(answer)) {
            (Some(message), Some(item)) => Some(Self {
                held: message.held.saturating_add(item.held),
                pushed: message.pushed.saturating_add(item.pushed),
            }),
            (message, item) => message.or(item),
        }
    }

    /// The memory of its message alone.
    #[inline]
    pub(crate) fn of_message(answer: &Answer) -> Option<Self> {
        Self::new(long(answer.message.capacity()), answer.message.len())
    }

    /// The memory of its items alone.
    #[inline]
    pub(crate) fn of_items(answer: &Answer) -> Option<Self> {
        let items = answer.item.as_ref()?;
        match items.more.is_empty() {
            true => Self::of_all(std::iter::once(&items.octets)),
            false => Self::of_several(items),
        }
    }

    #[cold]
    fn of_several(items: &AnswerItem) -> Option<Self> {
        Self::of_all(items.iter().map(|(_, octets)| octets))
    }

    #[inline]
    fn of_all<'a>(items: impl Iterator<Item = &'a Extents>) -> Option<Self> {
        let (mut held, mut len) = (0, 0);
        for octets in items {
            for part in octets {
                held += long(part.capacity());
                len += part.len();
            }
        }
        Self::new(held, len)
    }

    #[inline]
    fn new(held: u64, len: usize) -> Option<Self> {
        let most = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        (held > 0).then(|| Self {
            held: most(held.div_ceil(Self::PAGE)),
            pushed: most(len as u64 / Self::LINE),
        })
    }

    pub(crate) const fn to_bits(self) -> u32 {
        (self.held as u32) << 16 | self.pushed as u32
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self { held: (bits >> 16) as u16, pushed: bits as u16 }
    }

    pub(crate) const fn held(self) -> u64 {
        self.held as u64 * Self::PAGE
    }

    pub(crate) const fn pushed(self) -> u64 {
        self.pushed as u64 * Self::LINE
    }
}

/// The capacity of a buffer, if it is long enough to count.
const fn long(capacity: usize) -> u64 {
    if capacity > SMALL_MAX { capacity as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LARGE_LEN;
    use stag_pools::{Class, Pool};

    #[test]
    fn a_tag_tells_the_buffers_that_are_held_and_the_octets_that_leave() {
        let classes = [SMALL_MAX, LARGE_LEN].map(|slot_len| Class { slot_len, count: 1 });
        let pool = Pool::new(&classes).unwrap();
        let answer = |capacity: usize, len: usize| {
            let mut message = pool.take(capacity).unwrap();
            message.reset(0);
            message.extend(len);
            Answer { message, item: None }
        };
        assert_eq!(Bulk::of(&answer(SMALL_MAX, 1_000)), None);
        // A short reply in a long buffer earns only its own octets; a long one earns nearly all.
        for len in [64, 1_024, LARGE_LEN] {
            let bulk = Bulk::of(&answer(LARGE_LEN, len)).unwrap();
            assert_eq!(Bulk::from_bits(bulk.to_bits()), bulk);
            assert!(bulk.held() >= LARGE_LEN as u64 && bulk.held() < (LARGE_LEN + 4_096) as u64);
            assert_eq!(bulk.pushed(), len as u64);
        }
    }
}
