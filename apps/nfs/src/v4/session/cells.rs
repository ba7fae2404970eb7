//! Memory for the replies that slots keep: one cell each, reserved with the session, so that a
//! reply that must be cached always finds one (RFC 8881 §2.10.6.1).

/// Octets of a cell: of the longest cached reply, from the status of its compound on.
pub(in crate::v4) const CELL_LEN: usize = 2_048;

/// The cells of a shard, in memory that the kernel allocates at the first write.
#[derive(Debug)]
pub(in crate::v4) struct ReplyCells {
    octets: Box<[u8]>,
    free: Vec<u32>,
}

impl ReplyCells {
    /// Creates `count` cells.
    pub(in crate::v4) fn new(count: usize) -> Self {
        let free = (0..u32::try_from(count).expect("a table is counted by 32 bits")).rev();
        Self { octets: vec![0; count * CELL_LEN].into_boxed_slice(), free: free.collect() }
    }

    /// Number of free cells.
    pub(in crate::v4) fn left(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` cells, or none when fewer are free.
    pub(in crate::v4) fn take(&mut self, count: usize) -> Option<Box<[u32]>> {
        let from = self.free.len().checked_sub(count)?;
        Some(self.free.drain(from..).collect())
    }

    /// Returns cells.
    pub(in crate::v4) fn give(&mut self, cells: &[u32]) {
        self.free.extend(cells);
        debug_assert!(self.free.len() * CELL_LEN <= self.octets.len(), "a cell comes back once");
    }

    /// A cell's octets.
    pub(in crate::v4) fn cell(&self, cell: u32) -> &[u8] {
        let from = cell as usize * CELL_LEN;
        self.octets.get(from..from + CELL_LEN).unwrap_or_default()
    }

    /// Writes to the start of a cell; returns false when there are too many octets.
    pub(in crate::v4) fn keep(&mut self, cell: u32, octets: &[u8]) -> bool {
        let from = cell as usize * CELL_LEN;
        let room = self.octets.get_mut(from..from + CELL_LEN).unwrap_or_default();
        let Some(room) = room.get_mut(..octets.len()) else { return false };
        room.copy_from_slice(octets);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_one_slot_s_and_comes_back() {
        let mut cells = ReplyCells::new(3);
        let two = cells.take(2).unwrap();
        assert_eq!(cells.take(2), None, "none is taken when there are too few");
        let one = cells.take(1).unwrap();
        assert!(!two.contains(&one[0]) && two[0] != two[1]);
        assert!(cells.keep(one[0], &[1; CELL_LEN]) && cells.keep(two[0], &[2; 5]));
        assert!(!cells.keep(two[1], &[3; CELL_LEN + 1]), "a longer reply is refused");
        assert_eq!(cells.cell(one[0]), [1; CELL_LEN]);
        assert_eq!(&cells.cell(two[0])[..6], [2, 2, 2, 2, 2, 0]);
        cells.give(&two);
        cells.give(&one);
        assert_eq!(cells.left(), 3);
    }
}
