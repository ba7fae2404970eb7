//! Ring: a queue with a fixed number of places.

/// Up to `N` items, first in, first out.
// In this order, a check for an empty queue reads no other cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Ring<T, const N: usize> {
    len: usize,
    head: usize,
    places: [T; N],
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
        let (true, Some(place)) =
            (self.len < N, self.places.get_mut((self.head + self.len) % N.max(1)))
        else {
            return false;
        };
        *place = item;
        self.len += 1;
        true
    }

    pub(super) fn front(&self) -> Option<&T> {
        if self.len == 0 { None } else { self.places.get(self.head) }
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::Ring;

    /// Every sequence of ten pushes and pops agrees with the standard queue.
    fn agrees<const N: usize>() {
        for choices in 0..1u32 << 10 {
            let (mut ring, mut queue) = (Ring::<u32, N>::new(), VecDeque::new());
            for step in 0..10 {
                if choices >> step & 1 == 0 {
                    assert_eq!(ring.push(step), queue.len() < N);
                    if queue.len() < N {
                        queue.push_back(step);
                    }
                } else {
                    assert_eq!(ring.pop(), queue.pop_front());
                }
                assert_eq!((ring.len(), ring.front()), (queue.len(), queue.front()));
                assert_eq!(ring.front_mut().copied(), queue.front().copied());
                assert!(ring.iter().eq(queue.iter()));
            }
        }
    }

    #[test]
    fn a_ring_is_a_queue_of_bounded_length() {
        agrees::<0>();
        agrees::<1>();
        agrees::<3>();
        agrees::<4>();
        agrees::<16>();
    }
}
