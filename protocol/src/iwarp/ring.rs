//! A queue with a fixed number of places.

/// Up to `N` items, first in, first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring<T, const N: usize> {
    places: [T; N],
    head: usize,
    len: usize,
}

impl<T: Copy + Default, const N: usize> Ring<T, N> {
    pub(super) fn new() -> Self {
        Self { places: [T::default(); N], head: 0, len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Appends `item`; false when all places are taken.
    pub(super) fn push(&mut self, item: T) -> bool {
        let (true, Some(place)) = (self.len < N, self.places.get_mut((self.head + self.len) % N.max(1)))
        else {
            return false;
        };
        *place = item;
        self.len += 1;
        true
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.places.get(self.head).filter(|_| self.len > 0)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        self.places.get_mut(self.head).filter(|_| self.len > 0)
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let item = *self.front()?;
        self.head = (self.head + 1) % N.max(1);
        self.len -= 1;
        Some(item)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (wrapped, first) = self.places.split_at(self.head.min(N));
        first.iter().chain(wrapped).take(self.len)
    }
}
