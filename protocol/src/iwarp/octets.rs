//! Short octet string with its own storage, for headers, trailers and frames.

use core::fmt;
use core::ops::Deref;

/// Up to `N` octets.
#[derive(Clone, Copy)]
pub struct Octets<const N: usize> {
    len: u16,
    room: [u8; N],
}

impl<const N: usize> Octets<N> {
    /// No octets.
    pub const EMPTY: Self = {
        assert!(N <= u16::MAX as usize);
        Self { len: 0, room: [0; N] }
    };

    /// The octets of `pieces`, one after the other. The caller ensures that together they fit `N`.
    pub fn of(pieces: &[&[u8]]) -> Self {
        let mut octets = Self::EMPTY;
        pieces.iter().for_each(|piece| octets.push(piece));
        octets
    }

    /// Appends `piece`, which fits: the pieces of an `Octets` are sized at compile time or checked
    /// before.
    #[inline]
    pub fn push(&mut self, piece: &[u8]) {
        let start = usize::from(self.len);
        let end = start + piece.len();
        self.room
            .get_mut(start..end)
            .expect("an Octets is as large as all it is given")
            .copy_from_slice(piece);
        self.len = end as u16; // `end <= N <= u16::MAX`, as `EMPTY` asserts
    }

    /// Overwrites the first two octets with `length`, big-endian.
    pub(super) fn set_length(&mut self, length: u16) {
        if let Some(field) = self.room.first_chunk_mut() {
            *field = length.to_be_bytes();
        }
    }
}

impl<const N: usize> Deref for Octets<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.room.get(..usize::from(self.len)).unwrap_or(&self.room)
    }
}

impl<const N: usize> PartialEq for Octets<N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const N: usize> Eq for Octets<N> {}

impl<const N: usize> fmt::Debug for Octets<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}
