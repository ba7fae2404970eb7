//! Items without a copy: results in several extents, several items of one reply, and arguments of a
//! call that an app may keep.

use stag_pools::{Buf, Extent};
use stag_protocol::rpcrdma::responder::ITEMS_MAX;
use std::{cell::RefCell, ops::Range, rc::Rc};

/// Octets in up to [`Extents::MAX`] extents, one after the other: an item of a reply.
#[derive(Debug, Default)]
pub struct Extents(List);

#[derive(Debug, Default)]
enum List {
    #[default]
    Empty,
    One(Extent),
    Many {
        list: Vec<Extent>,
        home: ExtentLists,
    },
}

/// Lists for items of several extents. Each is returned when its item has been sent, so nothing is
/// allocated once there are as many as are in use at the same time.
#[derive(Clone, Debug, Default)]
pub struct ExtentLists(Rc<RefCell<Vec<Vec<Extent>>>>);

/// No space is left for one more extent, which is returned.
#[derive(Debug)]
pub struct ExtentsFull(pub Extent);

impl ExtentLists {
    /// `count` lists initially.
    pub fn new(count: usize) -> Self {
        let list = |_| Vec::with_capacity(Extents::MAX);
        Self(Rc::new(RefCell::new((0..count).map(list).collect())))
    }

    /// An item without octets, to be filled by [`Extents::push`].
    pub fn take(&self) -> Extents {
        let list = self.0.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(Extents::MAX));
        Extents(List::Many { list, home: self.clone() })
    }

    #[cold]
    fn give_back(&self, list: &mut Vec<Extent>) {
        let mut list = std::mem::take(list);
        list.clear();
        self.0.borrow_mut().push(list);
    }
}

impl Drop for List {
    #[inline]
    fn drop(&mut self) {
        if let Self::Many { list, home } = self {
            home.give_back(list);
        }
    }
}

impl Extents {
    /// Extents of one item: 1 MiB from anywhere in extents of 64 KiB.
    pub const MAX: usize = 17;

    /// Appends an extent; an empty one is left out.
    ///
    /// # Errors
    ///
    /// The extent is returned if there are [`Extents::MAX`] already, or if this item was not taken
    /// from [`ExtentLists`].
    pub fn push(&mut self, extent: Extent) -> Result<(), ExtentsFull> {
        match &mut self.0 {
            _ if extent.is_empty() => Ok(()),
            List::Many { list, .. } if list.len() < Self::MAX => {
                list.push(extent);
                Ok(())
            }
            List::Empty | List::One(_) | List::Many { .. } => Err(ExtentsFull(extent)),
        }
    }

    /// The total length in octets.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            List::Empty => 0,
            List::One(extent) => extent.len(),
            List::Many { list, .. } => list.iter().map(|extent| extent.len()).sum(),
        }
    }

    /// Returns true if there is no octet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The extents, in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Extent> {
        match &self.0 {
            List::Empty => &[],
            List::One(extent) => std::slice::from_ref(extent),
            List::Many { list, .. } => list,
        }
        .iter()
    }

    /// The buffer of an item that is all in one slot, if `is_own` holds for it and only this item
    /// uses it; else the item.
    pub(crate) fn try_into_buf(self, is_own: impl Fn(&Extent) -> bool) -> Result<Buf, Self> {
        let extent = match &self.0 {
            List::One(extent) if is_own(extent) => extent.clone(),
            List::Empty | List::One(_) | List::Many { .. } => return Err(self),
        };
        drop(self);
        extent.try_into_buf().map_err(|extent| Self(List::One(extent)))
    }

    /// The octets `span` as parts of the extents that hold them, in order; a part of `span` past
    /// the last octet is ignored.
    pub(crate) fn slices(&self, span: Range<usize>) -> impl Iterator<Item = Extent> {
        let mut at = 0;
        self.iter().filter_map(move |extent| {
            let (begin, end) = (at, at + extent.len());
            at = end;
            let (from, to) = (span.start.max(begin), span.end.min(end));
            (from < to).then(|| extent.slice(from - begin..to - begin))
        })
    }
}

