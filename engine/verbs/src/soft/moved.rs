//! The data that a software device has moved for its connections.

use crate::Qp;

/// Octets by connection, in the order in which they were moved, as
/// [`Provider::take_moved`](crate::Provider::take_moved) passes them on. It has as many places as
/// it was made with: what finds none is not counted.
#[derive(Debug)]
pub struct MovedOctets {
    list: Vec<(Qp, u64)>,
}

impl MovedOctets {
    /// None yet, with this number of places.
    pub fn new(places: usize) -> Self {
        Self { list: Vec::with_capacity(places) }
    }

    /// Adds octets of a connection.
    #[inline]
    pub fn note(&mut self, qp: Qp, octets: u64) {
        if octets == 0 {
            return;
        }
        let has_room = self.list.len() < self.list.capacity();
        match self.list.last_mut() {
            Some((last, sum)) if *last == qp => *sum = sum.saturating_add(octets),
            _ if has_room => self.list.push((qp, octets)),
            _ => {}
        }
    }

    /// Passes all of them on, and forgets them.
    pub fn take(&mut self, each: &mut dyn FnMut(Qp, u64)) {
        self.list.drain(..).for_each(|(qp, octets)| each(qp, octets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::table::Key;

    #[test]
    fn octets_are_summed_by_connection_and_passed_on_once() {
        let qps = [0, 1, 2].map(|bits| Qp(Key::from_bits(bits)));
        let mut moved = MovedOctets::new(2);
        for (place, octets) in [(0, 5), (0, 6), (1, 0), (1, 7), (2, 8), (1, 1)] {
            moved.note(qps[place], octets);
        }
        let mut taken = Vec::new();
        moved.take(&mut |qp, octets| taken.push((qp, octets)));
        assert_eq!(taken, [(qps[0], 11), (qps[1], 8)], "the third one finds no place");
        moved.take(&mut |_, _| panic!("they were taken"));
    }
}
