//! A pool of boxes for data that only some calls have.

/// A value in a box that is used again.
pub(crate) trait Reused: Default {
    /// Makes it as good as new: it owns nothing, and what is left in it is set before it is read.
    fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Unused boxes, up to the number that can be in use at the same time.
#[derive(Debug)]
pub(crate) struct Spare<T>(Vec<Box<T>>);

impl<T: Reused> Spare<T> {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Box::default()).collect())
    }

    pub(crate) fn take(&mut self) -> Box<T> {
        self.0.pop().expect("there is one for each call")
    }

    pub(crate) fn give(&mut self, mut value: Box<T>) {
        debug_assert!(self.0.len() < self.0.capacity(), "a box is returned once");
        value.clear();
        self.0.push(value);
    }
}
