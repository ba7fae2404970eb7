//! The octets of an item.

use stag_pools::Extent;
use std::{fmt, ops::Deref};

/// The octets of an item. A slice is copied once; an extent is sent without a copy.
#[derive(Clone, Copy)]
pub struct Octets<'a> {
    octets: &'a [u8],
    extent: Option<&'a Extent>,
}

impl<'a> Octets<'a> {
    /// The octets, with the lifetime of the message.
    pub const fn as_slice(self) -> &'a [u8] {
        self.octets
    }

    pub(crate) const fn extent(self) -> Option<&'a Extent> {
        self.extent
    }
}

impl<'a> From<&'a [u8]> for Octets<'a> {
    fn from(octets: &'a [u8]) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Octets<'a> {
    fn from(octets: &'a [u8; N]) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Octets<'a> {
    fn from(octets: &'a Vec<u8>) -> Self {
        Self { octets, extent: None }
    }
}

impl<'a> From<&'a Extent> for Octets<'a> {
    fn from(extent: &'a Extent) -> Self {
        Self { octets: extent, extent: Some(extent) }
    }
}

impl Deref for Octets<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets
    }
}

impl PartialEq for Octets<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.octets == other.octets
    }
}

impl fmt::Debug for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} octets", self.octets.len())
    }
}
