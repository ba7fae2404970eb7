//! A pool of boxes for data that only some calls have.

/// Unused boxes, up to the number that can be in use at the same time.
#[derive(Debug)]
pub(crate) struct Spare<T>(Vec<Box<T>>);

impl<T: Default> Spare<T> {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Box::default()).collect())
    }

    pub(crate) fn take(&mut self) -> Box<T> {
        self.0.pop().expect("there is one for each call")
    }

    pub(crate) fn give(&mut self, mut value: Box<T>) {
        debug_assert!(self.0.len() < self.0.capacity(), "a box is returned once");
        *value = T::default();
        self.0.push(value);
    }
}