impl From<Extent> for Extents {
    fn from(extent: Extent) -> Self {
        Self(List::One(extent))
    }
}

impl<'a> IntoIterator for &'a Extents {
    type Item = &'a Extent;
    type IntoIter = std::slice::Iter<'a, Extent>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An item and its place in a reply.
#[derive(Debug)]
pub struct PlacedItem {
    /// Octets of the message in front of the item, items not counted; its length word is the last
    /// four of them.
    pub position: usize,
    /// The item, without padding. An empty one keeps the Write chunk of its place.
    pub octets: Extents,
}

/// The items of a reply after its first one, up to [`ITEMS_MAX`] in all, in order.
#[derive(Debug, Default)]
pub struct MoreItems(Option<Box<ItemList>>);

#[derive(Debug, Default)]
struct ItemList {
    items: Vec<PlacedItem>,
    /// The list pool that it returns to, while a reply has it.
    home: Option<ItemLists>,
}

/// Lists for replies with several items. Each is returned when its reply has been sent, so nothing
/// is allocated once there are as many as are in use at the same time.
#[derive(Clone, Debug, Default)]
#[allow(clippy::vec_box)] // A box goes to a reply and comes back, so that none is allocated again.
pub struct ItemLists(Rc<RefCell<Vec<Box<ItemList>>>>);

/// The reply has [`ITEMS_MAX`] items already. The octets of the further item are returned.
#[derive(Debug)]
pub struct ItemsFull(pub Extents);

impl ItemLists {
    /// A list without items.
    pub fn take(&self) -> MoreItems {
        let mut list = self.0.borrow_mut().pop().unwrap_or_default();
        list.items.reserve_exact(ITEMS_MAX - 1);
        list.home = Some(self.clone());
        MoreItems(Some(list))
    }
}

impl Drop for MoreItems {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.give_back();
        }
    }
}

impl MoreItems {
    #[cold]
    fn give_back(&mut self) {
        if let Some(mut list) = self.0.take()
            && let Some(home) = list.home.take()
        {
            list.items.clear();
            home.0.borrow_mut().push(list);
        }
    }

    /// Adds an item after the others.
    ///
    /// # Errors
    /// The octets are returned if the reply has [`ITEMS_MAX`] items, or if the list was not taken
    /// from [`ItemLists`].
    pub fn push(&mut self, item: PlacedItem) -> Result<(), ItemsFull> {
        match &mut self.0 {
            Some(list) if list.items.len() < ITEMS_MAX - 1 => {
                list.items.push(item);
                Ok(())
            }
            Some(_) | None => Err(ItemsFull(item.octets)),
        }
    }

    /// Removes the items for which `keeps` is false.
    pub fn retain(&mut self, keeps: impl FnMut(&PlacedItem) -> bool) {
        if let Some(list) = &mut self.0 {
            list.items.retain(keeps);
        }
    }

    /// Returns true if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|list| list.items.is_empty())
    }

    /// The items, in order, to change.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, PlacedItem> {
        self.0.as_mut().map_or(&mut [][..], |list| &mut list.items).iter_mut()
    }

    /// The items, in order.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, PlacedItem> {
        self.0.as_ref().map_or(&[][..], |list| &list.items).iter()
    }
}

impl<'a> IntoIterator for &'a MoreItems {
    type Item = &'a PlacedItem;
    type IntoIter = std::slice::Iter<'a, PlacedItem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The octets that a call named in Read chunks, in memory that was taken only for them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pulled<'a>(pub(crate) &'a [Option<Extent>]);

impl Pulled<'_> {
    /// Octets that came in Read chunks.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().map(|extent| extent.len()).sum()
    }

    /// The octets of an argument as an extent, so that they can be kept without a copy. None if
    /// they came with the message.
    ///
    /// The extent holds a buffer of [`App::sink`](crate::App::sink), or one of the shard's, which
    /// has to be returned soon.
    pub fn share(&self, octets: &[u8]) -> Option<Extent> {
        let wanted = octets.as_ptr_range();
        self.0.iter().flatten().find_map(|chunk| {
            let there = chunk.as_ptr_range();
            let inside =
                !octets.is_empty() && there.start <= wanted.start && wanted.end <= there.end;
            let from =
                (wanted.start as usize).checked_sub(there.start as usize).filter(|_| inside)?;
            Some(chunk.slice(from..from + octets.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Class, Pool};

    fn pool() -> Pool {
        Pool::new(&[Class { slot_len: 64, count: 20 }]).unwrap()
    }

    fn extent(pool: &Pool, octets: &[u8]) -> Extent {
        let mut buf = pool.take(64).unwrap();
        buf.append(octets).unwrap();
        buf.freeze()
    }

    #[test]
    fn every_span_of_several_extents_comes_in_order() {
        let pool = pool();
        let lists = ExtentLists::new(1);
        let mut extents = lists.take();
        for part in [&b"abc"[..], b"", b"d", b"efgh"] {
            extents.push(extent(&pool, part)).unwrap();
        }
        assert_eq!((extents.len(), extents.iter().count()), (8, 3), "an empty extent is left out");
        for from in 0..=8 {
            for to in from..=8 {
                let octets: Vec<u8> =
                    extents.slices(from..to).flat_map(|part| part.to_vec()).collect();
                assert_eq!(octets, b"abcdefgh"[from..to]);
                assert!(extents.slices(from..to).all(|part| !part.is_empty()));
            }
        }
        drop(extents);
        assert_eq!((pool.taken(), lists.0.borrow().len()), (0, 1), "the list comes back empty");
        assert!(lists.take().is_empty());
    }

    #[test]
    fn one_extent_needs_no_list() {
        let pool = pool();
        let mut one = Extents::from(extent(&pool, b"abc"));
        assert_eq!((one.len(), &one.slices(1..9).next().unwrap()[..]), (3, &b"bc"[..]));
        assert!(one.push(extent(&pool, b"x")).is_err() && one.push(extent(&pool, b"")).is_ok());
    }

    #[test]
    fn there_are_as_many_lists_as_items_at_once() {
        let lists = ExtentLists::new(0);
        for _ in 0..3 {
            let all: Vec<_> = (0..5).map(|_| lists.take()).collect();
            assert!(lists.0.borrow().is_empty());
            drop(all);
            assert_eq!(lists.0.borrow().len(), 5);
        }
    }

    #[test]
    fn an_extent_too_many_comes_back() {
        let pool = pool();
        let lists = ExtentLists::new(1);
        let mut extents = lists.take();
        for i in 0..Extents::MAX {
            extents.push(extent(&pool, &[i as u8])).unwrap();
        }
        let ExtentsFull(back) = extents.push(extent(&pool, b"x")).unwrap_err();
        assert_eq!((&back[..], extents.len()), (&b"x"[..], Extents::MAX));
        extents.push(extent(&pool, b"")).unwrap();
        assert_eq!(
            extents.iter().map(|extent| extent[0]).collect::<Vec<_>>(),
            (0..17).collect::<Vec<_>>()
        );
    }

    #[test]
    fn only_octets_that_were_pulled_can_be_shared() {
        let pool = pool();
        let chunks = [None, Some(extent(&pool, b"abcdef")), Some(extent(&pool, b"ghi"))];
        let pulled = Pulled(&chunks);
        let (first, second) = (chunks[1].as_deref().unwrap(), chunks[2].as_deref().unwrap());
        for (from, to) in [(0, 6), (1, 3), (5, 6)] {
            let shared = pulled.share(&first[from..to]).unwrap();
            assert_eq!(shared.as_ptr(), first[from..].as_ptr(), "the same memory");
            assert_eq!(shared.len(), to - from);
        }
        assert_eq!(&pulled.share(second).unwrap()[..], b"ghi");
        assert!(pulled.share(b"abcdef").is_none() && pulled.share(&first[..0]).is_none());
        assert!(Pulled::default().share(first).is_none());
    }
}
